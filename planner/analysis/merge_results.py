"""One result for several runs that together answer one question: the best plan of all, the weakest bound of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.results.result import Result
from solvers.outcome import OPTIMAL_GAP, Status, Stop, relative_gap


def union(
    best: Result, every: Sequence[Result], bounds: Sequence[float | None], *, is_whole: bool, **changes: Any
) -> Result:
    """The best result with bound, status, seconds and signal of all.

    Parameters
    ----------
    bounds
        Of the results that are not infeasible, in the best one's unit; ``None`` where there is none.
    is_whole
        Whether all runs of the question are among them: else nothing is proved.
    changes
        Other fields of the result.
    """
    known = [bound for bound in bounds if bound is not None]
    bound = min(known) if is_whole and known and len(known) == len(bounds) else None
    gap = relative_gap(best.objective, bound)
    if best.objective is not None:
        status = Status.OPTIMAL if gap is not None and gap <= OPTIMAL_GAP else Status.FEASIBLE
    else:
        proved = is_whole and all(result.status is Status.INFEASIBLE for result in every)
        status = Status.INFEASIBLE if proved else Status.UNKNOWN
    proved = status in (Status.OPTIMAL, Status.INFEASIBLE)
    signal = next((result.signal for result in every if result.signal), None)
    unproved = next((result.stop for result in every if result.stop is not Stop.PROVED), None)
    stop = unproved or (Stop.INTERRUPTED if signal else Stop.COMPLETED)
    provers = dict.fromkeys(result.proved_by for result in every if result.proved_by)
    return replace(
        best,
        status=status,
        stop=Stop.PROVED if proved else stop,
        proved_by=", ".join(provers) if bound is not None or status is Status.INFEASIBLE else None,
        bound=bound,
        gap=gap,
        seconds=sum(result.seconds for result in every),
        signal=signal,
        **changes,
    )
