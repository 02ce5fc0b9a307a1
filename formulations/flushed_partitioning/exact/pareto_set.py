"""Search of the Pareto set of bottleneck C and synchronisation R, for every depth L.

A plan of depth L takes a C + R per sample, a = 1 + (L - 1)/m. For every L a list of intervals (low, high] of C is open
in which a plan may still be better than the best one; all plans of depth up to L and C <= high synchronise for at least
``sync``, so an interval with a low + sync >= the best time is closed. A pass at T splits every interval that holds T:
if R is the least synchronisation at T and C' the bottleneck of the plan that has it, only plans with C < C' and
a C + R below the best time are left there. Bounds come from what is open.

Where replicas fill, P takes the place of C, S/m + R that of R, and a is 1/m whatever the depth: there is one list.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from formulations.compiled.array_types import Floats
from formulations.stage_partitioning.definition.plan import StagePlan
from instances.problems.flushed_partitioning import Fill, FlushedInstance
from solvers.outcome import OPTIMAL_GAP, Prover, Watch

#: A plan must be better than the best one by this, relatively.
PRECISION = 1e-9

#: How close the least bottleneck must be known before the search.
_ROUGHLY = 1e-4


@dataclass(frozen=True)
class Found:
    """A plan, its time per sample, its slowest step (or P) and its longest synchronisation (or S/m + R)."""

    plan: StagePlan
    objective: float
    bottleneck: float
    sync: float


@dataclass(frozen=True)
class Interval:
    """Bottlenecks above ``low`` up to ``high``; plans of such bottlenecks synchronise for at least ``sync``."""

    low: float
    high: float
    sync: float


class Passes(Protocol):
    """What is needed from a search of labels."""

    flushed: FlushedInstance
    work_bound: float

    def least_bottleneck(self, T: float) -> Found | bool:
        """Some plan of bottleneck at most T; False if there is none, True if stopped."""

    def least_synchronisation(self, T: float, most_sync: Floats, most_time: float) -> dict[int, Found] | None:
        """For every depth the plan of bottleneck at most T that is synchronised fastest; ``None`` if stopped.

        No plan that takes more than ``most_time`` is looked for.
        """


def search_pareto_set(search: Passes, watch: Watch, gap: float) -> bool:
    """Hand the best plan and the bound to ``watch``; whether it is proved that there is no plan.

    ``gap``: stop when the bound is that close, relatively.
    """
    watch.bound(search.work_bound, Prover.BOUNDS)
    lowest, first = _least_bottleneck(search, watch)
    if first is None:
        return lowest is None
    assert lowest is not None
    _OpenIntervals(search, watch, lowest, first).run(gap if gap > OPTIMAL_GAP else 0.0)
    return False


def _least_bottleneck(search: Passes, watch: Watch) -> tuple[float | None, Found | None]:
    """A lower bound on C (``None``: no plan at all), and a plan whose C is close to it (``None``: none found)."""
    lower, best, step = search.work_bound, None, 0.01
    while best is None or lower < best.bottleneck * (1 - _ROUGHLY):
        if best is None:
            T = max(lower, 1e-300) * (1 + step) if step < 1e3 else math.inf
        else:
            T = (lower + best.bottleneck) / 2
        found = search.least_bottleneck(T)
        if found is True:
            break
        if isinstance(found, Found):
            best = found
            watch.plan(found.plan, found.objective)
        elif math.isinf(T):
            return None, None
        else:
            lower, step = T, step * 2
            watch.bound(lower)
    return lower, best


class _OpenIntervals:
    """The intervals of C that are open for every depth, and the best plan so far."""

    def __init__(self, search: Passes, watch: Watch, lowest: float, first: Found) -> None:
        flat = search.flushed.flat
        self.search, self.watch, self.best = search, watch, first.objective
        self.m, self.by_replicas = flat.num_microbatches, search.flushed.fill is Fill.REPLICAS
        most = 1 if self.by_replicas else min(len(flat.layers), flat.num_devices, flat.num_microbatches)
        start = Interval(0.0 if self.by_replicas else lowest * (1 - PRECISION), math.inf, 0.0)
        self.open = {depth: list(self._trim(depth, start)) for depth in range(1, most + 1)}

    def run(self, gap: float) -> None:
        """Pass after pass until nothing is open or the bound is within ``gap``."""
        step, count = 0.01, 0
        while (widest := self._lowest()) is not None:
            bound, interval = widest
            self.watch.bound(bound)
            if bound >= self.best * (1 - gap) or self.watch.stopped():
                return
            T = interval.high
            if count % 2 == 0:
                half, above = (interval.low + T) / 2, interval.low * (1 + step)
                T, step = min(half, above or half), 2 * step
                if not interval.low < T < interval.high:
                    T = interval.high
            count += 1
            if not self._pass(T):
                return
        self.watch.bound(self.best * (1 - PRECISION))

    def _lowest(self) -> tuple[float, Interval] | None:
        """The least time that a plan in an open interval may have, and the interval."""
        bounds = [
            (self._factor(depth) * each.low + each.sync, each) for depth, found in self.open.items() for each in found
        ]
        return min(bounds, key=lambda entry: entry[0], default=None)

    def _pass(self, T: float) -> bool:
        """One pass at T; False if it was stopped."""
        held = {depth: each for depth, found in self.open.items() for each in found if each.low < T <= each.high}
        most_sync = np.full(max(held) + 1, -1.0)
        for depth, each in held.items():
            # a plan of this depth starts from labels of at most it
            most_sync[: depth + 1] = np.maximum(most_sync[: depth + 1], self._target() - self._factor(depth) * each.low)
        plans = self.search.least_synchronisation(T, most_sync, self._target())
        if plans is None:
            return False
        for found in plans.values():
            if found.objective < self.best:
                self.best = found.objective
                self.watch.plan(found.plan, found.objective)
        self.open = {depth: list(self._split(depth, held.get(depth), plans, T)) for depth in self.open}
        return True

    def _split(self, depth: int, held: Interval | None, plans: Mapping[int, Found], T: float) -> Iterator[Interval]:
        """What is left of the intervals of a depth after a pass at T, which lies in ``held``."""
        shallow = [found for at, found in plans.items() if at <= depth]
        fastest = min(shallow, key=lambda found: found.sync, default=None)
        for each in self.open[depth]:
            if each is not held:
                yield from self._trim(depth, each)
                continue
            yield from self._trim(depth, Interval(T, each.high, each.sync))
            if fastest is not None:
                high = min(fastest.bottleneck * (1 - PRECISION), T)
                yield from self._trim(depth, Interval(each.low, high, max(each.sync, fastest.sync)))

    def _trim(self, depth: int, each: Interval) -> Iterator[Interval]:
        """The part of an interval in which a plan may be better than the best one, if any."""
        high = min(each.high, (self._target() - each.sync) / self._factor(depth))
        if each.low < high:
            yield Interval(each.low, high, each.sync)

    def _factor(self, depth: int) -> float:
        return 1 / self.m if self.by_replicas else 1 + (depth - 1) / self.m

    def _target(self) -> float:
        return self.best * (1 - PRECISION)
