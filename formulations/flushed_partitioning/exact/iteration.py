"""Plans in the order of a lower bound on their iteration, simulated until none is left that can be better.

A plan's iteration is that of fixed orders (`definition.problem`), so each of its stages bounds it: what comes before
the stage's first pass, its own passes with what they wait for, and what comes behind its last one. What all ways to
split the layers behind a stage take at least are tables (`kernels.iteration`). Plans grow from the input side on, those
of the least bound first: the least bound of all that are not grown is one of the instance.

Plans of one degree are searched by d and number of stages, as 1F1B's bound needs the stages behind a stage; plans of
several degrees together, with what holds for any order. README.md proves the bounds.

Source: this project.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np

from formulations.compiled.array_types import Flags, Floats, Floats3, Ints2, Words
from formulations.compiled.downsets import all_downsets, position_masks, too_many
from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.contract.quantities import judge
from formulations.flushed_partitioning.definition.problem import evaluate, violations
from formulations.flushed_partitioning.exact.labels import Search as Labels
from formulations.flushed_partitioning.exact.labels import filling_of
from formulations.flushed_partitioning.exact.pareto_set import PRECISION, search_pareto_set
from formulations.flushed_partitioning.kernels import arrays as kernel_arrays
from formulations.flushed_partitioning.kernels import iteration as kernels
from formulations.flushed_partitioning.methods import MAX_SIMULATED_DOWNSETS
from formulations.simulation.kernels import COMPILED
from formulations.simulation.one_batch import end_of_batch
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.exact.threshold import ThresholdTables, make_scratch
from formulations.stage_partitioning.kernels.tables import build_lattice, build_profile, make_plan
from instances.graph import adjacency
from instances.problems.flushed_partitioning import Fill, FlushedInstance, Objective, Schedule
from solvers.memory_budget import SizeError, demand, room
from solvers.outcome import OPTIMAL_GAP, Limits, Stop, Watch

_NO_PLAN = "no plan fits the devices and their memory"
_NONE_AS_REQUIRED = "no plan that fits the devices and their memory meets the requirements"
#: Seconds, and the share of a time limit, for the plan that the search begins with.
_FIRST_S, _FIRST_SHARE = 60.0, 0.2
#: The formula's best plan is left at this gap.
_FIRST_GAP = 1e-4
#: How many limits of the synchronisation the spans of plans of several degrees are known for.
_LEVELS = 24
#: Most numbers in the tables of times, and in one of what is behind stages (8 bytes each). At 34,000,000 the bound of
#: Llama 405B on 512 devices is 0.7 % below the best plan, and 24 % without sums of degrees.
_MOST_TIMES, _MOST_CELLS = 10_000_000, 40_000_000
#: With fewer of all downsets that begin with one node, what lies in front of stages says more than their links.
_LEAST_LINKED = 0.5
#: So many beginnings of plans are kept in a queue (each takes about a kilobyte); beyond, they are given up.
_MOST_OPEN = 300_000
#: Steps of one queue before its turn is over: few, as a queue that has had none knows no good bound.
_TURN = 20


class StoppedError(Exception):
    """The run is to end."""


class Stage(NamedTuple):
    """Stage j minus i (downsets) of ``degree`` replicas at the q-th t; the least ``time`` of a micro-batch on one."""

    i: int
    j: int
    q: int
    degree: int
    time: float


class Beginning(NamedTuple):
    """The first stages of a plan, and what they say of it.

    ``begun`` (3,): a micro-batch's time in those that all others come after, the span of the pipeline as far as they
    bound it, the longest synchronisation. Of the box's units so many ``devices`` are left, and so many degrees in sum.
    """

    stages: tuple[Stage, ...]
    begun: Floats
    devices: int
    degrees: int


class Tables(ThresholdTables):
    """The stages of an instance: their times, weights and heads. Times are those of a batch, or of a micro-batch.

    ``limit`` is what a batch must take less than.
    """

    def __init__(self, instance: FlushedInstance, downsets: Words, watch: Watch, best: float) -> None:
        flat, D = instance.flat, len(downsets)
        profile = build_profile(flat, prune=True)
        profile = profile._replace(resync=np.zeros(len(profile.dp_degrees)))
        super().__init__(flat, profile, build_lattice(profile, downsets), np.frombuffer(watch.flag, np.uint8))
        self.flushed, self.m = instance, flat.num_microbatches
        self.is_gpipe = instance.schedule is Schedule.GPIPE
        if self.is_gpipe:
            self.scratches = [make_scratch(profile._replace(max_s=max(profile.max_s, self.m)))]
        self._leave_out(best)
        self.limit = best * self.m * (1 - PRECISION)
        self.is_chain = len(flat.layers) + 1 == D  # then every stage hands to the next one
        self.begins, self.joined = self._links()
        self.tp, self.degrees = profile.tp_degrees, profile.dp_degrees
        demand(8.0 * D * D * (len(self.tp) + 1), f"stages between {D} downsets")
        self.heads, self.weights = np.empty((D, D)), np.empty((len(self.tp), D, D))
        least = filling_of(replace(instance, fill=Fill.REPLICAS), self.degrees).least
        kernels.stage_tables(self.profile, self.lattice, least, self.heads, self.weights)
        self.rounds = -(-self.m // self.degrees)
        # Synchronisation per byte, by degree and t, as if every stage that fits into a machine lay in one.
        self.machine = instance.devices_per_machine or 0
        is_near = self.degrees[:, None] * self.tp <= self.machine
        bandwidth = np.where(is_near, instance.inner_bandwidth or flat.bandwidth, flat.bandwidth)
        self.rate = (4 * (self.degrees - 1) / self.degrees)[:, None] / bandwidth
        self.stats = np.zeros(4, np.int64)
        self._known: dict[tuple[int, int, int, int], float] = {}

    def _links(self) -> tuple[Flags, Ints2]:
        """`Stages.begins` and `Stages.joined`: where what is left begins with one node, and which stages hand to it."""
        masks, (_, before) = (
            position_masks(self.lattice.bits),
            adjacency(len(self.instance.layers), self.instance.edge_indices),
        )
        holds = np.array([[mask >> v & 1 for v in range(len(before))] for mask in masks], np.bool_)
        begins, joined = np.zeros(len(masks), np.bool_), np.zeros((len(masks), len(masks)), np.int64)
        for i, own in enumerate(holds):
            sources = [v for v in np.flatnonzero(own) if not own[before[v]].any()]
            if len(sources) == 1:
                begins[i] = True
                joined[i] = holds[:, before[sources[0]]].any(axis=1)
        if begins.mean() < _LEAST_LINKED:
            begins[:], joined[:, :] = False, 0
        return begins, joined

    def times(self, in_flight: Sequence[int], most: float) -> Floats3:
        """Least times of all stages for a micro-batch at every t, for each number in flight; infinite above ``most``.

        `StoppedError` if the run is to end.
        """
        D, P = len(self.lattice.bits), len(self.tp)
        demand(16.0 * len(in_flight) * P * D * D, f"times of stages between {D} downsets")
        found = np.full((P, len(in_flight), D, D), math.inf)
        for q in range(P):
            if not self.machine or self.tp[q] <= self.machine:
                ended = kernels.least_times(self.profile, self.lattice, self.scratch, q, np.array(in_flight), most,
                                            found[q], self.stats, self.flag)  # fmt: skip
                if not ended:
                    raise StoppedError
        return np.ascontiguousarray(found.swapaxes(0, 1)).reshape(-1, D, D)

    def in_flight(self, stages: Sequence[Stage]) -> list[int]:
        """Micro-batches in flight on a replica of each stage of a plan."""
        sums = [sum(stage.degree for stage in stages[number:]) for number in range(len(stages))]
        return [-(-(self.m if self.is_gpipe else s) // stage.degree) for s, stage in zip(sums, stages, strict=True)]

    def timed(self, stages: Sequence[Stage]) -> tuple[Stage, ...] | None:
        """The stages of a plan with their times at what is in flight; ``None`` if one does not fit; `StoppedError`."""
        found = []
        for stage, y in zip(stages, self.in_flight(stages), strict=True):
            key = (stage.q, stage.i, stage.j, y)
            if key not in self._known:
                time = kernels.least_time(self.profile, self.lattice, self.scratch, *key, math.inf, self.stats,
                                          self.flag)  # fmt: skip
                if time < 0:
                    raise StoppedError
                self._known[key] = time
            if self._known[key] == math.inf:
                return None
            found.append(stage._replace(time=self._known[key]))
        return tuple(found)

    def plan_of(self, stages: Sequence[Stage]) -> StagePlan:
        """The plan of timed stages."""
        made = []
        for (i, j, q, d, time), y in zip(stages, self.in_flight(stages), strict=True):
            nodes, chosen = self._choose(i, j, q, d, y, time / d)
            made.append((nodes, d, q, chosen))
        return make_plan(self.instance, self.profile, made)

    def edges(self, stages: Sequence[Stage]) -> list[tuple[int, int]]:
        """Which stages hand to which."""
        if self.is_chain:
            return list(pairwise(range(len(stages))))
        masks = position_masks(self.lattice.bits)
        parts = [masks[stage.j] & ~masks[stage.i] for stage in stages]
        stage_of = [next(s for s, part in enumerate(parts) if part >> v & 1) for v in range(len(self.instance.layers))]
        pairs = {(stage_of[u], stage_of[v]) for u, v in self.instance.edge_indices}
        return sorted((s, t) for s, t in pairs if s != t)


class Box:
    """Plans whose stages have some of the degrees, searched together; one of these alone, or all.

    Devices and sums of degrees are counted in units of the only degree, where it is one: replicas are the same.
    """

    def __init__(self, tables: Tables, chosen: slice) -> None:
        flat, m = tables.instance, tables.m
        self.tables, self.degrees = tables, tables.degrees[chosen]
        self.is_uniform = len(self.degrees) == 1
        self.unit = int(self.degrees[0]) if self.is_uniform else 1
        self.chosen, self.rounds = chosen, tables.rounds[chosen]
        widest = len(flat.layers) * int(self.degrees[-1] * tables.tp[-1])  # more devices are of no use
        self.devices = min(flat.num_devices, widest) // self.unit
        self.most_s = min(m, flat.num_devices, len(flat.layers) * int(self.degrees[-1])) // self.unit
        rounds = int(self.rounds[0]) if self.is_uniform else m  # ceil(m/d) d is m at least
        self.bound = rounds * float(tables.lattice.work[-1]) / (flat.num_devices // self.unit)

    def open(self) -> Iterator[tuple[float, Beginning]]:
        """Beginnings without a stage for every sum of degrees, and bounds of the plans that they begin."""
        tables, D, P = self.tables, len(self.tables.lattice.bits), len(self.tables.tp)
        cells = float(D) * (self.most_s + 1) * (self.devices + 1)
        # Three tables at least, and the times; what does not fit is left out.
        counts_degrees = self.is_uniform or cells <= min(_MOST_CELLS, room() / 32)
        S = self.most_s if counts_degrees else 0
        cells = float(D) * (S + 1) * (self.devices + 1)
        slack, X = tables.limit - self.bound, int(max(1, min(_LEVELS, _MOST_CELLS // cells)))
        levels = slack * np.arange(1, X + 1) / X if X > 1 and math.isfinite(slack) else np.array([math.inf])
        demand(8.0 * cells * (2 + len(levels)), f"plans of {D} downsets on {self.devices} devices")
        ys = list(range(1, 1 + max(2, S))) if not tables.is_gpipe else sorted(set(self.rounds.tolist()))
        row = np.zeros(ys[-1] + 1, np.int64)
        # Beyond so many, what more in flight would take is left out.
        most = int(max(1, _MOST_TIMES // (P * D * D)))
        row[ys] = np.minimum(range(len(ys)), most - 1)
        times = tables.times(ys[:most], tables.limit / int(self.rounds[-1]))
        self.stages = kernel_arrays.Stages(
            times, row, times.min(axis=0), tables.heads, tables.weights, tables.tp, self.degrees // self.unit,
            self.rounds, tables.rate[self.chosen], counts_degrees, tables.is_gpipe,
            self.is_uniform and tables.is_gpipe, bool(tables.begins.any()), tables.begins, tables.joined,
        )  # fmt: skip
        shape = (D, S + 1, self.devices + 1)
        self.behind = kernel_arrays.Behind(
            np.empty(shape), np.empty((len(levels), D * (S + 1), self.devices + 1)), np.empty(shape), levels
        )
        if not kernels.fill_behind(self.stages, self.behind, tables.limit, tables.flag):
            raise StoppedError
        lower = np.append(0.0, levels[:-1])
        for s in range(S + 1):
            sync = np.maximum(lower, self.behind.sync[-1, s, -1])
            bound = float((self.behind.span[:, (D - 1) * (S + 1) + s, -1] + sync).min())
            if bound < tables.limit:
                yield bound, Beginning((), np.zeros(3), self.devices, s)

    def grow(self, beginning: Beginning) -> Iterator[tuple[float, Beginning]]:
        """Beginnings with one stage more whose plans may be better than the best one."""
        tables, stages = self.tables, beginning.stages
        j = stages[-1].i if stages else len(tables.lattice.bits) - 1
        times, owns, bounds = np.empty((3, len(tables.tp), len(self.degrees), len(tables.lattice.bits)))
        kernels.branch(
            self.stages, self.behind, j, beginning.degrees, beginning.devices, beginning.begun, times, owns, bounds
        )
        front, span, longest = beginning.begun.tolist()
        for q, a, i in np.argwhere(bounds < tables.limit).tolist():
            d, scaled, time = int(self.degrees[a]), int(self.stages.degrees[a]), float(times[q, a, i])
            if i == 0 and not self.is_uniform and all(stage.degree == d for stage in stages):
                continue  # searched apart
            if sum(stage.degree for stage in stages) + d > tables.m:
                continue
            sync = float(tables.weights[q, i, j] * self.stages.rate[a, q])
            before = front + time * tables.begins[j]
            begun = np.array([before, max(span, float(owns[q, a, i])), max(longest, sync)])
            devices = beginning.devices - scaled * int(tables.tp[q])
            degrees = beginning.degrees - scaled * self.stages.counts_degrees
            grown = Beginning((*stages, Stage(i, j, q, d, time)), begun, devices, degrees)
            yield float(bounds[q, a, i]), grown


class Search:
    """All plans by the least of their bounds; ``best`` is the least time of a batch that is known.

    Plans of one degree and of several have queues of their own, which take turns: where one cannot be emptied, the
    other still is.
    """

    def __init__(self, tables: Tables, watch: Watch, best: float) -> None:
        self.tables, self.watch, self.best = tables, watch, best * tables.m
        self.grown = self.simulated = 0
        #: The least bound of plans that were neither simulated nor excluded, and why.
        self.given_up, self.reason = math.inf, ""
        count_of = len(tables.degrees)
        # Of equal bounds boxes of few stages come first, as their tables are small.
        alone = [Box(tables, slice(a, a + 1)) for a in reversed(range(count_of))]
        boxes = [alone, [Box(tables, slice(0, count_of))] if count_of > 1 else []]
        self._serial, everything = count(), len(tables.lattice.bits)
        self.queues: list[list[tuple[float, int, int, Box, Beginning | None]]] = [
            [(box.bound, everything, next(self._serial), box, None) for box in found] for found in boxes
        ]
        for queue in self.queues:
            heapq.heapify(queue)

    def bound(self, number: int | None = None) -> float:
        """A bound of a batch of all plans; of one queue's alone by its number: 0 for plans of one degree."""
        chosen = self.queues if number is None else [self.queues[number]]
        return min([self.best, self.given_up, *(queue[0][0] for queue in chosen if queue)])

    def run(self, gap: float) -> None:
        """Search until no plan is left that can be better by more than ``gap``, or the watch says so."""
        while not self.watch.stopped():
            limit = self.best * (1 - max(gap, PRECISION))
            left = [queue for queue in self.queues if queue and queue[0][0] < limit]
            self.watch.bound(self.bound() / self.tables.m * (1 - PRECISION))
            if not left:
                break
            try:
                for queue in left:
                    self._turn(queue, gap)
            except StoppedError:
                break

    def _turn(self, queue: list[tuple[float, int, int, Box, Beginning | None]], gap: float) -> None:
        """So many steps as a queue takes before the other has its turn."""
        for _ in range(_TURN):
            if not queue or queue[0][0] >= self.best * (1 - max(gap, PRECISION)) or self.watch.stopped():
                return
            low, _, _, box, beginning = queue[0]
            found = [(max(low, bound), _end(self.tables, grown), next(self._serial), box, grown)
                     for bound, grown in self._next(low, box, beginning)]  # fmt: skip
            heapq.heappop(queue)
            for entry in found:
                heapq.heappush(queue, entry)
            self.grown += 1
            if len(queue) > _MOST_OPEN:
                self._give_up(queue[0][0], f"more than {_MOST_OPEN} beginnings of plans that may be better")
                queue.clear()

    def _give_up(self, bound: float, reason: str) -> None:
        self.given_up, self.reason = min(self.given_up, bound), reason

    def _next(self, low: float, box: Box, beginning: Beginning | None) -> Iterable[tuple[float, Beginning]]:
        """What comes of a box or of a beginning, all of whose plans take at least ``low``."""
        if beginning is not None:
            if _end(self.tables, beginning):
                return box.grow(beginning)
            self._simulate(low, beginning.stages)
            return ()
        try:
            found = list(box.open())
        except SizeError as error:
            self._give_up(low, str(error))
            return ()
        # A plan of each box early: the better the best one, the smaller what is searched of the others.
        ahead = found
        while ahead:
            least, first = min(ahead, key=lambda entry: entry[0])
            if not _end(self.tables, first):
                self._simulate(least, first.stages)
                break
            ahead = list(box.grow(first))
        return found

    def _simulate(self, low: float, stages: tuple[Stage, ...]) -> None:
        """Simulate a plan, and take it if it is better.

        What machines or requirements forbid of these stages they forbid whichever TMPCs are chosen.
        """
        tables = self.tables
        timed = tables.timed(stages)
        if timed is None:
            return
        sync = max(self._sync(stage) for stage in timed)
        self.simulated += 1
        if self._iteration(timed) + sync >= tables.limit:
            return
        plan = tables.plan_of(timed)
        broken = judge(violations, tables.flushed, plan)
        if broken:
            if any(each.rule not in ("machines", "required") for each in broken):
                self._give_up(low, "a plan that fits by the tables does not by the definition")
            return
        time = evaluate(tables.flushed, plan)
        self.watch.plan(plan, time)
        if time * tables.m < self.best:
            self.best = time * tables.m
            tables.limit = self.best * (1 - PRECISION)

    def _sync(self, stage: Stage) -> float:
        a = int(np.searchsorted(self.tables.degrees, stage.degree))
        return float(self.tables.weights[stage.q, stage.i, stage.j] * self.tables.rate[a, stage.q])

    def _iteration(self, stages: Sequence[Stage]) -> float:
        """The end of the last pass."""
        degrees, times = zip(*((each.degree, each.time) for each in stages), strict=True)
        edges, tables = self.tables.edges(stages), self.tables
        return end_of_batch(tables.flushed.schedule, degrees, tables.m, edges, times, COMPILED)


def _end(tables: Tables, beginning: Beginning) -> int:
    """The downset of what is still to be put into stages."""
    return beginning.stages[-1].i if beginning.stages else len(tables.lattice.bits) - 1


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The plan of the shortest iteration, with a proof, or the best so far and a bound."""
    downsets = all_downsets(instance.flat, MAX_SIMULATED_DOWNSETS)
    if downsets is None:
        return Answer(stop=Stop.SIZE_LIMIT, reason=too_many(len(instance.flat.layers), MAX_SIMULATED_DOWNSETS))
    try:
        return _search(instance, downsets, limits, watch)
    except SizeError as error:
        return Answer(watch.best_plan, watch.best_bound, stop=Stop.SIZE_LIMIT, reason=str(error))


def _search(instance: FlushedInstance, downsets: Words, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    formula = replace(instance, objective=Objective.FORMULA, fill=Fill.REPLICAS, requirements=())
    time_s = _FIRST_S if limits.time_s is None else min(_FIRST_S, _FIRST_SHARE * limits.time_s)
    part = watch.part(time_s, silent=True)
    try:
        with alarm(part):
            if search_pareto_set(Labels(formula, downsets, part), part, _FIRST_GAP):
                return Answer(infeasible=True, stop=Stop.PROVED, reason=_NO_PLAN)
    except SizeError:
        pass  # the search begins without a plan
    best, stats = math.inf, dict[str, float]()
    if part.best_plan is not None and not judge(violations, instance, part.best_plan):
        best = stats["first_plan"] = evaluate(instance, part.best_plan)
        watch.plan(part.best_plan, best)
    with alarm(watch):
        search = Search(Tables(instance, downsets, watch, best), watch, best)
        search.run(limits.gap if limits.gap > OPTIMAL_GAP else 0.0)
    stats |= {"grown": search.grown, "simulated": search.simulated}
    bound = search.bound() / search.tables.m * (1 - PRECISION)
    if bound == math.inf:
        return Answer(
            infeasible=True,
            stop=Stop.PROVED,
            reason=_NONE_AS_REQUIRED if instance.requirements else _NO_PLAN,
            stats=stats,
        )
    if search.bound(0) < math.inf:  # there may be such plans
        stats["bound_of_one_degree"] = search.bound(0) / search.tables.m * (1 - PRECISION)
    watch.bound(bound)
    stop = Stop.SIZE_LIMIT if search.given_up < search.best * (1 - OPTIMAL_GAP) else watch.why()
    return Answer(watch.best_plan, watch.best_bound, stop=stop, reason=search.reason, stats=stats)
