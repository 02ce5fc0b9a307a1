"""What every experiment stands on: a journal that survives what happens to files, and a folder of one experiment."""

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.experiments import runner
from planner.experiments.runner import Folder, Journal, fingerprint, write_worst
from planner.process.errors import UsageError

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
