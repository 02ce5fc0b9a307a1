"""Check a certificate of mesh tiling: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in its README, whose letters it uses
(N, T, A, tp, dp). Amounts of an instance are the float64 numbers that its JSON denotes, as exact rationals.

**Claims.** ``plan`` covers the mesh exactly and takes ``objective``; every plan takes more than ``bound``, L (if L is
0: none takes less, which needs no proof). If ``bound`` is null there is no plan; then L is infinite below.

**Search.** The certificate holds no proof: the checker lists all covers by itself, as far as they matter. What a tile
takes depends on its *kind*: its first column, and whether it is upright (tp rows). A cover is laid tile by tile, always
on the free device of the least column, and there of the least row: every cover arises so exactly once. All devices to
the left of it are covered then, so of each row the first few columns are, and the *front*, their numbers, is all that
matters of where the tiles lie. A label of a front is the sum of T of the tiles so far, their greatest T and greatest A,
and if the order counts how many of each kind there are. Left out are

1. labels with (N - 1) (greatest T) + (sum of T) + (least T of any kind) (tiles to come) + (greatest A) > L: all covers
   that go on from them take more, as nothing of it falls, and sending takes no negative time,
2. where the order does not count, labels that are in all three no less than another of the same front: whatever goes on
   from them goes on from the other one, and takes no more there; where it does, a second label of the same kinds.

For a label of the full front without order the left side is the time of a plan: there must be none. With order the
checker finds the least sum of what the tiles send in any order of their kinds, `Covers.sending`: by the last tile's
kind and how many of each kind are left, the least over the kind before it. With this it must be more than L.

**Theorem.** If so, every plan takes more than L. *Proof.* A plan within L is a cover, with an order. Each step of
laying it has a label that is no more in any part (rule 2), which rule 1 does not leave out. In the end a label of the
full front takes at most L, as the least order of its tiles is no more than the plan's.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

from formulations.contract.checker.frame import Checker, count, exact, need, reject

MAX_DEVICES = 2**16
MAX_STEPS, MAX_STATES, MAX_ORDERED = 2_000_000, 200_000, 200  # tiles behind labels, states of the orders of a cover

Kind = tuple[bool, int]  # upright, first column
Label = tuple[int, int, int, tuple[int, ...]]  # sum of T, greatest T, greatest A, tiles of each kind


class Instance:
    """An instance in integers: seconds are multiples of 1 / ``unit``; kinds of tiles with their T and A."""

    def __init__(self, content: Any) -> None:
        self.rows, self.tp, self.dp, self.N = (
            count(content[key]) for key in ("rows", "tp_degree", "dp_degree", "num_microbatches")
        )
        self.intra, self.inter = ([exact(b) for b in content[f"{key}_bytes_per_s"]] for key in ("intra", "inter"))
        self.columns, self.area, self.ordered = len(self.intra), self.tp * self.dp, content["ordered"]
        need(0 < self.rows * self.columns <= MAX_DEVICES and len(self.inter) == self.columns, "a mesh of its nodes")
        need(min(*self.intra, *self.inter) > 0 and type(self.ordered) is bool, "positive bandwidths; true or false")
        amounts = [exact(content[key]) for key in ("compute_s", "tp_bytes", "dp_bytes", "stage_bytes")]
        compute, tp_bytes, dp_bytes, self.stage_bytes = amounts
        self.kinds: list[Kind] = [
            (upright, column)
            for upright in ((True,) if self.tp == self.dp else (True, False))
            for column in range(self.columns - (self.dp if upright else self.tp) + 1)
            if (self.tp if upright else self.dp) <= self.rows
        ]
        times = [compute + self.ring(kind, tp_bytes, tensor=True) for kind in self.kinds]
        reduced = [self.ring(kind, dp_bytes, tensor=False) for kind in self.kinds]
        sends = [[self.sent(one, other) for other in self.kinds] for one in self.kinds] if self.ordered else []
        self.unit = math.lcm(*(each.denominator for row in (times, reduced, *sends) for each in row))
        self.T, self.A, *self.sends = ([int(each * self.unit) for each in row] for row in (times, reduced, *sends))
        declared = [self.rows, self.tp, self.dp, self.N, self.ordered]
        numbers = [str(each) for row in (self.intra, self.inter, amounts) for each in row]
        self.digest = hashlib.sha256(json.dumps([declared, numbers], separators=(",", ":")).encode()).hexdigest()

    def shape(self, kind: Kind) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return (self.tp, self.dp) if kind[0] else (self.dp, self.tp)

    def link(self, node: int, other: int) -> Fraction:
        """The bandwidth between two devices."""
        return self.intra[node] if node == other else min(self.inter[node], self.inter[other])

    def ring(self, kind: Kind, volume: Fraction, tensor: bool) -> Fraction:
        """The slowest all-reduce of a tile's tensor-parallel groups, or of its data-parallel ones."""
        upright, column = kind
        size, groups = (self.tp, self.dp) if tensor else (self.dp, self.tp)
        if size == 1:
            return Fraction(0)
        if upright == tensor:  # each group lies in a column
            slowest = min(self.link(node, node) for node in range(column, column + groups))
        else:
            nodes = list(range(column, column + size))
            slowest = min(self.link(node, after) for node, after in pairwise([*nodes, column]))
        return 2 * (size - 1) * volume / (size * slowest)

    def sent(self, one: Kind, other: Kind) -> Fraction:
        """What a tile takes to send to the next: the mean over data-parallel ranks of the slowest link."""
        seconds = Fraction(0)
        for d in range(self.dp):
            links = [
                self.link(one[1] + (d if one[0] else m), other[1] + (d if other[0] else m)) for m in range(self.tp)
            ]
            seconds += self.stage_bytes / min(links)
        return seconds / self.dp


class Covers:
    """The labels of all fronts of an instance; no bound: any time."""

    def __init__(self, instance: Instance, bound: Fraction | None) -> None:
        self.instance, self.steps = instance, 0
        self.limit = math.inf if bound is None else math.floor(bound * instance.unit)
        self.fronts: dict[tuple[int, ...], list[Label]] = {
            (0,) * instance.rows: [(0, 0, 0, (0,) * len(instance.kinds))]
        }
        devices = instance.rows * instance.columns
        self.left = devices // instance.area if devices % instance.area == 0 else -1

    def lay(self) -> None:
        """One more tile."""
        instance, fresh = self.instance, dict[tuple[int, ...], list[Label]]()
        self.left -= 1
        to_come = self.left * min(instance.T, default=0)
        for front, labels in self.fronts.items():
            column = min(front)
            row = front.index(column)
            for number, kind in enumerate(instance.kinds):
                rows, columns = instance.shape(kind)
                if kind[1] != column or front[row : row + rows] != (column,) * rows:
                    continue
                after = (*front[:row], *(column + columns,) * rows, *front[row + rows :])
                for total, slowest, reduced, counts in labels:
                    self.steps += 1 + instance.rows // 64
                    reject(self.steps > MAX_STEPS, f"size: over {MAX_STEPS} tiles laid behind labels")
                    total, slowest = total + instance.T[number], max(slowest, instance.T[number])
                    reduced = max(reduced, instance.A[number])
                    if (instance.N - 1) * slowest + total + to_come + reduced <= self.limit:
                        if instance.ordered:
                            counts = (*counts[:number], counts[number] + 1, *counts[number + 1 :])
                        self.keep(fresh.setdefault(after, []), (total, slowest, reduced, counts))
        self.fronts = fresh

    def keep(self, labels: list[Label], label: Label) -> None:
        """Add a label, unless rule 2 leaves it out."""
        self.steps += len(labels) // 8
        if self.instance.ordered:
            if label not in labels:
                labels.append(label)
        elif not any(all(a <= b for a, b in zip(one[:3], label[:3], strict=True)) for one in labels):
            labels[:] = [one for one in labels if any(a < b for a, b in zip(one[:3], label[:3], strict=True))]
            labels.append(label)

    def sending(self, counts: tuple[int, ...]) -> int:
        """The least sum of what the tiles of these kinds send, in any order."""
        sends, states = self.instance.sends, 0
        reject(sum(counts) > MAX_ORDERED, f"size: the order of over {MAX_ORDERED} tiles")

        @lru_cache(None)
        def least(left: tuple[int, ...], last: int) -> int:  # the last tile is in none of what is left
            nonlocal states
            states += 1
            reject(states > MAX_STATES, f"size: over {MAX_STATES} states of the orders of a cover")
            found = [
                least((*left[:kind], number - 1, *left[kind + 1 :]), kind) + sends[kind][last]
                for kind, number in enumerate(left) if number
            ]  # fmt: skip
            return min(found, default=0)

        return min(
            least((*counts[:kind], number - 1, *counts[kind + 1 :]), kind)
            for kind, number in enumerate(counts) if number
        )  # fmt: skip

    def finds_a_plan(self) -> bool:
        """Whether a cover is within the bound, after all tiles have been laid."""
        instance = self.instance
        if self.left < 0:
            return False
        while self.left:
            self.lay()
        for labels in self.fronts.values():
            for total, slowest, reduced, counts in labels:
                if not instance.ordered or self.limit == math.inf:
                    return True
                if (instance.N - 1) * slowest + total + reduced + self.sending(counts) <= self.limit:
                    return True
        return False


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    tiles = [[count(tile[key], 0) for key in ("stage", "row", "column", "rows", "columns")] for tile in plan["tiles"]]
    tiles.sort()
    covered: set[tuple[int, int]] = set()
    kinds = []
    for number, (stage, row, column, rows, columns) in enumerate(tiles):
        kind = (rows == instance.tp, column)
        reject(stage != number, "plan: stages are numbered from 0 on")
        reject(kind not in instance.kinds or instance.shape(kind) != (rows, columns), "plan: tiles of tp x dp devices")
        reject(row + rows > instance.rows, "plan: tiles inside the mesh")
        covered |= {(r, c) for r in range(row, row + rows) for c in range(column, column + columns)}
        kinds.append(instance.kinds.index(kind))
    devices = instance.rows * instance.columns
    reject(len(covered) != devices or len(tiles) * instance.area != devices, "plan: every device in one tile")
    times = [instance.T[kind] for kind in kinds]
    sent = sum(instance.sends[one][other] for one, other in pairwise(kinds)) if instance.ordered else 0
    total = (instance.N - 1) * max(times) + sum(times) + max(instance.A[kind] for kind in kinds) + sent
    return Fraction(total, instance.unit)


def prove(instance: Instance, bound: Fraction | None, _: Any) -> None:
    """`RejectedError` if a cover is within the bound."""
    reject(Covers(instance, bound).finds_a_plan(), "search: there is a plan within the bound")


CHECKER = Checker("mesh_tiling", ("search",), Instance, plan_time, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
