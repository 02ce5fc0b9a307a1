"""The command line as a process of its own: signals, hanging methods, closed pipes, and how fast it answers."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from counting import Counting
from load import allowed_s
from paths import SUPPORT
from thinned import thinned

import planner
from formulations.contract.inner_problems import Inside, Subproblem
from planner.cli.app import main
from planner.experiments.census.run import census
from planner.process import executors, signals
from planner.process.errors import UsageError
from planner.process.executors import IN_FLIGHT, place, run_each
from planner.process.streams import Lasting
from planner.solving.compare import crosscheck
from solvers.outcome import Limits, Stop, Watch

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


@thinned(
    ("command", "absent"),
    [
        ("--help", "numpy numba pydantic ortools pyomo networkx formulations.stage_partitioning importlib.metadata"),
        (
            "solve chain8 --quiet",
            "ortools pyomo networkx numpy.ma vl_convert pydantic numba llvmlite formulations.mesh_tiling",
        ),
    ],
    2,
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


def squared(number: int) -> tuple[int, int]:
    return number * number, threading.get_ident()


def counted(most: int, read: list[int]) -> Iterator[tuple[int]]:
    for number in range(most):
        read.append(number)
        yield (number,)


def test_in_this_process_a_task_is_read_when_the_one_before_it_is_handed_on() -> None:
    read: list[int] = []
    for position, (square, thread) in run_each(place(), squared, counted(300, read)):
        assert square == position**2 and len(read) == position + 1
        assert thread == threading.get_ident()  # where methods receive signals
    assert read == list(range(300))


def test_only_so_many_tasks_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    gate = threading.Event()

    def waits(number: int) -> int:
        gate.wait()
        return number

    def looked() -> list[int]:
        found = []
        for position, number in run_each(lambda: ThreadPoolExecutor(2), waits, counted(3 * IN_FLIGHT, read)):
            assert position == number and len(read) <= IN_FLIGHT + len(found) + 2
            found.append(number)
        return found

    monkeypatch.setattr(executors, "POLL_S", 0.01)
    threading.Timer(0.2, gate.set).start()
    assert sorted(looked()) == list(range(3 * IN_FLIGHT))


def test_what_fails_is_raised_and_nothing_more_is_read() -> None:
    read: list[int] = []
    with pytest.raises(ZeroDivisionError):
        list(run_each(place(), lambda number: 1 // (number - 3), counted(9, read)))
    assert read == [0, 1, 2, 3]


def test_places_that_exclude_each_other_are_refused() -> None:
    for jobs, dask in ((0, None), (2, "tcp://127.0.0.1:1")):
        with pytest.raises(UsageError, match="--jobs"):
            place(jobs, dask)


def test_tasks_are_kept_as_they_end_until_a_signal_or_until_the_workers_are_lost(monkeypatch: Any) -> None:
    kept: list[tuple[int, int]] = []

    def keep(position: int, result: int) -> int | None:
        kept.append((position, result))
        return 15 if result == 9 else None

    tasks = [(1,), (3,), (4,)]
    assert executors.run_tasks(place(), lambda x: x * x, tasks, keep) == executors.Ended(15)
    assert kept == [(0, 1), (1, 9)]

    def lost(*_: object) -> Iterator[tuple[int, int]]:
        yield 0, 1
        raise executors.WorkersLostError("they are gone")

    monkeypatch.setattr(executors, "run_each", lost)
    assert executors.run_tasks(place(), abs, tasks, keep) == executors.Ended(None, "they are gone")


PROBLEM = Counting("few", (1, 2, 3, 4), 5)
LIMITS = Limits(time_s=5)


def send(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)
    signal.sigpending()  # a call in which Python looks for signals


def test_a_signal_ends_the_process_unless_it_is_held(listening: list[int]) -> None:
    send(signal.SIGTERM)
    assert listening == [signal.SIGTERM]
    signals.listen(listening.append)
    with signals.defer():
        with signals.defer():
            send()
        assert listening == [signal.SIGTERM] and signals.pending() == signal.SIGINT
        send()
        assert listening == [signal.SIGTERM, signal.SIGINT]
    assert len(listening) == 2


def test_a_signal_that_is_ignored_stays_ignored(listening: list[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.listen(listening.append)
    send()
    assert listening == []


def test_a_noted_signal_stops_the_run_that_comes_next_and_all_after_it(listening: list[int]) -> None:
    with signals.defer():
        send()
        result = planner.solve(PROBLEM, method="patient", limits=LIMITS)
        assert (result.stop, result.signal) == (Stop.INTERRUPTED, signal.SIGINT)
        assert len(crosscheck(PROBLEM, methods=["patient", "greedy"], limits=LIMITS).results) == 1
    assert listening == []


def test_a_signal_of_a_run_ends_a_command_that_holds_nothing(listening: list[int]) -> None:
    signals.note(signal.SIGINT)
    assert listening == [signal.SIGINT]


def test_a_noted_signal_ends_a_census_between_chunks(listening: list[int], tmp_path: Path) -> None:
    def listen(done: int, _chunks: int) -> None:
        if done == 2:
            send()

    with signals.defer():
        found = census(planner.load("chain8"), out=str(tmp_path), listen=listen, crosscheck=3)
    assert found.signal == signal.SIGINT and 2 <= found.chunks_done < found.chunks
    assert found.crosscheck is None and found.end_to_end is None and listening == []


def test_a_noted_signal_ends_a_census_of_rows(listening: list[int], tmp_path: Path) -> None:
    rows = {"problem": "layer_assignment", "end_to_end": True, "out": str(tmp_path), "sample": 6}

    def listen(done: int, _all: int) -> None:
        if done == 2:
            send()

    with signals.defer():
        found = census(planner.load("amp-homogeneous"), listen=listen, **rows)
    assert found.signal == signal.SIGINT and not found.complete and found.end_to_end is None
    assert found.to_json()["instances"] == 2 and listening == []


def test_a_signal_ends_the_run_in_which_subproblems_arise(
    listening: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def endless(instance: Any, _limits: Limits, watch: Watch) -> Iterator[Any]:
        send()
        while not watch.stopped():
            yield lambda: Subproblem(instance, "search", None)

    inside = Inside("parmesan", "device_mapping", "", arise=endless)
    monkeypatch.setattr("planner.experiments.census.run.inside_of", lambda *_: inside)
    with signals.defer():
        found = census(planner.load("fig2"), out=str(tmp_path))
    assert found.signal == signal.SIGINT and not found.complete and listening == []


def test_a_signal_during_a_write_counts_when_the_line_is_out(listening: list[int], monkeypatch: Any) -> None:
    reader, writer = os.pipe()
    stream = Lasting(writer)
    os.set_blocking(writer, False)
    while select.select((), (writer,), (), 0)[1]:
        os.write(writer, b"x" * 4096)

    def drained(*_: Any) -> None:
        """In place of waiting: the signal comes, then the reader takes what there is."""
        send()
        os.read(reader, 1 << 20)

    monkeypatch.setattr("planner.process.streams.select.select", drained)
    assert stream.write(b"a whole line\n") == 13 and stream.failure is None
    assert os.read(reader, 1 << 20).endswith(b"a whole line\n")
    assert listening == [signal.SIGINT]
    stream.close()
    os.close(reader)


def test_a_signal_ends_the_reading_of_a_solution(listening: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(BaseException):
        """Where a process would end."""

    def reads(*_: object, **__: object) -> list[str]:
        signal.raise_signal(signal.SIGINT)
        if listening:
            raise Ended
        return []

    monkeypatch.setattr("planner.analysis.read_solution.read_lines", reads)
    with pytest.raises(Ended):
        main(["model", "layers", "--layers", "4", "--stages", "2", "--method", "milp", "--read", "a.sol"])
    assert listening == [signal.SIGINT]
