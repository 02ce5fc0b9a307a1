"""Chains of layers cut into stages, in exact integers, and caps on the slowest stage and on the all-reduce."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate, pairwise

from formulations.contract.checker.frame import need, reject

Row = tuple[Fraction | None, list[Fraction]]  # seconds of an all-reduce, none for infinity, and caps below it
Tie = tuple[frozenset[int], Fraction]  # layers and the parameters that they share


class Chain:
    """A chain of layers in integers: seconds are multiples of 1 / ``unit``; ``rings`` of a unit of parameters.

    ``times`` are those of the layers in each stage.
    """

    def __init__(
        self, N: int, times: list[list[Fraction]], cuts: list[list[Fraction]], rings: list[Fraction],
        sizes: list[Fraction], tied: list[Tie],
    ) -> None:  # fmt: skip
        self.N, self.S = N, len(rings)
        self.unit = math.lcm(*(seconds.denominator for row in (*times, *cuts) for seconds in row))
        self.times, self.n = [[int(t * self.unit) for t in row] for row in times], len(times[0])
        self.same = [times.index(row) for row in times]  # the first stage with these times
        self.cuts = [[int(e * self.unit) for e in row] for row in cuts]
        grain = math.lcm(*(size.denominator for size in (*sizes, *(size for _, size in tied))))
        self.rings, self.sizes = [ring / grain for ring in rings], [int(m * grain) for m in sizes]
        self.tied = [(held, int(m * grain)) for held, m in tied]
        self.ties = [[tie for tie, (layers, _) in enumerate(tied) if v in layers] for v in range(self.n)]

    def cut(self, layers: int, stage: int) -> int:
        """The cost of the cut behind so many layers and that stage; none behind the last."""
        if stage == self.S - 1:
            return 0
        row = self.cuts[layers - 1]
        return row[0] if len(row) == 1 else row[stage]

    def parameters(self, begin: int, end: int) -> int:
        """Of a stage of the layers from ``begin`` to ``end`` - 1."""
        held = [size for layers, size in self.tied if any(begin <= v < end for v in layers)]
        return sum(self.sizes[begin:end]) + sum(held)

    def _first(self, times: list[int], cap: int | None, most: int | None) -> list[int]:
        """Where the longest stage begins that ends behind so many layers and has at most that time and parameters."""
        first, within, size, begin, held = [0], 0, 0, 0, [0] * len(self.tied)
        for end, seconds in enumerate(times, start=1):
            within, size = within + seconds, size + self.sizes[end - 1]
            for tie in self.ties[end - 1]:
                held[tie] += 1
                size += self.tied[tie][1] if held[tie] == 1 else 0
            while begin < end and ((cap is not None and within > cap) or (most is not None and size > most)):
                within, size = within - times[begin], size - self.sizes[begin]
                for tie in self.ties[begin]:
                    held[tie] -= 1
                    size -= self.tied[tie][1] if held[tie] == 0 else 0
                begin += 1
            first.append(begin)
        return first

    def cheapest(self, cap: int | None, most: Fraction | None = None) -> float:
        """phi: an integer, or infinity; no cap: any time; not most: all-reduces of any time."""
        n, S = self.n, self.S
        limits = [None if most is None or not ring else math.floor(most / ring) for ring in self.rings]
        kinds = list(zip(self.same, limits, strict=True))
        windows = {kind: self._first(self.times[kind[0]], cap, kind[1]) for kind in set(kinds)}
        elapsed = {own: [0, *accumulate(self.times[own])] for own, _ in windows}
        costs: list[float] = [0, *[math.inf] * n]
        for stage, kind in enumerate(kinds):
            first, before, ends = windows[kind], elapsed[kind[0]], range(stage + 1, n - S + stage + 2)
            costs = [cost if cost == math.inf else cost - time for cost, time in zip(costs, before, strict=True)]
            reached = {end: min(costs[first[end] : end], default=math.inf) for end in ends}  # it holds a layer
            costs = [math.inf] * (n + 1)
            for end, cost in reached.items():
                if cost < math.inf:
                    costs[end] = cost + before[end] + self.cut(end, stage)
        return costs[n]

    def prove(self, bound: Fraction, rows: list[Row]) -> None:
        """`RejectedError` if it does not follow that every plan takes more than the bound."""
        least = Fraction(0)
        for most, caps in rows:
            need(all(low < high for low, high in pairwise(caps)) and (most is None or least < most), "caps that rise")
            for low, high in zip([Fraction(0), *caps], [*caps, None], strict=True):
                sent = self.cheapest(None if high is None else math.floor(high * self.unit), most)
                known = ((self.N - 1) * low + least) * self.unit
                limit = f"caps: from {float(low)!r} on" + (
                    f", and {float(least)!r} for the all-reduce" if least else ""
                )
                reject(sent < math.inf and known + int(sent) <= bound * self.unit, limit)
            least = most or least

    def time(self, lengths: list[int]) -> Fraction:
        """Of a plan, if it keeps every rule; `RejectedError` otherwise."""
        reject(len(lengths) != self.S or 0 in lengths, "plan: as many stages as declared, none of them empty")
        reject(sum(lengths) != self.n, "plan: all layers")
        ends = list(accumulate(lengths))
        times = [sum(own[end - length : end]) for own, length, end in zip(self.times, lengths, ends, strict=True)]
        sent = sum(self.cut(end, stage) for stage, end in enumerate(ends))
        stages = zip(self.rings, lengths, ends, strict=True)
        longest = max(ring * self.parameters(end - length, end) for ring, length, end in stages)
        return Fraction((self.N - 1) * max(times) + sent + sum(times), self.unit) + longest
