"""Sources that are larger than they look, never end or never begin, and systems that refuse what the program needs.

Each is one line and exit 2, soon and in little memory.
"""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

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


def _case(name: str, command: str, says: str, source: str, make: Callable[[Path], Any]) -> Case:
    return Case(name, command, says, source, make)


SOLVE = "solve SOURCE"
EXACT = "solve chain8 --exact"
CASES = [
    _case("gigabyte of newlines", SOLVE, f"rows is 'over {files.MAX_ROWS}'; expected at most", "source.jsonl.gz",
          lambda path: zipped(path, b"\n" * 2**20, 1024)),
    _case("gigabyte of one text", SOLVE, "size is 'over 268435456 bytes'", "source.json.gz",
          lambda path: zipped(path, b" " * 2**20, 1024)),
    _case("lines without number", SOLVE, f"lines is .*at most {files.MAX_ROWS}", "source.txt.gz",
          lambda path: zipped(path, b"a\n" * 2**19, 64)),
    Case("lists in memory", SOLVE, "size of its values in memory is", "source.json.gz",
         lambda path: zipped(path, b"[" + b"[]," * 2**20, 64), limit="ulimit -v 6000000"),
    _case("nesting", SOLVE, "nesting is 'too deep'", "source.json", lambda path: path.write_text("[" * 10**6)),
    _case("gzip in gzip", SOLVE, "UTF-8", "source.json.gz",
          lambda path: path.write_bytes(gzip.compress(gzip.compress(b"{}")))),
    _case("gzip cut off", SOLVE, "a whole gzip file", "source.json.gz",
          lambda path: path.write_bytes(gzip.compress(b"{}" * 1000)[:-20])),
    _case("parquet of few bytes", "solve SOURCE#0", "row group 0: size is 'over 268435456 bytes'", "source.parquet",
          lambda path: parquet(path, 12_000_000)),
    _case("parquet of long names", "solve SOURCE#0", "size is 'over 268435456 bytes'", "source.parquet",
          lambda path: parquet(path, 300, "a" * 2**20)),
    _case("parquet of another type", "solve SOURCE#0", "column t", "source.parquet", lambda path: other_type(path)),
    _case("cell of a table", "solve SOURCE --devices 2 --memory 1 --bandwidth 1 --microbatches 1", "CSV or TSV",
          "source.csv", lambda path: path.write_text("time,name\n1," + "a" * 200_000)),
    _case("pipe without a writer", SOLVE, "nobody wrote into it for 2 s", "source.json", os.mkfifo),
    _case("plan in a pipe", "check chain8 SOURCE", "nobody wrote into it for 2 s", "source.json", os.mkfifo),
    _case("matrix in a pipe", "make topology --matrix SOURCE --out out.json", "nobody wrote into it", "source.csv",
          os.mkfifo),
    _case("rows in a pipe", "validate SOURCE --out out", "pipe", "source.parquet", os.mkfifo),
    _case("method in a pipe", "solve chain8 --method ./SOURCE:solve", "a file that can be read", "source.py",
          os.mkfifo),
    Case("number of a domain", "mine piper --out out.json --domain max-slowdown=1e1000000000 --time-limit 3",
         "max-slowdown is '1e1000000000'; expected a number from 1 to 1000000"),
    Case("kernels disabled", EXACT, "NUMBA_DISABLE_JIT is 1; expected 0", environment=(("NUMBA_DISABLE_JIT", "1"),)),
    Case("no threads", EXACT, "NUMBA_NUM_THREADS is '0'", environment=(("NUMBA_NUM_THREADS", "0"),)),
    Case("address space", EXACT, "ulimit -v is 300000; expected at least 1048576", limit="ulimit -v 300000"),
    Case("address space, a picture", "solve chain8 --plot out.png", "--plot needs addresses: ulimit -v is 8000000",
         limit="ulimit -v 8000000"),
    Case("file size", "make bert32 --out out.json", "File too large", limit="ulimit -f 1"),
    Case("file size, a census", "census amp-het-cluster --problem layer_assignment --from amp --sample 5 --out out",
         "File too large", limit="ulimit -f 0"),
    Case("file size, temporary files", "validate layers:layers=6..30,stages=2 --count 30 --out out",
         "File too large", limit="ulimit -f 1"),
]  # fmt: skip
#: Those that run by default: in this process, within a fraction of a second each.
CHEAP = ("nesting", "gzip in gzip", "gzip cut off", "parquet of another type", "cell of a table", "entities",
         "rows in a pipe", "method in a pipe", "number of a domain")  # fmt: skip


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
    page = (ROOT / "docs" / "inputs.md").read_text(encoding="utf-8")
    shown = page.partition("## What is refused rather than read")[2].partition("\n## ")[0]
    limits = [
        f"{files.MAX_FILE_BYTES // 2**20} MiB",
        f"{files.MAX_ROWS_BYTES // 2**30} GiB",
        f"{files.MAX_ROWS:,} rows",
    ]
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


def test_bytecode_that_was_cut_off_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util
    import py_compile

    (tmp_path / "cut_off_module.py").write_text("a = [1, 2, 3]\n" * 50)
    compiled = Path(py_compile.compile(str(tmp_path / "cut_off_module.py"), doraise=True))
    compiled.write_bytes(compiled.read_bytes()[:100])
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EOFError) as caught:
        importlib.import_module("cut_off_module")
    assert environment.system_error_line(caught.value) == (
        f"{compiled} is 'marshal data too short'; expected whole bytecode: remove the folders __pycache__ "
        "(they are made anew)"
    )


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


Edges = list[tuple[int, int]]

#: Operators and edges of graphs in files below 64 MiB.
GRAPHS = ("long", "dense", "star", "wide")


def graph(kind: str) -> tuple[int, Edges]:
    """Operators, and edges between them."""
    return {
        "long": lambda: (100_000, [(v, v + 1) for v in range(99_999)]),
        "dense": lambda: (500, [(u, v) for v in range(500) for u in range(v)]),
        "star": lambda: (20_000, [(0, v) for v in range(1, 20_000)]),
        "wide": lambda: (40, list[tuple[int, int]]()),
    }[kind]()


def flat(kind: str) -> dict:
    """Of stage partitioning: layers that take a second; the middle of a star has as many TMPCs as edges."""
    count, edges = graph(kind)
    x = {"time": 1.0, "weight_bytes": 1.0, "activation_bytes": 1.0, "static_bytes": 0.0}
    rows = [[{"id": str(k), **x} for k in range(count if kind == "star" and not v else 1)] for v in range(count)]
    return {
        "problem": "stage_partitioning", "layers": [{"id": v, "tmpcs": {"1": row}} for v, row in enumerate(rows)],
        "edges": [{"source": u, "target": v, "bytes": 0.0} for u, v in edges], "num_devices": 64,
        "memory_bytes": 1e9, "num_microbatches": 64, "bandwidth": 1e9,
    }  # fmt: skip


def operators(kind: str) -> dict:
    """Of operator partitioning: operators that take a second."""
    count, edges = graph(kind)
    return {
        "problem": "operator_partitioning", "operators": [{"id": v, "compute_s": 1.0} for v in range(count)],
        "tensors": [{"source": u, "targets": [v], "volume_bytes": 0.0} for u, v in edges],
        "bandwidth_bytes_per_s": 1.0, "num_stages": 2,
    }  # fmt: skip


def stage_graph(kind: str) -> dict:
    count, edges = graph(kind)
    each = {"forward": {"fixed_s": 0, "per_sample_s": 1}, "backward": {"fixed_s": 0, "per_sample_s": 1}}
    return {
        "problem": "stage_graph", "num_devices": 64, "minibatch": 64, "memory_bytes": 200.0, "latency_s": 0,
        "operators": [{"id": v, **each, "weight_bytes": 1, "activation_bytes": 1} for v in range(count)],
        "edges": [{"source": u, "target": v, "bytes_per_sample": 0} for u, v in edges],
        "bandwidth_bytes_per_s": 1, "weight_copies": 0,
    }  # fmt: skip


def schedule(edges: str) -> dict:
    """Two stages with so many edges between them."""
    return {
        "problem": "microbatch_schedule", "objective": "time", "minibatch": 40_000,
        "stages": [{"forward_s": 1.0, "backward_s": 1.0}] * 2, "edges": [{"source": 0, "target": 1}] * int(edges),
    }  # fmt: skip


def made(name: str, kind: str) -> tuple[dict, dict]:
    """The content of an instance, and a proof that is of the form of one."""
    machines = {"devices_per_machine": 8, "num_machines": 8, "inner_bandwidth": 1e9, "outer_bandwidth": 1e9}
    links: dict[str, Any] = {"objective": "full", "ring": "index", "bandwidth_bytes_per_s": [[0.0, 1.0], [1.0, 0.0]]}
    ways = {
        "stage_partitioning": lambda: (flat(kind), {"kind": "labels", "downsets": [["0", [[0, 0]]]]}),
        "flushed_partitioning": lambda: ({"flat": flat(kind)}, {"kind": "caps", "caps": []}),
        "hierarchical_partitioning": lambda: ({"flat": flat(kind), **machines}, {"kind": "search"}),
        "stage_graph": lambda: (stage_graph(kind), {"kind": "search"}),
        "operator_partitioning": lambda: (operators(kind), {"kind": "labels", "counted": []}),
        "pipeline_placement": lambda: ({"operators": operators(kind), **links}, {"kind": "search"}),
        "microbatch_schedule": lambda: (schedule(kind), {"kind": "bound", "name": "heads and tails"}),
    }
    content, proof = ways[name]()
    return content | {"problem": name}, proof


HOSTILE = [
    (name, kind)
    for name in (
        "stage_partitioning", "flushed_partitioning", "hierarchical_partitioning", "stage_graph",
        "operator_partitioning", "pipeline_placement",
    )
    for kind in GRAPHS
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [*HOSTILE, ("microbatch_schedule", "100000")])
def test_hostile_instances_take_little_memory(name: str, kind: str) -> None:
    """At most 1 GiB while the checker works, which is ended here after ten CPU seconds."""
    content, proof = made(name, kind)
    certificate = {"format": 1, "problem": name, "plan": None, "objective": None, "bound": "1000000", "proof": proof}
    script = (
        "import json, resource, sys\n"
        f"from formulations.{name}.certificate import checker\n"
        "from formulations.contract.checker.frame import RejectedError\n"
        "certificate, content = json.load(sys.stdin)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (10, 11))\n"
        "try:\n"
        "    digest = checker.Instance(content).digest\n"
        "except RejectedError as error:\n"
        "    sys.exit(str(error))\n"
        "print(checker.verify(content, certificate | {'instance_sha256': digest})['reason'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps([certificate, content]), capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr and "memory" not in done.stdout, done.stderr[-500:]
    assert done.returncode == -signal.SIGXCPU or (done.stdout + done.stderr).count("\n") == 1, done
