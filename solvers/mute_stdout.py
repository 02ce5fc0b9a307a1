"""C's stdout is discarded while a solver runs; Python's own stdout, and whoever prints through it, is left alone."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from solvers.fork_lock import ForkLock

#: How many silenced runs there are, C's stdout before the first, and what replaces it meanwhile.
_runs = 0
_before: int | None = None
_nowhere: int | None = None


def _in_a_fork() -> None:
    """The runs that were going on are not in a forked process: its stdout is its own again."""
    global _runs
    _runs = min(_runs, 1)
    if _runs:
        _restore(_stdout())


_lock = ForkLock(_in_a_fork)


@contextmanager
def silent() -> Iterator[None]:
    """Drop what C code prints to stdout.

    HiGHS 1.12 has a line of debugging there that no option turns off, and the result of a command may be JSON. Runs may
    overlap in threads. Where the C library has no such variable (other than glibc's) nothing is done.
    """
    stdout = _stdout()
    if stdout is None:
        yield
        return
    _discard(stdout)
    try:
        yield
    finally:
        _restore(stdout)


def _stdout() -> Any:
    try:
        return ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout")
    except (ValueError, OSError, TypeError):
        return None


def _discard(stdout: Any) -> None:
    global _runs, _before, _nowhere
    with _lock.own:
        if _nowhere is None:
            opened = ctypes.CDLL(None).fopen
            opened.restype = ctypes.c_void_p
            _nowhere = opened(os.fsencode(os.devnull), b"w")
        _runs += 1
        if _runs == 1 and _nowhere is not None:
            _before, stdout.value = stdout.value, _nowhere


def _restore(stdout: Any) -> None:
    global _runs, _before
    with _lock.own:
        _runs = max(_runs - 1, 0)  # 0 in a process that was forked meanwhile
        if _runs == 0 and _before is not None:
            _before, stdout.value = None, _before
