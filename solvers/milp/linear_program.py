"""HiGHS on a linear program, such as a relaxation."""

from __future__ import annotations

from typing import Any

import highspy

from solvers.inspection import why_no_bound
from solvers.mute_stdout import silent
from solvers.outcome import Watch

_Status = highspy.HighsModelStatus
_SOLVED = (_Status.kOptimal, _Status.kModelEmpty)
_NO_SOLUTION = (_Status.kInfeasible, _Status.kUnboundedOrInfeasible)

#: Interior points and then a basis: of models with 10^5 coefficients simplex alone takes twenty times as long. It is
#: left for what interior points do not decide.
_ALGORITHMS = ("ipm", "simplex")


def solve(highs: highspy.Highs, watch: Watch) -> tuple[bool, str]:
    """Solve it, to a basis; HiGHS is interrupted once the watch is stopped.

    Returns
    -------
    tuple
        Whether it is infeasible, and, where neither that nor an optimum is known, why.
    """

    def poll(event: Any) -> None:
        event.data_in.user_interrupt = watch.stopped()

    highs.cbSimplexInterrupt.subscribe(poll)
    highs.cbIpmInterrupt.subscribe(poll)
    for algorithm in _ALGORITHMS:
        highs.setOptionValue("solver", algorithm)
        remaining = watch.remaining_s()
        if remaining is not None:
            highs.setOptionValue("time_limit", highs.getRunTime() + remaining)
        if not watch.stopped():
            with silent():
                highs.run()
        status = highs.getModelStatus()
        if watch.stopped() or status in (*_SOLVED, *_NO_SOLUTION, _Status.kTimeLimit):
            break
    if status in (*_SOLVED, *_NO_SOLUTION):
        return status in _NO_SOLUTION, ""
    if watch.stopped() or status == _Status.kTimeLimit:
        return False, why_no_bound(watch)
    return False, f"HiGHS: {highs.modelStatusToString(status)}"
