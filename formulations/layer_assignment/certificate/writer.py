"""Certificates of layer assignment: caps on the slowest stage, each as low as those above allow, for `checker`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from formulations.contract.family import UncertifiedError
from formulations.layer_assignment.certificate import checker
from formulations.layer_assignment.costs import tables
from formulations.layer_assignment.kernels import sweep
from instances.problems.layer_assignment import LayerAssignmentInstance, to_json
from solvers.outcome import Watch

#: What is certified where the bound itself is not proved in exact numbers: smaller by what float arithmetic rounds.
_BELOW = Fraction(1, 10**11)
#: Parts of the unit in which caps are stated.
_FINE = 2**40
#: More than what float arithmetic rounds in a time without its all-reduce, relatively.
_ROUNDED = 2e-12


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
        If exact arithmetic does not confirm the bound, too many caps would be needed, or the run is stopped.
    """
    exact = checker.Instance(to_json(instance))
    objective = None if plan is None else checker.plan_time(exact, plan)
    certified, rows = _proof(instance, exact, bound, objective, watch)
    return {
        "format": 1,
        "problem": "layer_assignment",
        "instance_sha256": exact.digest,
        "plan": None if plan is None else dict(plan),
        "objective": None if objective is None else str(objective),
        "bound": None if certified is None else str(certified),
        "proof": _stated(rows),
    }


def _stated(rows: list[checker.Row]) -> dict[str, Any]:
    """The proof as `checker` reads it."""
    texts = [[None if most is None else str(most), [str(cap) for cap in caps]] for most, caps in rows]
    proof = {"kind": "caps", "caps": texts[-1][1]}
    return {**proof, "rows": texts[:-1]} if texts[:-1] else proof


def _proof(
    instance: LayerAssignmentInstance, exact: checker.Instance, bound: float, objective: Fraction | None, watch: Watch
) -> tuple[Fraction | None, list[checker.Row]]:
    """The bound that is certified, and the rows that prove it."""
    if math.isinf(bound):
        return None, [(None, [])]
    first = Fraction(bound) if objective is None or bound < objective else objective * (1 - _BELOW)
    for B in (first, first * (1 - _BELOW)):
        if B <= 0:
            return Fraction(0), [(None, [])]
        rows = rows_above(instance, exact, B, watch)
        if rows is not None:
            return B, rows
    raise UncertifiedError(f"exact arithmetic does not confirm the bound {bound!r}")


class Chain(Protocol):
    """What a checker knows of a chain of layers (`checker.Instance`)."""

    N: int
    S: int
    unit: int
    total: int
    times: list[int]
    rings: list[Fraction]

    def cheapest(self, cap: int | None, most: Fraction | None = None) -> float:
        """phi."""


def rows_above(instance: LayerAssignmentInstance, exact: Chain, B: Fraction, watch: Watch) -> list[checker.Row] | None:
    """The rows of a proof that all plans of a chain take more than B, rising; ``None`` if some plan takes no more.

    ``instance`` is the chain in floats: what it suggests is proved in exact numbers.
    """
    found: list[checker.Row] = []
    arrays, lengths, report = None, np.zeros(exact.S, np.int64), np.zeros(5)
    most: Fraction | None = None
    while True:
        least = Fraction(0)
        if any(exact.rings) and len(exact.times) >= exact.S:
            arrays = arrays or tables(instance)
            cap = math.inf if most is None else float(most) * (1 + _ROUNDED)
            sweep.below(*arrays, exact.N - 1.0, cap, lengths, np.frombuffer(watch.flag, np.uint8), report)
            if report[0] < math.inf:
                # Where the all-reduce takes at least this, the rest is too much already; a little more for rounding.
                rest = Fraction(float(report[0])) + Fraction(exact.total, exact.unit)
                least = max(least, B * (1 + Fraction(_ROUNDED)) - rest)
        caps = None if most is not None and least >= most else _caps(exact, B - least, most, watch)
        if caps is None:
            return None
        found.append((most, caps))
        if least == 0:
            return found[::-1]
        if sum(1 + len(caps) for _, caps in found) > checker.MAX_CAPS:
            raise UncertifiedError(f"more than {checker.MAX_CAPS} caps would be needed")
        most = least


def _caps(exact: Chain, B: Fraction, most: Fraction | None, watch: Watch) -> list[Fraction] | None:
    """The caps of a proof that B is exceeded without the all-reduce, where that takes at most ``most``; or ``None``."""
    found: list[Fraction] = []
    while len(found) < checker.MAX_CAPS:
        if watch.stopped():
            raise UncertifiedError("the run was stopped")
        sent = exact.cheapest(math.floor(found[-1] * exact.unit) if found else None, most)
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
