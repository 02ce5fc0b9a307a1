"""HiGHS inside its process: it takes a `LpTask`, runs the model as it is, and reports what it finds."""

import math
import threading
import time
from typing import Any

import highspy
import numpy as np

from solvers.external.engine import Tell
from solvers.external.messages import Bound, Ended, LpTask, Outcome, Solution
from solvers.highs_settings import configure, set_hint
from solvers.mute_stdout import silent

_Status = highspy.HighsModelStatus

#: HiGHS has solved the model to the requested gap; without rows or columns it says "empty".
_SOLVED = (_Status.kOptimal, _Status.kModelEmpty)

#: HiGHS has failed: neither a limit nor the model is the reason.
_FAILED = (_Status.kSolveError, _Status.kPresolveError, _Status.kPostsolveError, _Status.kUnknown, _Status.kMemoryLimit)

#: The parts of a ``HighsLp`` and of its matrix that make a model.
_PARTS = ("num_col_", "num_row_", "offset_", "col_cost_", "col_lower_", "col_upper_", "row_lower_", "row_upper_")
_MATRIX = ("start_", "index_", "value_")


def pack(lp: highspy.HighsLp) -> dict[str, Any]:
    """A ``HighsLp`` as arrays and numbers, which can be sent."""
    matrix = lp.a_matrix_
    return {
        **{name: getattr(lp, name) for name in _PARTS},
        **{name: np.asarray(getattr(matrix, name)) for name in _MATRIX},
        "sense_": int(lp.sense_),
        "integrality_": [int(kind) for kind in lp.integrality_],
        "by_column": matrix.format_ == highspy.MatrixFormat.kColwise,
    }


def unpack(parts: dict[str, Any]) -> highspy.HighsLp:
    """The same model again."""
    lp = highspy.HighsLp()
    for name in _PARTS:
        setattr(lp, name, parts[name])
    lp.sense_ = highspy.ObjSense(parts["sense_"])
    lp.integrality_ = [highspy.HighsVarType(kind) for kind in parts["integrality_"]]
    kinds = highspy.MatrixFormat
    lp.a_matrix_.format_ = kinds.kColwise if parts["by_column"] else kinds.kRowwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = parts["num_col_"], parts["num_row_"]
    for name in _MATRIX:
        setattr(lp.a_matrix_, name, parts[name])
    return lp


class Highs:
    """HiGHS, imported; ``stopped`` is set while the task at work is to end."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped

    def version(self) -> str:
        """Its name; whoever starts the process knows the version."""
        return "HiGHS"

    def solve(self, task: LpTask, tell: Tell) -> Ended:
        """Run it on a model."""
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.passModel(unpack(task.model))
        configure(highs, task.limits, task.options)
        set_hint(highs, dict(task.hint))
        self._listen(highs, tell)
        return _end_of(highs, *self._run(highs, task))

    def _listen(self, highs: highspy.Highs, tell: Tell) -> None:
        """Wire its callbacks: they report what is found, and interrupt it once it is to stop."""
        known = math.nan

        def poll(event: Any) -> None:
            event.data_in.user_interrupt = self._stopped.is_set()

        def poll_search(event: Any) -> None:
            nonlocal known
            bound = event.data_out.mip_dual_bound
            if math.isfinite(bound) and bound != known:
                known = bound
                tell(Bound(bound))
            poll(event)

        def improve(event: Any) -> None:
            data = event.data_out
            tell(Solution(np.array(data.mip_solution), data.objective_function_value))

        highs.cbSimplexInterrupt.subscribe(poll)
        highs.cbIpmInterrupt.subscribe(poll)
        highs.cbMipInterrupt.subscribe(poll_search)
        highs.cbMipImprovingSolution.subscribe(improve)

    def _run(self, highs: highspy.Highs, task: LpTask) -> tuple[Any, Any]:
        """Run HiGHS; where it fails, or presolve decides nothing, once more without presolve and with another seed.

        It does so in two ways: with "unbounded or infeasible", and, where a hint is optimal and presolve refutes
        anything better, with "optimal" and no bound. It fails where its own check finds its solution a rounding error
        outside its tolerances ("Solve error").
        """
        is_integer = any(kind != highspy.HighsVarType.kContinuous for kind in highs.getLp().integrality_)
        until = None if task.seconds is None else time.perf_counter() + task.seconds
        seed = task.limits.seed
        for reductions, own_seed in ((task.presolve, seed), ("off", (seed + 1) % 2**31)):
            highs.setOptionValue("presolve", reductions)
            highs.setOptionValue("random_seed", own_seed)
            if until is not None:
                left = max(0.0, until - time.perf_counter())
                highs.setOptionValue("time_limit", highs.getRunTime() + left)
            with silent():
                outcome = highs.run()
            status = highs.getModelStatus()
            unproved = status == _Status.kOptimal and is_integer and math.isinf(highs.getInfo().mip_dual_bound)
            if not unproved and status not in (_Status.kUnboundedOrInfeasible, *_FAILED):
                break
            if self._stopped.is_set() or (until is not None and time.perf_counter() >= until):
                break
        return status, outcome


def _end_of(highs: highspy.Highs, status: Any, outcome: Any) -> Ended:
    info = highs.getInfo()
    found = (
        status == _Status.kModelEmpty or info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    )
    objective = info.objective_function_value if found else None
    if info.mip_node_count >= 0:
        bound = info.mip_dual_bound if math.isfinite(info.mip_dual_bound) else None
    else:  # an LP has no dual bound but its optimum
        bound = objective if status in _SOLVED else None
    return Ended(
        _outcome(status, outcome),
        values=np.array(highs.getSolution().col_value) if found else None,
        objective=objective,
        bound=bound,
        words=highs.modelStatusToString(status),
        stats={"search_nodes": max(0, info.mip_node_count), "simplex_iterations": max(0, info.simplex_iteration_count)},
    )


def _outcome(status: Any, outcome: Any) -> Outcome:
    if status in _FAILED:
        return Outcome.FAILED
    if status == _Status.kUnbounded:
        return Outcome.UNBOUNDED
    if outcome == highspy.HighsStatus.kError:
        return Outcome.INVALID
    if status == _Status.kInfeasible:
        return Outcome.INFEASIBLE
    return Outcome.SOLVED if status in _SOLVED else Outcome.LIMIT
