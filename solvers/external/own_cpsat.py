"""CP-SAT inside its process: it takes a `CpTask`, and imports nothing of ortools but the solver itself."""

import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ortools.sat.python import cp_model_helper

from solvers import logs
from solvers.external.engine import Tell
from solvers.external.messages import Bound, CpTask, Ended, Outcome, Solution

#: How often a search looks whether it is to stop, in seconds.
POLL_S = 0.05

#: A limit too small for CP-SAT's clock still has to be a limit.
SHORTEST_S = 1e-3

_Status = cp_model_helper.CpSolverStatus
_OUTCOMES = {
    _Status.OPTIMAL: Outcome.SOLVED,
    _Status.INFEASIBLE: Outcome.INFEASIBLE,
    _Status.MODEL_INVALID: Outcome.INVALID,
}


class CpSat:
    """CP-SAT, imported; ``stopped`` is set while the task at work is to end."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped

    def version(self) -> str:
        """Its name; whoever starts the process knows the version."""
        return "CP-SAT"

    def solve(self, task: CpTask, tell: Tell) -> Ended:
        """Run it on a model."""
        model, parameters = cp_model_helper.CpModelProto(), cp_model_helper.SatParameters()
        model.parse_text_format(task.model)
        parameters.parse_text_format(task.parameters)
        if task.seconds is not None:
            parameters.max_time_in_seconds = max(task.seconds, SHORTEST_S)
        solver = cp_model_helper.SolveWrapper()
        solver.set_parameters(parameters)
        listener = _Solutions(tell)
        solver.add_solution_callback(listener)
        solver.add_best_bound_callback(lambda value: tell(Bound(value)))
        log = task.log
        if log is not None:
            solver.add_log_callback(lambda line: logs.append(log, line))
        with self._stop_polling(solver):
            response = solver.solve(model)  # type: ignore[no-untyped-call]
        solver.clear_solution_callback(listener)
        return _end_of(response)

    @contextmanager
    def _stop_polling(self, solver: Any) -> Iterator[None]:
        """End the search within `POLL_S` once it is to stop: one that finds nothing makes no callback."""
        done = threading.Event()

        def poll() -> None:
            while not done.wait(POLL_S):
                if self._stopped.is_set():
                    solver.stop_search()

        poller = threading.Thread(target=poll, name="cpsat-stop", daemon=True)
        poller.start()
        try:
            yield
        finally:
            done.set()
            poller.join()


class _Solutions(cp_model_helper.SolutionCallback):
    """Tells of every improving solution."""

    def __init__(self, tell: Tell) -> None:
        cp_model_helper.SolutionCallback.__init__(self)
        self._tell = tell

    def OnSolutionCallback(self) -> None:  # noqa: N802 - CP-SAT's name
        """Called by CP-SAT."""
        response = self.Response()  # type: ignore[no-untyped-call]
        self._tell(Solution(array("q", response.solution), self.ObjectiveValue()))


def _end_of(response: Any) -> Ended:
    found = response.status in (_Status.OPTIMAL, _Status.FEASIBLE)
    return Ended(
        _OUTCOMES.get(response.status, Outcome.LIMIT),
        values=array("q", response.solution) if found else None,
        objective=response.objective_value if found else None,
        bound=response.best_objective_bound if found else None,
        stats={"branches": response.num_branches, "conflicts": response.num_conflicts},
    )
