"""Processes that have loaded a user's code and wait for their next run, as long as a command or an experiment lasts."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from planner.process.supervised import Supervised

#: More do not wait: each has the memory of all that it has imported.
_MOST = 8


class _Waiting:
    """Those that wait, by what they have loaded, and how many blocks of `kept` go on, of these with many runs."""

    processes: dict[Hashable, Supervised] = {}  # noqa: RUF012  # one for this process
    blocks = 0
    experiments = 0


@contextmanager
def kept(*, many: bool = True) -> Iterator[None]:
    """Inside, processes wait for their next run, ``many`` in an experiment; behind the last block all are ended."""
    _Waiting.blocks += 1
    _Waiting.experiments += many
    try:
        yield
    finally:
        _Waiting.blocks -= 1
        _Waiting.experiments -= many
        while _Waiting.processes and not _Waiting.blocks:
            _Waiting.processes.popitem()[1].end()


def serves_many() -> bool:
    """Whether an experiment goes on, in which a process that starts now serves many runs."""
    return _Waiting.experiments > 0


def take(loaded: Hashable) -> Supervised | None:
    """A process that waits and has loaded this, if one lives."""
    process = _Waiting.processes.pop(loaded, None)
    if process is None or not process.ending():
        return process
    process.end()  # where memory ran out, it went first
    return None


def leave(loaded: Hashable, process: Supervised) -> None:
    """Let a process wait for its next run; it ends if none is `kept`, or one with the same waits already."""
    if not _Waiting.blocks or loaded in _Waiting.processes:
        process.end()
        return
    process.forget_output()
    _Waiting.processes[loaded] = process
    if len(_Waiting.processes) > _MOST:
        _Waiting.processes.pop(next(iter(_Waiting.processes))).end()
