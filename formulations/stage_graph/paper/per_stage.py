"""GraphPipe's recursion with a micro-batch size (and a k of kFkB) for every stage.

Symbols: a configuration c = (b, k) of a stage, with i samples in flight; c_b that of the stages behind a segment, c_f
that of its first stages, c_m that between two halves of a series. A state is what is left to plan, the (i, b, k)
behind it and d devices; for every c_f it keeps the better plan, by peak memory. The first stages of branches side by
side share their configuration, as the source that children of a parallel node share has one in the paper.

Only powers of two are configurations, and of the sizes with which a stage keeps the target only the smallest ones: they
need the least in flight, and a larger one only helps where its neighbours' are larger still.

Source: GraphPipe, Algorithms 1 and 2, with the rule of ``microbatch_schedule.in_flight`` in place of Table 2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from formulations.microbatch_schedule.definition.in_flight import rule
from formulations.stage_graph.costs.costs import Costs, bits, with_in_flight
from formulations.stage_graph.costs.series_parallel import Segment, nodes_of
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import bottleneck_s, data_edges
from formulations.stage_graph.paper.program import (
    CHAIN,
    EMPTY,
    FORK,
    GROUP,
    SPLIT,
    STAGE,
    Branches,
    Move,
    Program,
    Reach,
    Remainder,
)
from formulations.stage_graph.paper.search import MAX_TRANSITIONS, TOLERANCE, Search
from solvers.outcome import Watch

#: Values of k that are tried.
BLOCKS = (1, 2, 4)
#: Sizes tried for each stage and degree.
_SMALLEST = 2
#: What sums of seconds may lose to rounding.
_ROUNDING = 1e-9

#: Micro-batch size and k.
Configuration = tuple[int, int]
#: Samples in flight, micro-batch size and k.
Behind = tuple[int, int, int]


class Found(NamedTuple):
    """A plan of a state: peak memory in bytes, samples in flight at its first stages, and its stages as a tree."""

    memory: float
    in_flight: int
    stage: Stage | None
    one: Found | None = None
    other: Found | None = None

    def stages(self) -> Iterator[Stage]:
        """All stages, first ones last."""
        if self.stage is not None:
            yield self.stage
        for part in (self.one, self.other):
            if part is not None:
                yield from part.stages()


Choices = Mapping[Configuration, Found]


@dataclass
class PerStage:
    """The recursion of an instance whose schedule is ``per-stage`` or ``kfkb``."""

    costs: Costs
    segment: Segment
    reach: Reach
    degrees: Sequence[int]
    watch: Watch
    transitions: int = 0
    rounds: int = 0
    _memo: dict[tuple[int, Behind, int], Choices] = field(default_factory=dict)
    _usable: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    _works: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        instance = self.costs.instance
        self.program = Program(self.reach, MAX_TRANSITIONS, self.watch)
        self.root = self.program.enter(self.segment)
        self.sizes = [size for size in instance.microbatch_sizes if size & (size - 1) == 0]
        self.blocks = BLOCKS if instance.schedule == "kfkb" else (1,)

    def below(self, seconds: float) -> Iterator[StagePlan]:
        """Plans with a lower bottleneck than this, better and better (binary search on the target)."""
        low, high = self._least_s() if self.sizes else 0.0, seconds
        if math.isinf(high) and self.sizes:
            found = self._plan(high)
            if found is None:
                return
            high = max(self._tps(stage) for stage in found.stages)
            yield found
        # `_least_s` leaves as much open as the search ends with, and is rounded.
        while high - low > TOLERANCE * (1 + 1e-9) * high and not self.watch.stopped():
            middle = (low + high) / 2
            found = self._plan(middle)
            if found is None:
                low = middle
            else:
                high = max(self._tps(stage) for stage in found.stages)
                yield found

    def _least_s(self) -> float:
        """Seconds per sample that no plan of this space goes below, with any memory.

        Sizes divide each other, so with the largest one each stage of a plan takes the least time on its devices. All
        stages may have it where memory holds everything for the whole mini-batch.
        """
        instance, largest = self.costs.instance, max(self.sizes)
        kept = [each.activation_bytes for each in instance.operators]
        kept += [each.bytes_per_sample for each in instance.edges]
        weights = math.fsum(each.weight_bytes for each in instance.operators)
        memory = instance.weight_copies * weights + instance.minibatch * math.fsum(kept)
        costs = Costs(replace(instance, memory_bytes=max(instance.memory_bytes, 2 * memory)))
        plan = Search(costs, self.segment, self.reach, self.degrees, False, False, self.watch).best_at(largest)
        return 0.0 if plan is None or self.watch.stopped() else bottleneck_s(instance, plan) * (1 - TOLERANCE)

    def _tps(self, stage: Stage) -> float:
        return self.costs.tps(sum(1 << node for node in stage.nodes), stage.microbatch, stage.devices)

    def _plan(self, target_s: float) -> StagePlan | None:
        """The better plan that keeps the target, on all devices if possible."""
        self._memo.clear()
        self._usable.clear()
        self.target_s = target_s
        self.rounds += 1
        instance = self.costs.instance
        for devices in range(instance.num_devices, 0, -1):
            found = self._solve(self.segment, (0, 0, 0), devices)
            if found:
                best = min(found.values(), key=lambda each: each.memory)
                stages = tuple(best.stages())[::-1]
                idle = instance.num_devices - sum(stage.devices for stage in stages)
                return with_in_flight(instance, StagePlan(stages, data_edges(instance, stages), idle))
        return None

    def _solve(self, remainder: Remainder, behind: Behind, devices: int) -> Choices:
        """The better plan for each configuration of the first stages, with exactly so many devices."""
        key = self.program.state(remainder), behind, devices
        known = self._memo.get(key)
        if known is not None:
            return known
        best: dict[Configuration, Found] = {}
        if devices > 0 and self._work(remainder) <= devices * self.target_s and not self.watch.stopped():
            for move in self.program.moves(remainder):
                for configuration, found in self._follow(move, behind, devices):
                    self.transitions += 1
                    if configuration not in best or found[:2] < best[configuration][:2]:
                        best[configuration] = found
        self._memo[key] = best
        return best

    def _work(self, remainder: Remainder) -> float:
        """Seconds per sample that all devices of a remainder are busy at least, rounded down."""
        state = self.program.state(remainder)
        if state not in self._works:
            segments = remainder.branches if isinstance(remainder, Branches) else (remainder,)
            self._works[state] = self.costs.work_s(nodes_of(itertools.chain(*segments))) * (1 - _ROUNDING)
        return self._works[state]

    def _follow(self, move: Move, behind: Behind, devices: int) -> Iterator[tuple[Configuration, Found]]:
        if move.kind == STAGE:
            for stage, memory in self._stages(move.nodes, behind, devices):
                yield from self._before(stage, memory, None, move.first, devices - stage.devices)
        elif move.kind == GROUP:
            for stage, memory in self._stages(move.nodes, behind, devices):
                yield from self._beside(stage, memory, move.first, behind, devices - stage.devices)
        elif move.kind == SPLIT:
            for left in range(1, devices):
                one = self._solve(move.first, behind, left)
                other = self._solve(move.second, behind, devices - left) if one else one
                for shared in sorted(one.keys() & other.keys()):
                    branches = one[shared], other[shared]
                    yield shared, _joined(*branches, max(branch.in_flight for branch in branches))
        else:
            yield from self._in_series(move, behind, devices)

    def _in_series(self, move: Move, behind: Behind, devices: int) -> Iterator[tuple[Configuration, Found]]:
        """What comes after, then perhaps a stage that forks, then what comes before."""
        alone = self.program.state(move.second) == EMPTY
        for left in [devices] if alone and move.kind == CHAIN else range(1, devices):
            for (size, block), end in self._solve(move.first, behind, left).items():
                between = (end.in_flight, size, block)
                if move.kind == FORK:
                    for stage, memory in self._stages(move.nodes, between, devices - left):
                        yield from self._before(stage, memory, end, move.second, devices - left - stage.devices)
                elif alone:
                    yield (size, block), end
                else:
                    for first, found in self._solve(move.second, between, devices - left).items():
                        yield first, _joined(found, end, found.in_flight)

    def _before(
        self, stage: Stage, memory: float, end: Found | None, rest: Remainder, devices: int
    ) -> Iterator[tuple[Configuration, Found]]:
        """A stage, what is behind it already planned (or not), and what goes before it."""
        configuration = stage.microbatch, stage.k
        memory = max(memory, end.memory if end else 0.0)
        if self.program.state(rest) == EMPTY:
            if devices == 0:
                yield configuration, Found(memory, stage.in_flight, stage, end)
            return
        for first, found in self._solve(rest, (stage.in_flight, *configuration), devices).items():
            yield first, Found(max(memory, found.memory), found.in_flight, stage, end, found)

    def _beside(
        self, stage: Stage, memory: float, rest: Remainder, behind: Behind, devices: int
    ) -> Iterator[tuple[Configuration, Found]]:
        """A stage of whole branches, and the others."""
        configuration = stage.microbatch, stage.k
        if self.program.state(rest) == EMPTY:
            if devices == 0:
                yield configuration, Found(memory, stage.in_flight, stage)
            return
        found = self._solve(rest, behind, devices).get(configuration)
        if found is not None:
            yield configuration, Found(max(memory, found.memory), max(stage.in_flight, found.in_flight), stage, found)

    def _stages(self, nodes: int, behind: Behind, devices: int) -> Iterator[tuple[Stage, float]]:
        """Ways to run operators as one stage within the target and the memory, and the bytes each needs."""
        instance = self.costs.instance
        successors = [behind] if behind[1] else []
        for degree in self.degrees:
            if degree > devices:
                return
            for size in self._sizes(nodes, degree):
                for block in self.blocks:
                    if block * size > instance.minibatch:
                        continue
                    kept = min(rule(successors, size, block, instance.pass_ratio), instance.minibatch)
                    memory = self.costs.memory(nodes, size, degree, kept)
                    if memory <= instance.memory_bytes:
                        yield Stage(tuple(bits(nodes)), degree, size, kept, block), memory

    def _sizes(self, nodes: int, degree: int) -> list[int]:
        """The smallest sizes with which a stage keeps the target."""
        key = nodes, degree
        if key not in self._usable:
            fast = [s for s in self.sizes if s >= degree and self.costs.tps(nodes, s, degree) <= self.target_s]
            self._usable[key] = fast[:_SMALLEST]
        return self._usable[key]


def _joined(one: Found, other: Found, in_flight: int) -> Found:
    return Found(max(one.memory, other.memory), in_flight, None, one, other)
