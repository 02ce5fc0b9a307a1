"""Progress on stderr, only where a person watches: a line of a method, or a bar of what is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from planner.display.tables import number, percent
from planner.display.terminal import console, say
from planner.results.events import Event, Listen


class _Line:
    """What is known, rendered again with the seconds that have passed."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._known = Event("", "", "", 0.0, None, None)

    def listen(self, event: Event) -> None:
        self._known = event

    def __rich__(self) -> str:
        known = self._known
        seconds = time.perf_counter() - self._started
        figures = f"incumbent {number(known.objective)}  bound {number(known.bound)}  gap {percent(known.gap)}"
        return f"{seconds:.0f} s  {known.method}  {figures}"


@contextmanager
def progress_line(quiet: bool) -> Iterator[Listen | None]:
    """A listener that keeps one line up to date, or ``None`` where stderr is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    line = _Line()
    with console(stderr=True).status(line):
        yield line.listen


@contextmanager
def progress_bar(quiet: bool, what: str) -> Iterator[Callable[[int, int], None]]:
    """A listener, called with how many of ``what`` are done and how many there are, that keeps a bar."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _all: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    bar = Progress(what, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console(stderr=True))
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda done, every: bar.update(task, completed=done, total=every)


def note(quiet: bool, line: str) -> None:
    """A line on stderr that a person should read."""
    if not quiet:
        say(line, stderr=True)


@contextmanager
def counter(quiet: bool, what: str) -> Iterator[Callable[[int], None]]:
    """A listener, called with how many of ``what`` are done, that keeps one line."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done: None
        return
    began = time.perf_counter()
    with console(stderr=True).status(what) as line:
        yield lambda done: line.update(f"{time.perf_counter() - began:.0f} s  {done:,} {what}")


@contextmanager
def doing(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A listener, called with what is being done, that keeps one line of it, with the seconds since the beginning."""
    if quiet or not sys.stderr.isatty():
        yield lambda _what: None
        return
    line = _Doing()
    with console(stderr=True).status(line):
        yield line.listen


class _Doing:
    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._what = ""

    def listen(self, what: str) -> None:
        self._what = what

    def __rich__(self) -> str:
        return f"{time.perf_counter() - self._started:.0f} s  {self._what}"
