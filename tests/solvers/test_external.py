"""Solvers that run in HiGHS's place: their processes, their exam, what they must not claim (and `test_backends`)."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backend_models import ITEMS, Bench, Linear, for_highs, market_split
from load import allowed_s

from solvers import check_solver
from solvers.external import process
from solvers.external.matrix import Matrix
from solvers.external.messages import Ended, Outcome, Task
from solvers.external.names import REFUSED, installed_solvers
from solvers.milp import backend as milp
from solvers.milp.known_models import CANARIES
from solvers.milp.translation import translate
from solvers.outcome import Limits, Run, Stop, Watch
from solvers.trust.pins import BackendError

NAME = "mathopt:gscip"
GSCIP = Bench("highs", NAME)


@pytest.fixture(autouse=True)
def examined() -> None:
    check_solver.demand_passed("highs", Limits(solver=NAME))


def matrix_of(linear: Linear) -> Matrix:
    return Matrix.of(translate(for_highs(linear)[0])[0].getLp())


def sides_of(matrix: Matrix) -> list[list[float]]:
    return np.transpose([matrix.least, matrix.most]).tolist()


def test_matrix_is_the_model() -> None:
    matrix = matrix_of(
        Linear(upper=[9, 8], rows=[([-2, 0], "<=", -12), ([1, 3], "==", 9)], minimise=[3, 4], constant=5)
    )
    assert (matrix.lower.tolist(), matrix.upper.tolist(), matrix.is_whole.tolist()) == ([0, 0], [9, 8], [True, True])
    found = {tuple(side): [part.tolist() for part in matrix.row(place)] for place, side in enumerate(sides_of(matrix))}
    assert found == {(-np.inf, -12.0): [[0], [-2.0]], (9.0, 9.0): [[0, 1], [1.0, 3.0]]}
    assert matrix.value(np.array([6.0, 1.0])) == 27.0 and matrix.is_minimum
    assert matrix.holds(np.array([6.0, 1.0])) and not matrix.holds(np.array([6.0, 2.0]))
    assert not matrix.holds(np.array([6.3, 0.9])) and not matrix.holds(np.array([9.0, 0.0 - 1]))
    assert matrix.relaxed().holds(np.array([6.3, 0.9]))


def test_solvers_are_run_twice_in_two_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[Task] = []
    own = process.run_task

    def noting(name: str, task: Task, *others: Any) -> Any:
        tasks.append(task)
        return own(name, task, *others)

    monkeypatch.setattr(process, "run_task", noting)
    run = GSCIP.run(market_split(2, 9, slack=True))
    assert run.stop is Stop.PROVED and len(tasks) == 2
    first, second = (task.matrix for task in tasks)
    assert first.costs.tolist() != second.costs.tolist() and tasks[0].seed != tasks[1].seed
    assert not tasks[0].hint and not tasks[1].hint  # what the first run knew is not the second one's to begin with


@pytest.mark.parametrize("wrong", ["bound", "infeasible"])
def test_a_false_proof_of_the_first_run_is_replaced(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    own, calls = process.run_task, []

    def lying(name: str, task: Task, *others: Any) -> Any:
        calls.append(task)
        if len(calls) == 1:
            said = Ended(Outcome.INFEASIBLE) if wrong == "infeasible" else Ended(Outcome.SOLVED, np.zeros(4), 0.0, 0.0)
            return said, "SCIP"
        return own(name, task, *others)

    monkeypatch.setattr(process, "run_task", lying)
    run = GSCIP.run(ITEMS)
    assert not run.infeasible and round(run.objective or 0) == 17
    assert run.stop is Stop.PROVED and run.bound == pytest.approx(17) and len(calls) == 3


@pytest.mark.parametrize("bound", [None, 3.0])
def test_a_solver_without_a_dual_bound_proves_nothing(monkeypatch: pytest.MonkeyPatch, bound: float | None) -> None:
    said = Ended(Outcome.SOLVED, np.array([4.0]), 4.0, bound)
    monkeypatch.setattr(process, "run_task", lambda *_: (said, "solver 1"))
    run = GSCIP.run(Linear(upper=[9], rows=[([-1], "<=", -4)], minimise=[1]))
    assert (
        run.stop is Stop.COMPLETED and run.objective == 4.0 and run.bound == (bound and pytest.approx(bound, rel=1e-5))
    )


def test_failing_twice_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def failing(_: str, task: Task, *__: Any) -> Any:
        seeds.append(task.seed)
        return Ended(Outcome.FAILED, words="numerical trouble"), "solver 1"

    monkeypatch.setattr(process, "run_task", failing)
    run = GSCIP.run(ITEMS, Limits(seed=7))
    assert (run.stop, run.values, run.reason) == (Stop.COMPLETED, None, "solver 1 failed: numerical trouble")
    assert seeds == [7, 8]


def test_stopping_kills_the_process_and_keeps_what_it_found() -> None:
    watch = Watch(Limits())
    threading.Timer(0.5, watch.stop, [Stop.INTERRUPTED]).start()
    found: list[Any] = []
    run = GSCIP.run(market_split(6, 50, slack=True), Limits(), watch, on_solution=found.append)
    assert run.stop is Stop.INTERRUPTED and len(found) > 1 and run.objective is not None
    deadline = time.perf_counter() + allowed_s(2)
    idle = {each for waiting in process._idle.values() for each in waiting}
    while any(each.is_alive for each in process._living - idle):
        assert time.perf_counter() < deadline
        time.sleep(0.02)


def test_the_exam_is_taken_once_and_by_every_set_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_solver, "_passed", set())
    runs: list[Limits] = []
    own = milp.run

    def noting(model: Any, limits: Limits, *others: Any, **more: Any) -> Run:
        runs.append(limits)
        return own(model, limits, *others, **more)

    monkeypatch.setattr(milp, "run", noting)
    for options in ((), (), (("presolving/maxrounds", "0"),)):
        check_solver.demand_passed("highs", Limits(solver=NAME, solver_options=options))
    each = len(CANARIES)
    assert [each.solver_options for each in runs] == [()] * each + [(("presolving/maxrounds", "0"),)] * each


def test_a_solver_that_fails_its_exam_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_solver, "_passed", set())
    monkeypatch.setattr(process, "run_task", lambda *_: (Ended(Outcome.SOLVED, np.zeros(4), 0.0, 0.0), "solver 1"))
    with pytest.raises(BackendError, match="mathopt:gscip fails its entrance exam: item choice: expected 17"):
        GSCIP.run(ITEMS)
    monkeypatch.undo()
    with pytest.raises(BackendError, match=r"glop fails its entrance exam.* integer variables"):
        Bench("highs", "mathopt:glop").run(ITEMS)


def test_cp_sat_of_mathopt_is_refused_and_fails_the_exam_where_variables_are_continuous() -> None:
    with pytest.raises(BackendError, match=r"^solver is 'mathopt:cp_sat'; expected one that keeps.*such as highs, "):
        Bench("highs", "mathopt:cp_sat").run(ITEMS)
    assert "mathopt:cp_sat" in REFUSED and "mathopt:cp_sat" not in installed_solvers()
    limits = Limits(time_s=10, solver="mathopt:cp_sat")
    found = {canary.name: canary.check(limits) for canary in CANARIES}
    assert not found["item choice"]
    assert "got 2.0 with bound 2.0" in (found["slowest of two devices"] or "")  # 1.196
    assert "got 1022.0 with bound 1022.0" in (found["slowest of two devices in large units"] or "")  # 1021.02
    assert "expected a proof of 9.5" in (found["turns on a device"] or "")  # it is called infeasible


def test_a_solver_that_refutes_its_own_solution_is_not_believed_in_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    own, watch = process.run_task, Watch(Limits(solver=NAME))
    monkeypatch.setattr(process, "run_task", lambda *_: (Ended(Outcome.INFEASIBLE, np.zeros(4), 0.0), "solver 1"))
    run = GSCIP.run(ITEMS, watch=watch)
    assert not run.infeasible and run.objective == 0.0 and run.bound is None and run.stop is Stop.COMPLETED
    assert watch.doubted == "calls a model infeasible of which it has a solution"
    monkeypatch.setattr(process, "run_task", own)
    bounds: list[float] = []
    run = GSCIP.run(ITEMS, watch=watch.part(), on_bound=bounds.append)
    assert run.objective == pytest.approx(17) and run.bound is None and not bounds and run.stop is Stop.COMPLETED
    assert GSCIP.run(ITEMS).bound == pytest.approx(17)  # in another run


def test_options_that_break_a_solver_are_refused() -> None:
    for solver, name, value in (("highs", "mip_feasibility_tolerance", "x"), ("highs", "threads", "2")):
        with pytest.raises(BackendError, match=f"option {name} of HiGHS"):
            milp.run(for_highs(ITEMS)[0], Limits(solver=solver, solver_options=((name, value),)))
    with pytest.raises(BackendError, match="nothing"):
        milp.run(for_highs(ITEMS)[0], Limits(solver=NAME, solver_options=(("nothing", "1"),)))


@pytest.mark.parametrize("name", [pytest.param("no-such-solver", marks=pytest.mark.slow), "mathopt:none"])
def test_unknown_solvers_are_refused_with_those_that_are_there(name: str) -> None:
    with pytest.raises(BackendError, match=rf"^solver is '{name}'; expected .*installed: highs, mathopt:gscip"):
        Bench("highs", name).run(ITEMS)


@pytest.mark.parametrize("wrong", [{"solver": ""}, {"solver": "a b"}, {"solver_options": "x"}, {"solver_log": 3}])
def test_limits_refuse_what_is_no_choice_of_a_solver(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="limits: solver"):
        Limits(**wrong)
    assert Limits(solver_options={"a": True, "b": 2}).solver_options == (("a", "true"), ("b", "2"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["highs", NAME, "scip"])
def test_logs_have_what_solvers_print(name: str, tmp_path: Path) -> None:
    if name not in installed_solvers():
        pytest.skip(f"{name} is not installed")
    log = tmp_path / "solver.log"
    assert Bench("highs", name).run(market_split(2, 9, slack=True), Limits(solver_log=str(log))).stop is Stop.PROVED
    text = log.read_text()
    assert ("HiGHS" if name == "highs" else "SCIP Status") in text and len(text.splitlines()) > 10


def test_the_process_ends_with_whoever_started_it() -> None:
    script = (
        "from solvers import check_solver; from solvers.external import process; from solvers.outcome import Limits\n"
        f"check_solver.demand_passed('highs', Limits(solver='{NAME}'))\n"
        "print(*[each.pid for each in process._living])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    deadline = time.perf_counter() + allowed_s(5)
    for pid in map(int, done.stdout.split()):
        while Path(f"/proc/{pid}").exists() and "zombie" not in Path(f"/proc/{pid}/status").read_text():
            assert time.perf_counter() < deadline
            time.sleep(0.05)
