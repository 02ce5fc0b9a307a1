"""A bound on all layouts of several chunks on a device: paths and sums of gradients, mixed.

An iteration is no shorter than any path of its passes, and the gradients behind it are summed no sooner than those of
any device. So for weights of paths that sum to 1, and weights of devices that sum to 1, no batch takes less than the
paths and the gradients in that mixture. A mixture is a sum over chunks, and its least value over all layouts a dynamic
program: a bound, whatever the weights are.

Weights are sought in rounds. The layout that is least in the mixture so far is simulated, its longest path joins the
others, and weights go towards those of the game in which one side mixes paths and devices, and the other one the
layouts so far. The game is solved roughly, by optimistic multiplicative weights (Rakhlin and Sridharan 2013): an error
makes the bound weaker, never wrong.

What a chunk recomputes there is the least with which it fits alone. Whatever the price of a byte, what a device holds
at one moment less what it may hold costs nothing. So there is a bound in which each layer has a price (`_with_prices`).

Source: Lagrangian relaxation (Geoffrion 1974) of the largest of several sums; this use: this project.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from formulations.training_strategy.costs import BOUND_NOISE, Table
from formulations.training_strategy.fixed_orders import FixedOrders, Path, moments
from formulations.training_strategy.layouts import Layouts, least_sum, places

#: Rounds, and steps of the game in each: twice as many raise bounds by 0.1 % on 16 devices.
_ROUNDS, _STEPS = 40, 300
#: How far weights go towards those of the game: its layouts are few, and those that it leaves out would be least next.
_TOWARDS = 0.4
#: Of a game whose payoffs differ by 1: more oscillates, less is slow.
_RATE = 4.0
#: Prices that are tried, steps after which theirs are shorter if none was better, and by how much.
_PRICES, _STALLED, _SHORTER = 100, 8, 0.6


def mixed_costs(
    layouts: Layouts, orders: FixedOrders, paths: Sequence[Path], stopped: Callable[[], bool], most: float = math.inf
) -> Table:
    """What each chunk adds to a mixture of paths and gradients, shape as of the tables of ``layouts``.

    ``paths`` are the first ones, in equal parts. No batch with a layout takes less than the sum over its chunks.
    A least sum of ``most`` is enough.
    """
    p, S = layouts.degrees.p, layouts.degrees.num_chunks
    device = np.array(layouts.degrees.devices)
    known = [np.array(path, dtype=float) for path in dict.fromkeys(paths)]
    weights, shares = np.full(len(known), 1 / len(known)), np.full(p, 1 / p)
    best, kept, found = -math.inf, (weights, shares), layouts.allowed
    forward, backward, weight, gradients, summed, exposed = (np.zeros((0, S)) for _ in range(6))
    for _ in range(_ROUNDS):
        table = layouts.costs(np.tensordot(weights, known, 1)) + shares[device][:, None, None] * layouts.gradients
        least, ends = least_sum(table)
        if least > best:
            best, kept, found = least, (weights, shares), table
        if stopped() or not math.isfinite(least):
            break
        at = places(ends)
        forward = np.vstack([forward, layouts.forward[at]])
        backward = np.vstack([backward, layouts.least_backward[at]])
        weight = np.vstack([weight, layouts.weight[at]])
        gradients = np.vstack([gradients, layouts.gradients[at]])
        sums = layouts.sums(ends)
        summed, exposed = np.vstack([summed, sums[0]]), np.vstack([exposed, sums[1]])
        times = (forward[-1].tolist(), backward[-1].tolist(), weight[-1].tolist(), *sums)
        longest = np.array(orders.run(times)[1], dtype=float)
        if not any(np.array_equal(longest, each) for each in known):
            known.append(longest)
        tables = (forward, backward, weight, summed, exposed)
        rows = np.array(known).transpose(1, 0, 2)
        of_paths = sum((own @ table.T for own, table in zip(rows, tables, strict=True)), np.zeros(1))
        of_devices = np.array([gradients[:, device == i].sum(axis=1) for i in range(p)])
        towards = _play(of_paths, of_devices)
        old = np.concatenate([kept[0], np.zeros(len(known) - len(kept[0]))])
        weights, shares = (
            _TOWARDS * new + (1 - _TOWARDS) * own for new, own in zip(towards, (old, kept[1]), strict=True)
        )
    path, behind = np.tensordot(kept[0], known[: len(kept[0])], 1), kept[1][device][:, None, None] * layouts.gradients
    priced, value = _with_prices(layouts, path, behind, stopped, min(most, 2 * best))
    return priced if value > best else found


def _with_prices(
    layouts: Layouts, path: Table, behind: Table, stopped: Callable[[], bool], most: float
) -> tuple[Table, float]:
    """What each chunk adds to a path and to the sums ``behind`` with prices of bytes, and the least sum.

    Prices are of all bytes of a device, at the moment when it has most micro-batches in flight, and follow what is held
    too much by the layout that is least with those so far, in steps of Polyak (1969) towards ``most``.
    """
    chain, degrees, S, n = layouts.chain, layouts.degrees, layouts.degrees.num_chunks, layouts.width
    device, limit = np.array(degrees.devices), chain.limit * (1 + BOUND_NOISE)
    flying = np.array([max(moments(degrees)[i], key=sum)[g // degrees.p] for g, i in enumerate(degrees.devices)])
    ways = [[ways[min(k, len(ways) - 1)] for k in range(max(map(len, chain.ways)))] for ways in chain.ways]
    again, static, activation = (
        np.array([[getattr(way, name) for way in own] for own in ways]) for name in ("again", "static", "activation")
    )
    size = (static + flying[:, None, None] * activation) / limit if limit > 0 else np.zeros((S, *again.shape))
    begins, chunks = np.arange(S)[:, None] + np.arange(n), np.arange(S)
    prices, step, stalled, best = np.zeros(degrees.p), 1.0, 0, -math.inf
    found = base = layouts.costs(path, recomputes=False) + behind
    for _ in range(_PRICES):
        cost = path[1][:, None, None] * again + prices[device][:, None, None] * size
        way = cost.argmin(axis=2)[:, :, None]
        taken, held = (
            np.concatenate([np.zeros((S, 1)), np.take_along_axis(each, way, 2)[:, :, 0].cumsum(axis=1)], axis=1)
            for each in (cost, size)
        )
        before, up_to = (np.take_along_axis(taken, at, 1) for at in (begins, begins + 1))
        table = base + (up_to[:, None, :] - before[:, :, None]) - (prices[device] / degrees.V)[:, None, None]
        value, ends = least_sum(table)
        if value > best:
            best, found, stalled = value, table, 0
        else:
            stalled += 1
            step *= _SHORTER if stalled % _STALLED == 0 else 1.0
        if value >= most or stopped() or not math.isfinite(value):
            break
        own = held[chunks, list(ends)] - held[chunks, [0, *ends[:-1]]]
        over = np.bincount(device, own, degrees.p) - 1
        over[(prices <= 0) & (over < 0)] = 0.0
        if not over.any():
            break
        prices = np.maximum(0.0, prices + step * (most - value) * over / (over @ over))
    return found, best


def _play(of_paths: Table, of_devices: Table) -> tuple[Table, Table]:
    """Weights of the rows of both tables whose least sum over the columns is nearly the largest."""
    rate = _RATE / max(float(np.ptp(of_paths)), float(np.ptp(of_devices)), 1e-300)  # equal payoffs: any weights do
    tables = (of_paths, of_devices)
    scores = [np.zeros(len(each)) for each in tables]
    column_scores = np.zeros(of_paths.shape[1])
    mixes, columns = [_softmax(each) for each in scores], _softmax(column_scores)
    sums = [np.zeros(len(each)) for each in tables]
    gains = [each @ columns for each in tables]
    losses = mixes[0] @ of_paths + mixes[1] @ of_devices
    for _ in range(_STEPS):
        new_gains, new_losses = [each @ columns for each in tables], mixes[0] @ of_paths + mixes[1] @ of_devices
        scores = [s + rate * (2 * new - old) for s, new, old in zip(scores, new_gains, gains, strict=True)]
        column_scores = column_scores - rate * (2 * new_losses - losses)
        gains, losses = new_gains, new_losses
        mixes, columns = [_softmax(each) for each in scores], _softmax(column_scores)
        sums = [total + own for total, own in zip(sums, mixes, strict=True)]
    on_average = [total / _STEPS for total in sums]

    def least(own: Sequence[Table]) -> float:
        return float((own[0] @ of_paths + own[1] @ of_devices).min())

    of_paths_found, of_devices_found = max((on_average, mixes), key=least)
    return of_paths_found, of_devices_found


def _softmax(scores: Table) -> Table:
    powers = np.exp(scores - scores.max())
    weights: Table = powers / powers.sum()
    return weights
