"""Ctrl-C and SIGTERM on the command line: they end the process at once, but never between a result and its printing.

While nothing is known yet (imports, reading), there is nothing to keep: a signal ends the process at once.
While a command runs methods and prints what they found, a signal is noted: the method that runs is stopped, no other
one starts, and the result is printed. A second signal ends the process whatever it does.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class _Attention:
    """What the process does about signals: nothing of its own (``end`` is None), end, or note the first one."""

    end: Callable[[int], None] | None = None
    holds = 0
    pending: int | None = None


_attention = _Attention()


def listen(end: Callable[[int], None]) -> None:
    """From now on ``end(number)`` ends the process at Ctrl-C and SIGTERM; a signal that is ignored stays ignored."""
    _attention.end, _attention.holds, _attention.pending = end, 0, None
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is usual:
            signal.signal(number, _hear)


@contextmanager
def defer(*, briefly: bool = False) -> Iterator[None]:
    """Inside, the first signal only waits: what is at work here looks for it (`pending`), and is not cut in two.

    ``briefly``: when this is over the process ends for a signal that came meanwhile, if nobody else holds it.
    """
    before = _attention.pending
    _attention.holds += 1
    try:
        yield
    finally:
        _attention.holds -= 1
        came = _attention.pending
        if briefly and before is None and came is not None and not _attention.holds and _attention.end is not None:
            _attention.end(came)


def pending() -> int | None:
    """The signal that waits, if one does."""
    return _attention.pending


def end_if_pending() -> None:
    """End the process for a signal that waits: where it is deferred, and nothing is known yet."""
    if _attention.pending is not None and _attention.end is not None:
        _attention.end(_attention.pending)


def note(number: int) -> None:
    """Note a signal that was received elsewhere, as by the run that it stopped; nothing outside the command line."""
    if _attention.end is None:
        return
    if not _attention.holds:
        _attention.end(number)
    _attention.pending = _attention.pending or number


def _hear(number: int, _frame: FrameType | None) -> None:
    if _attention.end is not None and (_attention.pending is not None or not _attention.holds):
        _attention.end(number)
    _attention.pending = number
