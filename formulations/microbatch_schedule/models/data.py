"""The numbers of the models: an iteration in whole units for CP-SAT, in natural ones for HiGHS.

Whole durations that are not too large are what CP-SAT solves fastest: they are exact where all seconds are multiples of
one decimal fraction, else rounded down. Durations rounded down keep every schedule possible, so a bound stays a bound.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from formulations.microbatch_schedule.bounds import SAFE, chains
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.simulation.simulate_graph import GraphTrace, PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Watch
from solvers.scaling import Scale, cost_scale

#: The horizon in exact units stays below this.
_MAX_UNITS = 2**40

#: For pairs of a forward and a backward pass of a stage: whether the backward one comes first.
Pairs = Mapping[tuple[int, int], Any]


@dataclass(frozen=True)
class Units:
    """Units of so many seconds, or bytes, and what an amount is in them; ``is_exact`` if nothing is rounded."""

    unit: Fraction
    of: Callable[[float], float]
    is_exact: bool = False

    def lower_bound(self, units: float) -> float:
        """A bound in seconds, or bytes."""
        return float(Fraction(units) * self.unit) * SAFE


@dataclass(frozen=True)
class Data:
    """Stages s with ``graph.counts[s]`` micro-batches each; passes p, counted stage by stage, forward ones first.

    Parameters
    ----------
    graph
        ``seconds[p]``, and ``before[p]``: pairs of a pass q that p waits for and the time of its message; in `Units`.
    latest
        The longest iteration that is looked for.
    deadline_s
        In seconds; ``None`` where there is none, or where only the order of passes counts.
    pairs
        A forward and a backward pass of a stage of which either may come first.
    held
        Where bytes are minimised: what each stage holds always, and for each micro-batch in flight; else empty.
    units
        Of seconds, or of bytes where these are minimised.
    """

    graph: PassGraph
    latest: float
    deadline_s: float | None
    pairs: tuple[tuple[int, int], ...]
    held: tuple[tuple[float, float], ...]
    units: Units

    def goes_first(self, pairs: Pairs, stage: int, j: int, i: int) -> Any:
        """Whether backward pass j of a stage comes before its forward pass i: 0 or 1 where precedences say it."""
        return pairs.get((self.graph.number(stage, True, i), self.graph.number(stage, False, j)), int(i > j))

    def in_flight(self, pairs: Pairs, stage: int, j: int) -> Any:
        """Micro-batches in flight when backward pass j of a stage starts: its own, and later ones that came first."""
        return 1 + sum(1 - self.goes_first(pairs, stage, j, i) for i in range(j + 1, self.graph.counts[stage]))


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
        latest = run(graph, orders_of(graph, watch.best_plan)).iteration_s
    if deadline_s is not None:
        latest = min(latest, float(Fraction(deadline_s) / units.unit))
    pairs = (
        (graph.number(stage, True, i), graph.number(stage, False, j))
        for stage, count in enumerate(graph.counts)
        for j in range(count)
        for i in range(j + 1, min(count, j + graph.rooms[stage]))
    )
    if not of_bytes:
        return Data(graph, latest, deadline_s, tuple(pairs), (), units)
    units = byte_units(instance)
    held = ((units.of(s.weight_bytes), units.of(s.microbatch * s.activation_bytes)) for s in instance.stages)
    return Data(graph, latest, deadline_s, tuple(pairs), tuple(held), units)


def _with_seconds(graph: PassGraph, seconds: Callable[[float], float], lags: Callable[[float], float]) -> PassGraph:
    """The same precedences, with passes and messages of other lengths."""
    made = copy.copy(graph)
    lengths = {time: seconds(time) for time in set(graph.seconds)}
    delays = {lag: lags(lag) for waits in graph.before for _, lag in waits}
    made.seconds = [lengths[time] for time in graph.seconds]
    made.before = [[(number, delays[lag]) for number, lag in waits] for waits in graph.before]
    made.after = [[(number, delays[lag]) for number, lag in waits] for waits in graph.after]
    return made


def orders_of(graph: PassGraph, plan: SchedulePlan) -> tuple[str, ...]:
    """The order of each stage's passes in a plan, as words such as ``FFBFBB``."""
    return GraphTrace(tuple(sorted(plan.passes, key=lambda task: (task.start_s, task.stage)))).orders(len(graph.counts))


def natural_seconds(graph: PassGraph) -> float:
    """What units are chosen by: the busiest stage's passes one after the other, or the longest chain of passes."""
    ends = [*graph.first[1:], len(graph.seconds)]
    busiest = max(math.fsum(graph.seconds[first:end]) for first, end in zip(graph.first, ends, strict=True))
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
    """For CP-SAT: what a stage always holds and each micro-batch's bytes are rounded down."""
    counts = [instance.num_microbatches(stage) for stage in range(len(instance.stages))]
    most = max(stage.bytes_held(count) for stage, count in zip(instance.stages, counts, strict=True))
    return _units_of(cost_scale(max(stage.bytes_held(1) for stage in instance.stages), 1 + max(counts), most))


def _units_of(scale: Scale) -> Units:
    return Units(Fraction(scale.restore(1)), lambda amount: float(scale.floor(amount)))


def _decimal(times: Iterable[float]) -> Fraction | None:
    """The largest number of which all times, as they are written, are multiples."""
    written = [Fraction(repr(time)) for time in times if time]
    denominator = math.lcm(*(time.denominator for time in written))
    if denominator > _MAX_UNITS:
        return None
    return Fraction(math.gcd(*(int(time * denominator) for time in written)), denominator)
