"""Certificates of layer assignment: caps on the slowest stage, each as low as those above allow, for `checker`."""

import math
from fractions import Fraction

import numpy as np

from formulations.contract.certificates import Proved, certifies, check_stop
from formulations.contract.checker.chain import Chain, Row
from formulations.contract.family import UncertifiedError
from formulations.layer_assignment.certificate import checker
from formulations.layer_assignment.costs import filling, tables
from formulations.layer_assignment.kernels import sweep
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.outcome import Watch

#: Parts of the unit in which caps are stated.
_FINE = 2**40
#: More than what float arithmetic rounds in a time without its all-reduce, relatively.
_ROUNDED = 2e-12


@certifies(checker.CHECKER)
def write(instance: LayerAssignmentInstance, exact: checker.Instance, T: Fraction | None, watch: Watch) -> Proved:
    """`certificate` of a plan and a bound."""
    rows: list[Row] | None = [(None, [])] if T is None else rows_above(instance, exact, T, watch)
    if rows is None:
        return None
    *below, (_, caps) = [(str(most), [str(cap) for cap in each]) for most, each in rows]
    return T, {"kind": "caps", "caps": caps} | ({"rows": below} if below else {})


def rows_above(instance: LayerAssignmentInstance, exact: Chain, B: Fraction, watch: Watch) -> list[Row] | None:
    """The rows of a proof that all plans of a chain take more than B, rising; ``None`` if some plan takes no more.

    ``instance`` is the chain in floats: what it suggests is proved in exact numbers.
    """
    found: list[Row] = []
    table, lengths, report = None, np.zeros(exact.S, np.int64), np.zeros(5)
    most: Fraction | None = None
    while True:
        least = Fraction(0)
        if any(exact.rings) and exact.n >= exact.S:
            table = table or tables(instance)
            cap = math.inf if most is None else float(most) * (1 + _ROUNDED)
            own = table.elapsed, table.filled_cut, table.held, table.ring, exact.N - 1.0
            sweep.below(*own, cap, lengths, np.frombuffer(watch.flag, np.uint8), report)
            if report[0] < math.inf:
                # Where the all-reduce takes at least this, the rest is too much already; a little more for rounding.
                rest = Fraction(float(report[0])) + Fraction(filling(instance, table))
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
        check_stop(watch)
        sent = exact.cheapest(math.floor(found[-1] * exact.unit) if found else None, most)
        left = B * exact.unit - (0 if math.isinf(sent) else int(sent))
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
