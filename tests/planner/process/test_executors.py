"""Tasks are read as there is room for them, and what is done is handed on before more is read."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from planner.process import executors
from planner.process.errors import UsageError
from planner.process.executors import IN_FLIGHT, place, run_each


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
