"""What the command line does about signals, in this process: when it ends, and who gets to know."""

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from counting import Counting

import planner
from formulations.contract.inner_problems import Inside, Subproblem
from planner.cli.app import main
from planner.experiments.census.run import census
from planner.process import signals
from planner.process.streams import Lasting
from planner.solving.compare import crosscheck
from solvers.outcome import Limits, Stop, Watch

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
