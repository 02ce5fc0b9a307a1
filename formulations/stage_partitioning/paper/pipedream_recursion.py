"""PipeDream's recursion by its own costs: weights synchronised beside computation, machines inside of machines.

Layers i to j on m workers of level k, which has bandwidth B_k and whose workers are all m_(k-1) of level k - 1::

    A_k(i, j, m) = min(T_k(i, j, m),  min over s, m' of max(A_k(i, s, m - m'), T_k(s + 1, j, m'), 2 a / (m' B_k)))
    T_k(i, j, m) = max(A_(k-1)(i, j, m_(k-1)),  4 (m - 1)/m W(i, j) / B_k) / m

A_0 is the time of the layers on one device, W their bytes of weights, a the bytes over either end of s + 1 to j. What
is least is the slowest of all of these; a plan is judged by Piper's stage times, where they add up. A stage that
does not fit is left out, as the release does on request; what it needs is Piper's count.

Source: the volumes as Piper, section 3.4, states PipeDream's; the recursion and the transfers are those of PipeDream's
release (optimizer_graph_hierarchical.py, commit 11c40c0), which adds the synchronisation to the computation
(``--sync after``). Source: reconstructed for the default ``beside``: the text of the SOSP paper was not read.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from formulations.contract.family import Answer
from formulations.stage_partitioning.baselines import work_bound
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, allowed_dp_degrees
from formulations.stage_partitioning.paper.pipedream import NEEDS_TP, NO_DEGREES, fitting, without_memory
from instances.graph import lifo_order
from instances.problems.stage_partitioning import StageInstance
from solvers.outcome import Limits, Prover, Watch

#: Of any number of dimensions.
Numbers = np.ndarray[Any, np.dtype[np.float64]]
Counts = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Level(NamedTuple):
    """``workers`` that share a network of ``bandwidth``; of all but the first level each is a whole level below."""

    workers: int
    bandwidth: float


class Chain(NamedTuple):
    """Of layers in their order: times on one device, bytes of weights, and bytes over the n - 1 cuts between them."""

    times: Numbers
    weights: Numbers
    cuts: Numbers


class Memory(NamedTuple):
    """Of layers one behind the other: bytes for each micro-batch in flight, bytes besides; and what a device has."""

    activations: Numbers
    statics: Numbers
    limit: float


class Replicated(NamedTuple):
    """Layers ``start`` to ``end`` - 1 on so many replicas.

    ``outer`` has, of each level from the second on, where the stage of that level begins that they are in, and on how
    many of its workers that is.
    """

    start: int
    end: int
    replicas: int
    outer: tuple[tuple[int, int], ...] = ()


class _Table(NamedTuple):
    """A_k: ``best[x, y, m]`` of layers x to y - 1; where the last stage begins, and its replicas."""

    best: Numbers
    begin: Counts
    replicas: Counts


def partition(
    chain: Chain,
    levels: Sequence[Level],
    *,
    beside: bool = True,
    degrees: Sequence[int] | None = None,
    memory: Memory | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, float, list[Replicated]]]:
    """Of 1, 2, ... workers of the last level, where there is a plan: the best time by PipeDream's costs, its stages.

    ``beside``: whether weights are synchronised beside computation, or after it.
    ``degrees``: the replicas that a stage may have at each level (default: any number).
    ``memory``: what the stages of a single level have to fit into, all workers in use.
    ``stopped``: polled; nothing is found once it is true.
    """
    n = len(chain.times)
    ends = np.concatenate([[0.0], np.cumsum(chain.times)])
    weights = np.concatenate([[0.0], np.cumsum(chain.weights)])
    cuts = np.concatenate([[0.0], chain.cuts, [0.0]])
    below = ends[None, :] - ends[:, None]
    held = [np.concatenate([[0.0], np.cumsum(each)]) for each in memory[:2]] if memory else []

    def fits(x: Counts, y: int, m: int, later: Counts) -> Flags:
        """Whether layers x to y - 1 fit on m replicas in front of so many workers; of each x, of each number."""
        if memory is None:
            return np.ones((len(x), len(later)), bool)
        activations, statics = (each[y] - each[x] for each in held)
        needed = activations[:, None] * -(-(later + m) // m) + statics[:, None]
        within: Flags = needed <= memory.limit * MEMORY_SLACK
        return within

    tables: list[_Table] = []
    for place, level in enumerate(levels):
        first = range(1 if place == len(levels) - 1 else n)
        table = _fill(below, weights, cuts, level, first, beside, degrees, fits, stopped)
        if table is None:
            return
        tables.append(table)
        below = table.best[:, :, level.workers]
    for workers in range(1, levels[-1].workers + 1):
        time = float(tables[-1].best[0, n, workers])
        if time < math.inf:
            yield workers, time, list(_stages(tables, levels, 0, n, workers))


def _fill(
    below: Numbers,
    weights: Numbers,
    cuts: Numbers,
    level: Level,
    first: range,
    beside: bool,
    degrees: Sequence[int] | None,
    fits: Callable[[Counts, int, int, Counts], Flags],
    stopped: Callable[[], bool],
) -> _Table | None:
    """A_k from A_(k-1) of whole levels, for stages that begin at ``first``; ``None`` once it is stopped."""
    n, (most, bandwidth) = len(below) - 1, level
    best = np.full((n + 1, n + 1, most + 1), math.inf)
    begin, replicas = (np.zeros(best.shape, np.int64) for _ in range(2))
    allowed = [m for m in degrees or range(1, most + 1) if m <= most]

    def alone(start: slice, y: int, m: int) -> Numbers:
        """T_k of the layers from each start to y."""
        sums = 4 * (m - 1) / m * (weights[y] - weights[start]) / bandwidth
        whole = below[start, y]
        found: Numbers = (np.maximum(whole, sums) if beside else whole + sums) / m
        return found

    for x in first:
        for y in range(x + 1, n + 1):
            if stopped():
                return None
            for m in allowed:
                if fits(np.array([x]), y, m, np.array([most - m])).all():
                    best[x, y, m], begin[x, y, m], replicas[x, y, m] = alone(slice(x, x + 1), y, m)[0], x, m
            for m in allowed:
                last = alone(slice(x + 1, y), y, m)
                if not len(last):
                    break
                moved = 2 * np.maximum(cuts[x + 1 : y], cuts[y]) / m / bandwidth
                found = np.maximum(best[x, x + 1 : y, : most + 1 - m], np.maximum(last, moved)[:, None])
                room = fits(np.arange(x + 1, y), y, m, most - m - np.arange(most + 1 - m))
                found = np.where(room, found, math.inf)
                split = found.argmin(axis=0)
                time = found[split, np.arange(found.shape[1])]
                better = np.flatnonzero(time < best[x, y, m:])
                best[x, y, m + better] = time[better]
                begin[x, y, m + better], replicas[x, y, m + better] = split[better] + x + 1, m
    return _Table(best, begin, replicas)


def _stages(tables: Sequence[_Table], levels: Sequence[Level], x: int, y: int, workers: int) -> Iterator[Replicated]:
    """The stages behind an entry of the last table; those of a machine are replicated as it is."""
    table = tables[-1]
    start, copies = int(table.begin[x, y, workers]), int(table.replicas[x, y, workers])
    if start > x:
        yield from _stages(tables, levels, x, start, workers - copies)
    if len(tables) == 1:
        yield Replicated(start, y, copies)
        return
    for stage in _stages(tables[:-1], levels[:-1], start, y, levels[len(tables) - 2].workers):
        yield stage._replace(replicas=stage.replicas * copies, outer=(*stage.outer, (start, copies)))


def chain_of(instance: StageInstance, order: Sequence[int]) -> Chain:
    """The layers in that order, each in its fastest way on one device; what crosses a cut are all edges over it."""
    place = {v: at for at, v in enumerate(order)}
    cuts = np.zeros(max(len(order) - 1, 0))
    for edge, (u, v) in zip(instance.edges, instance.edge_indices, strict=True):
        cuts[place[u] : place[v]] += edge.bytes
    ways = [min(instance.layers[v].tmpcs[1], key=lambda x: x.time) for v in order]
    return Chain(np.array([x.time for x in ways]), np.array([x.weight_bytes for x in ways]), cuts)


def solve(instance: StageInstance, _limits: Limits, watch: Watch, *, sync: str = "beside") -> Answer[StagePlan]:
    """The plan of PipeDream's recursion on a flat network; ``stats`` has its own time per sample, ``own_objective``."""
    bound = work_bound(instance)
    watch.bound(bound, Prover.BOUNDS)
    free = without_memory(instance)
    if free is None:
        return Answer(bound=bound, reason=NEEDS_TP)
    order = lifo_order(len(free.layers), free.edge_indices)
    level = Level(min(free.num_devices, free.num_microbatches), free.bandwidth)
    ways = {v: min(layer.tmpcs[1], key=lambda x: x.time) for v, layer in enumerate(free.layers)}
    activations = np.array([ways[v].activation_bytes for v in order])
    statics = np.array([ways[v].static_bytes for v in order])
    memory = Memory(activations, statics, instance.memory_bytes)
    found = partition(
        chain_of(free, order),
        [level],
        beside=sync == "beside",
        degrees=allowed_dp_degrees(free),
        memory=memory,
        stopped=watch.stopped,
    )
    allowed = [each for each in found if not free.exactly or each[0] == free.num_microbatches]
    if not allowed:
        return Answer(bound=bound, stop=watch.why(), reason="" if watch.stopped() else f"{NO_DEGREES}, or none fits")
    _, own, stages = min(allowed, key=lambda each: each[1])
    plan = StagePlan(
        tuple(
            Stage(
                tuple(free.layers[v].id for v in order[stage.start : stage.end]),
                stage.replicas,
                1,
                {free.layers[v].id: ways[v].id for v in order[stage.start : stage.end]},
            )
            for stage in stages
        )
    )
    return fitting(instance, plan, bound, watch, {"own_objective": own})
