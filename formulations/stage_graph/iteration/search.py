"""``branch-and-bound``: the shortest simulated iteration over all partitions, degrees, micro-batch sizes and warm-ups.

It begins at plans near those of Equation 1 (`descent`). An iteration takes at least head + N t of each of its stages,
and the longest all-reduce (`kernels.partitions`). A target between the bound and the best plan is set. Every partition
that its heads allow within the target is laid out, with its degrees, at every micro-batch size; of each the warm-ups
are searched (`warm_ups`). If that finds no better plan, the target is a bound. Targets come closer to the best plan
until they meet it: what takes long comes last.

Source: made for this project (bounds of one machine with heads and tails; specification of its clock).
"""

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer, infeasible_by_counting
from formulations.contract.quantities import judge
from formulations.stage_graph.costs.costs import Costs, assemble, shortage
from formulations.stage_graph.costs.iteration import iteration_s
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import violations
from formulations.stage_graph.definition.quantities import NO_SIZE, required_sizes
from formulations.stage_graph.iteration.descent import descend
from formulations.stage_graph.iteration.heaviest import heaviest_stage
from formulations.stage_graph.iteration.warm_ups import STEP, Keys, WarmUps
from formulations.stage_graph.kernels.partitions import COMPLETE, Model, State, next_partition
from formulations.stage_graph.paper import fewest_devices, graphpipe
from formulations.stage_graph.upsets.bounds import simple_bound
from formulations.stage_graph.upsets.branches import EqualBranches, UnsuitableError, structure_of
from instances.problems.stage_graph import StageGraph
from instances.requirements import requirements_of
from solvers.outcome import OPTIMAL_GAP, Limits, Prover, Stop, Watch

#: The kernel forgives what rounding adds to times.
_ROUNDING = 1e-11
#: A gap below which the next target is the best plan itself.
_CLOSE = 0.01
#: How far the next target is from the bound to the best plan: each takes several times as long as the one before.
_PART = 1 / 3
#: Parts of the target that end classes of plans by their longest all-reduce.
_REDUCES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1.0)
#: The quantity of a plan that its warm-ups decide; all others are those of its partition and devices.
_OF_WARM_UPS = "in_flight_of"
#: Quantities that an exchange of equal branches does not change.
_OF_NO_OPERATOR = {"num_stages", "microbatch", "idle_devices"}
#: Heads for which it is known how many devices the rest takes, and pairs of upsets of them all together: a second.
_PARTS, _PAIRS = 16, 40_000_000
#: Graphs of stages of which it is kept what they take.
_SEARCHED = 100_000
#: Part of the time for plans near the first ones, at most.
_DESCENT = 0.2
#: ``map``, or that of a pool of threads: the same results in the same order. Kernels hold no GIL.
Each = Callable[..., Iterable[Any]]


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The shortest iteration of a plan with one micro-batch size and 1F1B, of those that meet the requirements."""
    if instance.requirements:
        sizes = required_sizes(instance)
        if not sizes:
            return infeasible_by_counting(NO_SIZE)
        instance = replace(instance, microbatches=sizes)
    costs = Costs(instance)
    watch.bound(instance.minibatch * simple_bound(costs, watch), Prover.BOUNDS)
    if short := shortage(instance):
        return infeasible_by_counting(short)
    with ThreadPoolExecutor(limits.threads) as pool, alarm(watch):
        each = pool.map if limits.threads > 1 else map
        _first_plans(costs, limits, watch, each)
        search = _Search(costs, watch, each)
        search.run(limits.gap)
    stats = {"partial_plans": search.partial, "partitions": search.partitions, "schedules": search.schedules}
    plan = watch.best_plan
    if plan is None:
        if watch.stopped():
            return Answer(stop=watch.why(), stats=stats)
        return Answer(infeasible=True, stop=Stop.PROVED, stats=stats, reason=_no_plan(instance))
    stop = Stop.PROVED if search.is_closed(OPTIMAL_GAP) else watch.why()
    return Answer(plan, watch.best_bound, stop=stop, stats={**stats, **graphpipe.row(instance, plan)})


def _no_plan(instance: StageGraph) -> str:
    return "no partition fits into memory" + (" and meets the requirements" if instance.requirements else "")


def _first_plans(costs: Costs, limits: Limits, watch: Watch, each: Each = map) -> None:
    """The plans of the methods that minimise the time per sample at every micro-batch size, and their bound.

    They know of no requirement: their bounds hold, and their plans are taken where they meet them all the same. Those
    of several threads are reported in the order of one.
    """
    instance = costs.instance
    free = replace(instance, requirements=())
    methods = (
        (graphpipe.solve_data_parallel, 0.1),
        (fewest_devices.solve, 0.4),
        (graphpipe.solve_graphpipe, 0.1),
        (graphpipe.solve_pipedream, 0.1),
    )
    is_silent = bool(instance.requirements) or limits.threads > 1

    def run(method: Callable[..., Answer[StagePlan]], share: float) -> tuple[Answer[StagePlan], Watch]:
        part = watch.part(None if limits.time_s is None else share * limits.time_s, silent=is_silent, bounds=False)
        return method(free, replace(limits, threads=1), part), part

    plans: list[StagePlan] = []
    for found, part in each(run, *zip(*methods, strict=True)):
        good = [plan for plan in (part.best_plan, found.plan) if plan and not judge(violations, instance, plan)]
        for plan in good:
            watch.plan(plan, iteration_s(instance, plan))
        plans += [plan for plan in good[-1:] if plan == found.plan]
        if found.bound is not None:
            watch.bound(found.bound, found.proved_by)
    seconds = None if limits.time_s is None else _DESCENT * limits.time_s
    plans.sort(key=lambda plan: iteration_s(instance, plan))  # whatever stops it
    part = watch.part(seconds, bounds=False)
    with alarm(part):
        descend(costs, _of_partitions(instance), plans, part)


def _of_partitions(instance: StageGraph) -> StageGraph:
    """The instance with the requirements that warm-ups have no part in."""
    wanted = [str(each) for each in requirements_of(instance) if each.quantity != _OF_WARM_UPS]
    return replace(instance, requirements=tuple(wanted))


@dataclass
class _Search:
    """The targets, and what was looked at."""

    costs: Costs
    watch: Watch
    each: Each = map
    partial: int = 0
    partitions: int = 0
    schedules: int = 0
    #: By micro-batch size the largest target for which the devices are too few; they are for all below it.
    refuted: dict[int, float] = field(default_factory=dict)
    #: By micro-batch size and `Keys` the largest target that no warm-ups meet.
    searched: dict[Hashable, float] = field(default_factory=dict)

    def run(self, gap: float) -> None:
        """Raise the bound and find better plans until they meet, or the watch stops."""
        instance, watch = self.costs.instance, self.watch
        self._of_partitions = _of_partitions(instance)
        model_of = functools.cache(functools.partial(_model, self.costs))
        self._branches = _branches(self.costs, watch)
        self._bound_by_devices()
        while not watch.stopped() and not self.is_closed(gap):
            bound, best = watch.best_bound or 0.0, watch.best_objective
            whole = _longest_s(self.costs) if best is None else best * (1 - STEP)
            if best is None:  # a plan is found sooner within a target that leaves few partitions
                target = min(whole, 2 * bound) or whole
            else:
                target = whole if best - bound <= _CLOSE * best else bound + _PART * (best - bound)
            for size in instance.microbatch_sizes:
                if not self._may([size], target):
                    continue
                for reduces in _classes(target):
                    if not watch.stopped():
                        self._lay_out(size, model_of(size), target, reduces)
            if watch.stopped():
                return
            if watch.best_objective is None and target == whole:
                return  # there is no plan
            watch.bound(min(target, _below(watch)))

    def is_closed(self, gap: float) -> bool:
        """Whether the bound has met the best plan."""
        best, bound = self.watch.best_objective, self.watch.best_bound
        return best is not None and bound is not None and best - bound <= max(gap, 2 * STEP) * best

    def _bound_by_devices(self) -> None:
        """Raise the bound to where the devices may be enough at some size, without a look at partitions."""
        low, high = self.watch.best_bound or 0.0, _below(self.watch)
        while self._branches is not None and _CLOSE / 4 * high < high - low < np.inf and not self.watch.stopped():
            middle = (low + high) / 2
            sizes = sorted(self.costs.instance.microbatch_sizes, key=lambda size: self.refuted.get(size, 0.0))
            if self._may(sizes, middle):  # what may be the quickest size is asked first
                high = middle
            else:
                low = middle
                self.watch.bound(middle)

    def _may(self, sizes: list[int], target_s: float) -> bool:
        """Whether the devices may be enough for the target at one of the sizes, with all-reduces of some class."""
        if self._branches is None or target_s <= 0:
            return True
        open_sizes = [size for size in sizes if target_s > self.refuted.get(size, 0.0)]
        tasks = list(itertools.product(open_sizes, _classes(target_s)))
        part = self.watch.part()  # the first that may be enough ends all others

        def refute(task: tuple[int, tuple[float, float]]) -> bool:
            if part.stopped():
                return False
            found = self._of_upsets(*task, target_s, target_s, part)
            if found is None or found[-1] <= self.costs.instance.num_devices:
                part.stop(Stop.COMPLETED)
                return False
            return True

        refuted = list(self.each(refute, tasks))
        for number, size in enumerate(open_sizes):
            count = len(tasks) // len(open_sizes)
            if all(refuted[number * count : (number + 1) * count]):
                self.refuted[size] = target_s
        return not all(refuted)

    def _of_upsets(self, size: int, reduces: tuple[float, float], own_s: float, target_s: float, watch: Watch) -> Any:
        """Fewest devices by upset, if stages take ``own_s`` at most, others the target; ``None``: stopped."""
        assert self._branches is not None
        samples, low, high = self.costs.instance.minibatch, *reduces
        classes, own, elsewhere = (low / samples, high / samples), own_s / samples, target_s / samples
        return self._branches.of_upsets(own, elsewhere, [size], classes, size / samples, watch.flag)[0]

    def _needs(self, size: int, target_s: float, reduces: tuple[float, float]) -> Any:
        """`State.needs`: what is left of the target behind a head is what N t and an all-reduce may take."""
        if self._branches is None:
            return np.zeros((0, 1), np.int64)
        parts = max(1, min(_PARTS, _PAIRS // self._branches.structure.num_pairs()))

        def row(part: int) -> Any:
            return self._of_upsets(size, reduces, target_s * (1 - part / parts), target_s, self.watch)

        first = row(0)
        is_enough = first is not None and first[-1] <= self.costs.instance.num_devices
        rows = [first, *(self.each(row, range(1, parts)) if is_enough else ())]
        if self.watch.stopped() or any(each is None for each in rows):
            return np.zeros((0, 1), np.int64)
        return np.array(rows)

    def _lay_out(self, size: int, model: Model, target_s: float, reduces: tuple[float, float]) -> None:
        """Meet every partition at this size whose iteration may take less than the target, or than the best plan.

        Its longest all-reduce takes more than the first of ``reduces`` (or that is 0) and at most the second.
        """
        watch, target_s = self.watch, min(target_s, _below(self.watch))
        if target_s <= 0:
            return  # nothing takes less than no time
        needs = self._needs(size, target_s, reduces)
        if len(needs) and needs[0, -1] > self.costs.instance.num_devices:
            return
        model.limits[4] = reduces[1]
        alone = _alone(self.costs, model, target_s)
        together, model.limits[5] = heaviest_stage(self.costs, size, model.passes, alone, target_s, self.watch)
        model = model._replace(fastest=np.minimum.accumulate(alone, axis=1), together=together)
        state, flag = _start(model, needs, target_s, reduces[0]), np.frombuffer(watch.flag, np.uint8)
        keys = Keys(self.costs, size)
        while next_partition(model, state, flag) == COMPLETE and not watch.stopped():
            self.partitions += 1
            parts, target = _parts(state), float(state.target[0])
            if self.searched.get(key := (size, keys.of(parts)), 0.0) >= target:
                continue
            plan, found = assemble(self.costs.instance, parts, size), None
            warm_ups = WarmUps(self.costs, plan)
            if warm_ups.may_take(target):
                warm_ups.barred = bool(judge(violations, self._of_partitions, plan))
                found = None if warm_ups.barred else warm_ups.best_below(target, watch)
            self.schedules += warm_ups.simulated
            if not warm_ups.barred and not watch.stopped() and len(self.searched) < _SEARCHED:
                self.searched[key] = target if found is None else found[1] * (1 - STEP)
            if found is not None:
                watch.plan(*found)
                state.target[0] = min(target_s, _below(watch))
        self.partial += int(state.made[0])


def _classes(target: float) -> list[tuple[float, float]]:
    """Plans by their longest all-reduce: above the first of a pair (or nothing), up to the second."""
    return [(low * target, high * target) for low, high in zip((0.0, *_REDUCES), _REDUCES, strict=False)]


def _branches(costs: Costs, watch: Watch) -> EqualBranches | None:
    """The program over upsets, where the model is made of chains side by side."""
    try:
        return EqualBranches(costs, watch)
    except UnsuitableError:
        return None


def _below(watch: Watch) -> float:
    best = watch.best_objective
    return np.inf if best is None else best * (1 - STEP)


def _longest_s(costs: Costs) -> float:
    """Seconds that every iteration falls short of: twice everything one after the other, at a sample a micro-batch."""
    instance = costs.instance
    passes = costs.compute_s(costs.everything, 1)
    sent = sum(
        4 * (instance.latency_s + edge.bytes_per_sample / instance.bandwidth_bytes_per_s) for edge in instance.edges
    )
    reduced = max(costs.all_reduce(costs.everything, r) for r in range(1, instance.num_devices + 1))
    return 2 * (instance.minibatch * (passes + sent) + reduced) or 1.0  # more than nothing


def _parts(state: State) -> list[tuple[int, int]]:
    """Stages, as bitsets, with their devices."""
    last = int(state.at[0])
    nodes = [0] * (last + 1)
    for v, level in enumerate(np.where(state.inside[last] == 1, last, state.stage).tolist()):
        nodes[level] |= 1 << v
    return list(zip(nodes, state.degree[: last + 1].tolist(), strict=True))


def _model(costs: Costs, size: int) -> Model:
    """What the kernel knows of an instance at a micro-batch size."""
    instance = costs.instance
    operators, devices = instance.operators, instance.num_devices
    samples = np.array([0, *(-(-size // r) for r in range(1, devices + 1))])
    passes, (distinct, which) = np.zeros((len(operators), devices + 1)), np.unique(samples[1:], return_inverse=True)
    for v in range(len(operators)):
        passes[v, 1:] = np.array([costs.compute_s(1 << v, n) for n in distinct.tolist()])[which]
    edges = [costs.edges_of(v) for v in range(len(operators))]
    even, tail = _symmetry(costs)
    rates = [2 * (r - 1) / r / instance.reduce_bandwidth(r) for r in range(1, devices + 1)]
    return Model(
        *_table([[(other, sent) for way, other, sent in each if way == "in"] for each in edges]),
        *_table([[(other, sent) for way, other, sent in each if way == "out"] for each in edges]),
        passes=passes,
        fastest=passes,
        work=passes[:, 1].copy(),
        weights=np.array([float(each.weight_bytes) for each in operators]),
        kept=np.array([float(each.activation_bytes) for each in operators]),
        **even,
        together=np.zeros(len(operators)),
        samples=samples,
        reduce_rate=np.array([0.0, *rates]),
        counts=np.array([devices, instance.minibatch // size, size, tail]),
        limits=np.array(
            [
                instance.memory_bytes,
                instance.weight_copies,
                instance.latency_s,
                1 / instance.bandwidth_bytes_per_s,
                0,
                0,
            ],
            np.float64,
        ),
    )


def _alone(costs: Costs, model: Model, target_s: float) -> Any:
    """Seconds of both passes of operators on so many devices; ``inf`` where one alone takes too long, or is reduced so.

    A stage on r devices takes N t and its all-reduce, and the more operators the longer.
    """
    degrees = range(
        1, min(int(model.counts[2]), model.passes.shape[1] - 1) + 1
    )  # others have replicas without a sample
    reduced = np.array([[costs.all_reduce(1 << v, r) for r in degrees] for v in range(len(model.work))])
    alone, own = np.full(model.passes.shape, np.inf), model.passes[:, degrees]
    too_long = model.counts[1] * own + reduced > target_s * (1 + _ROUNDING)
    alone[:, degrees] = np.where(too_long | (reduced > model.limits[4] * (1 + _ROUNDING)), np.inf, own)
    return alone


def _table(ends: list[list[tuple[int, float]]]) -> tuple[Any, Any, Any]:
    """Edges by operator: where each operator's begin, the other ends, and bytes per sample."""
    flat = [edge for each in ends for edge in each]
    starts = np.cumsum([0, *map(len, ends)])
    return starts, np.array([other for other, _ in flat], np.int64), np.array([sent for _, sent in flat], np.float64)


def _symmetry(costs: Costs) -> tuple[dict[str, Any], int]:
    """Equal branches and how upsets of them are numbered (`Model`), and how many operators are behind them."""
    count = costs.instance.num_operators
    twin, branch = np.full(count, -1), np.full(count, -1)
    try:
        structure = structure_of(costs)
    except UnsuitableError:
        alone = {"twin": twin, "branch": branch, "first": np.ones(1, np.bool_), "ranks": np.zeros((1, 2), np.int64)}
        return alone, 0
    for number, own in enumerate(structure.branches):
        branch[list(own)] = number
    if all(each.quantity in _OF_NO_OPERATOR for each in requirements_of(costs.instance)):
        for group in structure.classes:
            for before, own in itertools.pairwise(group):
                if all(u < v for u, v in zip(before, own, strict=True)):  # a twin is decided first
                    twin[list(own)] = before
    first, ranks = structure.numbering()
    return {"twin": twin, "branch": branch, "first": first, "ranks": ranks}, len(structure.tail)


def _start(model: Model, needs: Any, target_s: float, reduce_s: float) -> State:
    """The search before its first stage."""
    operators, devices = len(model.work), int(model.counts[0])
    levels = min(operators, devices) + 1
    state = State(
        at=np.zeros(3, np.int64),
        stage=np.full(operators, -1),
        end=np.zeros(operators),
        degree=np.zeros(levels, np.int64),
        left=np.zeros(levels, np.int64),
        inside=np.zeros((levels, operators), np.int64),
        choice=np.zeros((levels, operators), np.int64),
        sums=np.zeros((levels, 3 * (operators + 1))),
        last=np.zeros((levels, 3)),
        even=np.ones((levels, len(model.first)), np.int64),
        made=np.zeros(1, np.int64),
        target=np.array([target_s, target_s]),
        needs=needs,
        counted=np.zeros(len(model.first), np.int64),
    )
    state.left[0], state.last[0, 2] = devices, reduce_s
    return state
