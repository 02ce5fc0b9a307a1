"""The command line as a process of its own: signals, hanging methods, closed pipes, and how fast it answers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from load import allowed_s
from paths import SUPPORT

#: Runs the command line with the family of the tests added, and says when it is about to start.
START = """
import sys, formulations, counting
formulations.FAMILIES = (*formulations.FAMILIES, counting.FAMILY)
print("ready", file=sys.stderr, flush=True)
from planner.__main__ import main
main()
"""
Problem = Callable[..., str]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
    )


def start_and_wait(*arguments: str, events: Path, until: str) -> subprocess.Popen[str]:
    """The command, when an event of its run has such words."""
    process = start(*arguments, "--events", str(events))
    assert process.stderr is not None and process.stderr.readline() == "ready\n"
    while not events.exists() or until not in events.read_text():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    return process


@pytest.mark.parametrize(
    ("method", "number", "code"),
    [("stubborn", signal.SIGTERM, 143), pytest.param("patient", signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_signal_prints_the_best_so_far(problem: Problem, method: str, number: int, code: int, tmp_path: Path) -> None:
    given = ["solve", problem(), "--method", method, "--json", "--exact"]
    process = start_and_wait(*given, events=tmp_path / "events", until='"bound": 1.0')
    sent = time.perf_counter()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert time.perf_counter() - sent < allowed_s(10.0)
    assert process.returncode == code
    result = json.loads(out)
    assert (result["stop"], result["objective"], result["bound"]) == ("interrupted", 4.0, 1.0)
    assert err == ""


def test_a_hanging_method_does_not_keep_the_process(problem: Problem) -> None:
    began = time.perf_counter()
    process = start("solve", problem(), "--method", "stubborn", "--time-limit", "1", "--json")
    out, _ = process.communicate(timeout=60)
    assert time.perf_counter() - began < allowed_s(5.0)
    assert process.returncode == 0
    assert json.loads(out)["stop"] == "time_limit"


def test_a_bug_shows_its_traceback_and_is_no_exit_code_of_ours(problem: Problem) -> None:
    process = start("solve", problem(), "--method", "crash")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 70
    assert "ZeroDivisionError: a bug in a method" in err


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        ("--help", "numpy numba pydantic ortools pyomo networkx formulations.stage_partitioning importlib.metadata"),
        (
            "solve chain8 --quiet",
            "ortools pyomo networkx numpy.ma vl_convert pydantic numba.np.arrayobj formulations.mesh_tiling",
        ),
    ],
)
def test_what_a_command_does_not_need_is_not_imported(command: str, absent: str) -> None:
    code = f"import sys; from planner.cli.app import main; main({command.split()}); "
    code += f"print({set(absent.split())} & set(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr == "set()\n"


def test_the_end_of_the_process_runs_what_was_registered_and_waits_for_threads() -> None:
    """It leaves without taking the modules apart, yet nothing that is due at the exit is lost."""
    beginning = (
        "import atexit, sys, threading; sys.argv = ['planner', 'list'];"
        "atexit.register(print, 'registered', flush=True);"
    )
    ending = "from planner.__main__ import main; main()"
    thread = (  # which goes on when the main one has ended
        "threading.Thread(target=lambda: (threading.main_thread().join(), print('thread', flush=True))).start();"
    )
    code = beginning + thread + ending
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    assert (run.returncode, run.stderr, lines[-1]) == (0, "", "registered") and "thread" in lines


def test_names_that_cannot_be_encoded_are_printed_escaped(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text('{"problem": "counting", "numbers": "\\ud800"}')
    process = start("solve", str(path))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.count("\n") == 2 and "ud800" in err


def test_a_person_at_a_terminal_sees_progress(problem: Problem) -> None:
    """A program does not, whose standard error is empty after a signal."""
    watched, end = os.openpty()
    arguments = ["solve", problem(), "--method", "patient", "--time-limit", "1", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", START, *arguments],
        stdout=subprocess.PIPE,
        stderr=end,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SUPPORT), "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(end)
    seen = b""
    while True:
        try:
            part = os.read(watched, 4096)
        except OSError:  # Linux says so when the other end is closed
            part = b""
        if not part:
            break
        seen += part
    os.close(watched)
    out, _ = process.communicate(timeout=60)
    assert json.loads(out)["objective"] == 4.0
    assert b"incumbent 4  bound 1  gap 75 %" in seen


def test_what_a_solver_prints_does_not_reach_standard_output() -> None:
    """HiGHS 1.12 prints from C, past `sys.stdout`."""
    code = "import os; from planner.process import streams; streams.lasting_streams(); "
    code += "os.write(1, b'noise'); print('result')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("result\n", "noise")


@pytest.mark.slow
def test_a_signal_stops_a_real_solver_and_prints_what_it_has(tmp_path: Path) -> None:
    given = ["--first", "16", "--devices", "16", "--method", "cpsat", "--json", "--time-limit", "60"]
    process = start_and_wait("solve", "bert32", *given, events=tmp_path / "events", until='"objective": 0.')
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    result = json.loads(out)
    assert result["stop"] == "interrupted" and result["verified"]
