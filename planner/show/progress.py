"""The progress line: incumbent, bound, gap and elapsed seconds, on stderr, only where a person watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from planner.events import Event, Listen
from planner.show.tables import number, percent
from planner.show.terminal import console, printable


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


def note(quiet: bool, line: str) -> None:
    """A line on stderr that a person should read."""
    if not quiet:
        print(printable(line), file=sys.stderr, flush=True)
