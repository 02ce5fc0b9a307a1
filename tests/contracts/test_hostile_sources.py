"""Sources that are larger than they look, never end or never begin, and systems that refuse what the program needs.

Each is one line and exit 2, soon and in little memory.
"""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT, documents

from instances import files
from planner.cli.app import main
from planner.process import environment, executors
from planner.process.errors import UsageError


def parquet(path: Path, values: int = 1, name: str = "x", rows: int = 1) -> None:
    """Knapsacks as `planner extract` writes them: so many rows, with so many options each."""
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    row: dict[str, Any] = {"parent": "p", "outer": "0x1", "inner": "0", "t": 1, "d": 1, "y": 1, "capacity_bytes": 1.0}
    lists: dict[str, Any] = {"nodes": [1], "options": [values], "tmpcs": [name] * values}
    lists |= {"time": [1.0] * values, "memory_bytes": [1.0] * values}
    table = pyarrow.table({key: [value] * rows for key, value in (row | lists).items()})
    pyarrow.parquet.write_table(table, path, compression="zstd")


def zipped(path: Path, piece: bytes, times: int) -> None:
    """A compressed file of so many equal pieces."""
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(times):
            file.write(piece)


@dataclass(frozen=True)
class Case:
    """What is asked for (``SOURCE`` stands for the file that ``make`` writes), and what the one line has in it."""

    name: str
    command: str
    says: str
    source: str = "source.json"
    make: Callable[[Path], Any] = Path.touch
    environment: tuple[tuple[str, str], ...] = ()
    limit: str = ""


SOLVE = "solve SOURCE"
EXACT, COMPILED = "solve chain8 --exact", "solve bert32 --exact --devices 64"
CASES = [
    Case("gigabyte of newlines", SOLVE, f"rows is 'over {files.MAX_ROWS}'; expected at most", "source.jsonl.gz",
          lambda path: zipped(path, b"\n" * 2**20, 1024)),
    Case("gigabyte of one text", SOLVE, "size is 'over 268435456 bytes'", "source.json.gz",
          lambda path: zipped(path, b" " * 2**20, 1024)),
    Case("lines without number", SOLVE, f"lines is .*at most {files.MAX_ROWS}", "source.txt.gz",
          lambda path: zipped(path, b"a\n" * 2**19, 64)),
    Case("lists in memory", SOLVE, "size of its values in memory is", "source.json.gz",
         lambda path: zipped(path, b"[" + b"[]," * 2**20, 64), limit="ulimit -v 6000000"),
    Case("nesting", SOLVE, "nesting is 'too deep'", "source.json", lambda path: path.write_text("[" * 10**6)),
    Case("parquet of few bytes", "solve SOURCE#0", "row group 0: size is 'over 268435456 bytes'", "source.parquet",
          lambda path: parquet(path, 12_000_000)),
    Case("parquet of another type", "solve SOURCE#0", "column t", "source.parquet", lambda path: other_type(path)),
    Case("cell of a table", "solve SOURCE --devices 2 --memory 1 --bandwidth 1 --microbatches 1", "CSV or TSV",
          "source.csv", lambda path: path.write_text("time,name\n1," + "a" * 200_000)),
    Case("pipe without a writer", SOLVE, "nobody wrote into it for 2 s", "source.json", os.mkfifo),
    Case("rows in a pipe", "validate SOURCE --out out", "pipe", "source.parquet", os.mkfifo),
    Case("method in a pipe", "solve chain8 --method ./SOURCE:solve", "a file that can be read", "source.py",
          os.mkfifo),
    Case("number of a domain", "mine piper --out out.json --domain max-slowdown=1e1000000000 --time-limit 3",
         "max-slowdown is '1e1000000000'; expected a number from 1 to 1000000"),
    Case("kernels disabled", COMPILED, "NUMBA_DISABLE_JIT is 1; expected 0", environment=(("NUMBA_DISABLE_JIT", "1"),)),
    Case("no threads", COMPILED, "NUMBA_NUM_THREADS is '0'", environment=(("NUMBA_NUM_THREADS", "0"),)),
    Case("address space", EXACT, "ulimit -v is 300000; expected at least 1048576", limit="ulimit -v 300000"),
    Case("file size", "make bert32 --out out.json", "File too large", limit="ulimit -f 1"),
    Case("file size, a census", "census amp-het-cluster --problem layer_assignment --from amp --sample 5 --out out",
         "File too large", limit="ulimit -f 0"),
    Case("file size, temporary files", "validate layers:layers=6..30,stages=2 --count 30 --out out",
         "File too large", limit="ulimit -f 1"),
]  # fmt: skip
#: Those that run by default: in this process, within a fraction of a second each.
CHEAP = (
    "nesting",
    "parquet of another type",
    "cell of a table",
    "rows in a pipe",
    "method in a pipe",
    "number of a domain",
)


def other_type(path: Path) -> None:
    """A column of texts where numbers of a known kind belong: dates."""
    parquet(path)
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    dates = pyarrow.array([0], pyarrow.timestamp("s"))
    pyarrow.parquet.write_table(table.set_column(table.schema.get_field_index("t"), "t", dates), path)


def command_of(case: Case, folder: Path) -> list[str]:
    """The words of a case's command, when its source is there."""
    case.make(folder / case.source)
    return case.command.replace("SOURCE", case.source).split()


@pytest.mark.parametrize("case", [each for each in CASES if each.name in CHEAP], ids=lambda case: case.name)
def test_a_hostile_source_is_one_line(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command_of(case, tmp_path)) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and re.search(case.says, shown.err), shown.err


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_source_or_system_is_one_line_in_little_memory(case: Case, tmp_path: Path) -> None:
    words = command_of(case, tmp_path)
    watched = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run(sys.argv[1:]).returncode\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
        "sys.exit(code)\n"
    )
    limited = ["bash", "-c", f'{case.limit or ":"}; exec "$@"', "-", sys.executable, "-m", "planner", *words]
    done = subprocess.run(
        [sys.executable, "-c", watched, *limited],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, **dict(case.environment), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if not line.startswith(("warning: ", "compiling"))]
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert re.search(case.says, said[-1]), done.stderr
    assert int(done.stdout.splitlines()[-1]) < 2e6  # kB


def test_the_page_has_the_limits() -> None:
    page = (documents() / "inputs.md").read_text(encoding="utf-8")
    shown = page.partition("## What is refused rather than read")[2].partition("\n## ")[0]
    limits = [f"{files.MAX_FILE_BYTES >> 20} MiB", f"{files.MAX_ROWS_BYTES >> 30} GiB", f"{files.MAX_ROWS:,} rows"]
    limits += [f"{files.WRITER_S:g} s", f"{files.SILENCE_S:g} s", f"{environment.LEAST_ADDRESS_BYTES // 1024} KiB"]
    assert [each for each in limits if each not in shown] == []


def test_sizes_are_bounded_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    path = tmp_path / "rows.jsonl.gz"
    for lines, most, code in ((3, 4, 0), (4, 4, 0), (5, 4, 2)):
        monkeypatch.setattr("planner.files.rows.MAX_ROWS", most)
        path.write_bytes(gzip.compress(b'{"problem": "x"}\n' + b"\n" * (lines - 1)))
        assert main(["solve", str(path)]) == 2
        assert ("at most 4 in a file" in capsys.readouterr().err) == (code == 2)
    monkeypatch.setattr("planner.files.rows.MAX_ROWS_BYTES", 18)
    path.write_bytes(gzip.compress(b'{"problem": "x"}\n\n\n'))
    assert main(["solve", str(path)]) == 2 and "over 18 bytes" in capsys.readouterr().err


def test_a_pipe_is_waited_for_while_somebody_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    late = subprocess.Popen(["bash", "-c", f"sleep 0.3; (echo -n 'a'; sleep 0.3; echo b) > {pipe}"])
    assert files.read_text(pipe) == "ab\n"
    late.wait()
    monkeypatch.setattr(files, "SILENCE_S", 0.2)
    held = subprocess.Popen(["bash", "-c", f"exec sleep 20 > {pipe}"])
    try:
        with pytest.raises(ValueError, match=r"nothing was written into it for 0.2 s"):
            files.read_text(pipe)
    finally:
        held.kill()
        held.wait()


def test_values_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.files.read import parse_json

    text = json.dumps([[]] * 2**10)
    monkeypatch.setattr("planner.files.read._LARGE", len(text) - 1)
    monkeypatch.setattr("solvers.memory_budget.room", lambda: 2.0**17 + 2**13)
    assert len(parse_json(text, "file")) == 2**10
    monkeypatch.setattr("solvers.memory_budget.room", lambda: 2.0**16)
    with pytest.raises(ValueError, match=r"file: size of its values in memory is '1\d+ bytes'; expected at most 6.55e"):
        parse_json(text, "file")
    monkeypatch.setattr("planner.files.read._LARGE", len(text))
    assert len(parse_json(text, "file")) == 2**10


def dies(number: int) -> int:
    """Ends the process that runs it."""
    os._exit(9 if number else 0)


@contextmanager
def dying() -> Iterator[Any]:
    """Workers that end before they have a result; the first to be asked is none of them."""
    with ProcessPoolExecutor(1) as pool:
        yield pool


def test_workers_that_die_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "BREAKDOWNS", 1)
    ended = executors.run_tasks(dying, dies, [(1,), (2,)], lambda *_: None)
    assert "--jobs is 'ended 2 times before one of them had a result'" in str(ended.lost)
    with pytest.raises(UsageError, match="--jobs"):
        list(executors.run_each(dying, dies, [(1,)]))


#: A command of two jobs, of which some are done before the workers are lost, and where they lie.
_KEPT = {
    "bench": ["bench", "chain8", "--methods", "equi,exact", "--repeats", "1", "--out", "out"],
    "validate": ["validate", "layers:layers=6..9,stages=2", "--count", "4", "--out", "out"],
    "census": ["census", "chain8", "--no-end-to-end", "--out", "out"],
    "rows": ["census", "amp-het-cluster", "--problem", "layer_assignment", "--from", "amp", "--sample", "3",
             "--no-end-to-end", "--out", "out"],
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each == "bench" else pytest.mark.slow) for each in _KEPT]
)
def test_what_was_done_before_the_workers_were_lost_is_shown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = executors.run_each

    def ends(*given: Any) -> Iterator[Any]:
        for number, found in enumerate(whole(*given)):
            if number:
                raise executors.WorkersLostError("the workers are gone")
            yield found

    with monkeypatch.context() as patched:
        patched.setattr(executors, "run_each", ends)
        assert main([*_KEPT[name], "--quiet"]) == 2
    shown = capsys.readouterr()
    assert shown.out and shown.err.startswith("the workers are gone") and shown.err.count("\n") == 1
    assert main(_KEPT[name]) == 0  # goes on from there


def test_errors_of_the_system_are_told_from_others(tmp_path: Path) -> None:
    full = OSError(28, "No space left on device", "out.json")
    assert environment.system_error_line(full) == (
        "out.json is 'No space left on device'; expected a disk with room (df, ulimit -f), also for temporary files "
        "(TMPDIR)"
    )
    assert "expected more (ulimit -a)" in (environment.system_error_line(MemoryError()) or "")
    assert "expected more (ulimit -a)" in (environment.system_error_line(RuntimeError("can't start new thread")) or "")
    for other in (ValueError("x"), OSError(2, "No such file or directory"), EOFError("x"), RuntimeError("thread")):
        assert environment.system_error_line(other) is None
    with pytest.raises(ValueError, match="a consequence") as caught:
        raise ValueError("a consequence") from full
    assert environment.system_error_line(caught.value) == environment.system_error_line(full)


@pytest.mark.slow
def test_a_limit_of_files_leaves_no_bytecode_that_is_cut_off(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 1; exec "$@"', "-", sys.executable, "-m", "planner", "list", "chain8", "--json"],
        capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(cache)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    own = [path for path in cache.rglob("*.pyc") if str(ROOT) in str(path).replace(str(cache), "")]
    assert [path.name for path in own if not path.name.startswith("__init__.")] == []
