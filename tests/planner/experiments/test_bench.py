"""Measurements in a folder: resumed where they stopped, dated, and compared."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.cli.app import main
from planner.display.bench import markdown
from planner.experiments.bench import folders, measure
from planner.experiments.bench.measure import MeasuredRow, calibration_table
from planner.experiments.bench.suites import EVERY, SUITES
from planner.files.load import catalog, family_of, load
from planner.process.errors import UsageError

ARGUMENTS = ["bench", "chain8", "diamond", "--methods", "exact,equi", "--seeds", "0,1", "--repeats", "1", "--quiet"]
ROW = MeasuredRow("a", "a", {}, "exact", 0, 1, None, 1.0, (1.0,), 0.0, 4.0, 4.0, 0.0, "optimal", "proved", "s", None)


def test_names_in_a_table_of_markdown_are_no_markdown() -> None:
    odd = "a|b [x](y) <i> `c` \\ *_d_* e_f \u202e\n"
    line = markdown([replace(ROW, instance=odd)]).splitlines()[2]
    assert line.startswith("| a\\|b \\[x\\](y) \\<i\\> \\`c\\` \\\\ \\*\\_d\\_\\* e_f \\\\u202e\\\\n |  | exact | ")


def test_a_folder_of_rows_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "rows"
    assert main([*ARGUMENTS, "--out", str(out)]) == 0
    whole = (out / "rows.jsonl").read_text().splitlines()
    assert len(whole) == 2 * 2 * 2 and all(json.loads(row)["cpu_seconds"] > 0 for row in whole)
    assert {(row["case"], row["method"], row["seed"]) for row in map(json.loads, whole)} == {
        (case, method, seed) for case in ("chain8", "diamond") for method in ("exact", "equi") for seed in (0, 1)
    }
    (out / "rows.jsonl").write_text("\n".join([*whole[:5], whole[5][:40]]))  # killed while it wrote the sixth
    measured: list[Any] = []
    honest = measure.run
    monkeypatch.setattr(measure, "run", lambda *given, **more: measured.append(more) or honest(*given, **more))
    assert main([*ARGUMENTS, "--out", str(out)]) == 0
    assert len(measured) == 3
    again = (out / "rows.jsonl").read_text().splitlines()
    assert again[:5] == whole[:5] and len(again) == len(whole)
    assert [row.key for row in folders.rows_of(out)] == [MeasuredRow.from_json(json.loads(line)).key for line in whole]


def test_the_table_names_dates_versions_and_hardware(tmp_path: Path) -> None:
    out = tmp_path / "rows"
    assert main([*ARGUMENTS, "--out", str(out), "--time-limit", "7"]) == 0
    row = folders.rows_of(out)[0]
    table = (out / "table.md").read_text()
    assert table.count("\n| chain8 |") == 4
    for words in (row.date, row.machine, "ortools 9.15", "highspy 1.12.0", "time limit 7 s"):
        assert words and words in table


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "same"),
        ({"seconds": 1.2}, "same"),
        ({"seconds": 0.5}, "faster"),
        ({"seconds": 2.0}, "slower"),
        ({"objective": 3.0}, "better"),
        ({"objective": 5.0, "seconds": 0.1}, "worse"),
        ({"objective": None, "gap": None}, "worse"),
        ({"gap": 0.1}, "worse"),
        ({"gap": 5e-7}, "same"),
    ],
)
def test_what_changed(change: dict[str, Any], verdict: str) -> None:
    found = folders.compare([ROW], [replace(ROW, **change)])
    assert [row["verdict"] for row in found["rows"]] == [verdict]
    assert found["counts"] == {verdict: 1}


def test_only_rows_of_the_same_case_are_compared() -> None:
    other = replace(ROW, seed=1)
    found = folders.compare([ROW, other], [replace(ROW, seconds=0.25)])
    assert (len(found["rows"]), found["only_first"], found["only_second"]) == (1, [other.key], [])
    assert found["mean_speedup"] == pytest.approx(4.0)


def test_compare_from_the_command_line(tmp_path: Path, capsys: Any) -> None:
    for name, seconds in (("a", 1.0), ("b", 4.0)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(replace(ROW, seconds=seconds).to_json()) + "\n")
    given = ["bench", "--compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    assert main(given) == 0
    assert "slower" in capsys.readouterr().out
    assert main([*given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean_speedup"] == pytest.approx(0.25)
    assert main(["bench", "--compare", str(tmp_path / "a.jsonl"), str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(("name", "words"), [("none.jsonl", "No such file"), ("a\0b", "rows is ")])
def test_a_name_of_no_rows_is_refused(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        folders.rows_of(name)


def test_the_suite_of_everything_is_the_catalog_and_the_clock() -> None:
    """Every instance as it is, then some whose objective is the shortest iteration, with methods that take them."""
    cases, count = SUITES["all"](None), len(catalog())
    assert [case.instance for case in cases[:count]] == list(catalog())
    assert all(case.methods == (EVERY,) and not case.settings for case in cases[:count])
    problems = set()
    for case in cases[count:]:
        instance = load(case.instance, **case.settings)
        problems.add(family_of(instance).name)
        assert str(instance.objective) == "iteration"
        assert all(family_of(instance).method(n).refusal(instance) is None for n in case.methods if n != EVERY)
    assert problems == {"flushed_partitioning", "stage_graph"}


@pytest.mark.parametrize("suite", ["models", "scale"])
def test_the_methods_of_a_suite_take_its_instances(suite: str) -> None:
    for case in SUITES[suite](None):
        instance = load(case.instance, **case.settings)
        for name in case.methods:
            method = family_of(instance).method(name)
            assert method.refusal(instance) is None, (case, name)
            assert method.build is not None or suite != "models"


def test_seconds_of_a_step_are_the_fewest_of_runs_that_took_their_steps() -> None:
    steps = family_of(load("chain8")).method("piper").effort(load("chain8"))
    rows = [
        replace(ROW, case="chain8", method="piper", seconds=each * steps, date=f"2026-11-{22 - each}")
        for each in (3, 2)
    ]
    gave_up = replace(rows[0], seconds=1.0 * steps, stop="size_limit")
    nothing = replace(rows[0], method="equi")
    found = calibration_table([*rows, gave_up, nothing])
    assert found["seconds_per_step"] == {"stage_partitioning/piper": 2.0} and found["date"] == "2026-11-20"


def test_rows_and_tables_say_whose_proof_it_is() -> None:
    shown = replace(ROW, proved_by="bounds").to_json()
    assert MeasuredRow.from_json(json.loads(json.dumps(shown))).proved_by == "bounds"
    assert "optimal by bounds" in markdown([replace(ROW, proved_by="bounds")])
    older = {name: value for name, value in ROW.to_json().items() if name != "proved_by"}
    assert MeasuredRow.from_json(json.loads(json.dumps(older))).proved_by is None
