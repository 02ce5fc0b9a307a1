"""Ctrl-C and SIGTERM at any moment: silence, one object with --json, a code of the interface, no file left behind."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paths import of_a_checkout
from thinned import thinned

from planner.cli.app import main
from planner.process.streams import INTERRUPTED
from planner.results.result import Result
from solvers.outcome import Status, Stop

#: The command line, and a word when it has begun: what a signal does before is Python's own affair.
_START = "import sys; from planner.__main__ import main; print('ready', file=sys.stderr, flush=True); main()"
#: Commands, and about how many seconds each takes on a quiet machine: imports, work, printing.
COMMANDS: tuple[tuple[float, tuple[str, ...]], ...] = (
    (1.2, ("solve", "chain8", "--exact", "--json", "--out", "plan.json", "--events", "events.jsonl")),
    (2.5, ("solve", "bert32", "--first", "8", "--devices", "8", "--method", "milp", "--json", "--time-limit", "2")),
    (3.0, ("crosscheck", "chain8", "--memory", "40MB", "--methods", "exact,cpsat,milp,piper", "--json")),
    (1.5, ("bench", "chain8", "--methods", "equi,exact,piper", "--json", "--out", "rows")),
    (2.5, ("census", "chain8", "--json", "--out", "census")),
    (4.0, ("census", "chain8", "--json", "--out", "census", "--jobs", "2", "--no-end-to-end")),
    (2.0, ("frontier", "chain8", "--json", "--out", "table.csv")),
    (0.6, ("list", "--json")),
    (0.8, ("make", "chain8", "--out", "chain.json")),
    (2.0, ("solve", "chain8", "--linearize", "id,lifo", "--json", "--plot", "plan.svg")),
    (3.0, ("report", "chain8", "--methods", "exact,equi", "--out", "page.html")),
    (6.0, ("reproduce", "piper-fig-3", "--json")),
    (4.0, ("mine", "amp-released", "--time-limit", "3", "--json", "--out", "worst.json")),
    (3.0, ("validate", "chain8:memory=4e7..6e7", "--count", "9", "--methods", "equi,piper", "--out", "all", "--json")),
)
#: What a library says when it is cut off, though nobody asked.
_NOISE = ("Traceback", "Exception ignored", "KeyboardInterrupt", "SystemExit", "Fatal", "leaked")


def one_case(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    seconds, command = COMMANDS[seed % len(COMMANDS)]
    number, twice = rng.choice((signal.SIGINT, signal.SIGTERM)), rng.random() < 0.2
    process = subprocess.Popen(
        [sys.executable, "-c", _START, *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None and process.stderr.readline() == "ready\n"
    time.sleep(rng.uniform(0, seconds) * rng.choice((0.2, 1.0)))
    for _ in range(1 + twice):
        # A terminal signals the whole group, kill the process alone.
        os.killpg(process.pid, number) if number is signal.SIGINT and process.poll() is None else process.send_signal(
            number
        )
        time.sleep(0.05 * twice)
    out, err = process.communicate(timeout=120)
    case = (seed, command, number, process.returncode, out[-300:], err[-2000:])
    assert process.returncode in (0, 128 + number), case
    assert not any(word in err for word in _NOISE), case
    if "--json" in command:
        assert out.count("\n") == 1, case
        found = json.loads(out)
        if process.returncode and command[0] == "solve" and not twice:
            assert found["stop"] == "interrupted" or "--plot" in command or "--out" in command, case
    assert not list(folder.rglob(".planner-*")), case


def test_signals_at_random_moments(many: int, tmp_path: Path) -> None:
    for seed in range(many or 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        one_case(seed, folder)


def test_the_object_of_an_interrupted_command_is_a_result() -> None:
    found = json.loads(INTERRUPTED)
    result = Result("", "", "", "", Status.UNKNOWN, Stop.INTERRUPTED, None, None, None, "", 0.0)
    assert list(found) == list(result.to_json())
    assert {**found, "reason": ""} == result.to_json()


#: Signals, their codes, and what is given to a command: what one of them does another one does without ``--json``.
SIGNALS = ((signal.SIGINT, 130, ["--json"]), (signal.SIGTERM, 143, []))


@pytest.mark.parametrize(("number", "code", "given"), SIGNALS)
def test_a_signal_during_imports_is_one_object(number: int, code: int, given: list[str]) -> None:
    """The command's own import waits for the signal, as a slow disk would make it."""
    slow = (
        "import sys, os, time; "
        "from planner.__main__ import main; from planner.results import events; "
        "sys.modules['planner.analysis.sweep'] = type('Slow', (), {'__getattr__': lambda *_: (print('here', "
        "file=sys.stderr, flush=True), time.sleep(60))})(); main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", slow, "sweep", "chain8", "--orders", "id,lifo", *given],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None and process.stderr.readline() == "here\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, "")
    assert out == (INTERRUPTED if given else "")


#: Sends a signal while a module is imported.
_WHILE_IMPORTING = """
import os, sys

class Sender:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), {number:d})

sys.meta_path.insert(0, Sender())
from planner.__main__ import main
main()
"""
#: Sends a signal when the interpreter ends: the last line is out, and Python has its own handlers back.
_AT_THE_END = """
import os, sys
from planner.__main__ import main

class Sender:
    def __del__(self, kill=os.kill, own=os.getpid()):
        kill(own, {number:d})

sender = Sender()
main()
"""


@thinned(
    ("module", "number", "code", "given"),
    [(module, *each) for module in ("planner.process.signals", "planner.process.streams", "planner.cli.app")
     for each in SIGNALS],
)  # fmt: skip
def test_a_signal_while_the_first_modules_are_imported(module: str, number: int, code: int, given: list[str]) -> None:
    script = _WHILE_IMPORTING.format(module=module, number=number)
    command = [sys.executable, "-c", script, "list", *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (code, "", INTERRUPTED if given else "")


@of_a_checkout
def test_little_is_imported_before_signals_count() -> None:
    """What a person waits for before Ctrl-C is ours: the interpreter's own start, and next to nothing."""
    script = "import sys; before = set(sys.modules); import planner.__main__; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert {name for name in done.stdout.split() if "planner" in name} == {"planner", "planner.__main__"}
    assert not {"typing", "re", "importlib"} & set(done.stdout.split())


@thinned("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_last_line_changes_nothing(number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _AT_THE_END.format(number=number), "make", "nosuch"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command in a shell, where PLANNER stands for the command line."""
    text = command.replace("PLANNER", f"{sys.executable} -m planner")
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, cwd=folder, timeout=60, check=False)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("PLANNER solve chain8 --method equi --json --out plan.json >&- 2>&-", 0),
        pytest.param("PLANNER make nosuch >&- 2>&-", 2, marks=pytest.mark.slow),
        ("PLANNER list --json >full", 2),
        # Each stream is closed above, and the one that has results full.
        pytest.param("PLANNER make chain8 >&-", 0, marks=pytest.mark.slow),
        pytest.param("PLANNER solve chain8 --method equi >full", 2, marks=pytest.mark.slow),
        pytest.param("PLANNER list --json >full 2>full", 2, marks=pytest.mark.slow),
        pytest.param("PLANNER solve chain8 --exact --memory 1 2>&-", 4, marks=pytest.mark.slow),
        pytest.param("PLANNER make nosuch 2>full", 2, marks=pytest.mark.slow),
        pytest.param("PLANNER make chain8 2>full", 0, marks=pytest.mark.slow),
        pytest.param("PLANNER --help >full", 2, marks=pytest.mark.slow),
    ],
)
def test_closed_and_full_streams(command: str, code: int, tmp_path: Path) -> None:
    """The code of the interface, and not a word but that standard output is full; 1 would mean violations."""
    (tmp_path / "full").symlink_to("/dev/full")
    done = run(command, tmp_path)
    assert done.returncode == code, done
    said = "standard output cannot be written: No space left on device\n"
    assert done.stderr == (said if ">full" in command.replace("2>full", "") and "2>full" not in command else "")
    assert "--out" not in command or (tmp_path / "plan.json").is_file()


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    done = run("PLANNER list --json | (exec 0<&-); echo ${PIPESTATUS[0]}", tmp_path)
    assert (done.stdout, done.stderr) == ("141\n", "")
    assert main(["list"]) == 0
