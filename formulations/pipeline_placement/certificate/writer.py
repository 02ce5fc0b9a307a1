"""Certificates of pipeline placement: plan and bound, where `checker` tries all plans by itself in bounded time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from formulations.contract.family import UncertifiedError
from formulations.pipeline_placement.certificate import checker
from instances.problems.pipeline_placement import PlacementInstance, to_json
from solvers.outcome import Watch

#: What is certified where the bound itself is not proved in exact numbers: smaller by what float arithmetic rounds.
_BELOW = Fraction(2, 10**11)


def write(instance: PlacementInstance, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """A certificate of a plan and a bound; every plan takes *more* than what is certified.

    The checker searches by itself, so writing takes as long as checking.

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
        certified = _certified(exact, bound, objective, watch)
    except checker.RejectedError as error:
        raise UncertifiedError(f"the checker refuses it ({error})") from None
    return {
        "format": 1,
        "problem": "pipeline_placement",
        "instance_sha256": exact.digest,
        "plan": None if plan is None else dict(plan),
        "objective": None if objective is None else str(objective),
        "bound": None if certified is None else str(certified),
        "proof": {"kind": "search"},
    }


def _certified(exact: checker.Instance, bound: float, objective: Fraction | None, watch: Watch) -> Fraction | None:
    """The bound that is certified: the search finds no plan within it."""
    bounds: list[Fraction | None] = [None]
    if not math.isinf(bound):
        first = Fraction(bound) if objective is None or bound < objective else objective * (1 - _BELOW)
        bounds = [first, first * (1 - _BELOW)]
    for L in bounds:
        if L is not None and L <= 0:
            return Fraction(0)
        if not _Watched(exact, L, watch).finds_a_plan():
            return L
    raise UncertifiedError(f"exact arithmetic does not confirm the bound {bound!r}")


class _Watched(checker.Search):
    """The checker's search, which ends where the run is stopped."""

    def __init__(self, exact: checker.Instance, bound: Fraction | None, watch: Watch) -> None:
        super().__init__(exact, bound)
        self._watch = watch

    def step(self) -> None:
        """Count one, or `UncertifiedError`."""
        super().step()
        if self.steps % 1000 == 1 and self._watch.stopped():
            raise UncertifiedError("the run was stopped")
