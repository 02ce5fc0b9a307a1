"""What HiGHS proves of a model with integers it proves twice, the second time in another order of rows and columns.

HiGHS 1.12 is wrong about one order in some thousands, its presolve about some models in most orders, and what it
derives from a known objective about others in one order of five (docs/findings.md). So the second time it does without
presolve and without a hint: hardly ever are two searches that differ in all three wrong in the same way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import highspy
import numpy as np

from solvers.outcome import OPTIMAL_GAP, OnBound, Run, Stop


def entries(lp: highspy.HighsLp) -> tuple[Any, Any, Any]:
    """Row, column and value of each entry of a ``HighsLp``'s matrix."""
    held = lp.a_matrix_
    # An empty list makes no array of integers.
    start, inner = np.array(held.start_, np.int64), np.array(held.index_, np.int64)
    outer = np.repeat(np.arange(max(0, len(start) - 1)), np.diff(start))
    by_column = held.format_ == highspy.MatrixFormat.kColwise
    row, column = (inner, outer) if by_column else (outer, inner)
    return row, column, np.array(held.value_, np.float64)


def reorder(lp: highspy.HighsLp, seed: int) -> tuple[highspy.HighsLp, list[int]]:
    """The model in a random order, and where each of its columns has gone.

    Whatever a solver proves of one order holds of every other; its rounding errors are others.
    """
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(lp.num_row_), rng.permutation(lp.num_col_)
    row_at, column_at = np.argsort(rows), np.argsort(columns)
    row, column, factors = entries(lp)
    row, column = row_at[row], column_at[column]
    order = np.lexsort((row, column))

    found = highspy.HighsLp()
    found.num_col_, found.num_row_ = lp.num_col_, lp.num_row_
    found.sense_, found.offset_ = lp.sense_, lp.offset_
    found.col_cost_ = np.array(lp.col_cost_)[columns]
    found.col_lower_, found.col_upper_ = np.array(lp.col_lower_)[columns], np.array(lp.col_upper_)[columns]
    found.row_lower_, found.row_upper_ = np.array(lp.row_lower_)[rows], np.array(lp.row_upper_)[rows]
    kinds = lp.integrality_
    found.integrality_ = [kinds[place] for place in columns]
    found.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    counts = np.bincount(column, minlength=lp.num_col_)
    found.a_matrix_.start_ = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    found.a_matrix_.index_ = row[order].astype(np.int32)
    found.a_matrix_.value_ = factors[order]
    return found, [int(place) for place in column_at]


#: Two true proofs may differ by so much, relatively: solvers let rows be broken by their tolerances (SCIP by 1e-6 times
#: a large coefficient). What is off by less costs nothing: the weaker bound counts.
_TOLERANCES = 2e-5

#: What is proved of a model with a coefficient above this is not believed: HiGHS, in both runs, called one with 4e14
#: infeasible that has a plan (tests/formulations/training_strategy/test_models.py).
_LARGEST = 1e10

#: One run of a model: its columns by a variable's id, a hint by columns, a listener, and whether it is the second one.
Once = Callable[[highspy.HighsLp, Mapping[int, int], Mapping[int, float], OnBound, bool], Run]


def prove_twice(
    once: Once,
    lp: highspy.HighsLp,
    columns: Mapping[int, int],
    known: Mapping[int, float],
    seed: int,
    on_bound: OnBound,
) -> Run:
    """What both runs prove; only one where there are no integers, or the first one proves nothing that is believed.

    Where one finds what the other ruled out, a third one runs; what two of them prove counts if no solution of the
    third is better. The bound is the caller's to report.
    """
    if all(kind == highspy.HighsVarType.kContinuous for kind in lp.integrality_):
        return once(lp, columns, known, on_bound, False)
    is_minimum = lp.sense_ == highspy.ObjSense.kMinimize
    # No bound is reported before two runs stand for it: a watch does not take back what was reported.
    first = once(lp, columns, known, None, False)
    if first.stop is not Stop.PROVED:
        return alone(first, is_minimum=is_minimum)
    largest = float(np.max(np.abs(entries(lp)[2]), initial=0.0))
    if largest > _LARGEST:
        reason = f"{first.solver or 'the solver'} is not believed: its model has a coefficient of {largest:.0e}"
        return replace(first, infeasible=False, bound=None, stop=without_proof(first.stop), reason=reason)

    def again(number: int) -> Run:
        other, moved = reorder(lp, seed + number)
        place = {variable: moved[column] for variable, column in columns.items()}
        # Without a hint: an objective that is known from the beginning cuts off optima (pipeline_placement's tests).
        return once(other, place, {}, None, True)

    runs = [first, again(0)]
    if runs[1].stop is Stop.PROVED and len(standing(runs, is_minimum=is_minimum)) < 2:
        runs.append(again(1))
    stand = standing(runs, is_minimum=is_minimum)
    if len(stand) > 1:
        return agreement(stand[0], stand[-1], is_minimum=is_minimum)
    found, sign = [run for run in runs if run.values is not None], 1 if is_minimum else -1
    best = min(found, key=lambda run: sign * (run.objective or 0.0), default=first)
    whose = best.solver or "the solver"
    bound = alone(stand[0], is_minimum=is_minimum).bound if stand else None
    reason = f"{whose} contradicts itself: one run has a solution that another one rules out"
    return replace(best, infeasible=False, bound=bound, stop=without_proof(runs[-1].stop), reason=reason)


def standing(runs: Sequence[Run], *, is_minimum: bool) -> list[Run]:
    """The runs whose claims no other one's solution refutes."""
    return [run for run in runs if not any(refutes(other, run, is_minimum=is_minimum) for other in runs)]


def refutes(run: Run, other: Run, *, is_minimum: bool) -> bool:
    """Whether a run has a solution where another one claims that there is none, or none that is as good.

    A run whose own solution is as good contradicts itself: that is for the watch, which sees its bound and its plan.
    """
    if other.infeasible:
        return run.values is not None
    if run.objective is None or other.bound is None:
        return False
    room = _TOLERANCES * max(abs(run.objective), abs(other.bound)) + 1e-6
    claims = [other.bound, *([] if other.objective is None else [other.objective])]
    return all(run.objective < one - room if is_minimum else run.objective > one + room for one in claims)


def agreement(first: Run, second: Run, *, is_minimum: bool) -> Run:
    """What both runs prove, with the better of their solutions; ``first`` ended with a proof."""
    if first.infeasible and second.infeasible:
        return first
    if first.infeasible or second.infeasible:
        found = second if first.infeasible else first
        reason = second.reason
        if not reason and found.values is not None:
            whose = found.solver or "the solver"
            reason = f"{whose} contradicts itself: infeasible in one order of rows and columns, and not in another"
        return replace(found, bound=None, stop=without_proof(second.stop), reason=reason)
    bound = None if second.bound is None else _weaker(second.bound, first.bound, is_minimum)
    best = second if _is_better(second.objective, first.objective, is_minimum) else first
    closed = best.objective is None or (bound is not None and _are_one(best.objective, bound))
    stop = second.stop if closed else without_proof(second.stop)
    return replace(best, bound=bound, stop=stop, reason=second.reason, stats=first.stats)


def _are_one(objective: float, bound: float) -> bool:
    """Whether they are as close as one run of HiGHS leaves them: absolutely as well, as both may be rounding errors."""
    return abs(objective - bound) <= OPTIMAL_GAP * abs(objective) + 1e-6


def alone(run: Run, *, is_minimum: bool) -> Run:
    """A run that ended without a proof and is not repeated: its bound, weakened so that it closes no gap."""
    if run.bound is None:
        return run
    given_up = 2 * OPTIMAL_GAP * abs(run.bound)
    return replace(run, bound=run.bound - given_up if is_minimum else run.bound + given_up)


def report_run(run: Run, on_bound: OnBound) -> Run:
    """The run, once its bound was reported: what two runs prove is known after both."""
    if on_bound is not None and run.bound is not None:
        on_bound(run.bound)
    return run


def _weaker(bound: float, other: float | None, is_minimum: bool) -> float:
    """The bound that claims less; the first one where there is no other."""
    if other is None:
        return bound
    return min(bound, other) if is_minimum else max(bound, other)


def without_proof(stop: Stop) -> Stop:
    """How a run has ended that proves nothing."""
    return Stop.COMPLETED if stop is Stop.PROVED else stop


def _is_better(new: float | None, old: float | None, is_minimum: bool) -> bool:
    if new is None or old is None:
        return False
    return new < old if is_minimum else new > old
