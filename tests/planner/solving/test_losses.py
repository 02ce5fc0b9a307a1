"""Loss: what a plan is worth, measured at what all methods together prove."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counting import Counting

import planner
from planner.display.bench import format_losses
from planner.experiments.bench.measure import MeasuredRow, with_losses
from planner.results.optimality_loss import losses, optimum_of
from planner.results.texts import format_loss

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


def test_bench_writes_losses_and_reasons_and_keeps_rows_of_an_unchanged_file(run: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "mine.py", tmp_path / "rows"
    path.write_text("def solve(instance):\n    raise ValueError('no idea')\n")
    plan = tmp_path / "theirs.json"
    assert run("solve", "chain8", "--method", "equi-no-tp", "--out", str(plan))[0] == 0
    entered = ["--plan", f"theirs={plan}", "--repeats", "1", "--out", str(out)]
    given = ["bench", "chain8", "--methods", f"exact,piper,{path}:solve", *entered]
    assert run(*given)[0] == 0
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in rows[:3]] == [0.0, 0.0, None] and rows[3]["loss"] > 0.02
    assert "raised ValueError: no idea (line 2 of mine.py)" in rows[2]["reason"] and rows[0]["reason"] is None
    table = (out / "table.md").read_text()
    assert "| chain8 |  | piper | 0 | optimal |" in table and "raised ValueError: no idea" in table
    path.write_text(f"import json\ndef solve(instance):\n    return json.load(open({str(plan)!r}))\n")
    code, printed, _ = run(*given)
    again = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert code == 0 and again[:4] == rows and len(again) == 5  # of another file
    assert again[4]["loss"] == rows[3]["loss"] and "raised ValueError: no idea" in printed
    assert run(*given)[0] == 0 and len((out / "rows.jsonl").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("loss", "is_proved", "text"),
    [(0.9e-6, True, "optimal"), (2e-6, True, "0.0002 %"), (0.125, False, "<= 12.5 %"), (None, False, "-")],
)
def test_words_for_losses(loss: Any, is_proved: bool, text: str) -> None:
    assert format_loss(loss, is_proved) == text
