"""HiGHS on a linear program, such as a relaxation."""

import highspy

from solvers.highs_settings import poll, run_for_rest
from solvers.inspection import why_no_bound
from solvers.outcome import Watch

_Status = highspy.HighsModelStatus
_SOLVED = (_Status.kOptimal, _Status.kModelEmpty)
_NO_SOLUTION = (_Status.kInfeasible, _Status.kUnboundedOrInfeasible)

#: Interior points and then a basis: of models with 10^5 coefficients simplex alone takes twenty times as long. It is
#: left for what interior points do not decide.
_ALGORITHMS = ("ipm", "simplex")


def solve(highs: highspy.Highs, watch: Watch) -> tuple[bool, str]:
    """Solve it, to a basis; HiGHS is interrupted once the watch is stopped.

    Returns: whether it is infeasible, and, where neither that nor an optimum is known, why.
    """
    highs.cbSimplexInterrupt.subscribe(poll(watch))
    highs.cbIpmInterrupt.subscribe(poll(watch))
    for algorithm in _ALGORITHMS:
        highs.setOptionValue("solver", algorithm)
        status = highs.getModelStatus() if watch.stopped() else run_for_rest(highs, watch)
        if watch.stopped() or status in (*_SOLVED, *_NO_SOLUTION, _Status.kTimeLimit):
            break
    if status in (*_SOLVED, *_NO_SOLUTION):
        return status in _NO_SOLUTION, ""
    if watch.stopped() or status == _Status.kTimeLimit:
        return False, why_no_bound(watch)
    return False, f"HiGHS: {highs.modelStatusToString(status)}"
