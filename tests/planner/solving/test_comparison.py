"""Comparing methods: what counts as a contradiction, what as a proof, and what a reproducer holds."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counting import Counting

import planner
from planner import Limits, Result, Status, Stop, UsageError
from planner.cli.app import main
from planner.display.bench import format_losses
from planner.display.tables import results_table
from planner.display.terminal import console
from planner.experiments.bench.measure import MeasuredRow, with_losses
from planner.files.load import family_of
from planner.results.optimality_loss import losses, optimum_of
from planner.results.texts import format_loss
from planner.solving.compare import Report, contradictions, crosscheck, optimum
from solvers.trust import pins

FEASIBLE = Counting("four", (1, 2, 3, 4), 5)


def claim(method: str, objective: float | None, bound: float | None, status: Status = Status.FEASIBLE) -> Result:
    return Result("counting", "four", method, "exact", status, Stop.COMPLETED, objective, bound, None, "s", 0.0)


def proof(method: str, proved_by: str) -> Result:
    stop = Stop.PROVED
    return Result("counting", "four", method, "exact", Status.OPTIMAL, stop, 1.0, 1.0, 0.0, "s", 0.0, proved_by)


@pytest.mark.parametrize(
    ("provers", "independent"),
    [
        ({"a": "solver", "b": "solver"}, 2), ({"a": "search", "b": "solver"}, 2), ({"a": "bounds", "b": "bounds"}, 1),
        ({"a": "bounds", "b": "bounds", "c": "solver"}, 2), ({"a": "search", "b": "a"}, 1), ({}, 0),
    ],
)  # fmt: skip
def test_proofs_that_rest_on_each_other_count_once(provers: dict[str, str], independent: int) -> None:
    open_ = claim("open", 1.0, 0.5)
    report = Report("counting", "four", (*(proof(*each) for each in provers.items()), open_), (), None)
    assert report.proved == len(provers) and report.independent_proofs == independent
    assert report.to_json()["independent_proofs"] == independent


def test_a_method_that_some_instance_has_not_names_its_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    loaded = map(planner.load, ("chain8", "dgx1"))
    rows.write_text("".join(f"{json.dumps(family_of(each).to_json(each))}\n" for each in loaded))
    assert main(["crosscheck", str(rows), "--methods", "exact,linearised", "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith(f"{rows}#1: method is 'linearised'")


def test_proofs_from_the_same_prices_count_once() -> None:
    report = crosscheck(planner.load("chain8"), methods=["cpsat-columns", "milp-columns", "exact"])
    assert report.proved == 3 and report.independent_proofs == 2


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (160, "instance method loss gap objective bound status stop seconds proved by"),
        (80, "method loss gap objective bound"),
        (72, "method loss objective bound"),
    ],
)
def test_a_narrow_terminal_costs_columns_and_no_digits(width: int, headings: str, capsys: Any) -> None:
    long = "a-method-with-a-rather-long-name"
    results = [replace(claim(long, 123456.789, 1.23456789e-11), gap=0.999), proof("short", "search")]
    out = console(most=width)
    out.print(results_table(results, out))
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[0].split()) == headings
    assert {long, "123456.789", "1.23456789e-11"} <= set(lines[1].split())
    assert ("99.9" in lines[1]) == ("gap" in headings)
    assert len(lines) == 3 and max(map(len, lines)) <= width


def test_a_terminal_too_narrow_for_a_number_folds_it(capsys: pytest.CaptureFixture[str]) -> None:
    out = console(most=20)
    out.print(results_table([claim("a", 123456.789, 123456.788)], out))
    assert "…" not in capsys.readouterr().out


def test_the_default_methods_are_those_that_fit() -> None:
    report = planner.crosscheck(FEASIBLE)
    assert [result.method for result in report.results] == ["exact", "greedy"]
    assert report.agree and report.optimum == 2.0 and report.reproducer is None
    many = planner.crosscheck(Counting("many", (1,) * 11, 3))
    assert [result.method for result in many.results] == ["greedy"]
    assert many.optimum is None


@pytest.fixture
def wrong_highspy(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {**pins.PINNED, "highspy": "1.14.0"}
    monkeypatch.setattr(pins, "installed_version", lambda name: wrong[name])


@pytest.mark.usefixtures("wrong_highspy")
def test_a_solver_of_another_version_is_refused_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    mesh = ["mesh", "--quiet", "--json"]
    assert main(["solve", *mesh, "--method", "milp"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert "highspy is 1.14.0; expected 1.12.0" in said.err and "pip install highspy==1.12.0" in said.err
    assert main(["solve", *mesh]) == 0  # by CP-SAT, which is of its pinned version
    assert json.loads(capsys.readouterr().out)["method"] == "cpsat"
    with pytest.raises(UsageError, match=r"highspy is 1\.14\.0"):
        planner.solve(planner.load("mesh"), method="milp")


@pytest.mark.usefixtures("wrong_highspy")
def test_a_method_whose_solver_is_refused_is_left_out_aloud() -> None:
    lines: list[str] = []
    report = planner.crosscheck(planner.load("mesh"), methods=["milp", "cpsat"], notice=lines.append)
    assert [result.method for result in report.results] == ["cpsat"] and report.optimum is not None
    assert any(line.startswith("milp is left out: highspy is 1.14.0; expected 1.12.0") for line in lines)


def test_named_methods_that_do_not_fit_are_left_out_aloud() -> None:
    lines: list[str] = []
    report = planner.crosscheck(Counting("many", (1,) * 11, 3), methods=["exact", "greedy"], notice=lines.append)
    assert len(report.results) == 1
    assert lines == ["exact is left out: 11 numbers are more than 10"]


@pytest.mark.parametrize(
    ("liar", "words"),
    [
        ("false-infeasible", "false-infeasible calls the instance infeasible, but exact has a verified plan of 2.0"),
        ("false-bound", "false-bound claims the lower bound 100.0, but exact has a verified plan of 2.0"),
        ("bad-plan", "bad-plan returned a plan that breaks: target"),
    ],
)
def test_contradictions_are_reported_and_can_be_reproduced(liar: str, words: str, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "reproducers"
    report = planner.crosscheck(FEASIBLE, methods=["exact", liar], reproducers=str(folder))
    assert not report.agree and words in report.contradictions[0]
    assert report.reproducer is not None
    content = json.loads(Path(report.reproducer).read_text())
    assert content["contradictions"] == list(report.contradictions)
    assert content["versions"]["ortools"] and content["results"][0]["method"] == "exact"
    again = planner.load(report.reproducer)
    assert (again.numbers, again.target) == (FEASIBLE.numbers, FEASIBLE.target)
    planner.crosscheck(FEASIBLE, methods=["exact", liar], reproducers=str(folder))
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(("bound", "found"), [(0.9, 0), (1.0, 0), (1.0 + 0.9e-6, 0), (1.0 + 1.1e-6, 1), (2.0, 1)])
def test_a_bound_may_exceed_a_plan_by_rounding_only(bound: float, found: int) -> None:
    assert len(contradictions([claim("a", None, bound), claim("b", 1.0, None)])) == found


def test_tiny_objectives_are_compared_relatively() -> None:
    assert contradictions([claim("a", None, 2.0e-9), claim("b", 1.0e-9, None)])
    assert contradictions([claim("a", None, 1.0), claim("b", 0.0, None)])


def test_bounds_and_plans_of_different_methods_prove_an_optimum() -> None:
    assert optimum([claim("a", 2.0, 1.0), claim("b", 3.0, 2.0)]) == 2.0
    assert optimum([claim("a", 2.0, 1.0), claim("b", 3.0, None)]) is None
    assert optimum([claim("a", None, None)]) is None


def test_an_interruption_ends_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal
    import threading

    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    report = planner.crosscheck(FEASIBLE, methods=["exact", "patient", "greedy"])
    timer.join()
    assert [result.method for result in report.results] == ["exact", "patient"]
    assert report.signal == signal.SIGINT and report.agree


def test_the_limit_holds_for_each_method() -> None:
    report = planner.crosscheck(FEASIBLE, methods=["patient", "exact"], limits=Limits(time_s=0.1))
    assert [result.stop for result in report.results] == [Stop.TIME_LIMIT, Stop.PROVED]
    assert report.optimum == 2.0


def test_every_claim_is_compared_with_every_plan(problem: Callable[..., Any]) -> None:
    claims = [claim("a", 1.0, 0.5), claim("b", 2.0, 1.5), claim("c", None, None, Status.INFEASIBLE)]
    assert len(contradictions(claims)) == 3  # b's bound against a's plan, c against both


def test_no_method_at_all_and_one_named_twice_are_refused() -> None:
    for names, words in (
        ([], "'empty'; expected one name or more"),
        (["exact", "equi", "exact"], "expected exact once"),
    ):
        with pytest.raises(UsageError, match=words):
            planner.crosscheck(planner.load("chain8"), methods=names)


Run = Callable[..., tuple[int, str, str]]
ROW = MeasuredRow("a", "a", {}, "exact", 0, 1, None, 1.0, (1.0,), 0.0, 4.0, 4.0, 0.0, "optimal", "proved", "s", None)


@pytest.mark.parametrize(
    ("known", "optimum", "expected"),
    [
        ([(2.0, 2.0), (3.0, 1.0)], 2.0, [0.0, 0.5]),
        ([(2.0, None), (3.0, 2.0)], 2.0, [0.0, 0.5]),  # the one has the plan, the other the proof
        ([(2.0 * (1 + 0.9e-6), 2.0)], 2.0 * (1 + 0.9e-6), [0.0]),
        ([(2.0 * (1 + 1.1e-6), 2.0)], None, [1.1e-6]),
        ([(2.2, 2.0), (4.0, None), (None, 1.0)], None, [0.1, 1.0, None]),
        ([(2.0, None), (None, None)], None, [None, None]),
        ([(None, 2.0)], None, [None]),
        ([(0.0, 0.0), (1.0, None)], 0.0, [0.0, None]),
        ([(2.0, 2.0), (4.0, 3.0)], 2.0, [0.0, 1.0]),  # the plan of 2 refutes the bound of 3
        ([(2.0, 1.0), (4.0, 3.0)], None, [1.0, 3.0]),
        ([], None, []),
    ],
)
def test_losses_are_to_the_optimum_or_to_the_best_bound_that_stands(
    known: list[tuple[float | None, float | None]], optimum: float | None, expected: list[float | None]
) -> None:
    assert optimum_of(known) == optimum
    assert losses(known) == [loss if loss is None else pytest.approx(loss, rel=1e-4) for loss in expected]


def test_a_heuristic_that_has_the_optimum_is_shown_with_it_whatever_its_own_gap(run: Run) -> None:
    methods = ["--methods", "piper,exact,equi-no-tp", "--memory", "45MB"]
    code, out, _ = run("crosscheck", "chain8", *methods, "--json")
    rows = {row["method"]: row for row in json.loads(out)["results"]}
    assert code == 0 and rows["piper"]["gap"] > 0.1 and rows["piper"]["loss"] == rows["exact"]["loss"] == 0.0
    code, out, _ = run("crosscheck", "chain8", *methods)
    heads, piper, exact, _ = [line.split() for line in out.splitlines()[:4]]
    assert heads[:4] == ["instance", "method", "loss", "gap"]
    assert piper[2:4] == ["optimal", "19.4"] and exact[2] == "optimal"


def test_alone_there_is_no_loss() -> None:
    result = planner.solve(Counting("four", (1, 2, 3, 4), 5))
    assert result.loss is None and result.to_json()["loss"] is None


def test_rows_of_one_case_are_compared_whatever_the_seed() -> None:
    others = [replace(ROW, method="m", seed=1, objective=5.0, bound=None), replace(ROW, case="b", bound=2.0)]
    rows = with_losses([ROW, *others, replace(ROW, settings={"devices": 2}, objective=8.0, bound=None)])
    assert [row.loss for row in rows] == [0.0, 0.25, 1.0, None]
    assert format_losses(rows) == ["optimal", "25 %", "<= 100 %", "-"]
    assert MeasuredRow.from_json(json.loads(json.dumps(rows[1].to_json()))) == rows[1]


@pytest.mark.parametrize(
    ("loss", "is_proved", "text"),
    [(0.9e-6, True, "optimal"), (2e-6, True, "0.0002 %"), (0.125, False, "<= 12.5 %"), (None, False, "-")],
)
def test_words_for_losses(loss: Any, is_proved: bool, text: str) -> None:
    assert format_loss(loss, is_proved) == text
