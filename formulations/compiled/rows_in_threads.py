"""Rows of a triangular table shared by threads: every entry is made of the same ones as by one thread.

They come in the same order, too, where a step takes rows in theirs; where an entry is a least value, none matters.

Row j of such a table is made of rows i before it. Rows are taken in blocks: those of one block from each other by one
thread, then all later rows from the block's, each by the thread that owns it. Kernels hold no GIL.

Source: the right-looking order of blocked triangular solvers; this project's use of it.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np

from formulations.compiled.array_types import Ints2

#: Seconds of a block's later rows from which threads share them: they meet in a tenth of a millisecond.
_WORTH = 3e-4
#: Rows of a block that threads share, and most of one they do not.
ROWS, _MOST = 16, 64

#: Integers of two lines of a cache: processors fetch them in pairs.
_LINE = 16

#: ``step(first row, behind the last, first later row, behind the last, part, parts)``: what the later rows that
#: ``part`` owns (their number modulo ``parts``) get from the rows; 0: go on, anything else ends the table.
Step = Callable[[int, int, int, int, int, int], int]


def counters(threads: int, count: int) -> Ints2:
    """(threads, count) zeros, far enough apart that no two threads write to the same line of a cache."""
    return np.zeros((threads, count + _LINE), np.int64)[:, :count]


class Team:
    """Threads that work on one table at a time; one of them is the caller's.

    ``threads``: how many, at least 1. They end with the ``with`` block.
    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def __enter__(self) -> Self:
        """The team itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the other threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def fill(self, first: int, last: int, step: Step, rows: int = ROWS) -> int:
        """Every row in [first, last) from those before it; the end that a step gave, or 0.

        Of several ends of one block the largest counts. Blocks that are shared have so many ``rows``: few where what is
        near costs most, which one thread does.
        """
        if self._pool is None:
            return step(first, last, first, last, 0, 1)
        begin, size, seconds = first, rows, 0.0
        while begin < last:
            end, threads = min(begin + size, last), self.threads if seconds > _WORTH else 1
            found = step(begin, end, begin, end, 0, 1)
            if found == 0 and end < last:
                started = time.perf_counter()
                found = self._together(partial(step, begin, end, end, last), threads)
                seconds = (time.perf_counter() - started) * threads
                size = max(rows, size // 2) if seconds > _WORTH else min(2 * size, _MOST)
            if found != 0:
                return found
            begin = end
        return 0

    def _together(self, work: Callable[[int, int], int], threads: int) -> int:
        assert self._pool is not None
        others = [self._pool.submit(work, part, threads) for part in range(1, threads)]
        return max((work(0, threads), *(each.result() for each in others)), key=lambda end: (end != 0, end))
