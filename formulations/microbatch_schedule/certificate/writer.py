"""Certificates of micro-batch schedules: the bound of heads and tails, where it meets what is reported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from formulations.contract.family import UncertifiedError
from formulations.microbatch_schedule.certificate import checker
from instances.problems.microbatch_schedule import ScheduleInstance, to_json
from solvers.outcome import Watch

#: What is certified where the bound itself is not proved in exact numbers: smaller by what float arithmetic rounds.
_BELOW = Fraction(2, 10**11)
#: A bound that is proved this much below what is reported stands for it: rules hold within 1e-9 of the iteration.
_NEAR = Fraction(1, 2 * 10**6)
#: Halvings between the two.
_HALVINGS = 12


def write(instance: ScheduleInstance, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """A certificate of a plan and a bound; every plan takes *more* than what is certified.

    Parameters
    ----------
    plan
        In its JSON form, if there is one.
    bound
        Seconds or bytes; infinite: there is no plan. The definition lets every pass begin 1e-9 of the iteration too
        early, so a bound on the time is certified that is smaller by 2e-9 of it for each pass of a longest chain, but
        by 5e-7 at most.

    Raises
    ------
    UncertifiedError
        If heads and tails do not meet the bound, exact arithmetic rejects the plan, or the run is stopped.
    """
    try:
        exact = checker.Instance(to_json(instance))
        objective = None if plan is None else checker.plan_value(exact, plan)
        certified = _certified(exact, bound, objective, watch)
    except checker.RejectedError as error:
        raise UncertifiedError(f"the checker refuses it ({error})") from None
    return {
        "format": 1,
        "problem": "microbatch_schedule",
        "instance_sha256": exact.digest,
        "plan": None if plan is None else dict(plan),
        "objective": None if objective is None else str(objective),
        "bound": None if certified is None else str(certified),
        "proof": {"kind": "bound", "name": "heads and tails"},
    }


def _certified(exact: checker.Instance, bound: float, objective: Fraction | None, watch: Watch) -> Fraction | None:
    """The greatest bound near the reported one that heads and tails prove."""
    if math.isinf(bound):
        if not checker.excludes(exact, None):
            raise UncertifiedError("heads and tails alone do not exclude all plans")
        return None
    high = Fraction(bound) if objective is None else min(Fraction(bound), objective * (1 - _BELOW))
    if high <= 0:
        return Fraction(0)
    if checker.excludes(exact, high):
        return high
    low = high * (1 - (_BELOW if exact.in_bytes else _NEAR))
    if not checker.excludes(exact, low):
        raise UncertifiedError("heads and tails do not meet the bound, and no other proof is written")
    for _ in range(_HALVINGS):
        if watch.stopped():
            break
        middle = (low + high) / 2
        if checker.excludes(exact, middle):
            low = middle
        else:
            high = middle
    return low
