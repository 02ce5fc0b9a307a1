"""Certificates of stage graphs: plan and bound; `checker` looks for a plan within the bound by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from formulations.contract.family import UncertifiedError
from formulations.stage_graph.certificate import checker
from instances.problems.stage_graph import StageGraph, to_json
from solvers.outcome import Watch

#: What is certified where the bound itself is not proved in exact numbers: smaller by what float arithmetic rounds.
_BELOW = Fraction(2, 10**11)


def write(instance: StageGraph, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """A certificate of a plan and a bound; every plan takes *more* than what is certified.

    The search of the checker is run first, so writing takes as long as checking.

    Parameters
    ----------
    plan
        In its JSON form, if there is one.
    bound
        Seconds per sample; infinite: there is no plan. Where it is not below the objective of the plan, or only
        float rounding puts it above what can be proved, a bound is certified that is smaller by up to 4e-11 of it.

    Raises
    ------
    UncertifiedError
        If devices are declared one by one, plans may have several micro-batch sizes, or iterations are minimised; if
        exact arithmetic does not confirm the plan or the bound, the checker would refuse the search for its size, or
        the run is stopped.
    """
    try:
        exact = checker.Instance(to_json(instance))
        objective = None if plan is None else checker.plan_time(exact, plan)
        certified = _certified(checker.lattice_of(exact), bound, objective, watch)
    except checker.RejectedError as error:
        raise UncertifiedError(f"the checker refuses: {error}") from None
    return {
        "format": 1,
        "problem": "stage_graph",
        "instance_sha256": exact.digest,
        "plan": None if plan is None else dict(plan),
        "objective": None if objective is None else str(objective),
        "bound": None if certified is None else str(certified),
        "proof": {"kind": "search"},
    }


def _certified(lattice: checker.Lattice, bound: float, objective: Fraction | None, watch: Watch) -> Fraction | None:
    """The bound that the searches of the checker prove; ``None``: there is no plan."""
    if math.isinf(bound):
        if _finds(lattice, None, watch):
            raise UncertifiedError("exact arithmetic finds a plan")
        return None
    first = Fraction(bound) if objective is None or bound < objective else objective * (1 - _BELOW)
    for T in (first, first * (1 - _BELOW)):
        if T <= 0:
            return Fraction(0)
        if not _finds(lattice, T, watch):
            return T
    raise UncertifiedError(f"exact arithmetic does not confirm the bound {bound!r}")


def _finds(lattice: checker.Lattice, bound: Fraction | None, watch: Watch) -> bool:
    """Whether the search of the checker ends with a label of all operators at some size."""
    for b in lattice.instance.sizes:
        search = checker.Search(lattice, b, bound)
        for _ in search.run():
            if watch.stopped():
                raise UncertifiedError("the run was stopped")
        if search.labels[-1]:
            return True
    return False
