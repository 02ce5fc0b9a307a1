"""``graphpipe-plus``: the same recursion over a wider space, on the fewest devices.

Small models: all partitions (``levels.py``). Others: the series-parallel recursion with stages that reach into branches
and walk across them (``program.py``), every data-parallel degree and every micro-batch size. Instead of the fewest
micro-batches in flight for each number of devices it keeps the fewest devices for each number in flight at a state's
first stages: then branches side by side simply add up. For each micro-batch size the least target comes from the finite
list of what stages take; where a shallower pipeline could make up for a slower one, its least target is found as well.

Source: made for this project, after GraphPipe, Algorithm 1.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.stage_graph.costs.costs import Costs, assemble, identical
from formulations.stage_graph.costs.iteration import iteration_s, objective_of
from formulations.stage_graph.costs.series_parallel import Segment, chain, decompose
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import all_reduce_s, bottleneck_s, depth
from formulations.stage_graph.kernels.levels import needed
from formulations.stage_graph.kernels.program import fewest
from formulations.stage_graph.paper.device_graph import Placer, machines
from formulations.stage_graph.paper.graphpipe import answer_of, each_size
from formulations.stage_graph.paper.program import (
    EMPTY,
    FORK,
    GROUP,
    SPLIT,
    STAGE,
    Program,
    Reach,
    Remainder,
    TooLargeError,
)
from formulations.stage_graph.paper.program_tables import Tables
from formulations.stage_graph.paper.search import MAX_TRANSITIONS, Part, Search, powers_of_two, room_for
from formulations.stage_graph.upsets.chains import TooManyError
from formulations.stage_graph.upsets.levels import Levels
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Limits, Stop, Watch

#: A model is small if all its partitions are laid out in a second: pairs of upsets, and operators if these are narrow.
SMALL_PAIRS = 600_000
#: Most plans have at most this depth.
_SHALLOW = 8
#: Rows of the Pareto set that are looked for at each micro-batch size.
_SHALLOWER = 3
#: Transitions of GraphPipe's recursion, roughly, in a fifth of a second.
_PUBLISHED = 20_000_000
#: Micro-batch sizes at which shorter all-reduces are tried.
_REDUCED = 3


#: Plans found, and counts that explain the effort.
Plans = tuple[list[StagePlan], dict[str, Any]]


@dataclass
class _Room:
    """Arrays of the recursion for plans of at most so many micro-batches in flight at the first stages."""

    states: int
    stages: int
    most: int

    def __post_init__(self) -> None:
        shape = room_for(self.states, self.most)
        self.least = np.empty(shape, np.int32)
        self.pick, self.middle = np.empty(shape, np.int32), np.empty(shape, np.int32)
        self.need = np.empty((self.stages, self.most + 2), np.int32)


class Fewest:
    """The recursion on the fewest devices, for one structure."""

    def __init__(self, costs: Costs, segment: Segment, reach: Reach, watch: Watch) -> None:
        self.costs, self.segment, self.watch = costs, segment, watch
        self.program = Program(reach, MAX_TRANSITIONS, watch)
        self.root = self.program.enter(segment)
        self.devices = costs.instance.num_devices
        self.tables = Tables(costs, self.program, range(1, self.devices + 1))
        self.deepest = min(self.devices, costs.instance.num_operators)
        self._rooms: dict[int, _Room] = {}
        self._flag = np.frombuffer(watch.flag, np.uint8)
        self.transitions = self.rounds = 0
        #: Stages whose all-reduce takes longer are left out, seconds.
        self.longest_reduce_s = np.inf

    def shallowest(self, microbatch: int, target_s: float, deepest: int) -> int | None:
        """The least depth of a plan within the target; ``None`` if that is beyond ``deepest`` (or the watch stopped).

        Depths as the recursion counts them; the plan may turn out to be shallower.
        """
        most = _SHALLOW if deepest <= _SHALLOW < self.deepest else self.deepest
        if most not in self._rooms:
            self._rooms[most] = _Room(self.tables.num_states, len(self.tables.masks), most)
        self._room = room = self._rooms[most]
        tables = self.tables
        tps, held = tables.at(microbatch)
        if self.longest_reduce_s < np.inf:
            tps = np.where(tables.reduce <= self.longest_reduce_s, tps, np.inf)
        needed(tps, held, target_s, tables.degrees, room.need)
        looked = fewest(tables.moves, room.need, self.devices, room.least, room.pick, room.middle, self._flag)
        if looked < 0:
            return None
        self.transitions += looked
        self.rounds += 1
        enough = np.nonzero(room.least[self.root, 0, : deepest + 1] <= self.devices)[0]
        return int(enough[0]) if len(enough) else None

    def least_target(self, microbatch: int, targets: Any, start: int, deepest: int) -> tuple[int, int] | None:
        """The first of ascending targets that a plan of at most this depth keeps, and the least depth there.

        ``start``: where a plan is thought to exist; if it does not, it is looked for up to the last target. Most plans
        are shallow: the search is for these, and one look for a deeper plan at the target below ends it.
        """
        found = None
        for depth_limit in sorted({min(_SHALLOW, deepest), deepest}):
            low, high = 0, start if found is None else found[0] - 1
            shallow = self.shallowest(microbatch, targets[high], depth_limit) if high >= 0 else None
            if shallow is None and found is None and start < len(targets) - 1:
                low, high = start + 1, len(targets) - 1
                shallow = self.shallowest(microbatch, targets[high], depth_limit)
            if shallow is None:
                continue
            found = high, shallow
            while low < high and not self.watch.stopped():
                middle = (low + high) // 2
                shallow = self.shallowest(microbatch, targets[middle], depth_limit)
                if shallow is None:
                    low = middle + 1
                else:
                    high, found = middle, (middle, shallow)
        return found

    def parts(self, microbatch: int, target_s: float, deepest: int) -> list[Part]:
        """The stages of the plan behind ``least_target``, from the first on."""
        if self.shallowest(microbatch, target_s, deepest) is None:
            return []
        return list(self._parts(self.segment, 0, deepest))[::-1]

    def _parts(self, remainder: Remainder, j: int, v: int) -> Iterator[Part]:
        """Stages of a remainder with j micro-batches in flight behind it and at most v at its first stages."""
        state = self.program.state(remainder)
        if state == EMPTY:
            return
        chosen = int(self._room.pick[state, j, v] - self.tables.moves.start[state])
        move = next(move for number, move in enumerate(self.program.moves(remainder)) if number == chosen)
        stage = int(self.tables.moves.stage[self.tables.moves.start[state] + chosen])
        if move.kind == STAGE:
            yield move.nodes, int(self._room.need[stage, j + 1])
            yield from self._parts(move.first, j + 1, v)
        elif move.kind == GROUP:
            yield move.nodes, int(self._room.need[stage, j + 1])
            yield from self._parts(move.first, j, v)
        elif move.kind == SPLIT:
            yield from self._parts(move.first, j, v)
            yield from self._parts(move.second, j, v)
        else:
            between = int(self._room.middle[state, j, v])
            yield from self._parts(move.first, j, between)
            if move.kind == FORK:
                between += 1
                yield move.nodes, int(self._room.need[stage, between])
            yield from self._parts(move.second, between, v)


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:  # noqa: ARG001
    """Plans of least bottleneck, and shallower ones where these may be quicker."""
    return _answer(instance, watch, _plans if instance.device_graph is None else _placed)


def solve_wide(instance: StageGraph, watch: Watch) -> Answer[StagePlan]:
    """The same by the recursion alone, which leaves some partitions out."""
    return _answer(instance, watch, _wide)


def _answer(instance: StageGraph, watch: Watch, find: Callable[[StageGraph, Watch], Plans]) -> Answer[StagePlan]:
    try:
        with alarm(watch):
            plans, stats = find(instance, watch)
    except TooLargeError as error:
        return Answer(stop=watch.why(Stop.SIZE_LIMIT), reason=str(error))
    return answer_of(instance, watch, plans, stats)


def _plans(instance: StageGraph, watch: Watch) -> Plans:
    """Those of all partitions where these are few, else of the recursion."""
    try:
        search = Levels(Costs(instance), watch, SMALL_PAIRS)
    except TooManyError:
        return _wide(instance, watch)
    return each_size(instance, watch, search.best_at, list(reversed(instance.microbatch_sizes))), search.stats()


def _wide(instance: StageGraph, watch: Watch) -> Plans:
    costs = Costs(instance)
    order = decompose(costs)
    searches = [Fewest(costs, order.segment, Reach.STRADDLE, watch)]
    if order.cuts:  # a chain of operators may have the plans that the conversion excludes
        searches.append(Fewest(costs, chain(costs), Reach.NONE, watch))
    plans = [plan for search in searches for plan in _searched(instance, search, watch)]
    stats = {
        "transitions": sum(search.transitions for search in searches),
        "rounds": sum(search.rounds for search in searches),
        "states": sum(search.tables.num_states for search in searches),
    }
    return plans, {**stats, **order.loss()}


def _placed(instance: StageGraph, watch: Watch) -> Plans:
    """The stages that identical machines ask for, on devices that a local search finds for them.

    Of each micro-batch size only plans whose stages would be faster than the best plan on the fastest links are placed.
    """
    fastest, found, plans = identical(instance), list[StagePlan](), list[StagePlan]()
    counts = {"machines": 0, "transitions": 0, "rounds": 0}
    for machine in machines(instance):
        if watch.stopped():
            break
        made, stats = _plans(machine, watch.part(silent=True))
        found += made
        counts["machines"] += 1
        counts |= {name: counts[name] + stats[name] for name in ("transitions", "rounds")}
    placer, best = Placer(instance, watch), math.inf
    for least, _, plan in sorted((bottleneck_s(fastest, plan), number, plan) for number, plan in enumerate(found)):
        if watch.stopped() or (least >= best and instance.objective == "tps"):
            break
        placed = placer.place(plan)
        if placed is not None:
            best = min(best, bottleneck_s(instance, placed))
            plans.append(placed)
            watch.plan(placed, objective_of(instance, placed))
    return plans, {**counts, "placed": len(plans)}


def _searched(instance: StageGraph, search: Fewest, watch: Watch) -> list[StagePlan]:
    """Plans of least bottleneck, and at the quickest micro-batch sizes others that may be quicker still."""
    plans = list(_sweep(instance, search, watch))
    seconds = {id(plan): iteration_s(instance, plan) for plan in plans}
    quickest: dict[int, StagePlan] = {}
    for plan in sorted(plans, key=lambda each: seconds[id(each)]):
        quickest.setdefault(plan.stages[0].microbatch, plan)
    for plan in list(quickest.values())[:_REDUCED]:
        plans += _reduced(instance, search, plan, watch)
    if search.program.reach is Reach.STRADDLE:
        plans += _published(search, list(quickest), watch)
    return plans


def _published(search: Fewest, sizes: list[int], watch: Watch) -> Iterator[StagePlan]:
    """What GraphPipe's own recursion finds at these sizes, as long as that takes a moment.

    Its stages often differ where the bottleneck is the same, and may fill the pipeline sooner.
    """
    degrees = powers_of_two(search.devices)
    if search.devices**3 > _PUBLISHED:
        return
    published = Search(search.costs, search.segment, Reach.OWNER, degrees, False, False, watch)
    work = published.program.count * search.devices**3
    for microbatch in sizes[: _PUBLISHED // work]:
        plan = published.best_at(microbatch) if not watch.stopped() else None
        if plan is not None:
            yield plan
    search.transitions += published.transitions


def _reduced(instance: StageGraph, search: Fewest, plan: StagePlan, watch: Watch) -> Iterator[StagePlan]:
    """Plans with all-reduces half as long, and again as long as that helps.

    The bottleneck has a stage's share of the all-reduce in it, but an iteration the longest of all stages.
    """
    microbatch = plan.stages[0].microbatch
    targets, start = _targets(search, microbatch, [])
    before = iteration_s(instance, plan)
    try:
        while (longest := max(all_reduce_s(instance, stage) for stage in plan.stages)) > 0 and not watch.stopped():
            search.longest_reduce_s = longest / 2
            found = search.least_target(microbatch, targets, start, search.deepest)
            parts = search.parts(microbatch, float(targets[found[0]]), found[1]) if found else []
            if not parts:
                return
            plan = assemble(instance, parts, microbatch)
            yield plan
            if (now := iteration_s(instance, plan)) >= before:
                return
            before = now
    finally:
        search.longest_reduce_s = np.inf


def _sweep(instance: StageGraph, search: Fewest, watch: Watch) -> Iterator[StagePlan]:
    """Plans of every micro-batch size, from large to small: the least target, and shallower plans."""
    parts: list[Part] = []
    for microbatch in reversed(instance.microbatch_sizes):
        targets, start = _targets(search, microbatch, parts)
        deepest, parts = search.deepest, []
        for _ in range(1 + _SHALLOWER if len(targets) else 0):
            found = search.least_target(microbatch, targets, start, deepest)
            if watch.stopped() or found is None:
                break
            number, shallow = found
            stages = search.parts(microbatch, float(targets[number]), shallow)
            if not stages:
                break
            parts = parts or stages
            plan = _quicker(instance, [stages, spread(search.costs, stages, microbatch)], microbatch)
            watch.plan(plan, objective_of(instance, plan))
            yield plan
            # A shallower plan must be less slow than what it saves in filling: B + b (depth - 1) samples' time.
            filled = instance.minibatch + microbatch * (depth(plan) - 1)
            deepest = min(depth(plan), shallow) - 1
            if deepest < 1:
                break
            at_most = targets[number] * filled / (instance.minibatch + microbatch * (deepest - 1))
            targets = targets[number : np.searchsorted(targets, at_most, side="right")]
            start = len(targets) - 1
        if watch.stopped():
            return


def _targets(search: Fewest, microbatch: int, parts: list[Part]) -> tuple[Any, int]:
    """Times per sample that stages can have, ascending, and which of them there should be a plan for.

    The stages of a larger micro-batch size mostly fit at a smaller one, too: their slowest is such a time.
    """
    tps, room = search.tables.at(microbatch)
    low = search.costs.compute_s(search.costs.everything, microbatch) / microbatch / search.devices * (1 - 1e-9)
    targets = np.unique(tps[(room > 0) & (tps >= low) & np.isfinite(tps)])
    if not parts or any(devices > microbatch for _, devices in parts):
        return targets, len(targets) - 1
    high = max(search.costs.tps(nodes, microbatch, devices) for nodes, devices in parts) * (1 + 1e-9)
    return targets, max(0, int(np.searchsorted(targets, high, side="right")) - 1)


def _quicker(instance: StageGraph, choices: list[list[Part]], microbatch: int) -> StagePlan:
    plans = [assemble(instance, parts, microbatch) for parts in choices]
    return min(plans, key=lambda plan: iteration_s(instance, plan))


def spread(costs: Costs, parts: list[Part], microbatch: int) -> list[Part]:
    """The stages with idle devices given to the slowest ones, as long as these become faster."""
    idle = costs.instance.num_devices - sum(devices for _, devices in parts)
    found = list(parts)
    while idle > 0:
        slowest_first = sorted(
            range(len(found)), key=lambda number: -costs.tps(found[number][0], microbatch, found[number][1])
        )
        for number in slowest_first:
            nodes, devices = found[number]
            now = costs.tps(nodes, microbatch, devices)
            more = [
                extra
                for extra in range(1, min(idle, microbatch - devices) + 1)
                if costs.tps(nodes, microbatch, devices + extra) < now
            ]
            if more:
                found[number] = nodes, devices + more[0]
                idle -= more[0]
                break
        else:
            break
    return found
