"""Kernels run as Python: a tiny instance ends before numba would have been imported, or its kernels been compiled.

An attempt has hundredths of a second for the first, and some seconds for kernels that are not compiled yet
(`python_first`). Where they are over, or Python's numbers would differ from the machine's (an integer that overflows,
any error), it is given up, and the work is done anew. What an attempt returns is what compiled kernels return, to the
last bit.
"""

import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, TypeVar

Returned = TypeVar("Returned")

#: CPU seconds of kernels as Python in an attempt, and their share of a time limit.
MOST_S, _SHARE = 4.0, 0.05
#: Seconds after which no kernel begins as Python, so that no long run is done twice.
_YOUNG_S = 8.0
#: As above, of a whole process, before numba is imported (0.3 s with the kernels of a problem).
_WITHOUT_S, _YOUNG_WITHOUT_S = 0.02, 0.3
#: Calls and loops between two looks at the clock.
_BETWEEN = 64


class GivenUpError(BaseException):
    """An attempt ends, whatever errors a method handles."""


class _Attempt:
    """The attempt that goes on: CPU seconds that are left, until when kernels begin, how many of them run.

    ``without_s`` and ``until_without_s``: those before numba is imported. ``others``: threads that are not part of it.
    """

    left_s = until_s = until_without_s = 0.0
    without_s = _WITHOUT_S
    others: frozenset[int | None] = frozenset()
    running = steps = 0


#: What compiles the kernels that an attempt left uncompiled; empty if there are none.
left: list[Callable[[], None]] = []
_thread = threading.local()


def goes_on() -> bool:
    """Whether kernels that are not compiled begin as Python."""
    return time.perf_counter() < _Attempt.until_s and threading.get_ident() not in _Attempt.others


def without_compiler() -> bool:
    """Whether kernels begin as Python because numba is not imported yet."""
    is_young = _Attempt.without_s > 0 and time.perf_counter() < _Attempt.until_without_s
    return is_young and not _is_imported() and threading.get_ident() not in _Attempt.others


def may_start_anew() -> bool:
    """Whether what is done now may be done once more."""
    return bool(left) and (goes_on() or _Attempt.running > 0)


def python_first(work: Callable[[], Returned], limit_s: float | None) -> Returned:
    """What ``work`` returns: with uncompiled kernels as Python, or else anew; `compile_times.compiling` then compiles.

    ``limit_s``: its time limit, of which Python gets a twentieth.
    """
    _Attempt.left_s = MOST_S if limit_s is None else min(MOST_S, _SHARE * limit_s)
    _Attempt.others = frozenset(each.ident for each in threading.enumerate()) - {threading.get_ident()}
    for _ in range(1 if _is_imported() else 2):
        now = time.perf_counter()
        _Attempt.until_s, _Attempt.until_without_s = now + _YOUNG_S, now + _YOUNG_WITHOUT_S
        try:
            return work()
        except GivenUpError:
            if _is_imported():
                break
            _Attempt.without_s = 0.0
        finally:
            _Attempt.until_s = _Attempt.until_without_s = 0.0
    return work()


def complete() -> None:
    """Compile what was left uncompiled; nothing that an attempt that goes on may run as Python."""
    if left and not without_compiler():
        left[0]()


def _is_imported() -> bool:
    return "formulations.compiled.machine_code" in sys.modules


@cache
def as_python(kernel: Any) -> Callable[..., Any]:
    """A kernel as Python: takes what it takes, returns what it returns, or raises `GivenUpError`."""
    import numpy as np

    function = _part(kernel)

    def run(*arguments: Any) -> Any:
        began, is_without = time.thread_time(), without_compiler()
        _thread.ends_s = began + (_Attempt.without_s if is_without else _Attempt.left_s)
        _Attempt.running += 1
        try:
            # The machine's integers overflow silently; hashes (``wraps``) are meant to.
            with np.errstate(divide="ignore", invalid="ignore", under="ignore", over="raise"):
                return _plain(function(*arguments))
        except Exception as error:
            raise GivenUpError from error
        finally:
            spent = time.thread_time() - began
            _Attempt.left_s -= spent
            _Attempt.without_s -= spent if is_without else 0.0
            _Attempt.running -= 1

    return run


def _plain(value: Any) -> Any:
    """A kernel's numbers as those of Python, which is how compiled ones return them."""
    import numpy as np

    if isinstance(value, tuple):
        return tuple(map(_plain, value)) if type(value) is tuple else type(value)(*map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _step() -> None:
    _Attempt.steps += 1
    if _Attempt.steps % _BETWEEN == 0 and time.thread_time() > _thread.ends_s:
        raise GivenUpError


def _range(*ends: Any) -> range:
    _step()
    return range(*ends)


@cache
def _part(compiled: Any) -> Callable[..., Any]:
    """A compiled function as Python, with all that it calls."""
    import numpy as np

    own = compiled.py_func
    function = FunctionType(own.__code__, _names(own.__module__, compiled), own.__name__, own.__defaults__)
    wraps = getattr(compiled, "wraps", False)

    def part(*arguments: Any, **named: Any) -> Any:
        _step()
        if not wraps:
            return function(*arguments, **named)
        with np.errstate(over="ignore"):
            return function(*arguments, **named)

    return part


_names_of: dict[str, dict[str, Any]] = {}


def _names(module: str, compiled: Any) -> dict[str, Any]:
    """The names of a module, with compiled functions as Python: filled once it stands, as functions call each other."""
    if module not in _names_of:
        found = _names_of[module] = {**compiled.py_func.__globals__, "range": _range}
        found |= {name: _part(each) for name, each in found.items() if hasattr(each, "py_func")}
    return _names_of[module]
