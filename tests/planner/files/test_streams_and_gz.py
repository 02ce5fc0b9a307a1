"""Instances and plans from standard input, compressed files in and out, the shell's completion, the version."""

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from thinned import thinned

from instances import files
from planner.files import rows

Run = Callable[..., tuple[int, str, str]]
Problem = Callable[..., str]
KNAPSACK = {
    "problem": "tmpc_knapsack",
    "schema_version": 1,
    "capacity_bytes": 10,
    "nodes": [{"id": 1, "options": [{"id": "a", "time": 3, "memory_bytes": 4}]}],
}


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Puts bytes on standard input."""

    def put(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return put


def test_an_instance_from_standard_input(run: Run, problem: Problem, typed: Callable[[bytes], None]) -> None:
    content = Path(problem()).read_bytes()
    typed(content)
    code, out, _ = run("solve", "-", "--exact", "--json", "--out", "plan.json")
    result = json.loads(out)
    assert (code, result["objective"], result["instance"]) == (0, 2.0, "standard input")
    typed(content)
    assert run("check", "-", "plan.json")[0] == 0
    typed(content)
    assert "--target" in run("solve", "-", "--help")[1]
    typed(Path("plan.json").read_bytes())
    assert run("check", problem(), "-")[0] == 0


def test_standard_input_is_read_once_for_all_who_want_it(run: Run, typed: Callable[[bytes], None]) -> None:
    code, out, _ = run("make", "chain8")
    typed(out.encode())
    code, out, _ = run("solve", "-", "--linearize", "id,name", "--json")
    assert code == 0 and set(json.loads(out)["stats"]["orders"]) == {"id", "name"}


@pytest.mark.parametrize(
    ("data", "arguments", "words"),
    [
        (b"", ["solve", "-"], "standard input: content is ''"),
        (b"{", ["solve", "-"], "standard input: line 1 column 2"),
        (b"\xff", ["solve", "-"], "standard input: byte 0 is 255; expected UTF-8 text"),
        (b"{}", ["check", "-", "-"], "PLAN is '-'; expected a file"),
        (b"[]", ["check", "chain8", "-"], "standard input: content is"),
    ],
)
def test_bad_standard_input_is_one_line(
    run: Run, typed: Callable[[bytes], None], data: bytes, arguments: list[str], words: str
) -> None:
    typed(data)
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1) and words in err


def test_a_closed_standard_input_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    code, _, err = run("solve", "-")
    assert (code, err) == (2, "standard input: file is 'closed'; expected a readable file\n")


def test_compressed_files_are_read_and_written(run: Run) -> None:
    assert run("make", "chain8", "--out", "chain.json.gz")[0] == 0
    assert run("make", "chain8", "--out", "chain.json")[0] == 0
    assert gzip.decompress(Path("chain.json.gz").read_bytes()) == Path("chain.json").read_bytes()
    _, plain, _ = run("solve", "chain.json", "--exact", "--json")
    code, out, _ = run("solve", "chain.json.gz", "--exact", "--json", "--out", "plan.json.gz")
    assert code == 0 and json.loads(out)["plan"] == json.loads(plain)["plan"]
    first = Path("plan.json.gz").read_bytes()
    assert json.loads(gzip.decompress(first))["stages"] == json.loads(out)["plan"]["stages"]
    assert run("check", "chain.json.gz", "plan.json.gz")[0] == 0
    assert run("solve", "chain.json", "--exact", "--out", "plan.json.gz")[0] == 0
    assert Path("plan.json.gz").read_bytes() == first  # no date in it


def test_rows_of_compressed_files(run: Run) -> None:
    lines = "".join(json.dumps({**KNAPSACK, "name": name}) + "\n" for name in ("one", "two"))
    Path("rows.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    code, out, _ = run("solve", "rows.jsonl.gz#1", "--json")
    assert (code, json.loads(out)["instance"]) == (0, "two")
    assert run("extract", "chain8", "--sample", "3", "--out", "some.jsonl.gz")[0] == 0
    assert run("extract", "chain8", "--sample", "3", "--out", "some.jsonl")[0] == 0
    assert gzip.decompress(Path("some.jsonl.gz").read_bytes()) == Path("some.jsonl").read_bytes()
    assert run("solve", "some.jsonl.gz#2")[0] in (0, 4)
    assert run("bench", "knapsack", "--repeats", "1", "--out", "rows.jsonl.gz")[0] == 0
    assert run("bench", "--compare", "rows.jsonl.gz", "rows.jsonl.gz")[0] == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{}", "Not a gzipped file"),
        (gzip.compress(b"x" * 4000)[:-9], "end-of-stream marker"),
        (gzip.compress(b"x" * 5000)[:12] + b"\xff" * 20, "expected a whole gzip file"),
        (gzip.compress(b"x" * 5000), "size is 'over 4096 bytes'; expected a smaller file"),
        (gzip.compress(b"x" * 4096), "expected JSON with the key"),
    ],
    ids=["no-gzip", "cut", "damaged", "expanding", "largest"],
)
def test_damaged_and_expanding_files_are_one_line(run: Run, monkeypatch: Any, data: bytes, words: str) -> None:
    """A small file that expands beyond the limit is refused as a large one is."""
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 4096)
    Path("bad.json.gz").write_bytes(data)
    for arguments in (["solve", "bad.json.gz"], ["solve", "bad.json.gz", "--help"]):
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "bad.json.gz: " in err and words in err
    code, _, err = run("check", "chain8", "bad.json.gz")
    assert code == 2 and err.count("\n") == 1 and "bad.json.gz: " in err


def test_rows_of_a_file_that_expands_are_read_as_far_as_the_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (json.dumps(KNAPSACK) + "\n") * 1000
    Path("rows.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    monkeypatch.setattr(rows, "MAX_FILE_BYTES", 10_000)
    assert run("solve", "rows.jsonl.gz#3")[0] == 0
    code, _, err = run("solve", "rows.jsonl.gz#999")
    assert (code, err.count("\n")) == (2, 1) and "size is 'over 10000 bytes'" in err


def test_the_version(run: Run) -> None:
    assert run("--version") == (0, f"planner {metadata.version('dnn-planner')}\n", "")


class Unreadable:
    """A stream that must not be read."""

    @property
    def buffer(self) -> None:
        raise AssertionError("standard input was read")


@thinned(
    ("line", "offered"),
    [
        ("planner so", {"solve"}),
        ("planner solve bert3", {"bert32"}),
        ("planner solve chain8 --cost", {"--cost-model"}),
        ("planner solve mesh --cost", set()),
        ("planner solve nowhere.json --cost", set()),
        ("planner solve - --seed", {"--seed"}),
        ("planner solve chain8 --method mil", {"milp", "milp-columns"}),
        ("planner list flu", {"flushed_partitioning"}),
        ("planner solve --problem flu", {"flushed_partitioning"}),
        ("planner reproduce piper-fig-2", {"piper-fig-2"}),
        ("planner make torus", {"torus2d", "torus3d"}),
    ],
    2,
)
def test_the_shell_completes(run: Run, monkeypatch: pytest.MonkeyPatch, line: str, offered: set[str]) -> None:
    """Standard input is the terminal then: it is not read."""
    monkeypatch.setenv("_PLANNER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    monkeypatch.setattr(sys, "stdin", Unreadable())
    code, out, err = run()
    assert (code, set(out.split()), err) == (0, offered, "")


def test_the_script_for_the_shell_is_shown() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", "from planner.cli.app import main; main(['--show-completion', 'bash'])"],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_PLANNER_COMPLETE=complete_bash" in shown.stdout


def test_of_rows_one_has_to_be_named(run: Run) -> None:
    row = json.dumps(KNAPSACK)
    Path("two.jsonl").write_text(f"{row}\n{row}\n")
    Path("one.jsonl").write_text(f"{row}\n")
    code, _, err = run("solve", "two.jsonl")
    assert code == 2 and err == "two.jsonl: row is None; expected one of its rows, such as two.jsonl#0\n"
    assert run("solve", "two.jsonl#1")[0] == 0 and run("solve", "one.jsonl")[0] == 0
