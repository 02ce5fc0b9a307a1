"""Certificates of flushed partitioning: caps on the slowest step between which no plan is left, for `checker`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from formulations.compiled.downsets import all_downsets
from formulations.contract.family import UncertifiedError
from formulations.flushed_partitioning.certificate import checker
from formulations.flushed_partitioning.exact.effort import supports
from formulations.flushed_partitioning.exact.labels import Search
from formulations.flushed_partitioning.methods import MAX_DOWNSETS
from instances.problems.flushed_partitioning import FlushedInstance, to_json
from solvers.outcome import Watch

#: What is certified where the bound itself is not proved in exact numbers: smaller by what float arithmetic rounds.
_BELOW = Fraction(2, 10**11)
#: Caps are in units of this, and larger than the float numbers that they come from by about as much.
_FINE = 2**40


def write(instance: FlushedInstance, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """A certificate of a plan and a bound; every plan takes *more* than what is certified.

    The checker searches between two caps by itself, so writing takes as long as checking.

    Parameters
    ----------
    plan
        In its JSON form, if there is one.
    bound
        Time units per sample; infinite: there is no plan. Where it is not below the objective of the plan, or only
        float rounding puts it above what can be proved, a bound is certified that is smaller by up to 4e-11 of it.

    Raises
    ------
    UncertifiedError
        If exact arithmetic does not confirm the plan or the bound, the checker would refuse the search for its size, or
        the run is stopped.
    """
    try:
        exact = checker.Instance(to_json(instance))
        objective = None if plan is None else checker.plan_time(exact, plan)
        certified, caps = _proof(instance, exact, bound, objective, watch)
    except checker.RejectedError as error:
        raise UncertifiedError(f"the checker refuses: {error}") from None
    return {
        "format": 1,
        "problem": "flushed_partitioning",
        "instance_sha256": exact.digest,
        "plan": None if plan is None else dict(plan),
        "objective": None if objective is None else str(objective),
        "bound": None if certified is None else str(certified),
        "proof": {"kind": "caps", "caps": [str(cap) for cap in caps]},
    }


def _proof(
    instance: FlushedInstance, exact: checker.Instance, bound: float, objective: Fraction | None, watch: Watch
) -> tuple[Fraction | None, list[Fraction]]:
    """The bound that is certified, and the caps that prove it."""
    lattice = checker.Lattice(exact)
    if lattice.unplaced:
        return (None if math.isinf(bound) else Fraction(bound)), []
    if math.isinf(bound):
        if _labels(checker.Search(lattice, None, Fraction(0), None), watch):
            raise UncertifiedError("exact arithmetic finds a plan")
        return None, []
    first = Fraction(bound) if objective is None or bound < objective else objective * (1 - _BELOW)
    passes = _Passes(instance, watch)
    for Q in (first, first * (1 - _BELOW)):
        if Q <= 0:
            return Fraction(0), []
        caps = _caps(lattice, Q, passes, watch)
        if caps is not None:
            return Q, caps
    raise UncertifiedError(f"exact arithmetic does not confirm the bound {bound!r}")


def _caps(lattice: checker.Lattice, Q: Fraction, passes: _Passes, watch: Watch) -> list[Fraction] | None:
    """The caps of a proof of Q, rising; ``None`` if some plan takes no more."""
    found: list[Fraction] = []
    scale, m = lattice.instance.B * lattice.instance.unit, lattice.instance.m
    high = Q
    while len(found) <= checker.MAX_CAPS:
        low = _above(passes.least(float(high), float(Q)), high)
        # Where the slowest step takes more than this, what is left of Q is less than the synchronisation.
        least = [
            (Q * m - Fraction(label[2]) / scale) / (m + label[3] - 1)
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


def _labels(search: checker.Search, watch: Watch) -> list[checker.Label]:
    """The labels of all layers that a search of the checker ends with."""
    for place in range(len(search.order)):
        if watch.stopped():
            raise UncertifiedError("the run was stopped")
        search.extend(place)
    return search.labels(-1)


class _Passes:
    """The compiled recursion, which predicts what the search of the checker finds; nothing if it is not exact."""

    def __init__(self, instance: FlushedInstance, watch: Watch) -> None:
        downsets = None if supports(instance) is not None else all_downsets(instance.flat, MAX_DOWNSETS)
        self.search = None if downsets is None else Search(instance, downsets, watch)
        self.m = instance.flat.num_microbatches

    def least(self, high: float, Q: float) -> float:
        """The largest C for which some plan of steps of at most ``high`` is within Q; 0 if there is none."""
        if self.search is None:
            return 0.0
        most_sync = np.full(len(self.search.instance.layers) + 1, Q)
        found = self.search.least_synchronisation(high * (1 + 1e-12), most_sync)
        return max(
            (self.m * (Q - each.sync) / (self.m + depth - 1) for depth, each in (found or {}).items()), default=0
        )
