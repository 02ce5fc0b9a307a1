"""Seconds as whole numbers: exact where all are multiples of one decimal fraction, else rounded down.

Whole durations that are not too large are what the models solve fastest. Durations rounded down keep every schedule
possible, so a bound stays a bound.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from formulations.microbatch_schedule.bounds import SAFE
from formulations.microbatch_schedule.chains import chains
from formulations.simulation.simulate_graph import PassGraph
from solvers.scaling import cost_scale

#: The horizon in exact units stays below this.
_MAX_UNITS = 2**40


@dataclass(frozen=True)
class Units:
    """Seconds and lags of a graph in units of ``unit_s``; ``exact`` if nothing was rounded."""

    unit_s: Fraction
    exact: bool

    def floor(self, seconds: float) -> int:
        """Whole units, rounded down where they must be."""
        if self.exact:
            return int(Fraction(repr(seconds)) / self.unit_s)
        return math.floor(Fraction(seconds) / self.unit_s)

    def within(self, seconds: float) -> int:
        """The most units of a sum that is no longer than this."""
        return math.floor(Fraction(seconds) / self.unit_s)

    def seconds(self, units: float) -> float:
        """A bound in seconds."""
        return float(Fraction(units) * self.unit_s) * SAFE


def natural_seconds(graph: PassGraph) -> float:
    """What units are chosen by: the busiest stage's passes one after the other, or the longest chain of passes."""
    ends = [*graph.first[1:], len(graph.seconds)]
    busiest = max(math.fsum(graph.seconds[first:end]) for first, end in zip(graph.first, ends, strict=True))
    if not graph.is_possible():
        return busiest
    known = chains(graph)
    return max(busiest, *(h + s + t for h, s, t in zip(known.heads, graph.seconds, known.tails, strict=True)))


def order_only(graph: PassGraph) -> PassGraph:
    """The same precedences, with passes of a second each and no lags: enough where only their order matters."""
    made = copy.copy(graph)
    made.seconds = [1.0] * len(graph.seconds)
    made.before = [[(number, 0.0) for number, _ in waits] for waits in graph.before]
    made.after = [[(number, 0.0) for number, _ in waits] for waits in graph.after]
    return made


def units(graph: PassGraph) -> Units:
    """Units for the passes and lags of a graph."""
    lags = {lag for waits in graph.before for _, lag in waits}
    exact = _decimal({*graph.seconds, *lags})
    horizon = math.fsum(graph.seconds) + len(graph.seconds) * max(lags, default=0.0)
    if exact is not None and horizon / exact < _MAX_UNITS:
        return Units(exact, True)
    scale = cost_scale(natural_seconds(graph), 2 * len(graph.seconds), horizon)
    return Units(Fraction(2) ** -scale.exponent, False)


def _decimal(times: Iterable[float]) -> Fraction | None:
    """The largest number of which all times, as they are written, are multiples."""
    written = [Fraction(repr(time)) for time in times if time]
    denominator = math.lcm(*(time.denominator for time in written))
    if denominator > _MAX_UNITS:
        return None
    return Fraction(math.gcd(*(int(time * denominator) for time in written)), denominator)


def scaled(graph: PassGraph, unit: Units) -> PassGraph:
    """The same precedences in whole units (floats that are integers)."""
    made = copy.copy(graph)
    seconds = {time: float(unit.floor(time)) for time in set(graph.seconds)}
    lags = {lag: float(unit.floor(lag)) for waits in graph.before for _, lag in waits}
    made.seconds = [seconds[time] for time in graph.seconds]
    made.before = [[(number, lags[lag]) for number, lag in waits] for waits in graph.before]
    made.after = [[(number, lags[lag]) for number, lag in waits] for waits in graph.after]
    return made
