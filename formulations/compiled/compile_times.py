"""What the compiled loops of this process cost: how long they took to compile, and who is notified.

Standard library only: whoever waits for a method reads it here without loading numba.
"""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from formulations.compiled import python_first
from solvers.errors import UsageError


class KernelCacheWarning(RuntimeWarning):
    """Compiled kernels cannot be kept: every process compiles them anew."""


class Compilation:
    """Seconds spent on compiling kernels since it was made, and how many were compiled."""

    def __init__(self, notice: Callable[[str], None] | None = None) -> None:
        self.kernels = 0
        self.seconds = 0.0
        self._notice = notice

    def _seconds_so_far(self) -> None:
        if self.kernels == 0 and self._notice is not None:
            self._notice("compiling kernels, as the first run after installation must (a minute at most)")
        self.kernels += 1


_lock = threading.RLock()
_heard_by: list[Compilation] = []
_depth, _began = 0, 0.0
_warned = False
#: Whether kernels are compiled, or loaded, as their modules are imported.
wanted = True


@contextmanager
def loading() -> Iterator[None]:
    """Inside, numba is imported; `UsageError` for settings that it does not survive."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        given = {name: value for name, value in sorted(os.environ.items()) if name.startswith("NUMBA_")}
        if not given:
            raise
        rule = f"values with which numba can be imported ({type(error).__name__}: {error})"
        raise UsageError.at(", ".join(given), ", ".join(given.values()), rule) from None


def expect_compiled(is_disabled: int) -> None:
    """`UsageError` if numba leaves kernels uncompiled: their numbers are the machine's, and Python's are others."""
    if is_disabled:
        rule = "0: what is written for the machine's numbers gives other results with Python's"
        raise UsageError.at("NUMBA_DISABLE_JIT", is_disabled, rule)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Modules that are imported meanwhile leave their kernels uncompiled: for a process that calls none of them."""
    global wanted
    before, wanted = wanted, False
    try:
        yield
    finally:
        wanted = before


@contextmanager
def compiling(notice: Callable[[str], None] | None = None) -> Iterator[Compilation]:
    """Count what is compiled, in any thread, while the context lasts; ``notice`` is called at the first kernel.

    What attempts left uncompiled is compiled first.
    """
    found = Compilation(notice)
    with _lock:
        _heard_by.append(found)
    try:
        python_first.complete()
        yield found
    finally:
        with _lock:
            _heard_by.remove(found)


def started() -> None:
    """Numba begins to compile a function; those that it calls are compiled inside."""
    global _depth, _began
    with _lock:
        if _depth == 0:
            _began = time.perf_counter()
        _depth += 1
        for each in _heard_by:
            each._seconds_so_far()


def ended() -> None:
    """Numba has compiled a function, or failed to."""
    global _depth
    with _lock:
        _depth -= 1
        if _depth == 0:
            seconds = time.perf_counter() - _began
            for each in _heard_by:
                each.seconds += seconds


def warn_not_cached(why: object) -> None:
    """Warn, once in a process, that kernels cannot be kept on disk."""
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"compiled kernels cannot be kept ({why}), so that every process compiles them anew; "
        "set NUMBA_CACHE_DIR to a folder that can be written",
        KernelCacheWarning,
        stacklevel=2,
    )
