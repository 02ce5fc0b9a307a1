"""The choice of a solver on the command line: who takes it, who refuses it, what is recorded of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from thinned import thinned

import planner
from planner.cli.app import main
from planner.process.errors import UsageError
from solvers.external import process
from solvers.external.messages import Ended, Outcome

LAYERS = ["layers", "--layers", "8", "--stages", "3"]
GSCIP = ["--solver", "mathopt:gscip"]


def test_a_milp_method_runs_with_another_solver(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "scip.log"
    given = ["--method", "milp", "--solver-option", "presolving/maxrounds=0", "--solver-log", str(log), "--json"]
    assert main(["solve", *LAYERS, *GSCIP, *given]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["proved_by"]) == ("optimal", "solver")
    assert found["solver"].startswith("SCIP (MathOpt")
    assert found["options"]["solver"] == "mathopt:gscip"
    assert found["options"]["solver-options"] == {"presolving/maxrounds": "0"}
    assert "SCIP Status" in log.read_text()
    instance = planner.load("layers", layers=8, stages=3)
    own = planner.solve(instance, method="milp")
    assert own.solver.startswith("HiGHS") and own.objective == found["objective"]
    assert planner.model(instance, "milp").solve(planner.Limits(solver="mathopt:gscip")).solver == found["solver"]


def test_a_cpsat_method_takes_parameters_and_a_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "cpsat.log"
    given = ["--method", "cpsat", "--solver-option", "linearization_level=0", "--solver-log", str(log), "--json"]
    assert main(["solve", *LAYERS, *given]) == 0
    assert json.loads(capsys.readouterr().out)["options"]["solver-options"] == {"linearization_level": "0"}
    assert "linearization_level: 0" in log.read_text()


def test_crosscheck_gives_each_method_what_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--methods", "exact,cpsat,milp", "--json", "--quiet"]
    assert main(["crosscheck", *LAYERS, *GSCIP, *given]) == 0
    solvers = {each["method"]: each["solver"] for each in json.loads(capsys.readouterr().out)["results"]}
    assert solvers["exact"] == "" and solvers["cpsat"].startswith("CP-SAT ") and "MathOpt" in solvers["milp"]
    assert main(["crosscheck", *LAYERS, *given, "--solver-option", "linearization_level=0"]) == 0
    options = {each["method"]: each["options"] for each in json.loads(capsys.readouterr().out)["results"]}
    assert "solver-options" in options["cpsat"] and "solver-options" not in options["milp"]


def test_bench_keeps_rows_of_solvers_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ["bench", *LAYERS, "--methods", "exact,milp", "--repeats", "1", "--out", str(tmp_path / "rows"), "--quiet"]
    assert main(given) == main([*given, *GSCIP]) == main([*given, *GSCIP]) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows" / "rows.jsonl").read_text().splitlines()]
    assert [(row["method"], row["solver"]) for row in rows] == [
        ("exact", None),
        ("milp", None),
        ("milp", {"solver": "mathopt:gscip"}),
    ]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda end: replace(end, bound=2 * end.bound), "claims the bound "),
        (lambda _: Ended(Outcome.INFEASIBLE), "calls the instance infeasible, which has a plan"),
        (lambda end: replace(end, outcome=Outcome.INFEASIBLE), "calls a model infeasible of which it has a solution"),
    ],
    ids=["bound", "infeasible", "infeasible, with a solution"],
)
def test_a_solver_that_contradicts_a_plan_is_not_believed(
    lie: Callable[[Any], Any], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solve", *LAYERS, *GSCIP, "--method", "milp", "--json"]) == 0  # and has passed its exam
    honest = json.loads(capsys.readouterr().out)
    own = process.run_task

    def lying(*given: Any) -> Any:
        end, version = own(*given)
        return lie(end), version

    monkeypatch.setattr(process, "run_task", lying)
    for more, code in ((), 0), (["--exact"], 3):
        assert main(["solve", *LAYERS, *GSCIP, "--method", "milp", "--json", *more]) == code
        found = json.loads(capsys.readouterr().out)
        assert (found["status"], found["stop"], found["objective"]) == ("feasible", "completed", honest["objective"])
        assert found["bound"] is None or found["bound"] < 0.99 * found["objective"]
        assert found["proved_by"] in (None, "bounds")
        assert f"solver mathopt:gscip {said}" in found["reason"] and "believed in this run" in found["reason"]


slow = partial(pytest.param, marks=pytest.mark.slow)


@thinned(
    ("given", "words"),
    [
        (["solve", "--method", "milp", "--solver", "nobody"], "installed: highs, mathopt:gscip"),
        slow(["crosscheck", "--solver", "nobody"], "installed: highs, mathopt:gscip"),
        slow(["bench", "--methods", "milp", "--solver", "nobody"], "installed: highs, mathopt:gscip"),
        (["solve", "--method", "milp", "--solver", "a b"], "the name of a solver"),
        (["solve", "--method", "milp", "--solver", "mathopt:glop"], "fails its entrance exam"),
        (["solve", "--method", "milp", "--solver", "mathopt:cp_sat"], "keeps continuous variables"),
        (["crosscheck", "--solver", "mathopt:cp_sat"], "keeps continuous variables"),
        (["model", "--method", "milp", "--root", "--solver", "mathopt:cp_sat"], "keeps continuous variables"),
        (["solve", "--method", "exact", *GSCIP], "expected a method that is a MILP"),
        (["solve", "--method", "cpsat", *GSCIP], "expected a method that is a MILP"),
        (["solve", "--portfolio", *GSCIP], "expected a method that is a MILP"),
        (["solve", "--method", "milp", "--solver-option", "linearization_level=0"], "the solver of milp knows"),
        (["solve", "--method", "cpsat", "--solver-option", "presolve=off"], "the solver of cpsat knows"),
        (["solve", "--method", "cpsat", "--solver-option", "cp_model_probing_level=x"], "a value that it takes"),
        (["solve", "--method", "cpsat", "--solver-option", "random_seed=3"], "limits and logs do not set"),
        (["solve", "--method", "milp", "--solver-option", "time_limit=3"], "limits and logs do not set"),
        (["solve", "--method", "milp", *GSCIP, "--solver-option", "no/such=3"], "no/such"),
        (["solve", "--method", "milp", "--solver-option", "presolve"], "KEY=VALUE"),
        (["solve", "--method", "milp", "--solver-option", "a=1", "--solver-option", "a=2"], "each name once"),
        (["solve", "--method", "exact", "--solver-log", "solver.log"], "a method that is a model"),
        (["solve", "--method", "milp", "--solver-log", "no/such/folder/a.log"], "a folder that exists"),
    ],
)
def test_what_does_not_fit_is_one_line(
    given: list[str], words: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([given[0], *LAYERS, *given[1:]]) == 2
    out, err = capfd.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and words in err


@pytest.mark.parametrize("command", ["solve", "crosscheck", "bench", "model"])
def test_a_log_does_not_replace_the_instance(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "layers.json"
    assert main(["make", *LAYERS, "--out", str(path)]) == 0
    before = path.read_text()
    given = {"model": ["--root"], "bench": ["--methods", "milp"], "solve": ["--method", "milp"]}.get(command, [])
    assert main([command, str(path), *given, "--solver-log", str(path)]) == 2
    assert path.read_text() == before and "--solver-log" in capsys.readouterr().err


def test_a_root_by_another_solver(capsys: pytest.CaptureFixture[str]) -> None:
    roots = []
    for given in ([], GSCIP, ["--solver", "mathopt:highs"]):
        assert main(["model", *LAYERS, "--method", "milp", "--root", *given, "--json"]) == 0
        roots.append(json.loads(capsys.readouterr().out))
    assert roots[1]["root_bound"] == pytest.approx(roots[0]["root_bound"], rel=1e-6)
    assert roots[2]["root_bound"] == pytest.approx(roots[0]["root_bound"], rel=1e-6)
    assert main(["model", *LAYERS, "--method", "milp", *GSCIP]) == 2
    assert main(["model", *LAYERS, "--method", "cpsat", "--root", *GSCIP]) == 2
    assert "expected a method that is a MILP" in capsys.readouterr().err


def test_an_open_model_refuses_what_its_method_does_not_take() -> None:
    model = planner.model(planner.load("layers", layers=8, stages=3), "cpsat")
    with pytest.raises(UsageError, match="a MILP"):
        model.solve(planner.Limits(solver="mathopt:gscip"))
