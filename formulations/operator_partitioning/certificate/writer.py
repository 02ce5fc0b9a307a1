"""Certificates of operator partitioning: what `checker` has to count so that its labels reach no plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from formulations.contract.family import UncertifiedError
from formulations.operator_partitioning.certificate import checker
from instances.problems.operator_partitioning import OperatorInstance, to_json
from solvers.outcome import Watch

#: What is certified where the bound itself is not proved in exact numbers: smaller by what float arithmetic rounds.
_BELOW = Fraction(2, 10**11)
#: A cap on the all-reduce is sought to this part of the bound.
_FINE = 2**44


def write(instance: OperatorInstance, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """A certificate of a plan and a bound; every plan takes *more* than what is certified.

    The checker searches by itself, so writing takes as long as checking, or longer.

    Parameters
    ----------
    plan
        In its JSON form, if there is one.
    bound
        Seconds; infinite: there is no plan. Where it is not below the objective of the plan, or only float rounding
        puts it above what can be proved, a bound is certified that is smaller by up to 4e-11 of it.

    Raises
    ------
    UncertifiedError
        If exact arithmetic does not confirm the plan or the bound, the checker would refuse the search for its size, or
        the run is stopped.
    """
    try:
        exact = checker.Instance(to_json(instance))
        objective = None if plan is None else checker.plan_time(exact, plan)
        certified, proof = _proof(exact, bound, objective, watch)
    except checker.RejectedError as error:
        raise UncertifiedError(f"exact arithmetic rejects it ({error})") from None
    return {
        "format": 1,
        "problem": "operator_partitioning",
        "instance_sha256": exact.digest,
        "plan": None if plan is None else dict(plan),
        "objective": None if objective is None else str(objective),
        "bound": None if certified is None else str(certified),
        "proof": {"kind": "labels", **proof},
    }


def _proof(
    exact: checker.Instance, bound: float, objective: Fraction | None, watch: Watch
) -> tuple[Fraction | None, dict[str, Any]]:
    """The bound that is certified, and the tensors to be counted, or caps, that prove it."""
    if math.isinf(bound):
        bounds: list[Fraction | None] = [None]
    else:
        first = Fraction(bound) if objective is None or bound < objective else objective * (1 - _BELOW)
        bounds = [first, first * (1 - _BELOW)]
    several = [t for t, targets in enumerate(exact.targets) if len(targets) > 1]
    for L in bounds:
        if L is not None and L <= 0:
            return Fraction(0), {"counted": [], "caps": [[] for _ in exact.shapes()] if exact.S is None else []}
        for counted in [[], several] if several and L is not None else [[]]:
            caps = _caps(exact, L, counted, watch)
            if caps is not None:
                return L, {"counted": counted, "caps": caps}
    raise UncertifiedError(f"exact arithmetic does not confirm the bound {bound!r}")


def _caps(exact: checker.Instance, L: Fraction | None, counted: list[int], watch: Watch) -> list[list[str]] | None:
    """The caps on the all-reduce of each shape, if there are shapes; ``None`` if some plan takes no more than L."""
    if exact.S is not None or L is None:
        none: list[list[str]] = [[] for _ in exact.shapes()] if exact.S is None else []
        searches = list(checker.searches(exact, L, {"counted": counted, "caps": none}))
        return None if any(_finds(search, watch) for search in searches) else none
    rows = []
    for S, R in exact.shapes():
        row = _row(exact, S, R, L, counted, watch)
        if row is None:
            return None
        rows.append([str(cap) for cap in row])
    return rows


def _row(
    exact: checker.Instance, S: int, R: int, L: Fraction, counted: list[int], watch: Watch
) -> list[Fraction] | None:
    """Rising caps for one shape: each as high as there is no plan up to it."""
    found: list[Fraction] = []
    low = Fraction(0)
    while len(found) < checker.MAX_CAPS:
        T = (L - low) / exact.rounds(S, R)

        def reaches(cap: Fraction | None, T: Fraction = T) -> bool:
            return _finds(checker.Search(exact, S, R, T, exact.bytes_in(cap, R), counted), watch)

        if low > L or not reaches(None):
            return found
        if R == 1 or reaches(low):
            return None
        high, step = 2 * L, L / _FINE
        while high - low > step:  # no plan up to ``low``
            middle = (low + high) / 2
            if reaches(middle):
                high = middle
            else:
                low = middle
        if low <= (found[-1] if found else 0):
            return None
        found.append(low)
    raise UncertifiedError(f"more than {checker.MAX_CAPS} caps would be needed")


def _finds(search: checker.Search, watch: Watch) -> bool:
    """Whether a search of the checker finds a plan; `UncertifiedError` if the run is stopped."""
    for size in range(len(search.labels) - 1, 0, -1):
        if watch.stopped():
            raise UncertifiedError("the run was stopped")
        search.extend(size)
        if search.found:
            return True
    return search.found
