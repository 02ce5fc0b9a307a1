"""Solvers that Pyomo knows how to call, by their Python interfaces or command lines: CBC, GLPK, Gurobi, CPLEX, Xpress.

These report at the end alone. What Pyomo writes beside an optimum is not always a dual bound: one that closes the gap
of a run which a limit ended is none.
"""

import contextlib
import logging
import math
from typing import Any

import numpy as np
import pyomo
import pyomo.environ as pyo
from pyomo.core.expr import LinearExpression
from pyomo.opt import TerminationCondition

from solvers.external.engine import RefusedError, Tell, finite, parse_option
from solvers.external.matrix import Matrix
from solvers.external.messages import Ended, Outcome, Task

#: Pyomo's names to try for each of these; any other of Pyomo's own names stands for itself.
INTERFACES = {
    "scip": ("scip",),
    "cbc": ("cbc",),
    "glpk": ("glpk",),
    "gurobi": ("gurobi_direct", "gurobi"),
    "cplex": ("cplex_direct", "cplex"),
    "xpress": ("xpress_direct", "xpress"),
}

#: What they call gap, seed and threads; empty: they have none. Interfaces in Python have a name for the time limit too:
#: Pyomo's own ``timelimit`` is for command lines alone.
_NAMES = {
    "cbc": (("ratioGap", "allowableGap"), "randomCbcSeed", "threads", ""),
    "glpk": (("mipgap",), "seed", "", ""),
    "gurobi": (("MIPGap", "MIPGapAbs"), "Seed", "Threads", "TimeLimit"),
    "cplex": (("mip_tolerances_mipgap", "mip_tolerances_absmipgap"), "randomseed", "threads", "timelimit"),
    "xpress": (("miprelstop", "mipabsstop"), "randomseed", "threads", "timelimit"),
    "scip": (("limits/gap", "limits/absgap"), "randomization/randomseedshift", "lp/threads", ""),
}

#: What makes a solver prove false optima otherwise: CBC's preprocessing does (`solvers.milp.known_models`).
_OURS = {"cbc": {"preprocess": "off"}}

_OUTCOMES = {
    TerminationCondition.optimal: Outcome.SOLVED,
    TerminationCondition.globallyOptimal: Outcome.SOLVED,
    TerminationCondition.infeasible: Outcome.INFEASIBLE,
    TerminationCondition.unbounded: Outcome.UNBOUNDED,
    TerminationCondition.maxTimeLimit: Outcome.LIMIT,
    TerminationCondition.maxIterations: Outcome.LIMIT,
    TerminationCondition.maxEvaluations: Outcome.LIMIT,
    TerminationCondition.minFunctionValue: Outcome.LIMIT,
    TerminationCondition.feasible: Outcome.LIMIT,
    TerminationCondition.intermediateNonInteger: Outcome.LIMIT,
}


def available(name: str) -> bool:
    """Whether Pyomo finds a solver of this name."""
    return _find_solver(name) is not None


def _find_solver(name: str) -> Any:
    for interface in INTERFACES.get(name, (name,)):
        with contextlib.suppress(Exception):  # whatever a foreign interface fails with, it is not there
            solver = pyo.SolverFactory(interface)
            if solver.available(exception_flag=False):
                return solver
    return None


class ThroughPyomo:
    """`solvers.external.engine.Engine`."""

    def __init__(self, name: str) -> None:
        logging.getLogger("pyomo").setLevel(logging.CRITICAL)
        self._name = name
        self._solver = _find_solver(name)
        if self._solver is None:
            raise RefusedError("")

    def version(self) -> str:
        """For instance ``cbc 2.10.8 (Pyomo 6.10.1)``."""
        number = ""
        with contextlib.suppress(Exception):
            number = ".".join(map(str, self._solver.version() or ())).removesuffix(".0")
        return f"{self._name} {number}".rstrip() + f" (Pyomo {pyomo.__version__})"

    def solve(self, task: Task, tell: Tell) -> Ended:  # noqa: ARG002 - nothing is known before the end
        """Solve a model."""
        matrix = task.matrix
        if matrix.is_refuted:
            return Ended(Outcome.INFEASIBLE)
        model = _model(matrix)
        self._configure(task)
        more = {} if task.seconds is None else {"timelimit": max(1, math.floor(task.seconds))}
        results = self._solver.solve(model, load_solutions=False, tee=task.log is not None, **more)
        values = self._values(model, results)
        if values is not None and not matrix.holds(values):  # CBC gives what it has, a solution or not
            values = None
        outcome = _OUTCOMES.get(results.solver.termination_condition, Outcome.FAILED)
        if results.solver.termination_condition == TerminationCondition.infeasibleOrUnbounded and matrix.is_bounded:
            outcome = Outcome.INFEASIBLE
        objective = None if values is None else matrix.value(values)
        stated = results.problem.lower_bound if matrix.is_minimum else results.problem.upper_bound
        bound = finite(stated)
        if outcome is Outcome.LIMIT and objective is not None and bound is not None:
            closed = bound >= objective if matrix.is_minimum else bound <= objective
            bound = None if closed else bound
        return Ended(outcome, values, objective, bound, words=str(results.solver.termination_condition))

    def _configure(self, task: Task) -> None:
        vendor = next((each for each in _NAMES if each in self._name), None)
        self._solver.options.clear()
        if vendor is not None:
            gaps, seed, threads, time = _NAMES[vendor]
            self._solver.options.update(dict.fromkeys(gaps, 0.0) | _OURS.get(vendor, {}))
            self._solver.options[gaps[0]] = task.gap
            self._solver.options[seed] = task.seed
            if threads and task.threads > 1:
                self._solver.options[threads] = task.threads
            if time and task.seconds is not None:
                self._solver.options[time] = task.seconds
        for name, text in task.options:
            self._solver.options[name] = parse_option(text)

    def _values(self, model: Any, results: Any) -> Any:
        if len(results.solution):
            model.solutions.load_from(results)
        elif hasattr(self._solver, "load_vars"):
            with contextlib.suppress(Exception):  # each interface has its own error where there is no solution
                self._solver.load_vars()
        found = [variable.value for variable in model.x.values()]
        return None if all(value is None for value in found) else np.array([value or 0.0 for value in found])


def _model(matrix: Matrix) -> Any:
    model = pyo.ConcreteModel()
    count = len(matrix.costs)
    model.x = pyo.Var(range(count))
    for variable, whole, low, high in zip(
        model.x.values(), matrix.is_whole.tolist(), matrix.lower.tolist(), matrix.upper.tolist(), strict=True
    ):
        variable.domain = pyo.Integers if whole else pyo.Reals
        variable.setlb(None if math.isinf(low) else low)
        variable.setub(None if math.isinf(high) else high)

    def row(_: Any, place: int) -> Any:
        columns, factors = matrix.row(place)
        least, most = float(matrix.least[place]), float(matrix.most[place])
        if len(columns) == 0 or (math.isinf(least) and math.isinf(most)):
            return pyo.Constraint.Skip
        total = LinearExpression(linear_coefs=factors.tolist(), linear_vars=[model.x[int(each)] for each in columns])
        if least == most:
            return total == least
        return (None if math.isinf(least) else least, total, None if math.isinf(most) else most)

    model.rows = pyo.Constraint(range(len(matrix.least)), rule=row)
    costs = LinearExpression(
        constant=matrix.offset, linear_coefs=matrix.costs.tolist(), linear_vars=list(model.x.values())
    )
    model.cost = pyo.Objective(expr=costs, sense=pyo.minimize if matrix.is_minimum else pyo.maximize)
    return model
