"""Certificates of micro-batch schedules: the bound of heads and tails, where it meets what is reported."""

from fractions import Fraction

from formulations.contract.certificates import BELOW, Proved, certifies
from formulations.contract.family import UncertifiedError
from formulations.microbatch_schedule.certificate import checker
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Watch

#: A bound that is proved this much below what is reported stands for it: rules hold within 1e-9 of the iteration.
_NEAR = Fraction(1, 2 * 10**6)
#: Halvings between the two.
_HALVINGS = 12
_PROOF = {"kind": "bound", "name": "heads and tails"}


@certifies(checker.CHECKER)
def write(_instance: ScheduleInstance, exact: checker.Instance, T: Fraction | None, watch: Watch) -> Proved:
    """`certificate` of a plan and a bound.

    The definition lets every pass begin 1e-9 of the iteration too early, so a bound on the time is certified that is
    smaller by 2e-9 of it for each pass of a longest chain, but by 5e-7 at most.
    """
    if checker.excludes(exact, T):
        return T, _PROOF
    if T is None:
        raise UncertifiedError("heads and tails alone do not exclude all plans")
    high, low = T, T * (1 - (BELOW if exact.in_bytes else _NEAR))
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
    return low, _PROOF
