"""A clock for compiled loops, which poll a flag but read no clock."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from solvers.outcome import Watch


@contextmanager
def alarm(watch: Watch) -> Iterator[None]:
    """Raise the watch's flag when its time is up."""
    remaining = watch.remaining_s()
    if watch.stopped() or remaining is None:
        yield
        return
    timer = threading.Timer(remaining, watch.stopped)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
