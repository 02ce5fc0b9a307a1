"""Check a certificate of flushed partitioning: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in this room's README, whose letters it uses
(K, K_1, m, L, C, R, s, d, t). Amounts of an instance are the float64 numbers that its JSON denotes, as exact rationals.
M+ is M (1 + 1e-12) (1 + 2^-50): what the definition admits, with the rounding of its sums. Without machines all devices
are one: K_1 = K, with the bandwidth of the network inside.

**Claims.** ``plan`` keeps every rule and takes ``objective``; every plan takes more than ``bound``, Q (if Q is 0: none
takes less, which needs no proof). If ``bound`` is null there is no plan; then Q is infinite below.

**Proof.** ``caps`` are rising times c_1 < ... < c_n; let c_0 be 0 and c_(n+1) be Q (no caps if Q is infinite). For
i = 0 to n no plan may have C <= c_(i+1), as many stages L on its longest path and such an R that
(1 + (L - 1)/m) c_i + R <= Q. The checker looks for such plans by itself, as below.

**Theorem.** If it finds none, every plan takes more than Q.

*Proof.* Assume a plan of (1 + (L - 1)/m) C + R <= Q. As L >= 1 and R >= 0, C <= Q = c_(n+1), and C >= 0. Let i be the
least with C <= c_(i+1); then C >= c_i, and (1 + (L - 1)/m) c_i + R <= Q: a plan that was looked for.

**The search for a high = c_(i+1) and a low = c_i.** V are the layers. A *downset* U holds all successors of its layers;
the last stages of a plan hold one. Its labels are [s, k, r, l, depths]: degrees in sum, devices up to the last one
taken, the longest synchronisation, the stages on the longest path, and for every layer outside U with an edge into U
the most stages on a path from one of those edges on. Let w(v) be the least t X.time over all t <= K_1 and X in T(v, t)
with X.a + X.b <= M+, w(U) its sum over U, n(U) = max(1, ceil(w(U) / high)) and n(empty) = 0. The empty set has the
label [0, 0, 0, 0]. From every label of U, with every larger downset U' and every t <= K_1, a stage of degree d leads to
U' if a choice of X in T(v, t) for its layers takes at most ``high`` (without synchronisation) and at most M+ with its
micro-batches in flight, which are ceil((s + d)/d), or ceil(m/d) for GPipe. Of its degrees the least possible one is
taken, then larger ones up to the first at which the layers' weights are the least of all choices. It lies behind k
devices as near as it can with each replica in one machine; if it so straddles two, but fits into one, also at the
beginning of the next. r counts the choice of least weights at d, and the bandwidth inside where all lies in one
machine. The label that it leads to, k' devices in all, is dropped if

1. s + d > m or k' + n(V - U') > K;
2. (1 + (l - 1)/m) low + r > Q;
3. another label of U' is nowhere larger.

*No plan is missed.* Take one that is looked for. Communication takes no negative time, so a stage on d t devices spends
at most d t high device-time, and at least w of its layers: any part of the stages takes n of its layers in devices at
least. Claim: if the last stages of the plan hold U, U has a label that is nowhere larger than their [s, k, r, l,
depths]. It holds for the empty set. Assume it for U, and let the stage before, of degrees t and d, lead to U'. From the
label of U a stage of degree d has no more micro-batches in flight, so the same choice fits, and the least weights w' at
d are no more than its own. Both limits get looser with larger d. So a d' <= d was taken: d itself, with w', or a less
one at which the weights are the least of all; and 4 (d - 1)/d rises with d. Fewer replicas behind fewer devices end no
later; so they do inside one machine, if the plan's stage is: they straddle none, or begin the next one. Elsewhere r
counts a bandwidth that is no less than the plan's. The stage has one more stage on its paths than the deepest of those
that its edges lead to. So a label that is nowhere larger than the plan's arises at U'. It is not dropped by 1 and 2, as
the plan has s <= m, k' + n(V - U') <= K, and at the end no smaller l and r than here, and is looked for; if it is
dropped by 3, the other one serves. For U = V this is a label of V. If none is left, there was no plan.

All times are integers, multiples of 1 / (B unit); r is m B unit R rounded down, which only keeps more labels.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from operator import add, itemgetter, le
from typing import Any, NamedTuple

MAX_BYTES = 64 * 2**20  # of a file
MAX_COUNT, MAX_AMOUNT = 10**6, 1e30
MAX_CAPS = 1_000
MAX_DOWNSETS, MAX_BITS = 100_000, 2**31  # of a graph, and of all its downsets together, with their edges
MAX_ENDS = 5_000_000  # of TMPCs at edges of their layers
MAX_STEPS, MAX_NUMBERS = 5_000_000, 50_000_000  # of stages behind a label, and numbers in labels, of all searches
MAX_STATES, MAX_KEPT = 1_000_000, 100_000  # of a knapsack's list, and of what is kept between knapsacks
FINE = 2**60  # parts of a unit, as r is rounded
FRACTION = re.compile("[0-9]{1,2000}(/[1-9][0-9]{0,1999})?")

Option = tuple[int, int, int]  # cost, memory and weights
Label = tuple[int, ...]  # s, k, r, l and depths
Stage = tuple[int, int, int, int]  # t, and sets: layers, edges that enter and that leave it


class RejectedError(Exception):
    """The first rule that a certificate breaks."""


def need(holds: bool, rule: str) -> None:
    """`ValueError`, bad input, unless it holds."""
    if not holds:
        raise ValueError(f"expected {rule}")


def reject(broken: bool, rule: str) -> None:
    """`RejectedError` if the rule is broken."""
    if broken:
        raise RejectedError(rule)


def exact(value: Any) -> Fraction:
    """A number: the float64 that it denotes, as an exact rational."""
    need(type(value) in (int, float) and 0 <= value <= MAX_AMOUNT, f"a number from 0 to {MAX_AMOUNT:g}")
    return Fraction(float(value))


def count(value: Any) -> int:
    """A positive integer."""
    need(type(value) is int and 1 <= value <= MAX_COUNT, f"an integer from 1 to {MAX_COUNT}")
    return int(value)


def stated(text: Any) -> Fraction | None:
    """An exact fraction as text, or nothing."""
    need(text is None or FRACTION.fullmatch(text) is not None, "fractions as text")
    return None if text is None else Fraction(text)


class Tmpc(NamedTuple):
    """A TMPC in integers: costs in units of 1 / (B ``Instance.unit``), memory in units of 1 / ``Instance.grain``."""

    time: int
    sync: int  # 4 X.w
    a: int
    b: int
    into: dict[int, int]  # the cost of every edge where it enters the stage
    out: dict[int, int]  # and where it leaves it


class Instance:
    """An instance in integers, by position of layers and edges; ``tmpcs[v][t][id]``."""

    def __init__(self, content: Any) -> None:
        flat, schedule = content["flat"], content.get("schedule", "1f1b")
        layers, edges, most = flat["layers"], flat.get("edges", []), flat.get("max_dp_degree")
        model = flat.get("cost_model", "paper")
        need(content["problem"] == "flushed_partitioning", "an instance of flushed_partitioning")
        need(
            model in ("paper", "released", "runtime") and flat.get("exactly", False) is False,
            "a cost model; exactly is false",
        )
        need(schedule in ("1f1b", "gpipe"), "the schedule 1f1b or gpipe")
        kept = model == "runtime" and bool(flat.get("kept"))
        reject(kept, "kept: activations that layers of several stages keep are not looked at")
        self.gpipe, self.K, self.m = schedule == "gpipe", count(flat["num_devices"]), count(flat["num_microbatches"])
        size = content.get("devices_per_machine")
        self.K1 = self.K if size is None else count(size)
        largest = min(self.K, self.m, self.K if most is None else count(most))
        self.degrees = [d for d in range(1, largest + 1) if model == "paper" or self.m % d == 0]
        ids = [str(layer["id"]) for layer in layers]
        self.index = {name: v for v, name in enumerate(ids)}
        self.ends = [(self.index[str(edge["source"])], self.index[str(edge["target"])]) for edge in edges]
        need(len(self.index) == len(ids) > 0 and len(set(self.ends)) == len(edges), "layers and edges, none twice")
        self.bits = len(ids) + len(edges)
        reject(len(ids) >= MAX_BITS // self.bits, "size: a graph of too many layers and edges")
        self.incoming: list[dict[str, int]] = [{} for _ in ids]  # edges, by the id at their other end
        self.outgoing: list[dict[str, int]] = [{} for _ in ids]
        self.beside = [0 for _ in ids]  # the edges of a layer, as a set
        for e, (u, v) in enumerate(self.ends):
            self.outgoing[u][ids[v]] = self.incoming[v][ids[u]] = e
            self.beside[u], self.beside[v] = self.beside[u] | 1 << e, self.beside[v] | 1 << e
        self.B, sizes = exact(flat["bandwidth"]), [exact(edge["bytes"]) for edge in edges]
        inner = self.B if size is None else exact(content["inner_bandwidth"])
        need(0 < self.B <= inner and self.K % self.K1 == 0, "whole machines, and a positive bandwidth, inside no less")
        self.near = self.B / inner  # what synchronising in one machine takes, as a part of what it takes between them

        ends = zip(self.incoming, self.outgoing, layers, strict=True)
        ends_of_all = sum((len(i) + len(o)) * sum(map(len, layer["tmpcs"].values())) for i, o, layer in ends)
        reject(ends_of_all > MAX_ENDS, f"size: over {MAX_ENDS} TMPCs at edges of their layers")

        def crossing(x: Any, way: str, near: dict[str, int]) -> dict[int, Fraction]:
            sync = {name: exact(c) for name, c in x.get(f"sync_{way}_bytes", {}).items()}
            need(sync.keys() <= near.keys(), "sync volumes of a layer's own edges")
            return {e: 2 * (sizes[e] + sync.get(name, 0)) for name, e in near.items()}

        rows = [
            (v, count(int(t)), str(x["id"]), self.B * exact(x["time"]), 4 * exact(x["weight_bytes"]),
             exact(x["activation_bytes"]), exact(x["static_bytes"]),
             crossing(x, "forward", self.incoming[v]), crossing(x, "backward", self.outgoing[v]))
            for v, layer in enumerate(layers) for t, row in layer["tmpcs"].items() for x in row
        ]  # fmt: skip
        declared = [self.gpipe, self.K, self.m, self.degrees, exact(flat["memory_bytes"]), self.B, ids, self.ends, rows]
        declared += [] if size is None else [self.K1, inner]
        self.digest = hashlib.sha256(str(declared).encode()).hexdigest()
        # All denominators are powers of two, so that the largest is a common one.
        costs = (c for row in rows for c in (*row[3:5], *row[7].values(), *row[8].values()))
        self.unit = unit = FINE * max(c.denominator for c in costs)
        self.grain = grain = max(m.denominator for row in rows for m in row[5:7])
        slack = (1 + Fraction(1, 10**12)) * (1 + Fraction(1, 2**50))
        self.capacity = math.floor(exact(flat["memory_bytes"]) * slack * grain)
        self.tmpcs: list[dict[int, dict[str, Tmpc]]] = [{} for _ in ids]
        for v, t, name, cost, weight, a, b, enters, leaves in rows:
            into, out = ({e: int(c * unit) for e, c in costs.items()} for costs in (enters, leaves))
            need(name not in self.tmpcs[v].setdefault(t, {}), "TMPCs, none twice")
            amounts = int(cost * unit), int(weight * unit), int(a * grain), int(b * grain)
            self.tmpcs[v][t][name] = Tmpc(*amounts, into, out)

    def in_flight(self, s: int, d: int) -> int:
        """Micro-batches of a stage behind which, and in which, degrees sum to s."""
        return -(-(self.m if self.gpipe else s) // d)

    def ends_of(self, k: int, d: int, t: int) -> Iterator[tuple[int, bool]]:
        """Where a stage behind k devices may end, and whether all its replicas lie in one machine."""
        whole, room, after = self.K1 // t, (self.K1 - k % self.K1) // t, (k // self.K1 + 1) * self.K1
        if d <= room:
            yield k + d * t, True
            return
        full = (d - room - 1) // whole  # machines that are full behind the one of device k
        yield after + full * self.K1 + (d - room - full * whole) * t, room == 0 and d <= whole
        if room > 0 and d <= whole:
            yield after + d * t, True

    def sync(self, d: int, weights: int, inside: bool) -> int:
        """m B unit times the synchronisation of d replicas, rounded down."""
        return math.floor(Fraction((d - 1) * weights, d) * (self.near if inside else 1))


def option(x: Tmpc, y: int, into: int, out: int) -> Option:
    """Cost, memory with y in flight, and weights of a TMPC; two sets of edges cross the stage's boundary."""
    crossing = sum(c for e, c in x.into.items() if into >> e & 1) + sum(c for e, c in x.out.items() if out >> e & 1)
    return x.time + crossing, x.a * y + x.b, x.sync


def bits(mask: int) -> Iterator[int]:
    """The positions in a set."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def undominated(options: list[Option]) -> list[Option]:
    """The options that none beats in all three, by rising cost."""
    kept: list[Option] = []
    memories: list[int] = []  # of those kept, as far as none has less of both memory, rising, and weights, falling
    weights: list[int] = []
    for each in sorted(options):
        first = end = bisect_left(memories, each[1])
        same = first < len(memories) and memories[first] == each[1]
        if (first and weights[first - 1] <= each[2]) or (same and weights[first] <= each[2]):
            continue
        while end < len(weights) and weights[end] >= each[2]:
            end += 1
        memories[first:end], weights[first:end] = [each[1]], [each[2]]
        kept.append(each)
    return kept


def savings(options: list[Option]) -> list[tuple[int, int, int]]:
    """The lower convex hull of cost and memory as steps (ratio, more cost, less memory), ratios rising."""
    hull = [options[0][:2]]
    for c, m, _ in options[1:]:
        if m >= hull[-1][1]:
            continue
        while len(hull) > 1:
            (c0, m0), (c1, m1) = hull[-2:]
            if (c1 - c0) * (m1 - m) < (c - c1) * (m0 - m1):
                break
            hull.pop()
        hull.append((c, m))
    return [((c - c0 << 64) // (m0 - m), c - c0, m0 - m) for (c0, m0), (c, m) in pairwise(hull)]


def lightest(groups: list[list[Option]], budget: int | None, capacity: int) -> int | None:
    """The least weights of a choice, one of the undominated options of each group, within both limits.

    ``None`` if there is no such choice; no budget: any cost, and weights are not looked at.
    """
    least_memory = [min(m for _, m, _ in group) for group in groups]
    if sum(least_memory) > capacity:
        return None
    if budget is None:
        return 0
    left, over = budget - sum(group[0][0] for group in groups), sum(group[0][1] for group in groups) - capacity
    if left < 0:
        return None
    p, q = 0, 0  # cost for memory, where the relaxed knapsack ends
    steps = (step for group in groups for step in savings(group)) if over > 0 else ()
    for _, p, q in sorted(steps, key=itemgetter(0)):  # which keeps the order of a group's steps
        left, over = left - p, over - q
        if over <= 0:
            break
    if left >= 0 and all(w == group[0][2] for group in groups for _, _, w in group):
        return sum(group[0][2] for group in groups)  # with the steps that were taken it fits
    # For any p, q >= 0, q cost + p memory of a choice within the limits exceeds its least value by ``slack`` at most.
    least = [min(q * c + p * m for c, m, _ in group) for group in groups]
    slack = q * budget + p * capacity - sum(least)
    if slack < 0:
        return None
    states, used = [(0, 0, 0)], slack
    cheapest, smallest = sum(group[0][0] for group in groups), sum(least_memory)
    for group, low, memory in zip(groups, least, least_memory, strict=True):
        cheapest, smallest, used = cheapest - group[0][0], smallest - memory, used + low
        near = [each for each in group if q * each[0] + p * each[1] <= slack + low]
        reject(len(states) * len(near) > MAX_STATES, f"size: a knapsack with over {MAX_STATES} states")
        sums = [(c0 + c, m0 + m, w0 + w) for c0, m0, w0 in states for c, m, w in near]
        most, room = budget - cheapest, capacity - smallest
        states = undominated([x for x in sums if x[0] <= most and x[1] <= room and q * x[0] + p * x[1] <= used])
    return min((w for _, _, w in states), default=None)


class Lattice:
    """The downsets of an instance from smaller to larger ones, with their sums."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.tmpcs, self.steps, self.numbers = instance, instance.tmpcs, 0, 0
        self.tp = sorted({t for layer in self.tmpcs for t, row in layer.items() if row and t <= instance.K1})
        small = [
            [(t, x) for t in self.tp for x in layer.get(t, {}).values() if x.a + x.b <= instance.capacity]
            for layer in self.tmpcs
        ]
        self.work = [min((t * x.time for t, x in row), default=0) for row in small]
        self.size = [min((x.a + x.b for _, x in row), default=0) for row in small]
        self.unplaced = not all(small)
        self.kept = min(MAX_KEPT, MAX_BITS // 8 // instance.bits)
        self.group = lru_cache(self.kept)(self._group)
        incoming, outgoing, n = instance.incoming, instance.outgoing, len(self.tmpcs)
        self.after = after = [sum(1 << instance.ends[e][1] for e in row.values()) for row in outgoing]
        self.masks, self.crossing, self.works, self.sizes, known = [0], [0], [0], [0], {0}
        rows = [[layer.get(t, {}).values() for layer in self.tmpcs] for t in self.tp]
        # At each t: least time, weights, a and b of a layer, and whether it has no TMPC.
        parts = [[list(zip(*(x[:4] for x in row), strict=True)) for row in q] for q in rows]
        least = [[[*map(min, four), 0] if four else [0, 0, 0, 0, 1] for four in q] for q in parts]
        self.sums = [[[0] * 5] for _ in self.tp]
        limit = max(1, min(MAX_DOWNSETS, MAX_BITS // instance.bits))
        ready = [sum(1 << v for v in range(n) if not after[v])]
        for i, mask in enumerate(self.masks):  # which grows meanwhile
            for v in bits(ready[i]):
                new = mask | 1 << v
                if new in known:
                    continue
                reject(len(self.masks) == limit, f"size: a graph of over {limit} downsets")
                known.add(new)
                self.masks.append(new)
                self.works.append(self.works[i] + self.work[v])
                self.sizes.append(self.sizes[i] + self.size[v])
                edges = sum(1 << e for e in incoming[v].values()), sum(1 << e for e in outgoing[v].values())
                self.crossing.append(self.crossing[i] & ~edges[1] | edges[0])
                freed = [u for u in (instance.ends[e][0] for e in incoming[v].values()) if not after[u] & ~new]
                ready.append(ready[i] & ~(1 << v) | sum(1 << u for u in freed))
                for sums, more in zip(self.sums, least, strict=True):
                    sums.append(list(map(add, sums[i], more[v])))
        need(self.masks[-1] == (1 << n) - 1, "a graph without cycles")
        #: The layers outside a downset that have an edge into it.
        self.front = [sorted({instance.ends[e][0] for e in bits(edges)}) for edges in self.crossing]

    def _group(self, v: int, t: int, y: int, into: int, out: int) -> list[Option]:
        return undominated([option(x, y, into, out) for x in self.tmpcs[v][t].values()])


class Search:
    """Labels of all downsets for plans of C <= ``high`` that take at most ``bound`` with C = ``low``; None: any."""

    def __init__(self, lattice: Lattice, bound: Fraction | None, low: Fraction, high: Fraction | None) -> None:
        self.lattice, self.instance = lattice, lattice.instance
        scale, m = self.instance.B * self.instance.unit, self.instance.m
        self.limit = None if high is None else high * scale
        #: The largest r that rule 2 allows, by l; ``None``: any.
        self.room = None
        if bound is not None:
            longest = range(min(len(lattice.tmpcs), self.instance.K, m) + 1)
            self.room = [math.floor((bound * m - (m + depth - 1) * low) * scale) for depth in longest]
        total, last = lattice.works[-1], len(lattice.masks) - 1
        self.rest = [self._devices(total - work) for work in lattice.works[:last]] + [0]
        front = [0, *map(self._devices, lattice.works[1:])]
        usable = [i for i in range(last + 1) if front[i] + self.rest[i] <= self.instance.K]
        self.order = sorted(usable, key=lambda i: (lattice.sizes[i], i))  # what holds a downset comes after it
        self.sizes = [lattice.sizes[i] for i in self.order]
        self.reached: list[set[Label]] = [set() for _ in range(last + 1)]
        self.reached[0].add((0, 0, 0, 0))
        self.lightest = lru_cache(lattice.kept)(self._lightest)

    def _devices(self, work: int) -> int:
        """n of some layers, at least one."""
        return 1 if self.limit is None else max(1, math.ceil(work / self.limit))

    def _is_late(self, r: int, depth: int) -> bool:
        """Rule 2."""
        return self.room is not None and r > self.room[depth]

    def labels(self, i: int) -> list[Label]:
        """The labels of a downset that no other one beats, once all smaller ones were extended."""
        kept: list[Label] = []
        for label in sorted(self.reached[i]):
            if not any(all(map(le, other, label)) for other in kept):
                kept.append(label)
        return kept

    def extend(self, place: int) -> None:
        """All stages in front of the downset at a place of ``order``."""
        i, masks = self.order[place], self.lattice.masks
        labels = self.labels(i)
        for at in range(place + 1, bisect_right(self.sizes, self.sizes[place] + self.instance.capacity)):
            j = self.order[at]
            if labels and masks[j] & masks[i] == masks[i]:
                self._extend(i, j, labels)

    def _extend(self, i: int, j: int, labels: list[Label]) -> None:
        """Rule 1, and what labels of downset i lead to at downset j."""
        lattice, instance = self.lattice, self.instance
        stage, free = lattice.masks[j] & ~lattice.masks[i], instance.K - self.rest[j]
        into, out = lattice.crossing[j] & ~lattice.crossing[i], lattice.crossing[i] & ~lattice.crossing[j]
        behind = [4 + at for at, v in enumerate(lattice.front[i]) if stage >> v & 1]
        at_i = {v: 4 + at for at, v in enumerate(lattice.front[i])}
        kept = [(at_i.get(v, 3), bool(lattice.after[v] & stage)) for v in lattice.front[j]]
        for q, t in enumerate(lattice.tp):
            cost, weights, a, b, missing = (y - x for x, y in zip(lattice.sums[q][i], lattice.sums[q][j], strict=True))
            if missing or a + b > instance.capacity:
                continue
            first = 0 if self.limit is None else bisect_left(instance.degrees, cost / self.limit)
            for label in labels:
                s, k, r = label[:3]
                degrees = instance.degrees[first : bisect_right(instance.degrees, min((free - k) // t, instance.m - s))]
                depth = 1 + max((label[at] for at in behind), default=0) if self.room is not None else 0
                top = max(label[3], depth)
                if not degrees or self._is_late(r, top):
                    continue
                lattice.steps += 1
                reject(lattice.steps > MAX_STEPS, f"size: over {MAX_STEPS} stages behind labels")
                depths = [max(label[at] if at > 3 else 0, depth if reaches else 0) for at, reaches in kept]
                for d, own in self._taken(degrees, weights, s, (t, stage, into, out)):
                    for end, inside in instance.ends_of(k, d, t):
                        longest = max(r, instance.sync(d, own, inside))
                        lattice.numbers += 4 + len(depths)
                        reject(lattice.numbers > MAX_NUMBERS, f"size: labels of over {MAX_NUMBERS} numbers")
                        if end <= free and not self._is_late(longest, top):
                            self.reached[j].add((s + d, end, longest, top, *depths))

    def _taken(self, degrees: list[int], least: int, s: int, stage: Stage) -> Iterator[tuple[int, int]]:
        """The degrees that are taken behind degrees that sum to s, each with its weights, which are no ``least``."""

        def weights(d: int) -> int | None:
            return self.lightest(stage, d, self.instance.in_flight(s + d, d))

        if weights(degrees[-1]) is not None:
            for d in degrees[bisect_left(degrees, True, key=lambda d: weights(d) is not None) :]:
                own = weights(d) or 0
                yield d, own
                if self.room is None or own == least:
                    return

    def _lightest(self, stage: Stage, d: int, y: int) -> int | None:
        """The least weights of a choice that fits with degree d and y in flight; ``None`` if there is none."""
        t, layers, into, out = stage
        edges, budget = self.instance.beside, None if self.limit is None else math.floor(d * self.limit)
        groups = [self.lattice.group(v, t, y, into & edges[v], out & edges[v]) for v in bits(layers)]
        return lightest(groups, budget, self.instance.capacity)


def prove(instance: Instance, bound: Fraction | None, caps: list[Fraction]) -> None:
    """`RejectedError` if a plan that is looked for may exist."""
    need(all(low < high for low, high in pairwise(caps)) and (not caps or bound is not None), "caps that rise")
    need(not caps or (caps[0] > 0 and bound is not None and caps[-1] < bound), "caps between 0 and the bound")
    lattice = Lattice(instance)
    if lattice.unplaced:
        return
    for low, high in zip([Fraction(0), *caps], [*caps, bound], strict=True):
        search = Search(lattice, bound, low, high)
        for place in range(len(search.order)):
            search.extend(place)
        limit = "any time" if high is None else repr(float(high))
        reject(bool(search.reached[-1]), f"caps: a plan with steps of at most {limit} is not excluded")


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    done, s, held, slowest, ends = 0, 0, 0, Fraction(0), list(enumerate(instance.ends))
    depth: dict[int, int] = {}  # of the stage that holds a layer
    replicas: list[tuple[int, int, int]] = []  # of each stage: d, t and weights
    for stage in reversed(plan["stages"]):
        d, t, nodes = count(stage["dp_degree"]), count(stage["tp_degree"]), [str(node) for node in stage["nodes"]]
        reject(not nodes or not instance.index.keys() >= set(nodes), "plan: a stage without layers, or an unknown one")
        found = [instance.tmpcs[instance.index[v]].get(t, {}).get(stage["tmpcs"].get(v)) for v in nodes]
        chosen = [x for x in found if x is not None]
        reject(len(chosen) < len(nodes) or d not in instance.degrees, f"plan: TMPCs at t = {t}, or d = {d}")
        mask = sum(1 << v for v in {instance.index[v] for v in nodes})
        done, s, held = done | mask, s + d, held + len(nodes)
        into = sum(1 << e for e, (u, v) in ends if mask >> v & 1 and not mask >> u & 1)
        out = sum(1 << e for e, (u, v) in ends if mask >> u & 1 and not mask >> v & 1)
        reject(any(not done >> instance.ends[e][1] & 1 for e in bits(out)), "plan: an edge runs backwards")
        own = 1 + max((depth[instance.ends[e][1]] for e in bits(out)), default=0)
        depth.update(dict.fromkeys(bits(mask), own))
        used = [option(x, instance.in_flight(s, d), into, out) for x in chosen]
        reject(sum(memory for _, memory, _ in used) > instance.capacity, "plan: memory")
        slowest = max(slowest, Fraction(sum(cost for cost, _, _ in used), d))
        replicas.append((d, t, sum(weights for _, _, weights in used)))
    reject(held != len(instance.index) or done != (1 << held) - 1, "plan: every layer in one stage")
    reject(s > instance.m, f"plan: degrees that sum to {s}")
    steps = instance.m + max(depth.values()) - 1
    return (steps * slowest + longest(instance, replicas)) / (instance.m * instance.B * instance.unit)


def longest(instance: Instance, replicas: list[tuple[int, int, int]]) -> Fraction:
    """m B unit times the longest synchronisation of stages, lain from the output side on so that it is shortest."""
    ways = [[Fraction((d - 1) * own, d) * part for part in (instance.near, 1)] for d, _, own in replicas]
    for most in sorted({each for row in ways for each in row}):
        k = 0
        for (d, t, _), (inside, between) in zip(replicas, ways, strict=True):
            reject(t > instance.K1, f"plan: t = {t} in a machine")
            found = [end for end, near in instance.ends_of(k, d, t) if (inside if near else between) <= most]
            k = min(found, default=instance.K + 1)
        if k <= instance.K:
            return most
    raise RejectedError(f"plan: it does not fit on {instance.K} devices")


def proved(content: Any, certificate: Any) -> tuple[Fraction | None, Fraction | None]:
    """Objective and bound of a certificate of an instance, both as parsed JSON; `RejectedError`, or bad input."""
    reject(
        repr(certificate["format"]) != "1" or certificate["problem"] != "flushed_partitioning",
        "format: not 1, or another problem's",
    )
    reject(certificate["proof"]["kind"] != "caps", "kind: a proof of another kind")
    required = bool(content.get("requirements")) or bool(content["flat"].get("requirements"))
    reject(required, "requirements: they are not looked at")
    instance, plan = Instance(content), certificate["plan"]
    reject(certificate["instance_sha256"] != instance.digest, "instance: the certificate is of another one")
    objective, bound = stated(certificate["objective"]), stated(certificate["bound"])
    need((plan is None) == (objective is None), "a plan and its objective, or neither")
    need(plan is None or bound is not None, "a bound beside a plan")
    if plan is not None:
        reject(plan_time(instance, plan) != objective, "objective: not the time of the plan")
    if bound is None or bound > 0:
        texts = certificate["proof"]["caps"]
        reject(len(texts) > MAX_CAPS, f"size: over {MAX_CAPS} caps")
        prove(instance, bound, [cap for cap in map(stated, texts) if cap is not None])
    return objective, bound


def floor(bound: Fraction) -> float:
    """The largest float64 that is no more than a bound."""
    nearest = float(bound)
    return nearest if nearest <= bound else math.nextafter(nearest, 0.0)


def verify(content: Any, certificate: Any) -> dict[str, Any]:
    """The verdict on a certificate of an instance, both as parsed JSON; `ValueError` if one of them is none."""
    began, objective, bound, accepted = time.perf_counter(), None, None, False
    try:
        found, least = proved(content, certificate)
        objective, bound = None if found is None else float(found), None if least is None else floor(least)
        reason = f"every plan takes more than {bound!r}" if bound else "no plan takes less than 0.0"
        reason = "there is no plan" if bound is None else reason
        reason, accepted = reason + ("" if objective is None else f", this one {objective!r}"), True
    except (MemoryError, RejectedError) as error:
        reason = str(error) or "size: memory ran out"
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from None
    return {
        "accepted": accepted, "problem": "flushed_partitioning", "kind": "caps", "reason": reason,
        "objective": objective, "bound": bound, "seconds": time.perf_counter() - began,
    }  # fmt: skip


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The content of an object in a file, which has no key twice."""
    need(len(dict(pairs)) == len(pairs), "objects with no key twice")
    return dict(pairs)


def main(files: list[str]) -> int:
    """0 accepted, 1 rejected, 2 bad input; a line that says why."""
    try:
        need(len(files) == 2, "INSTANCE.json CERTIFICATE.json")
        texts = [open(path, "rb").read(MAX_BYTES + 1) for path in files]  # noqa: SIM115
        need(max(map(len, texts)) <= MAX_BYTES, f"files of at most {MAX_BYTES} bytes")
        verdict = verify(*(json.loads(text, object_pairs_hook=unique) for text in texts))
    except (MemoryError, OSError, RecursionError, ValueError) as error:
        print(f"bad input: {str(error) or 'memory ran out'}", file=sys.stderr)
        return 2
    print("accepted:" if verdict["accepted"] else "rejected:", verdict["reason"])
    return 0 if verdict["accepted"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
