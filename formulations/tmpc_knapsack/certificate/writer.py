"""Certificates of knapsacks: the price of memory at which the relaxed knapsack ends, for `checker`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

from formulations.contract.family import UncertifiedError
from formulations.tmpc_knapsack.certificate import checker
from instances.problems.tmpc_knapsack import KnapsackInstance, to_json
from solvers.outcome import Watch

#: What is certified where the bound itself is not proved in exact numbers: smaller by what float arithmetic rounds.
_BELOW = Fraction(1, 10**11)


def write(instance: KnapsackInstance, plan: Mapping[str, Any] | None, bound: float, _watch: Watch) -> dict[str, Any]:
    """A certificate of a plan and a bound; every plan takes *more* than what is certified.

    Parameters
    ----------
    plan
        In its JSON form, if there is one.
    bound
        Total time; infinite: there is no plan. Where it is not below the objective of the plan, or only float rounding
        puts it above what can be proved, a bound is certified that is smaller by up to 1e-11 of it.

    Raises
    ------
    UncertifiedError
        If the list of choices that the checker would have to look at is too long.
    """
    exact = checker.Instance(to_json(instance))
    objective = None
    try:
        if plan is not None:
            objective = checker.plan_time(exact, plan)
        certified, multiplier = _proof(exact, bound, objective)
    except checker.RejectedError as error:
        raise UncertifiedError(f"exact arithmetic does not confirm it ({error})") from None
    return {
        "format": 1,
        "problem": "tmpc_knapsack",
        "instance_sha256": exact.digest,
        "plan": None if plan is None else dict(plan),
        "objective": None if objective is None else str(objective),
        "bound": None if certified is None else str(certified),
        "proof": {"kind": "multiplier", "multiplier": None if multiplier is None else str(multiplier)},
    }


def _proof(
    exact: checker.Instance, bound: float, objective: Fraction | None
) -> tuple[Fraction | None, Fraction | None]:
    """The bound that is certified, and the price of memory that proves it; `checker.RejectedError`."""
    if math.isinf(bound):
        checker.prove(exact, None, None)
        return None, None
    multiplier = _price(exact)
    first = Fraction(bound) if objective is None or bound < objective else objective * (1 - _BELOW)
    if first <= 0:
        return Fraction(0), None
    try:
        checker.prove(exact, first, multiplier)
    except checker.RejectedError:
        first *= 1 - _BELOW
        checker.prove(exact, first, multiplier)
    return first, multiplier


def _price(exact: checker.Instance) -> Fraction:
    """Time for a byte, where the relaxed knapsack's savings of memory are enough."""
    groups = [checker.undominated(list(row.values())) for row in exact.nodes.values()]
    over = sum(group[0][1] for group in groups if group) - exact.capacity
    steps = sorted((step for group in groups for step in _savings(group)), key=lambda step: Fraction(*step))
    for more, less in steps:
        if less >= over:
            return Fraction(more, less) * Fraction(exact.grain, exact.unit) if over > 0 else Fraction(0)
        over -= less
    return Fraction(0)


def _savings(options: list[checker.Option]) -> list[tuple[int, int]]:
    """The lower convex hull of undominated options as steps: more time, less memory."""
    hull: list[checker.Option] = []
    for c, m in options:
        while len(hull) > 1:
            (c0, m0), (c1, m1) = hull[-2:]
            if (c1 - c0) * (m1 - m) < (c - c1) * (m0 - m1):
                break
            hull.pop()
        hull.append((c, m))
    return [(c - c0, m0 - m) for (c0, m0), (c, m) in pairwise(hull)]
