"""How many samples a stage must keep in flight: the paper's table, a rule of one line, and the exact minimum.

Stage x runs F^l (B^k F^k)* with micro-batches of b samples, and a successor y likewise. Symbols: b_x, k_x and b_y, k_y;
p = k_x b_x and q = k_y b_y samples of a block; i_y samples in flight at y; f and g the seconds of one sample's forward
and backward pass; c seconds from the end of a pass to its use at the other stage.

Source: GraphPipe, Appendix A.1 and Table 2. The rule is fitted to the exact procedure, which is made for this project.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

#: Forward to backward time of a sample.
Ratio = tuple[int, int]
#: A backward pass takes twice a forward pass.
USUAL: Ratio = (1, 2)
#: A time: whole or a fraction, so that equal times are equal.
Time = int | Fraction


class Successor(NamedTuple):
    """A stage that takes this one's output: its samples in flight i, samples of a micro-batch b, and k."""

    in_flight: int
    microbatch: int
    k: int


def table2(successor: Successor, microbatch: int, k: int) -> tuple[int, int]:
    """The row of Table 2 that applies (1 to 10) and its result: samples in flight, not rounded to micro-batches.

    Where two rows apply they agree, and one always does.

    Source: GraphPipe, Table 2.
    """
    i, b_y, k_y = successor
    b_x, p, q, m = microbatch, k * microbatch, k_y * b_y, max(microbatch, b_y)
    rows = (
        (m < p < q, 2 * m),
        (m == p < q, m),
        (b_x <= b_y < q < p, p - q + 2 * b_y),
        (b_x <= b_y == q < p, p),
        (b_y <= b_x < q < p, p - q + 2 * b_x),
        (b_y <= b_x == q < p, p),
        (m == q == p, q),
        (m < q == p, 2 * m),
        (b_x <= p < b_y <= q, b_y),
        (b_y <= q < b_x <= p, p - q + b_x),
    )
    row, more = next((row, more) for row, (applies, more) in enumerate(rows, start=1) if applies)
    return row, i + more


def rule(successors: Iterable[tuple[int, int, int] | Successor], microbatch: int, k: int, ratio: Ratio = USUAL) -> int:
    """Samples in flight by the rule of one line: a multiple of the micro-batch, enough for every successor.

    i_y + max(0, p - q) + max(m, min(n, m (1 + g/f))) with m = max(b_x, b_y) and n = min(p, q). For powers of two it is
    what `exact` finds; else it may be too small. At f = g it is Table 2, which takes 2 m there. A stage without
    successors keeps k b.
    """
    needed = max([k * microbatch, *(i + ahead(microbatch, k, b_y, k_y, ratio) for i, b_y, k_y in successors)])
    return -(-needed // microbatch) * microbatch


def ahead(microbatch: int, k: int, successor_microbatch: int, successor_k: int, ratio: Ratio = USUAL) -> int:
    """Samples that a stage keeps in flight beyond those of one successor, not yet whole micro-batches (`rule`)."""
    f, g = ratio
    p, q, m = k * microbatch, successor_k * successor_microbatch, max(microbatch, successor_microbatch)
    return max(0, p - q) + max(m, min(p, q, -(-m * (f + g) // f)))


def exact(
    successor: Successor,
    microbatch: int,
    k: int,
    ratio: Ratio = USUAL,
    *,
    successor_ratio: Ratio | None = None,
    delay: Time = 0,
) -> int:
    """Least samples in flight (a multiple of the micro-batch) at which neither stage ever waits in the steady state.

    ``successor``: its in-flight samples are rounded up to whole micro-batches; it never waits, so its timeline is
    known.
    ``ratio``, ``successor_ratio``: seconds of a sample's passes at either stage (default: the same); the sums must
    agree, as a stage that is faster than the other waits anyway.
    ``delay``: seconds of the link in each direction, in the same unit.
    `ValueError` if a number is not positive (``delay``: negative), or the sums of the passes differ.
    """
    f_y, g_y = successor_ratio or ratio
    if min(microbatch, k, successor.microbatch, successor.k, *ratio, f_y, g_y) < 1 or delay < 0:
        raise ValueError("expected positive micro-batches, k and times, and a delay >= 0")
    if sum(ratio) != f_y + g_y:
        raise ValueError(f"a sample takes {sum(ratio)} here and {f_y + g_y} at the successor; expected the same")
    return _Steady(successor, microbatch, k, ratio, (f_y, g_y), delay).least(successor.in_flight) * microbatch


def exact_for(
    in_flight: Sequence[int], successor_microbatch: int, successor_k: int, microbatch: int, k: int, ratio: Ratio
) -> list[int]:
    """What `exact` finds for a successor with each of these samples in flight, at hardly more than the price of one."""
    common = math.gcd(microbatch, successor_microbatch)  # samples in larger units change nothing
    steady = _steady(successor_microbatch // common, successor_k, microbatch // common, k, ratio)
    return [steady.least(-(-samples // common)) * microbatch for samples in in_flight]


class _Steady:
    """Both timelines in the steady state; y's blocks of q samples begin at multiples of q (f + g).

    y: block t is backward passes of its micro-batches t k_y, ..., then as many forward passes, i_y samples ahead.
    x: the same with a beginning of its own, as early as its backward passes can follow y's.
    """

    def __init__(
        self, successor: Successor, microbatch: int, k: int, ratio: Ratio, successor_ratio: Ratio, delay: Time
    ) -> None:
        self.b_x, self.k_x, (self.f_x, self.g_x) = microbatch, k, ratio
        self.b_y, self.k_y, (self.f_y, self.g_y) = successor.microbatch, successor.k, successor_ratio
        self.delay, self.sample = delay, sum(ratio)
        self.p, self.q = self.k_x * self.b_x, self.k_y * self.b_y
        # x's blocks begin at all multiples of the common divisor within y's blocks, and the other way round.
        self.common = math.gcd(self.p, self.q)
        self.begin = self._begin()
        self.ready = self._ready()

    def _begin(self) -> Time:
        """When x's block 0 begins: no backward pass may start before y's backward passes of all its samples ended."""
        latest = [-self.sample * self.q] * self.common  # of (end at y) - (f + g) s, by sample s modulo `common`
        for s in range(self.q):
            end = (s // self.b_y + 1) * self.b_y * self.g_y - self.sample * s
            latest[s % self.common] = max(latest[s % self.common], end)
        return self.delay + max(
            latest[last % self.common] + self.sample * last - r * self.b_x * self.g_x
            for r, last in ((r, (r + 1) * self.b_x - 1) for r in range(self.k_x))
        )

    def _ready(self) -> list[tuple[int, int]]:
        """For y's forward passes: samples that must have come (without i_y), x's forward passes done by then (-1)."""
        first = self.begin + self.p * self.g_x
        found = []
        for r in range(self.k_y):
            for offset in range(0, self.p, self.common):  # of y's block within x's
                spare = self.sample * offset + self.q * self.g_y + r * self.b_y * self.f_y - self.delay - first
                block, rest = divmod(spare, self.sample * self.p)
                done = block * self.k_x + min(self.k_x, rest // (self.b_x * self.f_x))
                found.append((offset + (r + 1) * self.b_y, int(done) - 1))
        return found

    def least(self, in_flight: int) -> int:
        """Micro-batches: x's forward pass n runs in the block of backward pass n - l, so l is how far n is ahead."""
        i_y = -(-in_flight // self.b_y) * self.b_y
        ahead = max((i_y + samples - 1) // self.b_x - done for samples, done in self.ready)
        return max(self.k_x, ahead)


@lru_cache(maxsize=4096)
def _steady(b_y: int, k_y: int, b_x: int, k_x: int, ratio: Ratio) -> _Steady:
    return _Steady(Successor(0, b_y, k_y), b_x, k_x, ratio, ratio, 0)
