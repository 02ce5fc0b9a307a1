"""SCIP through PySCIPOpt (extra ``scip``): reports solutions and bounds while it searches."""

from typing import Any

import numpy as np
import pyscipopt
from pyscipopt import SCIP_EVENTTYPE, Eventhdlr
from pyscipopt.scip import Expr, ExprCons, Term

from solvers.external.engine import RefusedError, Tell, finite, parse_option
from solvers.external.matrix import Matrix
from solvers.external.messages import Bound, Ended, Outcome, Solution, Task

_OUTCOMES = {
    "optimal": Outcome.SOLVED,
    "infeasible": Outcome.INFEASIBLE,
    "unbounded": Outcome.UNBOUNDED,
    "gaplimit": Outcome.SOLVED,  # the caller's gap
    "timelimit": Outcome.LIMIT,
    "nodelimit": Outcome.LIMIT,
    "totalnodelimit": Outcome.LIMIT,
    "stallnodelimit": Outcome.LIMIT,
    "sollimit": Outcome.LIMIT,
    "bestsollimit": Outcome.LIMIT,
    "memlimit": Outcome.LIMIT,
    "userinterrupt": Outcome.LIMIT,
}


class Scip:
    """`solvers.external.engine.Engine`."""

    def version(self) -> str:
        """For instance ``SCIP 10.0 (PySCIPOpt 6.3.0)``."""
        return f"SCIP {pyscipopt.Model().version()} (PySCIPOpt {pyscipopt.__version__})"

    def solve(self, task: Task, tell: Tell) -> Ended:
        """Solve a model."""
        matrix = task.matrix
        if matrix.is_refuted:  # SCIP takes no row without variables
            return Ended(Outcome.INFEASIBLE)
        model, variables = _build(matrix)
        _configure(model, task)
        if task.hint:
            start = model.createPartialSol()
            for column, value in task.hint:
                model.setSolVal(start, variables[column], value)
            model.addSol(start)
        model.includeEventhdlr(_Relay(matrix, variables, tell), "relay", "reports solutions and bounds")
        model.optimize()
        status = model.getStatus()
        outcome = _OUTCOMES.get(status, Outcome.FAILED)
        if status == "inforunbd" and matrix.is_bounded:
            outcome = Outcome.INFEASIBLE
        values = None if model.getNSols() == 0 else _values(model, variables)
        return Ended(
            outcome,
            values=values,
            objective=None if values is None else matrix.value(values),
            bound=finite(model.getDualbound()),
            words=status,
            stats={"search_nodes": model.getNTotalNodes()},
        )


class _Relay(Eventhdlr):  # type: ignore[misc]  # PySCIPOpt is untyped here
    """Tells of what SCIP finds."""

    def __init__(self, matrix: Matrix, variables: list[Any], tell: Tell) -> None:
        self._matrix, self._variables, self._tell = matrix, variables, tell

    def eventinit(self) -> None:
        """Called by SCIP."""
        for event in (SCIP_EVENTTYPE.BESTSOLFOUND, SCIP_EVENTTYPE.DUALBOUNDIMPROVED):
            self.model.catchEvent(event, self)

    def eventexec(self, event: Any) -> None:
        """Called by SCIP."""
        if event.getType() == SCIP_EVENTTYPE.BESTSOLFOUND:
            values = _values(self.model, self._variables)
            self._tell(Solution(values, self._matrix.value(values)))
            return
        bound = finite(self.model.getDualbound())
        if bound is not None:
            self._tell(Bound(bound))


def _values(model: Any, variables: list[Any]) -> Any:
    best = model.getBestSol()
    return np.array([model.getSolVal(best, variable) for variable in variables])


def _build(matrix: Matrix) -> tuple[Any, list[Any]]:
    model = pyscipopt.Model()
    infinity = model.infinity()
    sides = np.clip([matrix.lower, matrix.upper], -infinity, infinity)
    kinds = np.where(matrix.is_whole, "I", "C")
    variables = [
        model.addVar(name=f"x{place}", vtype=str(kind), lb=low, ub=high, obj=cost)
        for place, (kind, low, high, cost) in enumerate(zip(kinds, *sides.tolist(), matrix.costs.tolist(), strict=True))
    ]
    terms = [Term(variable) for variable in variables]
    for place, (least, most) in enumerate(zip(matrix.least.tolist(), matrix.most.tolist(), strict=True)):
        columns, factors = matrix.row(place)
        if len(columns) == 0:
            continue
        total = Expr({terms[column]: factor for column, factor in zip(columns, factors.tolist(), strict=True)})
        low, high = (None if abs(side) >= infinity else side for side in (least, most))
        if low is not None or high is not None:
            model.addCons(ExprCons(total, lhs=low, rhs=high), name=f"r{place}")
    model.addObjoffset(matrix.offset)
    model.setMinimize() if matrix.is_minimum else model.setMaximize()
    return model, variables


def _configure(model: Any, task: Task) -> None:
    if task.log is None:
        model.hideOutput()
    ours: dict[str, Any] = {
        "limits/gap": task.gap,
        "limits/absgap": 0.0,
        "randomization/randomseedshift": task.seed,
        "lp/threads": min(task.threads, 64),
        "misc/catchctrlc": False,
    }
    if task.seconds is not None:
        ours["limits/time"] = task.seconds
    for name, value in ours.items():
        model.setParam(name, value)
    for name, text in task.options:
        try:
            model.setParam(name, parse_option(text))
        except (KeyError, LookupError, TypeError, ValueError) as error:
            raise RefusedError(f"a parameter of SCIP and its value ({name}={text}: {error})") from None
