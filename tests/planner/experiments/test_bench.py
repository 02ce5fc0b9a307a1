"""Measurements in a folder: resumed where they stopped, dated, and compared."""

import json
import resource
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from thinned import thinned

from planner.cli.app import main
from planner.display.bench import markdown
from planner.experiments import runner
from planner.experiments.bench import folders, measure, suites
from planner.experiments.bench.measure import MeasuredRow, calibration_table
from planner.experiments.bench.suites import EVERY, SUITES
from planner.experiments.runner import Folder, Journal, fingerprint, write_worst
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
        ({}, "same"), ({"seconds": 1.2}, "same"), ({"seconds": 0.5}, "faster"), ({"seconds": 2.0}, "slower"),
        ({"objective": 3.0}, "better"), ({"objective": 5.0, "seconds": 0.1}, "worse"),
        ({"objective": None, "gap": None}, "worse"), ({"gap": 0.1}, "worse"), ({"gap": 5e-7}, "same"),
    ],
)  # fmt: skip
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
    several = suites.cases([], "scale,models", None, {}, None)
    assert several == SUITES["scale"](None) + SUITES["models"](None)


@thinned("suite", ["models", "scale"], 2)
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


RECORDS = [{"number": number, "loss": number / 8} for number in range(4)]


def folder(out: Path, title: dict[str, Any] | None = None, **more: Any) -> Folder:
    title = title or {"of": "this"}
    return Folder(str(out), "study", "study.json", title, fingerprint(title), "they are done again", **more)


def begun(out: Path, **more: Any) -> Folder:
    made = folder(out, **more)
    made.keep(RECORDS[:2])
    made.keep(RECORDS[2:])
    return made


def damaged(text: str) -> list[str]:
    """A line cut short, changed in a digit, emptied, replaced by other JSON, and by no text at all."""
    changed = text.replace("0.125", "0.126")
    return [text[: len(text) // 2], changed, "", "{}", "[1]", '{"number": 1, "loss": 0.125}', "\x00\x00"]


@pytest.mark.parametrize("kind", [0, 1, *(pytest.param(kind, marks=pytest.mark.slow) for kind in range(2, 7))])
def test_a_damaged_line_is_reported_and_removed(kind: int, tmp_path: Path) -> None:
    begun(tmp_path)
    journal = tmp_path / "journal.jsonl"
    first, second, *others = journal.read_text().splitlines()
    journal.write_text("\n".join([first, damaged(second)[kind], *others]) + "\n")
    said: list[str] = []
    found = folder(tmp_path).records(said.append)
    assert said == [f"warning: {journal}: 1 of its lines are damaged, or of another version; they are done again"]
    assert list(found.values()) == [RECORDS[0], *RECORDS[2:]] and journal.read_text().count("\n") == 3
    assert folder(tmp_path).keep(RECORDS[1:2]) == {1: RECORDS[1]} and len(folder(tmp_path).records(said.append)) == 4


def test_a_last_line_without_an_end_goes_without_a_word(tmp_path: Path) -> None:
    begun(tmp_path)
    journal = tmp_path / "journal.jsonl"
    for cut, left in ((1, [0, 1, 2]), (20, [0, 1])):
        journal.write_bytes(journal.read_bytes()[:-cut])
        said: list[str] = []
        assert list(folder(tmp_path).records(said.append)) == left and not said
        assert journal.read_bytes().endswith(b"\n")


def test_a_folder_is_of_one_experiment_of_one_version_and_of_one_code(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear reader")
    with pytest.raises(UsageError, match="expected an empty folder, or one of this very study"):
        folder(tmp_path / "other")
    begun(tmp_path / "own")
    assert len(folder(tmp_path / "own").records(print)) == 4
    with pytest.raises(UsageError, match=r"very study .*; what differs: of \(this there, that here\)$"):
        folder(tmp_path / "own", {"of": "that"})
    with pytest.raises(UsageError, match=r"of \(has changed\), more \(only here\)$"):
        folder(tmp_path / "own", {"of": "o" * 64, "more": {"seed": 1}})
    for name, other, why in (
        ("versions", lambda: {"dnn-planner": "0"}, r"versions dnn-planner \("),
        ("_CODE", (), "the code of the program$"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(runner, name, other)
            with pytest.raises(UsageError, match=f"very study by this very program, .*{why}"):
                folder(tmp_path / "own")
    (tmp_path / "own" / "study.json").write_text("[]")
    with pytest.raises(UsageError, match="very study"):
        folder(tmp_path / "own")


def full(write: Callable[[], Any]) -> Any:
    """What comes of writing where no file may have more than 100 bytes."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        return write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_a_full_disk_ends_a_strict_run_and_costs_another_its_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="File too large"):
        full(lambda: begun(tmp_path / "strict"))
    lenient = folder(tmp_path / "lenient", is_strict=False)
    assert full(lambda: lenient.keep(RECORDS)) == {record["number"]: record for record in RECORDS}
    assert full(lambda: lenient.write_worst({"a": ["x" * 200, "y"]})) == {
        "a": [str(tmp_path / "lenient" / "worst-a-2.json")]
    }
    assert len(lenient.failures) == 2 and all("File too large" in each for each in lenient.failures)
    assert lenient.records(print) == {}, "a journal without a header is nobody's"


def test_the_worst_have_files_of_their_own(tmp_path: Path) -> None:
    made = begun(tmp_path)
    made.write_worst({"old": ["0"]})
    found = made.write_worst({"./a.py:f": ["1", "2"], "a.py_f": ["3"], "none": []})
    assert [[Path(path).name for path in paths] for paths in found.values()] == [
        ["worst-a.py_f-1.json", "worst-a.py_f-2.json"],
        ["worst-a.py_f_-1.json"],
        [],
    ]
    assert sorted(path.name for path in tmp_path.glob("worst-*")) == sorted(
        Path(path).name for paths in found.values() for path in paths
    )
    assert dict(write_worst(tmp_path, {"b": ["4"]}, lambda _: False)) == {"b": [None]}


def test_a_journal_has_records_by_any_field(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "own.jsonl", "key", "they are found again")
    assert journal.records(print) == {}
    journal.keep([{"key": "a", "value": 1}, {"key": "a", "value": 2}])
    assert journal.records(print) == {"a": {"key": "a", "value": 2}}
    assert {"key", "value", "digest"} == set(json.loads(journal.path.read_text().splitlines()[0]))


PEERS: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "peers" / "peers.py"))


def test_what_is_not_here_is_absent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["peers.py"])
    PEERS["main"]()
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[1] for row in rows] == [*PEERS["PEERS"]] and all("absent: --" in row for row in rows)


@pytest.mark.parametrize(
    ("script", "objective", "says"),
    [
        ("print('cost 1'); print('cost 2.5')", 2.5, ""),
        ("print('cost 1'); raise SystemExit('no input')", None, "exit code 1: no input"),
        ("print('nothing')", None, "no objective printed"),
        ("import time; print('cost 1', flush=True); time.sleep(60)", None, "no end within 1 s"),
    ],
)
def test_a_row_has_the_last_objective_or_says_why_not(script: str, objective: float | None, says: str) -> None:
    limit_s = 1 if "sleep" in script else 100
    found = PEERS["theirs"]("name", "theirs", PEERS["timed"]([sys.executable, "-c", script], limit_s), r"cost (\S+)")
    assert (found.objective, found.says) == (objective, says) and found.cpu_s > 0


#: All ways to cut the layers of an interval table, on groups of one, two, four or eight devices.
NAIVE = """
def training_dp(num_layers, num_devices, num_microbatches, sizes, configs, costs, depths):
    def plans(first, left):
        if first == num_layers:
            yield ()
        for last in range(first, num_layers):
            for index, (_, size) in enumerate(sizes):
                if size <= left:
                    for rest in plans(last + 1, left - size):
                        yield (costs[first, last, index, 0], *rest)
    return min(sum(plan) + (num_microbatches - 1) * max(plan) for plan in plans(0, num_devices)), None
"""


@pytest.mark.slow
def test_recursions_over_intervals_get_what_ours_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "alpa" / "pipeline_parallel" / "stage_construction.py"
    source.parent.mkdir(parents=True)
    source.write_text(NAIVE)
    monkeypatch.setitem(PEERS["recursions"].__globals__, "CHAINS", ((4, 5),))
    its, our = PEERS["alpa"](tmp_path, tmp_path, 100)
    assert our.says == "optimal (proved)" and its.objective == pytest.approx(our.objective, rel=1e-9)
