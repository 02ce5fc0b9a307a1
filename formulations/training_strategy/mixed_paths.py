"""A bound on all layouts of several chunks on a device: paths and sums of gradients, mixed.

An iteration is no shorter than any path of its passes, and the gradients behind it are summed no sooner than those of
any device. So for weights of paths that sum to 1, and weights of devices that sum to 1, no batch takes less than the
paths and the gradients in that mixture. A mixture is a sum over chunks, and its least value over all layouts a dynamic
program: a bound, whatever the weights are.

Weights are sought in rounds. The layout that is least in the mixture so far is simulated, its longest path joins the
others, and weights go towards those of the game in which one side mixes paths and devices, and the other one the
layouts so far. The game is solved roughly, by optimistic multiplicative weights (Rakhlin and Sridharan 2013): an error
makes the bound weaker, never wrong.

Source: Lagrangian relaxation (Geoffrion 1974) of the largest of several sums; this use: this project.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from formulations.simulation.orders import SCHEDULES
from formulations.training_strategy.costs import Table
from formulations.training_strategy.fixed_orders import FixedOrders, Path
from formulations.training_strategy.layouts import Layouts, least_sum, places

#: Rounds, and steps of the game in each: twice as many raise bounds by 0.1 % on 16 devices.
_ROUNDS, _STEPS = 40, 300
#: How far weights go towards those of the game: its layouts are few, and those that it leaves out would be least next.
_TOWARDS = 0.4
#: Of a game whose payoffs differ by 1: more oscillates, less is slow.
_RATE = 4.0


def mixed_costs(layouts: Layouts, orders: FixedOrders, paths: Sequence[Path], stopped: Callable[[], bool]) -> Table:
    """What each chunk adds to a mixture of paths and gradients, shape as of the tables of ``layouts``.

    ``paths`` are the first ones, in equal parts. No batch with a layout takes less than the sum over its chunks.
    """
    p, S = layouts.degrees.p, layouts.degrees.num_chunks
    device = np.array(SCHEDULES[layouts.degrees.schedule].devices(p, layouts.degrees.V))
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
    return found


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
