"""What a command writes to: links, devices, pipes, folders; and a disk that is full loses no finished result."""

import ctypes
import json
import os
import random
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from planner.cli.app import main
from planner.files import destinations
from planner.files.destinations import refuse_overwriting
from planner.files.write import write_atomically
from planner.process.errors import UsageError

#: Every command that writes files, the option that names the file and how it must end; OUT stands for the file.
COMMANDS: dict[str, list[str]] = {
    "plan": ["solve", "chain8", "--method", "equi", "--out", "OUT.json"],
    "events": ["solve", "chain8", "--exact", "--events", "OUT.jsonl"],
    "picture": ["solve", "chain8", "--method", "equi", "--plot", "OUT.png"],
    "trace": ["solve", "schedule", "--trace", "OUT.json"],
    "events of two": ["crosscheck", "chain8", "--methods", "exact,equi", "--events", "OUT.jsonl"],
    "picture of two": ["crosscheck", "chain8", "--methods", "exact,equi", "--plot", "OUT.svg"],
    "instance": ["make", "chain8", "--out", "OUT.json"],
    "rows": ["bench", "chain8", "--methods", "equi", "--repeats", "1", "--out", "OUT.jsonl"],
    "table": ["frontier", "chain8", "--out", "OUT.csv"],
    "picture of the table": ["frontier", "chain8", "--plot", "OUT.pdf"],
    "page": ["report", "chain8", "--methods", "equi", "--out", "OUT.html"],
    "knapsacks": ["extract", "chain8", "--sample", "40", "--out", "OUT.jsonl"],
}
#: By default one of each way to write: a whole file, lines as they come, rows of a run, what is not printed beside it.
FEW = ("plan", "events", "rows", "knapsacks")
MOST = [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS]
#: Commands for which the file is the result: nothing else is to be printed.
FILE_ONLY = ("instance", "knapsacks")


def given(name: str, path: Path | str) -> tuple[list[str], str]:
    """The command with OUT replaced by a path (without its suffix), and the whole path."""
    pytest.importorskip("vl_convert")
    if name == "page":
        pytest.importorskip("jinja2")
    *words, last = COMMANDS[name]
    out = last.replace("OUT", str(path))
    return [*words, out], out


@contextmanager
def full_disk(room: int = 0) -> Iterator[None]:
    """No file of this process may hold more bytes: writing fails as on a full disk, after the file was made.

    Python would keep modules that it compiles, cut off at that size, and fail to import them from then on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = kept


@pytest.mark.parametrize("name", MOST)
def test_the_target_of_a_link_is_written_and_the_link_stays(name: str, tmp_path: Path, capsys: Any) -> None:
    command, out = given(name, tmp_path / "link")
    real = tmp_path / f"real{Path(out).suffix}"
    real.write_text("old")
    real.chmod(0o640)
    Path(out).symlink_to(real)
    assert main(command) == 0
    capsys.readouterr()
    assert Path(out).is_symlink() and real.read_bytes()[:3] != b"old"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([Path(out).name, real.name])


@pytest.mark.parametrize("name", MOST)
def test_a_pipe_is_written_into(name: str, tmp_path: Path, capsys: Any) -> None:
    command, out = given(name, tmp_path / "pipe")
    os.mkfifo(out)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(Path(out).read_bytes()), daemon=True)
    reader.start()
    assert main(command) == 0
    reader.join(timeout=60)
    capsys.readouterr()
    assert received and len(received[0]) > 100 and stat.S_ISFIFO(os.stat(out).st_mode)


@pytest.mark.parametrize("name", MOST)
def test_a_pipe_that_nobody_reads_is_one_line(name: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(destinations, "READER_S", 0.1)
    command, out = given(name, tmp_path / "pipe")
    os.mkfifo(out)
    late = threading.Timer(10, lambda: Path(out).read_bytes())  # who waits for ever is waited for no longer
    late.start()
    try:
        assert main(command) == 2
    finally:
        late.cancel()
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-1].endswith("expected a file that can be written (nobody reads it)")
    assert shown.out or name in FILE_ONLY or name.startswith("events")


def test_a_pipe_is_waited_for_until_its_reader_comes(tmp_path: Path, capsys: Any) -> None:
    command, out = given("plan", tmp_path / "pipe")
    os.mkfifo(out)
    received: list[bytes] = []
    late = threading.Timer(1.0, lambda: received.append(Path(out).read_bytes()))
    late.start()
    assert main(command) == 0
    late.join(timeout=60)
    assert capsys.readouterr().out and json.loads(received[0])["stages"]


@pytest.mark.parametrize("name", MOST)
def test_a_device_is_written_into_and_stays_one(name: str, tmp_path: Path, capsys: Any) -> None:
    """A device of our own: whoever gets this wrong as root must not destroy the machine's."""
    command, out = given(name, tmp_path / "device")
    both = ((3, 0), (7, 2))  # /dev/null takes it, /dev/full does not
    for number, code in both if name in ("plan", "events", "knapsacks") else both[1:]:
        try:
            os.mknod(out, 0o600 | stat.S_IFCHR, os.makedev(1, number))
            Path(out).write_bytes(b"")
        except PermissionError:
            pytest.skip("no devices can be made here")
        assert main(command) == code
        shown = capsys.readouterr()
        assert stat.S_ISCHR(os.stat(out).st_mode)
        if code:
            assert "No space left" in shown.err and (name in FILE_ONLY or shown.out)
            assert "Traceback" not in shown.err
        os.unlink(out)


@pytest.mark.parametrize("name", MOST)
def test_a_full_disk_loses_no_result(name: str, tmp_path: Path, capsys: Any) -> None:
    command, out = given(name, tmp_path / "file")
    with full_disk():
        assert main(command) == 2
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-1].startswith(f"{command[-2]} is ")
    assert shown.err.splitlines()[-1].endswith("expected a file that can be written (File too large)")
    assert "Traceback" not in shown.err
    if name not in FILE_ONLY:
        assert "chain8" in shown.out or "schedule" in shown.out or "incumbent" in shown.out
    left = [path for path in tmp_path.iterdir() if "events" not in name]
    assert left == [] and (not Path(out).exists() or not Path(out).read_bytes())


@pytest.mark.parametrize(
    "command",
    [
        ["model", "layers", "--layers", "6", "--stages", "2", "--method", "milp", "--write", "OUT.lp"],
        ["model", "layers", "--layers", "6", "--stages", "2", "--method", "cpsat", "--write", "OUT.pb.txt"],
        ["mine", "equi", "--problem", "stage_partitioning", "--count", "40", "--out", "OUT.json"],
        ["certify", "chain8", "--out", "OUT.json"],
        ["solve", "chain8", "--certificate", "OUT.json"],
        ["schema", "tmpc_knapsack", "--out", "OUT.json"],
    ],
    ids=lambda command: command[0],
)
def test_a_file_that_cannot_be_written_is_named_by_its_option(command: list[str], tmp_path: Path, capsys: Any) -> None:
    *words, option, out = command
    with full_disk(100):  # room for the locks of libraries
        assert main([*words, option, str(tmp_path / out)]) == 2
    refused = capsys.readouterr().err.splitlines()[-1]
    assert {part.partition(" is ")[0] for part in refused.split("; ") if " is " in part} == {option}


@pytest.mark.parametrize("name", MOST)
def test_what_cannot_be_a_file_is_refused_in_one_line(name: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "text").write_text("")
    for path in ("x" * 300, "none/file", "text/file"):
        command, out = given(name, tmp_path / path)
        assert main(command) == 2, path
        shown = capsys.readouterr()
        assert shown.out == "" and shown.err.count("\n") == 1
    command, out = given(name, tmp_path / "folder")
    Path(out).mkdir()
    assert main(command) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_bench_goes_on_on_a_full_disk_and_writes_what_it_can_at_the_end(tmp_path: Path, capsys: Any) -> None:
    command = ["bench", "chain8", "--methods", "equi,exact", "--repeats", "1", "--out", str(tmp_path)]
    with full_disk(100):  # room for a part of a row
        assert main(command) == 2
    shown = capsys.readouterr()
    assert "exact" in shown.out and shown.err.count("warning: ") == 2
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {"rows.jsonl": 0}
    assert main(command) == 0
    assert (tmp_path / "rows.jsonl").read_text().count("\n") == 2


def test_folders_that_cannot_be_written_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for anybody but root, for whom every folder can be written."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("os.access", lambda path, _mode: str(path) != str(tmp_path))
    with pytest.raises(UsageError, match="a folder that can be written"):
        refuse_overwriting(str(tmp_path / "new"))
    monkeypatch.setattr("os.access", lambda path, _mode: str(path) != str(tmp_path / "file"))
    with pytest.raises(UsageError, match="expected a file that can be written"):
        refuse_overwriting(str(tmp_path / "file"))


def test_two_outputs_may_be_one_device_and_not_one_file(tmp_path: Path, capsys: Any) -> None:
    out = str(tmp_path / "one")
    Path(tmp_path / "link").symlink_to(out)
    assert main(["solve", "chain8", "--method", "equi", "--out", out, "--events", str(tmp_path / "link")]) == 2
    assert "a file other than that of --out" in capsys.readouterr().err
    assert main(["solve", "chain8", "--method", "equi", "--out", "/dev/stdout", "--events", "/dev/stdout"]) == 0


def started(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planner", *arguments], text=True, capture_output=not streams, timeout=60, **streams
    )


def test_standard_output_is_written_into(tmp_path: Path) -> None:
    """Also where it is a file: what was printed before stays."""
    made = started("make", "chain8", "--out", "/dev/stdout")
    assert json.loads(made.stdout)["name"] == "chain8" and made.stderr == ""
    with (tmp_path / "out").open("w") as file:
        file.write("before\n")
        file.flush()
        started("solve", "chain8", "--method", "equi", "--quiet", "--out", "/dev/stdout", stdout=file)
    text = (tmp_path / "out").read_text()
    assert text.startswith("before\n") and text.endswith("}\n") and "slowest stage is" in text


def test_disks_are_not_written_over(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    try:
        os.mknod(disk, 0o600 | stat.S_IFBLK, os.makedev(7, 250))
    except PermissionError:
        pytest.skip("no devices can be made here")
    with pytest.raises(UsageError, match="not a disk"):
        refuse_overwriting(str(disk))
    with pytest.raises(UsageError, match="not written over"):
        write_atomically(disk, "text")
    assert stat.S_ISBLK(disk.stat().st_mode)


def test_disks_of_any_size(many: int, tmp_path: Path, capsys: Any) -> None:
    """A command on a disk that takes so many bytes: it writes all or nothing, and never loses a result."""
    for seed in range(many) or (0, 2, 3):  # one fits, two do not
        rng, folder = random.Random(seed), tmp_path / str(seed)
        folder.mkdir()
        name = rng.choice(list(COMMANDS))
        command, out = given(name, folder / "file")
        with full_disk(int(10 ** rng.uniform(0, 6))):
            code = main(command)
        shown = capsys.readouterr()
        assert code in (0, 2) and "Traceback" not in shown.err, seed
        assert name in FILE_ONLY or shown.out or (name == "page" and code == 0), seed  # the page holds the results
        if "events" not in name:
            assert [path.name for path in folder.iterdir()] == ([] if code else [Path(out).name]), seed


#: Runs commands one after the other; prints codes and lines.
_SERIES = """
import contextlib, io, json, sys
from planner.files import destinations
from planner.cli.app import main
for line in sys.argv[1:]:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(line.split())
    print(json.dumps([line, code, said.getvalue()]))
"""


def confined() -> None:
    """In a child: not even root reads or writes what its owner may not."""
    if os.geteuid() == 0:
        for right in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, right, 0, 0, 0)


@pytest.mark.slow
def test_folders_that_may_not_be_read_or_written_are_one_line(tmp_path: Path) -> None:
    for name, mode in (("locked", 0o000), ("read", 0o555)):
        folder = tmp_path / name
        (folder / "inside").mkdir(parents=True)
        (folder / "file.json").write_text("{}")
        folder.chmod(mode)
    (tmp_path / "file.json").write_text("{}")
    (tmp_path / "file.json").chmod(0)
    bench = "bench chain8 --methods equi --repeats 1 --out"
    commands = [
        *(f"{command} {folder}/new.{suffix}" for folder in ("locked", "read") for command, suffix in (
            ("solve chain8 --method equi --out", "json"), ("solve chain8 --method equi --events", "jsonl"),
            ("make chain8 --out", "json"), ("extract chain8 --sample 1 --out", "jsonl"), (bench, "jsonl"),
        )),
        *(f"{bench} {folder}" for folder in ("locked", "locked/new", "read", "read/new")),
        *(f"census chain8 --no-end-to-end --out {folder}" for folder in ("locked", "locked/new", "read", "read/new")),
        "solve chain8 --method equi --out read/file.json", "solve chain8 --method equi --out file.json",
        "solve file.json", "solve locked/file.json", "check chain8 locked/file.json", "bench --compare locked locked",
        "bench --suite locked/file.json", "solve absent.json --inputs locked",
        "reproduce piper-table-1 --inputs locked", "make topology --matrix locked/file.csv",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", _SERIES, *commands],
        capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False, preexec_fn=confined,
    )  # fmt: skip
    for name in ("locked", "read"):
        (tmp_path / name).chmod(0o755)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(commands), done.stderr
    assert [each for each in found if each[1] != 2 or each[2].count("\n") != 1] == []


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for command in ("make chain8 --out new.json", "bench chain8 --methods equi --out new", "census chain8 --out new"):
        assert main(command.split()) == 2
        assert capsys.readouterr().err.count("\n") == 1
