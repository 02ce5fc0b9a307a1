"""Zero bubble's automatic scheduler: from stage to stage, turn by turn, weight gradients where a device would wait.

- Warm-up: each stage runs forward passes until its first B can come, as far as there is room; the number falls from
  stage to stage. Whether one that ends after that moment is run is the first switch.
- Then all stages run an F, from the first on, and a B, from the last on. Before either W run while the device would
  wait that long; before a shorter gap if otherwise the largest idle time of a stage grew, else by the second switch.
- W also run where there is no room for an F, and at the end.
- A stage may leave out an F where it is two ahead of the next one, unless that makes it the one that idles most: the
  third switch. So the next stage is never without an F.

All eight settings are tried, and the shortest iteration is taken.

Source: Qi et al. 2024, section 3.1; the details from its release (auto_schedule.py, commit 6229e79). Deviation: the
release takes the setting with the least time from a device's first pass to its last, and holds a part of a
micro-batch's activations from B to W; here it is the iteration, and all of them.
"""

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

from formulations.contract.family import Answer
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.heuristics.orders import answer
from formulations.simulation.simulate_graph import GraphTrace, PassGraph, run
from instances.problems.microbatch_schedule import Kind, ScheduleInstance
from solvers.outcome import Limits, Watch


class Switches(NamedTuple):
    """What the scheduler tries both ways."""

    late_warm_up: bool
    always_fill: bool
    may_skip: bool


def zb_auto(instance: ScheduleInstance, _limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """The shortest iteration of the eight settings."""

    def make(graph: PassGraph) -> GraphTrace:
        tried = (run(graph, Trial(graph, Switches(*each)).orders()) for each in product((False, True), repeat=3))
        return min(tried, key=lambda trace: (bool(trace.stuck), trace.iteration_s))

    return answer(instance, watch, make)


class Trial:
    """One setting: what has run on each stage of a chain, and when it ended."""

    def __init__(self, graph: PassGraph, switches: Switches) -> None:
        instance = graph.instance
        self.switches, self.room = switches, graph.rooms
        self.p, self.m = len(instance.stages), instance.num_microbatches(0)
        self.seconds = [stage.seconds for stage in instance.stages]
        self.delay = {(edge.source, "F"): instance.delay(edge, edge.source) for edge in instance.edges}
        self.delay |= {(edge.target, "B"): instance.delay(edge, edge.target) for edge in instance.edges}
        self.words = [""] * self.p
        #: When passes of a kind of a stage ended, in turn; when each stage is free, and how long it was idle since F0.
        kinds: tuple[Kind, ...] = ("F", "B", "W")
        self.ends: dict[tuple[int, Kind], list[float]] = {each: [] for each in product(range(self.p), kinds)}
        self.free, self.idle = [0.0] * self.p, [0.0] * self.p

    def orders(self) -> list[str]:
        """The passes of each stage as a word."""
        self._warm_up()
        for turn in range(1, self.m):
            for stage in self._forward_in_turn():
                while self._held(stage) >= self.room[stage]:
                    self._run(stage, "W")
                self._fill(stage, "F")
                self._run(stage, "F")
            for stage in reversed(range(self.p)):
                self._fill(stage, "B")
                if stage == 0 and self._count(0, "F") == self.m:
                    self._rest(0)
                self._run(stage, "B")
            assert all(self._count(stage, "B") == turn + 1 for stage in range(self.p))
        for stage in range(self.p):
            self._rest(stage)
        return self.words

    def _count(self, stage: int, kind: Kind) -> int:
        return len(self.ends[stage, kind])

    def _held(self, stage: int) -> int:
        return self._count(stage, "F") - self._count(stage, "W")

    def _arrives(self, stage: int, kind: Kind) -> float:
        """When what the next pass of a kind waits for at another stage has come."""
        giver = stage - 1 if kind == "F" else stage + 1
        if kind == "W" or not 0 <= giver < self.p:
            return 0.0
        return self.ends[giver, kind][self._count(stage, kind)] + self.delay[giver, kind]

    def _run(self, stage: int, kind: Kind) -> None:
        start = max(self.free[stage], self._arrives(stage, kind))
        if self.words[stage]:
            self.idle[stage] += start - self.free[stage]
        self.free[stage] = start + self.seconds[stage][kind]
        self.ends[stage, kind].append(self.free[stage])
        self.words[stage] += kind

    def _rest(self, stage: int) -> None:
        while self._count(stage, "W") < self._count(stage, "B"):
            self._run(stage, "W")

    def _warm_up(self) -> None:
        """The first forward passes of all stages, and their first B."""
        for stage in range(self.p):
            self._run(stage, "F")
        more = [0] * self.p
        last = self.p - 1
        comes = self.free[last] + self.seconds[last]["B"]
        for stage in reversed(range(last)):
            comes += self.delay[stage + 1, "B"]
            free, forward = self.free[stage], self.seconds[stage]["F"]
            while more[stage] + 1 < min(self.m, self.room[stage]) and (
                free < comes if self.switches.late_warm_up else free + forward <= comes
            ):
                free, more[stage] = free + forward, more[stage] + 1
            comes = max(free, comes) + self.seconds[stage]["B"]
        for stage in range(1, self.p):
            ahead = more[stage - 1] if more[stage - 1] + 1 == self.m else max(0, more[stage - 1] - 1)
            more[stage] = min(more[stage], ahead)
        for stage in range(self.p):
            for _ in range(more[stage]):
                self._run(stage, "F")
        for stage in reversed(range(self.p)):
            self._run(stage, "B")

    def _forward_in_turn(self) -> Iterable[int]:
        """The stages that run an F in this turn: all up to one that leaves it out leave it out as well."""
        first = 0
        for stage in range(self.p):
            if self._count(stage, "F") < self.m and self._skips(stage):
                first = stage + 1
        return [stage for stage in range(first, self.p) if self._count(stage, "F") < self.m]

    def _skips(self, stage: int) -> bool:
        """Whether a stage is ahead enough, and its next B so near that an F would delay it, without idling most."""
        below = stage + 1
        if not self.switches.may_skip or below == self.p or self._count(stage, "F") < self._count(below, "F") + 2:
            return False
        next_b = self.free[below] + self.seconds[below]["F"] + self.seconds[below]["B"] + self.delay[below, "B"]
        if self.free[stage] >= next_b:
            return True
        # What has to be given back before there is room for the F.
        given = min(max(0, self._held(stage) + 1 - self.room[stage]), self._count(stage, "B") - self._count(stage, "W"))
        if self.free[stage] + self.seconds[stage]["F"] + given * self.seconds[stage]["W"] <= next_b:
            return False
        return next_b - self.free[stage] <= max(self.idle) - self.idle[stage]

    def _fill(self, stage: int, kind: Kind) -> None:
        """W in the gap before the next pass of a kind."""
        start, weight = self._arrives(stage, kind), self.seconds[stage]["W"]
        while self._count(stage, "W") < self._count(stage, "B") and self.free[stage] < start:
            gap = start - self.free[stage]
            grows = gap > max(self.idle) - self.idle[stage]
            fits = weight <= gap
            if not (fits or grows or self.switches.always_fill):
                return
            self._run(stage, "W")
