"""Equal partitions: the planner of PipeDream-2BW with tensor parallelism (equi), and without it.

Layers are cut into w groups as equal as possible, all run with the same degrees d and t and the same choice of
recomputation; the best of all (w, d, t, choice) that fits is the plan. Symbols: w groups, d data-parallel degree,
t tensor-parallel degree, s data-parallel degrees of a stage and all later ones.

Source: Piper, section 5, "Baselines". Reconstructed where the text is silent: larger groups come last; a model with
transformer layers counts only these, and its other nodes sit with the first and last group or on stages of their own;
any other model counts all nodes, in the order of Kahn's algorithm with a stack.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from formulations.compiled.array_types import Floats, Ints
from formulations.contract.family import Answer
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, allowed_dp_degrees, carried_bytes, evaluate
from instances.graph import adjacency, lifo_order
from instances.problems.stage_partitioning import CostModel, StageInstance, Tmpc
from solvers.outcome import Limits, Prover, Watch

_LAYER = "transformer"


class CountedLayers(NamedTuple):
    """The nodes of a model by position, in topological order: before the counted layers, these, and after them."""

    before: list[int]
    layers: list[int]
    after: list[int]


class _Load(NamedTuple):
    """A stage at degree t: d times its time without synchronisation, its weights, and its memory a * y + b."""

    time: float
    weight_bytes: float
    per_microbatch: float
    static: float


def solve(
    instance: StageInstance, _limits: Limits, watch: Watch, tp_degrees: Sequence[int] | None = None
) -> Answer[StagePlan]:
    """The best equal partition.

    ``tp_degrees``: tensor-parallel degrees to try (default: all that the instance has).
    Returns: no plan proves nothing: an unequal one may fit. The bound is the work bound.
    """
    bound = work_bound(instance)
    watch.bound(bound, Prover.BOUNDS)
    tried = 0
    for stages in _partitions(instance):
        for t in instance.tp_degrees if tp_degrees is None else tp_degrees:
            for choice in _choices(instance, t):
                if watch.stopped():
                    return Answer(bound=bound, stop=watch.why(), stats={"partitions": tried})
                tried += 1
                degrees, slowest = _times(instance, stages, t, choice)
                if len(degrees):
                    plan = make_plan(instance, stages, int(degrees[slowest.argmin()]), t, choice)
                    watch.plan(plan, evaluate(instance, plan))
    plan, _ = watch.incumbent()
    reason = "" if plan else "no equal partition fits the devices and memory, which proves nothing"
    return Answer(plan=plan, bound=bound, reason=reason, stats={"partitions": tried})


def solve_without_tp(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The best equal partition without tensor parallelism: the surrogate for PipeDream-2BW's planner."""
    return solve(instance, limits, watch, tp_degrees=(1,))


def by_devices(instance: StageInstance, tp_degrees: Sequence[int] | None = None) -> Floats:
    """The time of the best equal partition on at most k devices for every k up to K, shape (K + 1,); inf if none."""
    times = np.full(instance.num_devices + 1, np.inf)
    for stages in _partitions(instance):
        for t in instance.tp_degrees if tp_degrees is None else tp_degrees:
            for choice in _choices(instance, t):
                degrees, slowest = _times(instance, stages, t, choice)
                np.minimum.at(times, len(stages) * t * degrees, slowest)
    return np.minimum.accumulate(times)


def work_bound(instance: StageInstance) -> float:
    """Least device-time of all nodes over K: no plan is faster."""
    least = [
        min((t * x.time for t, found in layer.tmpcs.items() for x in found), default=0.0) for layer in instance.layers
    ]
    return math.fsum(least) / instance.num_devices


def row_of(instance: StageInstance) -> CountedLayers:
    """The model as a chain of counted layers with what comes before and after them."""
    n, edges = len(instance.layers), instance.edge_indices
    order = lifo_order(n, edges)
    counted = [v for v in order if _LAYER in instance.layers[v].name.lower()]
    behind, ahead = _reach(n, edges, order, counted), _reach(n, [(v, u) for u, v in edges], order[::-1], counted)
    others = [v for v in order if v not in set(counted)]
    if not counted or any(behind[v] and ahead[v] for v in others):
        return CountedLayers([], order, [])
    return CountedLayers([v for v in others if not behind[v]], counted, [v for v in others if behind[v]])


def equal_groups(row: CountedLayers, w: int, *, apart: bool) -> list[list[int]]:
    """The stages of w equal groups, larger ones last; ``apart``: the other nodes have stages of their own."""
    small, larger = divmod(len(row.layers), w)
    ends = np.cumsum([small] * (w - larger) + [small + 1] * larger).tolist()
    groups = [row.layers[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    if apart:
        return [group for group in (row.before, *groups, row.after) if group]
    groups[0] = row.before + groups[0]
    groups[-1] = groups[-1] + row.after
    return groups


def make_plan(instance: StageInstance, stages: list[list[int]], d: int, t: int, choice: Sequence[Tmpc]) -> StagePlan:
    """The plan that runs all stages with the same degrees; ``choice[v]`` is the TMPC of node v."""
    ids = [layer.id for layer in instance.layers]
    return StagePlan(tuple(Stage(tuple(ids[v] for v in S), d, t, {ids[v]: choice[v].id for v in S}) for S in stages))


def uniform_choice(instance: StageInstance, t: int, name: str) -> list[Tmpc] | None:
    """For every node the TMPC of that id at degree t, else its fastest; ``None`` if a node has none at t."""
    lists = [layer.tmpcs.get(t, ()) for layer in instance.layers]
    if not all(lists):
        return None
    return [next((x for x in found if x.id == name), min(found, key=lambda x: x.time)) for found in lists]


def _partitions(instance: StageInstance) -> Iterator[list[list[int]]]:
    row = row_of(instance)
    most = min(instance.num_devices, instance.num_microbatches)
    for w in range(1, min(len(row.layers), most) + 1):
        yield equal_groups(row, w, apart=False)
        if (row.before or row.after) and w + bool(row.before) + bool(row.after) <= most:
            yield equal_groups(row, w, apart=True)


def _choices(instance: StageInstance, t: int) -> Iterator[list[Tmpc]]:
    """Recomputation everywhere or nowhere: one id of a TMPC for the whole model."""
    names = dict.fromkeys(x.id for layer in instance.layers for x in layer.tmpcs.get(t, ()))
    for name in names:
        choice = uniform_choice(instance, t, name)
        if choice is not None:
            yield choice


def _times(instance: StageInstance, stages: list[list[int]], t: int, choice: Sequence[Tmpc]) -> tuple[Ints, Floats]:
    """The degrees d that fit, and the time of the slowest stage at each."""
    w, N = len(stages), instance.num_microbatches
    most = min(instance.num_devices // (w * t), N // w)
    allowed = (d for d in allowed_dp_degrees(instance) if d <= most and (not instance.exactly or w * d == N))
    d = np.fromiter(allowed, np.int64)
    if not len(d):
        return d, np.empty(0)
    loads = _loads(instance, stages, choice)
    room = instance.memory_bytes * MEMORY_SLACK
    # All stages have the same d, so the first of w has ceil(w d / d) = w micro-batches in flight, the last has 1.
    if any(load.per_microbatch * (w - z) + load.static > room for z, load in enumerate(loads)):
        d = d[:0]
    synchronised = N if instance.cost_model is not CostModel.PAPER else d
    resync = 4 * (d - 1) / d / synchronised / instance.bandwidth
    return d, np.max([load.time / d + resync * load.weight_bytes for load in loads], axis=0)


def _loads(instance: StageInstance, stages: list[list[int]], choice: Sequence[Tmpc]) -> list[_Load]:
    stage_of = {v: z for z, nodes in enumerate(stages) for v in nodes}
    time: list[list[float]] = [[choice[v].time for v in nodes] for nodes in stages]
    for edge, (u, v) in zip(instance.edges, instance.edge_indices, strict=True):
        if stage_of[u] != stage_of[v]:
            leaving = edge.bytes + choice[u].sync_backward_bytes.get(edge.target, 0.0)
            entering = edge.bytes + choice[v].sync_forward_bytes.get(edge.source, 0.0)
            time[stage_of[u]].append(2 * leaving / instance.bandwidth)
            time[stage_of[v]].append(2 * entering / instance.bandwidth)
    plan = make_plan(instance, stages, 1, 1, choice)
    return [
        _Load(
            math.fsum(time[z]),
            math.fsum(choice[v].weight_bytes for v in nodes),
            math.fsum([*(choice[v].activation_bytes for v in nodes), *carried_bytes(instance, plan.stages[z])]),
            math.fsum(choice[v].static_bytes for v in nodes),
        )
        for z, nodes in enumerate(stages)
    ]


def _reach(n: int, edges: Sequence[tuple[int, int]], order: list[int], sources: list[int]) -> list[bool]:
    """Which nodes can be reached from ``sources``; ``order`` is topological for ``edges``."""
    successors, _ = adjacency(n, edges)
    reached = [False] * n
    for v in sources:
        reached[v] = True
    for u in order:
        if reached[u]:
            for v in successors[u]:
                reached[v] = True
    return reached
