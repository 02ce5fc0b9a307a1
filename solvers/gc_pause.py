"""Python's search for garbage in cycles, which looks at every object of a large model again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection meanwhile: what is built has few cycles, and looking for them takes longer than building.

    It would also stand between two polls of a watch, for longer the larger a model has become.
    """
    ours = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if ours:
            gc.enable()
