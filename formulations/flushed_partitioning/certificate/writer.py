"""Certificates of flushed partitioning: caps on the slowest step between which no plan is left, for `checker`."""

import math
from fractions import Fraction

import numpy as np

from formulations.compiled.downsets import all_downsets
from formulations.contract.certificates import Proved, certifies, check_stop
from formulations.contract.family import UncertifiedError
from formulations.flushed_partitioning.certificate import checker
from formulations.flushed_partitioning.exact.effort import supports
from formulations.flushed_partitioning.exact.labels import Search
from formulations.flushed_partitioning.methods import MAX_DOWNSETS
from instances.problems.flushed_partitioning import Fill, FlushedInstance
from solvers.outcome import Watch

#: Caps are in units of this, and larger than the float numbers that they come from by about as much.
_FINE = 2**40


@certifies(checker.CHECKER)
def write(instance: FlushedInstance, exact: checker.Instance, T: Fraction | None, watch: Watch) -> Proved:
    """`certificate` of a plan and a bound; writing takes as long as checking."""
    lattice = checker.Searches(exact)
    if exact.simulated:
        return None if not lattice.unplaced and _finds_plan(lattice, T, watch) else (T, {"kind": "plans"})
    passes = _Passes(instance, watch)
    caps: list[Fraction] | None = []
    if not lattice.unplaced and T is None and _labels(checker.Search(lattice, None, Fraction(0), None), watch):
        return None
    if not lattice.unplaced and T is not None:
        caps = _caps(lattice, T, passes, watch)
    return None if caps is None else (T, {"kind": "caps", "caps": [str(cap) for cap in caps]})


def _finds_plan(lattice: checker.Searches, T: Fraction | None, watch: Watch) -> bool:
    """Whether the checker's search finds a plan that takes at most T."""
    for is_within in checker.within(lattice, T):
        check_stop(watch)
        if is_within:
            return True
    return False


def _caps(lattice: checker.Searches, Q: Fraction, passes: "_Passes", watch: Watch) -> list[Fraction] | None:
    """The caps of a proof of Q, rising; ``None`` if some plan takes no more."""
    found: list[Fraction] = []
    scale, m = lattice.instance.B * lattice.instance.unit, lattice.instance.m
    high = Q
    while len(found) <= checker.MAX_CAPS:
        low = _above(passes.least(float(high), float(Q)), high)
        # Where the slowest step takes more than this, what is left of Q is less than the synchronisation.
        least = [
            Q - Fraction(label[2] + label[3]) / scale / m
            if lattice.instance.by_replicas
            else (Q * m - Fraction(label[2]) / scale) / (m + label[3] - 1)
            for label in _labels(checker.Search(lattice, Q, low, high), watch)
        ]
        if least and max(least) >= low:
            low = _above(float(max(least)), high)
        if low >= high:
            return None
        if low <= 0:
            return found[::-1]
        found.append(low)
        high = low
    raise UncertifiedError(f"more than {checker.MAX_CAPS} caps would be needed")


def _above(time: float, high: Fraction) -> Fraction:
    """A little more than a time, in parts of ``high``."""
    return Fraction(0) if time <= 0 else high * (math.floor(Fraction(time) / high * _FINE) + 2) / _FINE


def _labels(search: checker.Search, watch: Watch) -> list[tuple[int, ...]]:
    """The labels of all layers that a search of the checker ends with."""
    for place in range(len(search.order)):
        check_stop(watch)
        search.extend(place)
    return search.labels(-1)


class _Passes:
    """The compiled recursion, which predicts what the search of the checker finds; nothing if it is not exact."""

    def __init__(self, instance: FlushedInstance, watch: Watch) -> None:
        downsets = None if supports(instance) is not None else all_downsets(instance.flat, MAX_DOWNSETS)
        self.search = None if downsets is None else Search(instance, downsets, watch)
        self.m, self.by_replicas = instance.flat.num_microbatches, instance.fill is Fill.REPLICAS

    def least(self, high: float, Q: float) -> float:
        """The largest C, or p, for which some plan of at most ``high`` is within Q; 0 if there is none."""
        if self.search is None:
            return 0.0
        most_sync = np.full(len(self.search.instance.layers) + 1, Q)
        if self.by_replicas:
            found = self.search.least_synchronisation(high * self.m * (1 + 1e-12), most_sync, Q)
            return max((Q - each.sync for each in (found or {}).values()), default=0)
        found = self.search.least_synchronisation(high * (1 + 1e-12), most_sync, Q)
        return max(
            (self.m * (Q - each.sync) / (self.m + depth - 1) for depth, each in (found or {}).items()), default=0
        )
