"""The progress line: incumbent, bound, gap and elapsed seconds, on stderr, only where a person watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from planner.report import number, percent
from planner.run import Listen
from solvers.outcome import relative_gap


@contextmanager
def progress_line(quiet: bool) -> Iterator[Listen | None]:
    """A listener that keeps one line up to date, or ``None`` where nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("solving") as line:

        def listen(elapsed_s: float, objective: float | None, bound: float | None) -> None:
            gap = percent(relative_gap(objective, bound))
            line.update(f"{elapsed_s:.1f} s  incumbent {number(objective)}  bound {number(bound)}  gap {gap}")

        yield listen


def note(quiet: bool, line: str) -> None:
    """A line on stderr that a person should read."""
    if not quiet:
        print(line, file=sys.stderr, flush=True)
