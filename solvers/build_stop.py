"""A large model is no longer built once its watch is stopped, without a poll in its rows.

Sums (`solvers.milp.backend.weighted_sum`) and rows (`solvers.cpsat.backend.SpokenModel.add`) look at the watch of the
block `stops_with` that they are made in.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from solvers.outcome import Watch

_WATCH: ContextVar[Watch | None] = ContextVar("watch of the model that is being built", default=None)


class Stopped(Exception):  # noqa: N818 - not an error: the caller requested it
    """The watch was stopped while a model was being built."""


@contextmanager
def stops_with(watch: Watch) -> Iterator[None]:
    """In this block models are built until the watch is stopped; `Stopped` then, at the block's end at the latest."""
    token = _WATCH.set(watch)
    try:
        yield
        if watch.stopped():
            raise Stopped
    finally:
        _WATCH.reset(token)


def is_stopped() -> bool:
    """Whether the watch of the block is stopped."""
    watch = _WATCH.get()
    return watch is not None and watch.stopped()
