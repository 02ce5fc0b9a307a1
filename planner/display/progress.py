"""Progress on stderr, only where a person watches: a line of what is being done, or a bar of what is done."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from planner.display.terminal import console, say
from planner.results.events import Listen
from planner.results.texts import number, percent


class _Line:
    """Words, rendered again with the seconds that have passed."""

    def __init__(self, words: str) -> None:
        self._started, self._words = time.perf_counter(), words

    def listen(self, words: str) -> None:
        self._words = words

    def __rich__(self) -> str:
        return f"{time.perf_counter() - self._started:.0f} s  {self._words}"


@contextmanager
def words_line(quiet: bool, words: str = "") -> Iterator[Callable[[str], None]]:
    """A listener that keeps one line of words and of the seconds since the beginning up to date, if anybody watches."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    line = _Line(words)
    with console(stderr=True).status(line):
        yield line.listen


@contextmanager
def progress_line(quiet: bool) -> Iterator[Listen]:
    """A listener that keeps one line of a run up to date."""
    with words_line(quiet) as show:
        yield lambda event: show(
            f"{event.method}  incumbent {number(event.objective)}  bound {number(event.bound)}  "
            f"gap {percent(event.gap)}"
        )


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
    with words_line(quiet, what) as show:
        yield lambda done: show(f"{done:,} {what}")
