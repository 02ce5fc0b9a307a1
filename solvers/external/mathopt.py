"""OR-Tools' MathOpt: SCIP (``mathopt:gscip``) and others that the wheel of ortools has inside."""

import datetime
from typing import Any

import numpy as np
from google.protobuf import text_format
from ortools.math_opt import callback_pb2, model_pb2, result_pb2
from ortools.math_opt.core.python import solver as core
from ortools.math_opt.python import mathopt

from solvers.external.engine import RefusedError, Tell, finite, parse_option
from solvers.external.matrix import Matrix
from solvers.external.messages import Ended, Outcome, Solution, Task
from solvers.trust.pins import demand, installed_version

#: What the solvers of MathOpt are called in results; others have their own names.
_TITLES = {"gscip": "SCIP", "highs": "HiGHS", "cp_sat": "CP-SAT", "glop": "GLOP", "pdlp": "PDLP"}
#: Those that report solutions while they search.
_REPORTING = ("gscip", "gurobi")

#: What `solvers.milp.backend` sets as well, as it finds false proofs otherwise.
_OURS = {"highs": (("mip_detect_symmetry", "false"),)}

_Reason = result_pb2.TerminationReasonProto
_OUTCOMES = {
    _Reason.TERMINATION_REASON_OPTIMAL: Outcome.SOLVED,
    _Reason.TERMINATION_REASON_INFEASIBLE: Outcome.INFEASIBLE,
    _Reason.TERMINATION_REASON_UNBOUNDED: Outcome.UNBOUNDED,
    _Reason.TERMINATION_REASON_FEASIBLE: Outcome.LIMIT,
    _Reason.TERMINATION_REASON_NO_SOLUTION_FOUND: Outcome.LIMIT,
}


class MathOpt:
    """One of MathOpt's solvers by its name there, in lower case; `solvers.external.engine.Engine`."""

    def __init__(self, name: str) -> None:
        demand("ortools")
        kinds = {kind.name.lower(): kind for kind in mathopt.SolverType}
        if name not in kinds:
            raise RefusedError("")
        self._name, self._kind = name, kinds[name]

    def version(self) -> str:
        """For instance ``SCIP (MathOpt 9.15.6755)``."""
        return f"{_TITLES.get(self._name, self._name)} (MathOpt {installed_version('ortools')})"

    def solve(self, task: Task, tell: Tell) -> Ended:
        """Solve a model."""
        matrix = task.matrix
        reports = self._name in _REPORTING
        events = {mathopt.Event.MIP_SOLUTION} if reports else set()
        best = np.inf

        def found(data: Any) -> Any:
            nonlocal best
            values = _dense(data.primal_solution_vector, matrix)
            objective = matrix.value(values)
            cost = objective if matrix.is_minimum else -objective
            if cost < best:
                best = cost
                tell(Solution(values, objective))
            return callback_pb2.CallbackResultProto()

        try:
            result = core.solve(
                _proto(matrix),
                self._kind.value,
                mathopt.StreamableSolverInitArguments().to_proto(),
                self._parameters(task).to_proto(),
                _add_hint(task),
                (lambda lines: print("\n".join(lines), flush=True)) if task.log is not None else None,
                mathopt.CallbackRegistration(events=events).to_proto(),
                found if reports else None,
                None,
            )
        except Exception as error:  # pybind's own StatusNotOk, which has no type that can be named
            return Ended(Outcome.FAILED, words=str(error))
        return _end_of(result, matrix)

    def _parameters(self, task: Task) -> Any:
        threads = None if task.threads == 1 else task.threads
        own = mathopt.SolveParameters(
            time_limit=None if task.seconds is None else datetime.timedelta(seconds=task.seconds),
            threads=threads,
            random_seed=task.seed,
            relative_gap_tolerance=task.gap,
            absolute_gap_tolerance=0.0,
            enable_output=False,
        )
        for name, text in (*_OURS.get(self._name, ()), *task.options):
            _set(own, self._name, name, text)
        return own


def _set(parameters: Any, solver: str, name: str, text: str) -> None:
    """One of the solver's own parameters; MathOpt keeps them by their types, which the text's spelling decides."""
    value = parse_option(text)
    held: Any = getattr(parameters, solver, None)
    if solver == "gscip":
        kinds = {bool: held.bool_params, int: held.int_params, float: held.real_params, str: held.string_params}
    elif solver == "highs":
        kinds = {bool: held.bool_options, int: held.int_options, float: held.double_options, str: held.string_options}
    elif solver == "gurobi":
        kinds, value = {str: held.param_values}, text
    elif held is not None:
        try:
            text_format.Merge(f"{name}: {text}", held)
        except text_format.ParseError as error:
            raise RefusedError(f"a parameter of {solver} and its value ({error})") from None
        return
    else:
        raise RefusedError(f"none, as MathOpt passes none on to {solver}")
    kinds[type(value)][name] = value


def _proto(matrix: Matrix) -> Any:
    proto = model_pb2.ModelProto()
    count = len(matrix.costs)
    proto.variables.ids.extend(range(count))
    proto.variables.lower_bounds.extend(matrix.lower.tolist())
    proto.variables.upper_bounds.extend(matrix.upper.tolist())
    proto.variables.integers.extend(matrix.is_whole.tolist())
    proto.objective.maximize = not matrix.is_minimum
    proto.objective.offset = matrix.offset
    costly = np.flatnonzero(matrix.costs)
    proto.objective.linear_coefficients.ids.extend(costly.tolist())
    proto.objective.linear_coefficients.values.extend(matrix.costs[costly].tolist())
    proto.linear_constraints.ids.extend(range(len(matrix.least)))
    proto.linear_constraints.lower_bounds.extend(matrix.least.tolist())
    proto.linear_constraints.upper_bounds.extend(matrix.most.tolist())
    rows = np.repeat(np.arange(len(matrix.least)), np.diff(matrix.starts))
    proto.linear_constraint_matrix.row_ids.extend(rows.tolist())
    proto.linear_constraint_matrix.column_ids.extend(matrix.columns.tolist())
    proto.linear_constraint_matrix.coefficients.extend(matrix.factors.tolist())
    return proto


def _add_hint(task: Task) -> Any:
    proto = mathopt.ModelSolveParameters().to_proto()
    if task.hint:
        hint = proto.solution_hints.add()
        for column, value in sorted(task.hint):
            hint.variable_values.ids.append(column)
            hint.variable_values.values.append(value)
    return proto


def _dense(vector: Any, matrix: Matrix) -> Any:
    values = np.zeros(len(matrix.costs))
    values[np.array(vector.ids, np.int64)] = np.array(vector.values, np.float64)
    return values


def _end_of(result: Any, matrix: Matrix) -> Ended:
    reason, bounds = result.termination.reason, result.termination.objective_bounds
    outcome = _OUTCOMES.get(reason, Outcome.FAILED)
    if reason == _Reason.TERMINATION_REASON_INFEASIBLE_OR_UNBOUNDED and matrix.is_bounded:
        outcome = Outcome.INFEASIBLE
    feasible = mathopt.SolutionStatus.FEASIBLE.value
    found = [
        each.primal_solution
        for each in result.solutions
        if each.HasField("primal_solution") and each.primal_solution.feasibility_status == feasible
    ]
    values = _dense(found[0].variable_values, matrix) if found else None
    return Ended(
        outcome,
        values=values,
        objective=None if values is None else matrix.value(values),
        bound=finite(bounds.dual_bound),
        words=result.termination.detail or _Reason.Name(reason),
        stats={"search_nodes": result.solve_stats.node_count},
    )
