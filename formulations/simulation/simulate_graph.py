"""An event simulation of graphs of pipeline stages, each with micro-batches of its own size.

Forward passes of a stage run in order, and so do its backward passes. Forward pass j of a stage waits for the forward
passes of all predecessors that cover its last sample, backward pass j for its own forward pass and for the backward
passes of all successors that cover its last sample. A stage runs one pass at a time. Room for c micro-batches in flight
is one more precedence: forward pass j + c waits for backward pass j. So caps that no schedule can keep show as a cycle
of precedences, and without one a schedule that starts whatever can start never gets stuck; only a fixed order of passes
can.

Source: GraphPipe, sections 3 (C4) and 6; sizes that differ and links that take time are reconstructed.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from instances.problems.microbatch_schedule import ScheduleInstance


@dataclass(frozen=True)
class Pass:
    """A forward or backward pass of a stage's micro-batch."""

    stage: int
    is_forward: bool
    index: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Idle:
    """Seconds in which a stage does nothing.

    ``fill``: before its first backward pass; ``drain``: after its last forward pass and the fill; ``steady``: between.
    """

    fill: float
    steady: float
    drain: float


@dataclass(frozen=True)
class GraphTrace:
    """What happened: the passes by start. ``stuck`` are the stages whose next pass can never start (empty: none)."""

    passes: tuple[Pass, ...]
    stuck: tuple[int, ...] = ()

    @cached_property
    def iteration_s(self) -> float:
        """When the last pass ended."""
        return max((task.end_s for task in self.passes), default=0.0)

    @cached_property
    def _by_stage(self) -> dict[int, list[Pass]]:
        found: dict[int, list[Pass]] = {}
        for task in self.passes:
            found.setdefault(task.stage, []).append(task)
        return found

    def of(self, stage: int) -> list[Pass]:
        """The passes of a stage, by start."""
        return self._by_stage.get(stage, [])

    def orders(self, num_stages: int) -> tuple[str, ...]:
        """For each stage its passes as a word such as ``FFBFBB``."""
        return tuple("".join("F" if task.is_forward else "B" for task in self.of(s)) for s in range(num_stages))

    def peak_in_flight(self, stage: int) -> int:
        """Most micro-batches between the start of their forward and the end of their backward pass."""
        held = most = 0
        for task in self.of(stage):
            held += 1 if task.is_forward else -1
            most = max(most, held)
        return most

    def idle(self, stage: int) -> Idle:
        """Where a stage's idle time lies."""
        passes = self.of(stage)
        begun = min((task.start_s for task in passes if not task.is_forward), default=0.0)
        ended = max(begun, max((task.end_s for task in passes if task.is_forward), default=0.0))
        parts, clock, last = [0.0, 0.0, 0.0], 0.0, self.iteration_s
        for start, end in [*((task.start_s, task.end_s) for task in passes), (last, last)]:
            for part, (low, high) in enumerate(((0.0, begun), (begun, ended), (ended, last))):
                parts[part] += max(0.0, min(start, high) - max(clock, low))
            clock = max(clock, end)
        return Idle(*parts)


class PassGraph:
    """The precedences of an iteration.

    Passes are numbered stage by stage: its forward passes, then its backward passes. ``before[p]`` are pairs of a pass
    that p waits for and the seconds from that one's end; ``rooms`` replace those of the instance.
    """

    def __init__(self, instance: ScheduleInstance, rooms: Sequence[int] | None = None) -> None:
        self.instance = instance
        self.rooms = tuple(instance.rooms if rooms is None else rooms)
        self.counts = [instance.num_microbatches(stage) for stage in range(len(instance.stages))]
        self.stage: list[int] = []
        self.index: list[int] = []
        self.forward: list[bool] = []
        self.seconds: list[float] = []
        self.first: list[int] = []
        for number, (stage, count) in enumerate(zip(instance.stages, self.counts, strict=True)):
            self.first.append(len(self.stage))
            self.stage += [number] * (2 * count)
            self.index += [*range(count), *range(count)]
            self.forward += [True] * count + [False] * count
            self.seconds += [stage.forward_s] * count + [stage.backward_s] * count
        self.before: list[list[tuple[int, float]]] = [[] for _ in self.stage]
        for number, count in enumerate(self.counts):
            self._own(number, count)
        for edge in instance.edges:
            self._across(edge.source, edge.target, True, instance.delay(edge, edge.source))
            self._across(edge.target, edge.source, False, instance.delay(edge, edge.target))
        self.after: list[list[tuple[int, float]]] = [[] for _ in self.stage]
        for later, waits in enumerate(self.before):
            for earlier, lag in waits:
                self.after[earlier].append((later, lag))

    def number(self, stage: int, is_forward: bool, index: int) -> int:
        """The number of a pass."""
        return self.first[stage] + index + (0 if is_forward else self.counts[stage])

    def _own(self, stage: int, count: int) -> None:
        """Passes of a kind in order, forward before backward, and room for what is in flight."""
        room = self.rooms[stage]
        for j in range(count):
            forward, backward = self.number(stage, True, j), self.number(stage, False, j)
            self.before[backward].append((forward, 0.0))
            if j:
                self.before[forward].append((forward - 1, 0.0))
                self.before[backward].append((backward - 1, 0.0))
            if j >= room:
                self.before[forward].append((self.number(stage, False, j - room), 0.0))

    def _across(self, giver: int, taker: int, is_forward: bool, delay: float) -> None:
        """A pass of ``taker`` waits for the pass of ``giver`` with its last sample."""
        size, given = self.instance.stages[taker].microbatch, self.instance.stages[giver].microbatch
        for j in range(self.counts[taker]):
            covering = ((j + 1) * size - 1) // given
            self.before[self.number(taker, is_forward, j)].append((self.number(giver, is_forward, covering), delay))

    def sorted(self) -> list[int]:
        """The passes in a topological order; shorter than all passes if precedences form a cycle."""
        waiting = [len(waits) for waits in self.before]
        found = [number for number, count in enumerate(waiting) if not count]
        for number in found:  # grows while it is walked
            for later, _ in self.after[number]:
                waiting[later] -= 1
                if not waiting[later]:
                    found.append(later)
        return found

    def pin(self, stage: int, order: str) -> None:
        """The stage keeps this order: each pass waits for the one before it."""
        begun = {"F": 0, "B": 0}
        earlier = -1
        for kind in order:
            number = self.number(stage, kind == "F", begun[kind])
            begun[kind] += 1
            if earlier >= 0:
                self.before[number].append((earlier, 0.0))
                self.after[earlier].append((number, 0.0))
            earlier = number

    def mirrored(self) -> PassGraph:
        """The same iteration backwards in time: each pass waits for those that waited for it."""
        made = copy.copy(self)
        made.before, made.after = self.after, self.before
        return made

    def is_possible(self) -> bool:
        """Whether any schedule keeps the rooms."""
        return min(self.rooms) > 0 and len(self.sorted()) == len(self.stage)


#: Of the passes of a stage that could start (a forward one, a backward one), whether to start the forward one.
Preference = Callable[[int, int], bool]


def backward_first(_forward: int, _backward: int) -> bool:
    """The paper's greedy choice."""
    return False


def run(
    graph: PassGraph,
    orders: Sequence[str] | None = None,
    *,
    repair: bool = False,
    prefer_forward: Preference = backward_first,
) -> GraphTrace:
    """Start every pass as early as the precedences and the orders allow.

    Parameters
    ----------
    orders
        For each stage its passes as a word such as ``FFBFBB``. Without orders a stage never waits for a pass while
        another one can start; of two it takes the backward one unless ``prefer_forward`` says otherwise.
    repair
        Where orders get stuck, take a pass out of turn: the first that could start.
    """
    return _Run(graph, orders, repair, prefer_forward).run()


class _Run:
    def __init__(
        self, graph: PassGraph, orders: Sequence[str] | None, repair: bool, prefer_forward: Preference
    ) -> None:
        self.graph, self.repair, self.prefer_forward = graph, repair, prefer_forward
        self.orders = None if orders is None else [list(reversed(order)) for order in orders]
        self.waiting = [len(waits) for waits in graph.before]
        self.ready_at = [0.0] * len(graph.stage)
        stages = len(graph.counts)
        # The forward and backward pass of a stage that could start now.
        self.next: list[dict[bool, int]] = [{} for _ in range(stages)]
        self.free_at = [0.0] * stages
        self.events: list[tuple[float, int]] = []  # (time, pass that is available) or (time, -1 - stage that is free)
        self.passes: list[Pass] = []

    def run(self) -> GraphTrace:
        for number, count in enumerate(self.waiting):
            if not count and min(self.graph.rooms) > 0:
                heapq.heappush(self.events, (0.0, number))
        now = 0.0
        while True:
            while self.events:
                now = self.events[0][0]
                touched = set()
                while self.events and self.events[0][0] == now:
                    touched.add(self._happen(heapq.heappop(self.events)[1]))
                for stage in sorted(touched):
                    self._start(now, stage)
            if not (self.repair and self._out_of_turn(now)):
                break
        stuck = sorted({self.graph.stage[number] for number, count in enumerate(self.waiting) if count >= 0})
        return GraphTrace(tuple(sorted(self.passes, key=lambda task: (task.start_s, task.stage))), tuple(stuck))

    def _happen(self, what: int) -> int:
        """Returns the stage it happens to."""
        if what < 0:
            return -1 - what
        stage = self.graph.stage[what]
        self.next[stage][self.graph.forward[what]] = what
        return stage

    def _start(self, now: float, stage: int) -> None:
        """Start the pass that is due, if the stage is free and there is one."""
        able = self.next[stage]
        if not able or self.free_at[stage] > now:
            return
        if self.orders is None:
            is_forward = True in able and (False not in able or self.prefer_forward(able[True], able[False]))
        else:
            is_forward = self.orders[stage][-1] == "F" if self.orders[stage] else True
            if is_forward not in able:
                return
            self.orders[stage].pop()
        self._run_pass(now, able.pop(is_forward))

    def _run_pass(self, now: float, number: int) -> None:
        graph = self.graph
        stage, end = graph.stage[number], now + graph.seconds[number]
        self.waiting[number] = -1
        self.free_at[stage] = end
        self.passes.append(Pass(stage, graph.forward[number], graph.index[number], now, end))
        heapq.heappush(self.events, (end, -1 - stage))
        for later, lag in graph.after[number]:
            self.ready_at[later] = max(self.ready_at[later], end + lag)
            self.waiting[later] -= 1
            if not self.waiting[later]:
                heapq.heappush(self.events, (self.ready_at[later], later))

    def _out_of_turn(self, now: float) -> bool:
        """Where every stage waits for its turn: bring forward the first pass that could start."""
        assert self.orders is not None or not any(self.next)
        for stage, able in enumerate(self.next):
            if able and self.orders is not None:
                is_forward = False not in able
                kind = "F" if is_forward else "B"
                order = self.orders[stage]
                for place in range(len(order) - 1, -1, -1):
                    if order[place] == kind:
                        del order[place]
                        break
                self._run_pass(max(now, self.free_at[stage]), able.pop(is_forward))
                return True
        return False


def one_f_one_b(instance: ScheduleInstance) -> GraphTrace:
    """An iteration in the order of 1F1B: a stage warms up with as many forward passes as stages from it to the end.

    Stages are numbered from the input side on, and all have micro-batches of one sample.
    """
    behind, count = [1] * len(instance.stages), instance.minibatch
    for edge in sorted(instance.edges, key=lambda edge: -edge.source):
        behind[edge.source] = max(behind[edge.source], behind[edge.target] + 1)
    return run(PassGraph(instance), [kfkb(count, min(count, each), 1) for each in behind])


def kfkb(count: int, warm_up: int, k: int) -> str:
    """F^l (B^k F^k)* and backward passes at the end, of ``count`` micro-batches.

    >>> kfkb(4, 2, 1), kfkb(5, 3, 2)
    ('FFBFBFBB', 'FFFBBFFBBB')
    """
    warm_up = min(count, warm_up)
    order, forward, backward = ["F" * warm_up], warm_up, 0
    while forward < count:
        turn = min(k, count - backward)
        more = min(k, count - forward)
        order.append("B" * turn + "F" * more)
        forward, backward = forward + more, backward + turn
    return "".join(order) + "B" * (count - backward)
