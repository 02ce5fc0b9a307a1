"""An event simulation of graphs of pipeline stages, each with micro-batches of its own size.

Passes of a kind of a stage run in order. Forward pass j of a stage waits for the forward passes of all predecessors
that cover its last sample, backward pass j for its own forward pass and for the backward passes of all successors that
cover its last sample; where backward passes are split, W of a micro-batch waits for its B. A device runs one pass at a
time. Room for c micro-batches in flight is one more precedence: forward pass j + c waits for backward pass j, or W. So
caps that no schedule can keep show as a cycle of precedences, and without one a schedule that starts whatever can start
never gets stuck; only a fixed order of passes can. Memory that several stages share is no precedence (`fits`).

Source: GraphPipe, sections 3 (C4) and 6; sizes that differ and links that take time are reconstructed. Split backward
passes: Qi et al. 2024, section 2.
"""

import copy
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from instances.problems.microbatch_schedule import Kind, ScheduleInstance

#: Of a device: a word such as ``FFBFBB`` if it has one stage, or the numbers of its passes.
Order = str | Sequence[int]


@dataclass(frozen=True)
class Pass:
    """A pass of a stage's micro-batch."""

    stage: int
    kind: Kind
    index: int
    start_s: float
    end_s: float

    @property
    def is_forward(self) -> bool:
        """Whether it is a forward pass."""
        return self.kind == "F"


def in_order(passes: Iterable[Pass]) -> list[Pass]:
    """The passes by start; of those that start at once, one that takes time comes last."""
    return sorted(passes, key=lambda task: (task.start_s, task.end_s, task.stage))


def peak_in_flight(passes: Sequence[Pass]) -> int:
    """Most micro-batches between the start of F and the end of B, or of W if there are any, of a stage's passes.

    A device runs one pass at a time, so their order decides.
    """
    releases = "W" if any(task.kind == "W" for task in passes) else "B"
    held = most = 0
    for task in passes:
        held += (task.kind == "F") - (task.kind == releases)
        most = max(most, held)
    return most


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
        return tuple("".join(task.kind for task in self.of(s)) for s in range(num_stages))

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

    Passes are numbered stage by stage: its forward passes, its backward passes, then its weight gradients if it has
    any. ``before[p]`` are pairs of a pass that p waits for and the seconds from that one's end; ``rooms`` replace those
    of the instance.
    """

    def __init__(self, instance: ScheduleInstance, rooms: Sequence[int] | None = None) -> None:
        self.instance = instance
        self.rooms = tuple(instance.rooms if rooms is None else rooms)
        self.counts = [instance.num_microbatches(stage) for stage in range(len(instance.stages))]
        self.stage: list[int] = []
        self.device: list[int] = []
        self.index: list[int] = []
        self.kind: list[Kind] = []
        self.seconds: list[float] = []
        self.first: list[int] = []
        for number, (stage, count) in enumerate(zip(instance.stages, self.counts, strict=True)):
            self.first.append(len(self.stage))
            for kind, seconds in stage.seconds.items():
                self.stage += [number] * count
                self.device += [instance.device_of[number]] * count
                self.index += range(count)
                self.kind += [kind] * count
                self.seconds += [seconds] * count
        self.before: list[list[tuple[int, float]]] = [[] for _ in self.stage]
        for number, count in enumerate(self.counts):
            self._own(number, count)
        for edge in instance.edges:
            self._across(edge.source, edge.target, "F", instance.delay(edge, edge.source))
            self._across(edge.target, edge.source, "B", instance.delay(edge, edge.target))
        self.after: list[list[tuple[int, float]]] = [[] for _ in self.stage]
        for later, waits in enumerate(self.before):
            for earlier, lag in waits:
                self.after[earlier].append((later, lag))

    def number(self, stage: int, kind: Kind, index: int) -> int:
        """The number of a pass."""
        return self.first[stage] + index + "FBW".index(kind) * self.counts[stage]

    def release(self, stage: int, index: int) -> int:
        """The number of the pass at whose end a micro-batch is no longer in flight."""
        return self.number(stage, self.instance.stages[stage].releases, index)

    def on(self, device: int) -> list[int]:
        """The passes of a device, by number."""
        return [
            number
            for stage in self.instance.stages_on[device]
            for number in range(self.first[stage], self.first[stage] + self.passes_of(stage))
        ]

    def passes_of(self, stage: int) -> int:
        """How many passes a stage has."""
        return len(self.instance.stages[stage].seconds) * self.counts[stage]

    def next_of_kind(self, number: int) -> int:
        """The next pass of its stage and kind; -1 behind the last."""
        return number + 1 if self.index[number] + 1 < self.counts[self.stage[number]] else -1

    def orders_of(self, passes: Iterable[Pass]) -> tuple[tuple[int, ...], ...]:
        """For every device the numbers of its passes, in the order in which they run."""
        found: list[list[int]] = [[] for _ in self.instance.stages_on]
        for task in in_order(passes):
            number = self.number(task.stage, task.kind, task.index)
            found[self.device[number]].append(number)
        return tuple(map(tuple, found))

    def numbers(self, device: int, order: Order) -> list[int]:
        """The passes of a device's order; each kind of a word counts its own, and W follows B where it has none."""
        if not isinstance(order, str):
            return list(order)
        (stage,) = self.instance.stages_on[device]
        if self.instance.stages[stage].releases == "W" and "W" not in order:
            order = order.replace("B", "BW")
        begun, found = Counter[str](), []
        for kind in order:
            found.append(self.number(stage, kind, begun[kind]))  # type: ignore[arg-type]
            begun[kind] += 1
        return found

    def shares_memory(self, device: int) -> bool:
        """Whether several stages have one memory, which `rooms` do not keep."""
        return len(self.instance.stages_on[device]) > 1 and self.instance.memory(device) is not None

    def fits(self, orders: Sequence[Order]) -> bool:
        """Whether orders keep the memory that stages share."""
        for device, order in enumerate(orders):
            if not self.shares_memory(device):
                continue
            held = [0] * len(self.counts)
            for number in self.numbers(device, order):
                stage = self.stage[number]
                held[stage] += self.holds(number)
                if self.holds(number) > 0 and not self.has_room(device, held):
                    return False
        return True

    def has_room(self, device: int, held: Sequence[int]) -> bool:
        """Whether a device has memory for so many micro-batches of each stage."""
        memory = self.instance.memory(device)
        return memory is None or self.instance.bytes_held(device, held) <= memory

    def holds(self, number: int) -> int:
        """What a pass changes of the micro-batches in flight: 1, 0 or -1."""
        kind = self.kind[number]
        return 1 if kind == "F" else -(kind == self.instance.stages[self.stage[number]].releases)

    def _own(self, stage: int, count: int) -> None:
        """Passes of a kind in order, F before B before W, and room for what is in flight."""
        room, kinds = self.rooms[stage], list(self.instance.stages[stage].seconds)
        for j in range(count):
            for place, kind in enumerate(kinds):
                number = self.number(stage, kind, j)
                if place:
                    self.before[number].append((self.number(stage, kinds[place - 1], j), 0.0))
                if j:
                    self.before[number].append((number - 1, 0.0))
            if j >= room:
                self.before[self.number(stage, "F", j)].append((self.release(stage, j - room), 0.0))

    def _across(self, giver: int, taker: int, kind: Kind, delay: float) -> None:
        """A pass of ``taker`` waits for the pass of ``giver`` with its last sample; on one device at once."""
        size, given = self.instance.stages[taker].microbatch, self.instance.stages[giver].microbatch
        for j in range(self.counts[taker]):
            covering = ((j + 1) * size - 1) // given
            self.before[self.number(taker, kind, j)].append((self.number(giver, kind, covering), delay))

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

    def pin(self, device: int, order: Order) -> None:
        """The device keeps this order: each pass waits for the one before it."""
        for earlier, number in pairwise(self.numbers(device, order)):
            self.before[number].append((earlier, 0.0))
            self.after[earlier].append((number, 0.0))

    def mirrored(self) -> "PassGraph":
        """The same iteration backwards in time: each pass waits for those that waited for it."""
        made = copy.copy(self)
        made.before, made.after = self.after, self.before
        return made

    def is_possible(self) -> bool:
        """Whether any schedule keeps the rooms."""
        return min(self.rooms) > 0 and len(self.sorted()) == len(self.stage)

    def backward_first(self, number: int) -> tuple[int, int]:
        """The paper's greedy choice as a `Priority`: B, then F, of later stages first; W if nothing else can start."""
        return "BFW".index(self.kind[number]), -self.stage[number]


#: A key of passes: of those of a device that could start, the one with the least key does.
Priority = Callable[[int], Any]


def run(
    graph: PassGraph, orders: Sequence[Order] | None = None, *, repair: bool = False, priority: Priority | None = None
) -> GraphTrace:
    """Start every pass as early as the precedences and the orders allow.

    ``orders``: for each device its passes (`Order`). Without orders a device never waits for a pass while another one
    can start; of several it takes the least by ``priority`` (default: `PassGraph.backward_first`).
    ``repair``: where orders get stuck, take a pass out of turn: the first that could start.
    """
    return _Run(graph, orders, repair, priority or graph.backward_first).run()


class _Run:
    def __init__(self, graph: PassGraph, orders: Sequence[Order] | None, repair: bool, priority: Priority) -> None:
        self.graph, self.repair, self.priority = graph, repair, priority
        self.orders = (
            None if orders is None else [graph.numbers(device, order)[::-1] for device, order in enumerate(orders)]
        )
        self.waiting = [len(waits) for waits in graph.before]
        self.ready_at = [0.0] * len(graph.stage)
        devices = graph.instance.stages_on
        # The passes of a device that could start now: at most one of a kind of a stage.
        self.able: list[list[int]] = [[] for _ in devices]
        self.free_at = [0.0] * len(devices)
        self.events: list[tuple[float, int]] = []  # (time, pass that is available) or (time, -1 - device that is free)
        self.passes: list[Pass] = []
        # Without orders the stages of a device share its memory as they go.
        self.shares = [orders is None and graph.shares_memory(device) for device in range(len(devices))]
        self.held = [0] * len(graph.counts)
        self.place = {stage: place for place, stage in enumerate(graph.instance.order)}

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
                for device in sorted(touched):
                    self._start(now, device)
            if not (self.repair and self._out_of_turn(now)):
                break
        stuck = sorted({self.graph.stage[number] for number, count in enumerate(self.waiting) if count >= 0})
        return GraphTrace(tuple(sorted(self.passes, key=lambda task: (task.start_s, task.stage))), tuple(stuck))

    def _happen(self, what: int) -> int:
        """Returns the device it happens to."""
        if what < 0:
            return -1 - what
        device = self.graph.device[what]
        self.able[device].append(what)
        return device

    def _start(self, now: float, device: int) -> None:
        """Start the pass that is due, if the device is free and there is one."""
        able = self.able[device]
        if not able or self.free_at[device] > now:
            return
        if self.orders is not None:
            if not self.orders[device] or self.orders[device][-1] not in able:
                return
            number = self.orders[device].pop()
        else:
            if self.shares[device]:
                able = [each for each in able if self.graph.kind[each] != "F" or self._leaves_room(device, each)]
                if not able:
                    return
            number = min(able, key=self.priority)
        self._run_pass(now, number)

    def _leaves_room(self, device: int, number: int) -> bool:
        """Whether there is memory for a forward pass, and then for one of each stage behind that has none in flight.

        So the last stages always go on, and by induction all stages before them: in a chain none gets stuck.
        """
        stage, held = self.graph.stage[number], list(self.held)
        held[stage] += 1
        for other in self.graph.instance.stages_on[device]:
            if self.place[other] > self.place[stage]:
                held[other] = max(1, held[other])
        return self.graph.has_room(device, held)

    def _run_pass(self, now: float, number: int) -> None:
        graph = self.graph
        stage, device, end = graph.stage[number], graph.device[number], now + graph.seconds[number]
        self.able[device].remove(number)
        self.waiting[number] = -1
        self.free_at[device] = end
        self.held[stage] += graph.holds(number)
        self.passes.append(Pass(stage, graph.kind[number], graph.index[number], now, end))
        heapq.heappush(self.events, (end, -1 - device))
        for later, lag in graph.after[number]:
            self.ready_at[later] = max(self.ready_at[later], end + lag)
            self.waiting[later] -= 1
            if not self.waiting[later]:
                heapq.heappush(self.events, (self.ready_at[later], later))

    def _out_of_turn(self, now: float) -> bool:
        """Where every device waits for its turn: bring forward the first pass that could start."""
        if self.orders is None:
            return False
        for device, able in enumerate(self.able):
            if able:
                number = min(able, key=self.graph.backward_first)
                self.orders[device].remove(number)
                self._run_pass(max(now, self.free_at[device]), number)
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
