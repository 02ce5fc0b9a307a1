"""The numbers of the models: an iteration in whole units for CP-SAT, in natural ones for HiGHS.

Whole durations that are not too large are what CP-SAT solves fastest: they are exact where all seconds are multiples of
one decimal fraction, else rounded down. Durations rounded down keep every schedule possible, so a bound stays a bound.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import Any

from formulations.microbatch_schedule.bounds import SAFE, chains
from formulations.simulation.simulate_graph import PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Watch
from solvers.scaling import Scale, cost_scale

#: The horizon in exact units stays below this.
_MAX_UNITS = 2**40

#: For pairs (p, q) of passes of a device: whether q comes before p.
Pairs = Mapping[tuple[int, int], Any]


@dataclass(frozen=True)
class Units:
    """Units of so many seconds, or bytes, and what an amount is in them; ``is_exact`` if nothing is rounded.

    ``loss`` is what rounding takes off an amount at most, or a solver's tolerance admits.
    """

    unit: Fraction
    of: Callable[[float], float]
    is_exact: bool = False
    loss: float = 0.0

    def lower_bound(self, units: float) -> float:
        """A bound in seconds, or bytes."""
        return float(Fraction(units) * self.unit) * SAFE


@dataclass(frozen=True)
class Bytes:
    """In units of ``units``: of each stage what it always holds and what a micro-batch in flight holds.

    ``rooms`` are the bytes that devices have room for, where several stages share them; rounded up.
    """

    units: Units
    always: tuple[float, ...]
    each: tuple[float, ...]
    rooms: Mapping[int, float]


@dataclass(frozen=True)
class Data:
    """Stages s with ``graph.counts[s]`` micro-batches each; passes p, counted as in `PassGraph`.

    ``graph``: ``seconds[p]``, and ``before[p]``: pairs of a pass q that p waits for and the time of its message; in
    `Units`.
    ``latest``: the longest iteration that is looked for.
    ``deadline_s``: in seconds; ``None`` where there is none, or where only the order of passes counts.
    ``pairs``: two passes of a device of which either may come first.
    ``bytes``: where bytes are minimised, or stages share memory; else ``None``.
    ``units``: of seconds, or of bytes where these are minimised.
    """

    graph: PassGraph
    latest: float
    deadline_s: float | None
    pairs: tuple[tuple[int, int], ...]
    bytes: Bytes | None
    units: Units

    @property
    def of_bytes(self) -> bool:
        """Whether bytes are minimised, not the time."""
        return self.graph.instance.objective == "memory"

    def goes_first(self, pairs: Pairs, p: int, q: int) -> Any:
        """Whether q comes before p, both of a device: 0 or 1 where precedences say it."""
        graph = self.graph
        if (p, q) in pairs:
            return pairs[p, q]
        if (q, p) in pairs:
            return 1 - pairs[q, p]
        # Of a stage: a micro-batch that is `room` behind another waits for the end of it, one in front goes first.
        if graph.kind[p] == graph.kind[q] or graph.index[p] != graph.index[q]:
            return int(graph.index[q] < graph.index[p])
        return int(q < p)

    def in_flight(self, pairs: Pairs, stage: int, p: int) -> Any:
        """Micro-batches of a stage in flight when pass p of its device starts, which is no forward pass."""
        graph, count = self.graph, range(self.graph.counts[stage])
        begun = sum(self.goes_first(pairs, p, graph.number(stage, "F", i)) for i in count)
        return begun - sum(
            self.goes_first(pairs, p, graph.release(stage, i)) for i in count if graph.release(stage, i) != p
        )

    def bytes_held(self, pairs: Pairs, device: int, p: int) -> Any:
        """Bytes on a device when a pass of it starts at whose end a micro-batch is no longer in flight."""
        assert self.bytes is not None
        held = [
            self.bytes.always[s] + self.bytes.each[s] * self.in_flight(pairs, s, p)
            for s in self.graph.instance.stages_on[device]
        ]
        return sum(held[1:], held[0])

    def in_turn(self, pairs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
        """Pairs (p, q) and (p', q'): if q comes before p, q' comes before p', as p' follows p or q follows q'."""
        graph, known = self.graph, dict.fromkeys(pairs)
        for p, q in known:
            later = graph.next_of_kind(p)
            if (later, q) in known:
                yield p, q, later, q
            if graph.index[q] and (p, q - 1) in known:
                yield p, q, p, q - 1

    def releases(self, device: int) -> list[int]:
        """The passes of a device that begin at a peak of what it holds: between two of them it only grows."""
        graph = self.graph
        return [graph.release(s, j) for s in graph.instance.stages_on[device] for j in range(graph.counts[s])]


def open_pairs(graph: PassGraph) -> Iterator[tuple[int, int]]:
    """The pairs of a device's passes of which either may come first.

    Of a stage: F i and B j or W j, and B i and W j, if j < i < j + room: B j waits for F j, F j + room for the end of
    what was j's. Of two stages: all, though precedences decide some.
    """
    for stages in graph.instance.stages_on:
        for stage in stages:
            count, kinds = graph.counts[stage], list(graph.instance.stages[stage].seconds)
            for first, then in combinations(kinds, 2):
                for j in range(count):
                    for i in range(j + 1, min(count, j + graph.rooms[stage])):
                        yield graph.number(stage, first, i), graph.number(stage, then, j)
        for one, other in combinations(stages, 2):
            yield from product(*(range(graph.first[s], graph.first[s] + graph.passes_of(s)) for s in (one, other)))


def data_of(
    instance: ScheduleInstance,
    watch: Watch | None,
    time_units: Callable[[PassGraph], Units],
    byte_units: Callable[[ScheduleInstance], Units],
    *,
    complete: bool,
    declared: PassGraph | None = None,
) -> Data:
    """The data of an instance, or of a graph of its passes with more precedences (``declared``).

    No iteration longer than that of the best known plan is looked for where the shortest one is wanted, unless
    ``complete``. Time does not count where passes wait in a circle, whatever they take, nor for the least memory
    without a deadline: then each pass takes a second, and no message any.
    """
    declared = declared or PassGraph(instance)
    of_bytes, deadline_s = instance.objective == "memory", instance.deadline_s
    if (of_bytes and deadline_s is None) or not declared.is_possible():
        declared, deadline_s = _with_seconds(declared, lambda _: 1.0, lambda _: 0.0), None
    units = time_units(declared)
    graph = _with_seconds(declared, units.of, units.of)
    latest = math.fsum(graph.seconds) + len(graph.seconds) * max(lag for waits in graph.before for _, lag in waits)
    if watch is not None and watch.best_plan is not None and not (complete or of_bytes):
        latest = run(graph, graph.orders_of(watch.best_plan.passes)).iteration_s
    if deadline_s is not None:
        latest = min(latest, float(Fraction(deadline_s) / units.unit))
    pairs = tuple(open_pairs(graph))
    shared = [device for device in range(len(instance.stages_on)) if graph.shares_memory(device)]
    if not (of_bytes or shared):
        return Data(graph, latest, deadline_s, pairs, None, units)
    in_bytes = byte_units(instance)
    rooms = {device: in_bytes.of(instance.memory(device) or 0.0) + in_bytes.loss for device in shared}
    held = Bytes(
        in_bytes,
        tuple(in_bytes.of(stage.weight_bytes) for stage in instance.stages),
        tuple(in_bytes.of(stage.microbatch * stage.activation_bytes) for stage in instance.stages),
        rooms,
    )
    return Data(graph, latest, deadline_s, pairs, held, in_bytes if of_bytes else units)


def _with_seconds(graph: PassGraph, seconds: Callable[[float], float], lags: Callable[[float], float]) -> PassGraph:
    """The same precedences, with passes and messages of other lengths."""
    made = copy.copy(graph)
    lengths = {time: seconds(time) for time in set(graph.seconds)}
    delays = {lag: lags(lag) for waits in graph.before for _, lag in waits}
    made.seconds = [lengths[time] for time in graph.seconds]
    made.before = [[(number, delays[lag]) for number, lag in waits] for waits in graph.before]
    made.after = [[(number, delays[lag]) for number, lag in waits] for waits in graph.after]
    return made


def natural_seconds(graph: PassGraph) -> float:
    """What units are chosen by: the busiest device's passes one after the other, or the longest chain of passes."""
    devices = range(len(graph.instance.stages_on))
    busiest = max(math.fsum(graph.seconds[number] for number in graph.on(device)) for device in devices)
    if not graph.is_possible():
        return busiest
    known = chains(graph)
    return max(busiest, *(h + s + t for h, s, t in zip(known.heads, graph.seconds, known.tails, strict=True)))


def whole_seconds(graph: PassGraph) -> Units:
    """For CP-SAT: whole numbers, rounded down where they must be."""
    lags = {lag for waits in graph.before for _, lag in waits}
    exact = _decimal({*graph.seconds, *lags})
    horizon = math.fsum(graph.seconds) + len(graph.seconds) * max(lags, default=0.0)
    if exact is not None and horizon / exact < _MAX_UNITS:
        return Units(exact, lambda seconds: float(Fraction(repr(seconds)) / exact), True)
    return _units_of(cost_scale(natural_seconds(graph), 2 * len(graph.seconds), horizon))


def whole_bytes(instance: ScheduleInstance) -> Units:
    """For CP-SAT: exact where that is possible, as seconds are; else what is held is rounded down, and room up."""
    counts = [instance.num_microbatches(stage) for stage in range(len(instance.stages))]
    devices = range(len(instance.stages_on))
    rooms = [room for device in devices if (room := instance.memory(device)) is not None]
    most = max(instance.bytes_held(device, counts) for device in devices)
    each = (amount for s in instance.stages for amount in (s.weight_bytes, s.microbatch * s.activation_bytes))
    exact = _decimal({*each, *rooms})
    if exact and max(most, *rooms, 0.0) / exact < _MAX_UNITS:
        return Units(exact, lambda amount: float(Fraction(repr(amount)) / exact), True)
    least = max(instance.bytes_held(device, [1] * len(counts)) for device in devices)
    return _units_of(cost_scale(least, 1 + max(counts), most))


def _units_of(scale: Scale) -> Units:
    return Units(Fraction(scale.restore(1)), lambda amount: float(scale.floor(amount)), loss=1.0)


def _decimal(times: Iterable[float]) -> Fraction | None:
    """The largest number of which all times, as they are written, are multiples."""
    written = [Fraction(repr(time)) for time in times if time]
    denominator = math.lcm(*(time.denominator for time in written))
    if denominator > _MAX_UNITS:
        return None
    return Fraction(math.gcd(*(int(time * denominator) for time in written)), denominator)
