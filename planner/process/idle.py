"""Processes that have loaded a user's code and wait for their next run, as long as an experiment lasts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from planner.process.supervised import Supervised

#: More do not wait: each has the memory of all that it has imported.
_MOST = 8


class _Waiting:
    """Those that wait, by what they have loaded, and how many experiments go on."""

    processes: dict[Hashable, Supervised] = {}  # noqa: RUF012  # one for this process
    experiments = 0


@contextmanager
def kept() -> Iterator[None]:
    """Inside, processes wait for their next run; where no experiment goes on any more, all are ended."""
    _Waiting.experiments += 1
    try:
        yield
    finally:
        _Waiting.experiments -= 1
        while _Waiting.processes and not _Waiting.experiments:
            _Waiting.processes.popitem()[1].end()


def take(loaded: Hashable) -> Supervised | None:
    """A process that waits and has loaded this, if one lives."""
    process = _Waiting.processes.pop(loaded, None)
    if process is None or not process.ending():
        return process
    process.end()  # where memory ran out, it went first
    return None


def leave(loaded: Hashable, process: Supervised) -> None:
    """Let a process wait for its next run; it ends if no experiment goes on, or one with the same waits already."""
    if not _Waiting.experiments or loaded in _Waiting.processes:
        process.end()
        return
    process.forget_output()
    _Waiting.processes[loaded] = process
    if len(_Waiting.processes) > _MOST:
        _Waiting.processes.pop(next(iter(_Waiting.processes))).end()
