"""Certificates of layer assignment: caps on the slowest stage, each as low as those above allow, for `checker`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from formulations.family import UncertifiedError
from formulations.layer_assignment import checker
from instances.layer_assignment import LayerAssignmentInstance, to_json
from solvers.outcome import Watch

#: What is certified where the bound itself is not proved in exact numbers: smaller by what float arithmetic rounds.
_BELOW = Fraction(1, 10**11)
#: Parts of the unit in which caps are stated.
_FINE = 2**40


def write(
    instance: LayerAssignmentInstance, plan: Mapping[str, Any] | None, bound: float, watch: Watch
) -> dict[str, Any]:
    """A certificate of a plan and a bound; every plan takes *more* than what is certified.

    Parameters
    ----------
    plan
        In its JSON form, if there is one.
    bound
        Seconds; infinite: there is no plan. Where it is not below the objective of the plan, or only float rounding
        puts it above what can be proved, a bound is certified that is smaller by up to 1e-11 of it.

    Raises
    ------
    UncertifiedError
        If there is an all-reduce, if too many caps would be needed, or the run is stopped.
    """
    exact = checker.Instance(to_json(instance))
    if exact.rings:
        raise UncertifiedError("bounds with an all-reduce are not certified yet")
    objective = None if plan is None else checker.plan_time(exact, plan)
    certified, caps = _proof(exact, bound, objective, watch)
    return {
        "format": 1,
        "problem": "layer_assignment",
        "instance_sha256": exact.digest,
        "plan": None if plan is None else dict(plan),
        "objective": None if objective is None else str(objective),
        "bound": None if certified is None else str(certified),
        "proof": {"kind": "caps", "caps": [str(cap) for cap in caps]},
    }


def _proof(
    exact: checker.Instance, bound: float, objective: Fraction | None, watch: Watch
) -> tuple[Fraction | None, list[Fraction]]:
    """The bound that is certified, and the caps that prove it."""
    if math.isinf(bound):
        return None, []
    first = Fraction(bound) if objective is None or bound < objective else objective * (1 - _BELOW)
    for B in (first, first * (1 - _BELOW)):
        if B <= 0:
            return Fraction(0), []
        caps = _caps(exact, B, watch)
        if caps is not None:
            return B, caps
    raise UncertifiedError(f"exact arithmetic does not confirm the bound {bound!r}")


def _caps(exact: checker.Instance, B: Fraction, watch: Watch) -> list[Fraction] | None:
    """The caps of a proof of B, rising; ``None`` if some plan takes no more."""
    found: list[Fraction] = []
    while len(found) < checker.MAX_CAPS:
        if watch.stopped():
            raise UncertifiedError("the run was stopped")
        sent = exact.cheapest(math.floor(found[-1] * exact.unit) if found else None)
        left = B * exact.unit - exact.total - (0 if math.isinf(sent) else int(sent))
        if math.isinf(sent) or left < 0:
            return found[::-1]
        if exact.N == 1:
            return None
        # Where the slowest stage takes at least this, the cheapest cuts are too much already: it is rounded up, but by
        # so little that no stage's time, a multiple of the unit, is likely to be in between.
        cap = Fraction(math.floor(left / (exact.N - 1) * _FINE) + 1, exact.unit * _FINE)
        if found and math.floor(cap * exact.unit) >= math.floor(found[-1] * exact.unit):
            return None
        found.append(cap)
    raise UncertifiedError(f"more than {checker.MAX_CAPS} caps would be needed")
