"""Check a certificate of stage partitioning: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in this room's README, whose letters it uses
(K, M, N, B, s, d, t, X). Amounts of an instance are the float64 numbers that its JSON denotes, as exact rationals. M+
is M (1 + 1e-12) (1 + 2^-50): what the definition admits, with the rounding of its sums. Under the cost model
``runtime`` X.a of a layer is higher by the tensors ``kept`` that it adds to its stage: by what is in the stage, and X.

**Claims.** ``plan`` keeps every rule and takes ``objective``; every plan takes more than ``bound``, L (if L is 0: none
takes less, which needs no proof). If ``bound`` is null there is no plan; then L is infinite below.

**Tables.** V are the layers. A *downset* U holds all successors of its layers; the last stages of a plan hold one.
``downsets`` lists [U, labels] or [U, labels, r]: U in hexadecimal (bit v for the v-th layer), labels [s, k], and r, a
number of devices. Let w(v) be the least t X.time over all t <= K and X in T(v, t) with X.a + X.b <= M+, w(U) its sum
over U, n(U) = max(1, ceil(w(U) / L)) and n(empty) = 0, and rest(U) the larger of r (if claimed) and n(V - U). U is
*passable* if n(U) + n(V - U) <= K. A stage from U to a larger U' with degrees t and d (one that the instance allows) is
*possible* at s if a choice of X in T(v, t) for its layers takes at most L, and at most M+ with ceil(s/d) micro-batches
in flight. The rules are, for passable U and U':

1. For every U with a claimed r, every stage from U to U' that is possible at s = d, if U is empty, and at s = d + 1
   otherwise, has d t + rest(U') >= r. V claims no r > 0.
2. The empty set has the label [0, 0]; unless rest(empty) > K, or some layer has no X with X.a + X.b <= M+ at any
   t <= K, or degrees have to sum to N > K.
3. For every label [s, k] of U with k + rest(U) <= K, every stage from U to U' that is possible at s + d is *covered*:
   U' has a label [s', k'] with s' <= s + d (``exactly``: s' = s + d) and k' <= k + d t; or s + d > N; or
   k + d t + rest(U') > K.
4. V has no label [s, k] with s <= N (``exactly``: s = N) and k <= K.

**Theorem.** If they hold, every plan takes more than L.

*Proof.* Assume a plan within L. Communication takes no negative time, so a stage on d t devices spends at most d t L
device-time and at least w of its layers on them: any part of the stages takes at least n of its layers in devices. So
all downsets that its last stages hold are passable, and none of the exceptions of rule 2 that need no table apply.

(a) *If the last stages hold U, the others take at least rest(U) devices.* This is clear for n(V - U), and for V. For a
claimed r of another U assume it for all larger downsets. The stage before U leads to some U'; it has at least ceil(d/d)
micro-batches in flight, and ceil((d+1)/d) if there are stages after it, as their degrees are at least 1. More in flight
take no less memory, so rule 1 speaks of this stage, and all together take at least d t + rest(U') >= r.

(b) *If the last stages hold U, with degrees that sum to s and k devices, U has a label [s', k'] with s' <= s
(``exactly``: s' = s) and k' <= k.* By (a) rest(empty) <= K, so the empty set has [0, 0]. Assume (b) for U, and let the
stage before lead to U' with degrees t and d. It has ceil((s+d)/d) >= ceil((s'+d)/d) micro-batches in flight, so it is
possible at s' + d, and k' + rest(U) <= k + rest(U) <= K by (a): rule 3 speaks of it. Of its exceptions, s' + d <= s + d
<= N and k' + d t + rest(U') <= k + d t + rest(U') <= K by (a). So U' has a label of at most s' + d <= s + d
(``exactly``: of s' + d = s + d) and of at most k' + d t <= k + d t. For U = V this contradicts rule 4.

**How rule 3 is decided.** What is left uncovered are intervals of degrees. From d = l to h, d times the time of a stage
never falls, nor does ceil((s+d)/d) rise. If no choice costs at most h L with the synchronisation of l and the memory of
h, no degree of the interval is possible; else it is halved. All costs are integers, multiples of 1 / (B unit).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

MAX_BYTES = 64 * 2**20  # of a file
MAX_COUNT, MAX_AMOUNT = 10**6, 1e30
MAX_DOWNSETS, MAX_BITS = 100_000, 2**31  # of a graph, and of all its downsets together, with their edges
MAX_ENDS = 5_000_000  # of TMPCs at edges of their layers
MAX_STATES, MAX_KEPT = 1_000_000, 100_000  # of a knapsack's list, and of what is kept between knapsacks
FRACTION = re.compile("[0-9]{1,2000}(/[1-9][0-9]{0,1999})?")

Option = tuple[int, int]  # cost and memory
Label = tuple[int, int]  # s and k


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


def count(value: Any, least: int = 1) -> int:
    """An integer."""
    need(type(value) is int and least <= value <= MAX_COUNT, f"an integer from {least} to {MAX_COUNT}")
    return int(value)


class Tmpc(NamedTuple):
    """A TMPC in integers: costs in units of 1 / (B ``Instance.unit``), memory in units of 1 / ``Instance.grain``."""

    time: int
    sync: int  # 4 X.w
    a: int
    b: int
    into: dict[int, int]  # the cost of every edge where it enters the stage
    out: dict[int, int]  # and where it leaves it
    held: dict[int, int]  # what it may add to a, by position in ``Instance.carried``


class Instance:
    """An instance in integers, by position of layers and edges; ``tmpcs[v][t][id]``."""

    def __init__(self, content: Any) -> None:
        layers, edges, most = content["layers"], content.get("edges", []), content.get("max_dp_degree")
        model, exactly = content.get("cost_model", "paper"), content.get("exactly", False)
        need(content["problem"] == "stage_partitioning", "an instance of stage_partitioning")
        need(
            model in ("paper", "released", "runtime") and type(exactly) is bool,
            "a cost model; exactly true or false",
        )
        self.released, self.exactly = model != "paper", exactly
        self.K, self.N = count(content["num_devices"]), count(content["num_microbatches"])
        largest = min(self.K, self.N, self.K if most is None else count(most))
        self.degrees = [d for d in range(1, largest + 1) if not self.released or self.N % d == 0]
        ids = [str(layer["id"]) for layer in layers]
        self.index = {name: v for v, name in enumerate(ids)}
        self.ends = [(self.index[str(edge["source"])], self.index[str(edge["target"])]) for edge in edges]
        need(len(self.index) == len(ids) > 0 and len(set(self.ends)) == len(edges), "layers and edges, none twice")
        self.bits = len(ids) + len(edges)
        reject(len(ids) >= MAX_BITS // self.bits, "size: a graph of too many layers and edges")
        self.incoming: list[dict[str, int]] = [{} for _ in ids]  # edges, by the id at their other end
        self.outgoing: list[dict[str, int]] = [{} for _ in ids]
        self.near = [0 for _ in ids]  # the edges of a layer, as a set
        for e, (u, v) in enumerate(self.ends):
            self.outgoing[u][ids[v]] = self.incoming[v][ids[u]] = e
            self.near[u], self.near[v] = self.near[u] | 1 << e, self.near[v] | 1 << e
        self.B, sizes = exact(content["bandwidth"]), [exact(edge["bytes"]) for edge in edges]
        need(self.B > 0, "a positive bandwidth")

        ends = zip(self.incoming, self.outgoing, layers, strict=True)
        ends_of_all = sum((len(i) + len(o)) * sum(map(len, layer["tmpcs"].values())) for i, o, layer in ends)
        reject(ends_of_all > MAX_ENDS, f"size: over {MAX_ENDS} TMPCs at edges of their layers")

        def crossing(x: Any, way: str, near: dict[str, int]) -> dict[int, Fraction]:
            sync = {name: exact(c) for name, c in x.get(f"sync_{way}_bytes", {}).items()}
            need(sync.keys() <= near.keys(), "sync volumes of a layer's own edges")
            return {e: 2 * (sizes[e] + sync.get(name, 0)) for name, e in near.items()}

        kept = content.get("kept", []) if model == "runtime" else []
        tensors = [([self.index[str(u)] for u in x["layers"]], x["tmpcs"], exact(x["bytes"])) for x in kept]
        need(all(len(set(us)) == len(us) for us, *_ in tensors), "kept tensors of layers, none twice")
        # A layer adds a tensor in a stage without the layers before it in the tensor's list; the first has it in a.
        later = [(v, sum(1 << u for u in us[:i]), *rest) for us, *rest in tensors for i, v in enumerate(us) if i]
        self.carried = [(v, before) for v, before, *_ in later]
        self.holds = [sum(1 << h for h, (u, _) in enumerate(self.carried) if u == v) for v in range(len(ids))]
        rows = [
            (v, count(int(t)), str(x["id"]), self.B * exact(x["time"]), 4 * exact(x["weight_bytes"]),
             exact(x["activation_bytes"]), exact(x["static_bytes"]),
             crossing(x, "forward", self.incoming[v]), crossing(x, "backward", self.outgoing[v]),
             {h: size for h, (u, _, names, size) in enumerate(later) if u == v and x["id"] in names})
            for v, layer in enumerate(layers) for t, row in layer["tmpcs"].items() for x in row
        ]  # fmt: skip
        memory, model = exact(content["memory_bytes"]), [self.released, self.exactly, self.K, self.N, self.degrees]
        declared = [model, memory, self.B, ids, self.ends, sizes, [row[:9] for row in rows]]
        declared += [tensors] if tensors else []
        self.digest = hashlib.sha256(str(declared).encode()).hexdigest()
        # All denominators are powers of two, so that the largest is a common one.
        self.unit = unit = max(c.denominator for row in rows for c in (*row[3:5], *row[7].values(), *row[8].values()))
        self.grain = grain = max(m.denominator for row in rows for m in (*row[5:7], *row[9].values()))
        slack = (1 + Fraction(1, 10**12)) * (1 + Fraction(1, 2**50))
        self.capacity = math.floor(memory * slack * grain)
        self.tmpcs: list[dict[int, dict[str, Tmpc]]] = [{} for _ in ids]
        for v, t, name, cost, weight, a, b, enters, leaves, held in rows:
            into, out = ({e: int(c * unit) for e, c in costs.items()} for costs in (enters, leaves))
            need(name not in self.tmpcs[v].setdefault(t, {}), "TMPCs, none twice")
            amounts = int(cost * unit), int(weight * unit), int(a * grain), int(b * grain)
            self.tmpcs[v][t][name] = Tmpc(*amounts, into, out, {h: int(m * grain) for h, m in held.items()})

    def share(self, d: int) -> tuple[int, int]:
        """What part of ``sync`` is paid at d, numerator and denominator, in d times the time of a stage."""
        return d - 1, self.N if self.released else d

    def held(self, stage: int) -> int:
        """Which of ``carried`` the layers of a stage add, as a set."""
        return sum(1 << h for h, (v, before) in enumerate(self.carried) if stage >> v & 1 and not stage & before)

    def option(self, x: Tmpc, d: int, y: int, into: int, out: int, held: int) -> Option:
        """Cost, times `share`'s denominator, and memory of a TMPC; two sets of edges cross the stage's boundary."""
        part, whole = self.share(d)
        crossing = sum(c for e, c in x.into.items() if into >> e & 1) + sum(c for e, c in x.out.items() if out >> e & 1)
        a = x.a + sum(m for h, m in x.held.items() if held >> h & 1)
        return (x.time + crossing) * whole + x.sync * part, a * y + x.b


def bits(mask: int) -> Iterator[int]:
    """The positions in a set."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def undominated(options: list[Option]) -> list[Option]:
    """The options that none beats in both, by rising cost and falling memory."""
    kept: list[Option] = []
    for option in sorted(options):
        if not kept or option[1] < kept[-1][1]:
            kept.append(option)
    return kept


def savings(options: list[Option]) -> list[tuple[Fraction, int, int]]:
    """The lower convex hull of undominated options as steps (ratio, more cost, less memory), ratios rising."""
    hull: list[Option] = []
    for c, m in options:
        while len(hull) > 1:
            (c0, m0), (c1, m1) = hull[-2:]
            if (c1 - c0) * (m1 - m) < (c - c1) * (m0 - m1):
                break
            hull.pop()
        hull.append((c, m))
    return [(Fraction(c - c0, m0 - m), c - c0, m0 - m) for (c0, m0), (c, m) in pairwise(hull)]


def fits(groups: list[list[Option]], budget: int | None, capacity: int) -> bool:
    """Whether one of the undominated options of each group can be chosen within both limits; no budget: any cost."""
    if sum(group[-1][1] for group in groups) > capacity:
        return False
    if budget is None:
        return True
    left, over = budget - sum(group[0][0] for group in groups), sum(group[0][1] for group in groups) - capacity
    if left < 0 or over <= 0:
        return left >= 0
    p, q = 0, 0  # cost for memory, where the relaxed knapsack ends
    for step in sorted(step for group in groups for step in savings(group)):
        p, q = step[1:]
        if q >= over:
            break
        over -= q
    # For any p, q >= 0, q cost + p memory of a choice within the limits exceeds its least value by ``slack`` at most.
    least = [min(q * c + p * m for c, m in group) for group in groups]
    slack = q * budget + p * capacity - sum(least)
    if slack < 0:
        return False
    states, used = [(0, 0)], slack
    cheapest, lightest = sum(group[0][0] for group in groups), sum(group[-1][1] for group in groups)
    for group, low in zip(groups, least, strict=True):
        cheapest, lightest, used = cheapest - group[0][0], lightest - group[-1][1], used + low
        near = [(c, m) for c, m in group if q * c + p * m <= slack + low]
        reject(len(states) * len(near) > MAX_STATES, f"size: a knapsack with over {MAX_STATES} states")
        sums = [(c0 + c, m0 + m) for c0, m0 in states for c, m in near]
        most, room = budget - cheapest, capacity - lightest
        states = undominated([(c, m) for c, m in sums if c <= most and m <= room and q * c + p * m <= used])
    return bool(states)


class Table:
    """The downsets of an instance with their sums, and whether rules 1 to 4 hold for labels and claims."""

    def __init__(self, instance: Instance, bound: Fraction | None) -> None:
        self.instance, self.tmpcs = instance, instance.tmpcs
        self.limit = None if bound is None else bound * instance.B * instance.unit  # a stage's cost at d = 1
        self.tp = sorted({t for layer in self.tmpcs for t, row in layer.items() if row and t <= instance.K})
        small = [
            [(t, x) for t in self.tp for x in layer.get(t, {}).values() if x.a + x.b <= instance.capacity]
            for layer in self.tmpcs
        ]
        self.work = [min((t * x.time for t, x in row), default=0) for row in small]
        self.size = [min((x.a + x.b for _, x in row), default=0) for row in small]
        unplaced = instance.exactly and instance.N > instance.K
        self.settled = unplaced or not all(small) or self.devices(sum(self.work)) > instance.K
        keep = lru_cache(min(MAX_KEPT, MAX_BITS // 8 // instance.bits))
        self.group, self.fits = keep(self._group), keep(self._fits)

    def _group(self, v: int, t: int, d: int, y: int, into: int, out: int, held: int) -> list[Option]:
        return undominated([self.instance.option(x, d, y, into, out, held) for x in self.tmpcs[v][t].values()])

    def budget(self, d: int, whole: int = 1) -> int | None:
        """The cost of a stage of degree d that takes L, times ``whole``; rounded down last, as costs are integers."""
        return None if self.limit is None else d * whole * self.limit.numerator // self.limit.denominator

    def devices(self, work: int) -> int:
        """n of some layers, at least one."""
        return 1 if self.limit is None else max(1, math.ceil(work / self.limit))

    def prove(self, labels: dict[int, list[Label]], claims: dict[int, int]) -> None:
        """`RejectedError` if a rule is broken, `ValueError` for what is no downset."""
        if self.settled:
            return
        self._enumerate()
        K, N, last = self.instance.K, self.instance.N, len(self.masks) - 1
        for mask in (*labels, *claims):
            need(mask in self.known, "downsets that hold all successors of their layers")
        total, front = sum(self.work), [0, *map(self.devices, self.works[1:])]
        self.rest = [self.devices(total - w) for w in self.works[:last]] + [0]
        usable = [i for i in range(last + 1) if front[i] + self.rest[i] <= K]
        for mask, r in claims.items():
            self.rest[self.known[mask]] = max(self.rest[self.known[mask]], r)
        self.claims = {self.known[mask]: r for mask, r in claims.items()}
        reject(claims.get(self.masks[last], 0) > 0, "rule 1: all layers claim devices for the rest")
        reject(self.rest[0] <= K and (0, 0) not in labels.get(0, ()), "rule 2: the empty set has no label [0, 0]")
        for s, k in labels.get(self.masks[last], ()):
            broken = k <= K and (s == N if self.instance.exactly else s <= N)
            reject(broken, f"rule 4: all layers have the label [{s}, {k}]")
        self.labels = {self.known[mask]: found for mask, found in labels.items()}
        usable.sort(key=lambda i: (self.sizes[i], i))  # what holds a downset comes after it
        sizes, masks = [self.sizes[i] for i in usable], [self.masks[i] for i in usable]
        for place, (i, mask) in enumerate(zip(usable, masks, strict=True)):
            found = [(s, k) for s, k in self.labels.get(i, ()) if k + self.rest[i] <= K]
            if found or i in self.claims:
                for at in range(place + 1, bisect_right(sizes, sizes[place] + self.instance.capacity)):
                    if masks[at] & mask == mask:
                        self._pair(i, usable[at], found)

    def _enumerate(self) -> None:
        """All downsets from smaller to larger ones, their sums, and the edges that enter them."""
        ends, incoming, outgoing = self.instance.ends, self.instance.incoming, self.instance.outgoing
        n, after = len(self.tmpcs), [sum(1 << ends[e][1] for e in row.values()) for row in outgoing]
        self.masks, self.known, self.crossing, self.works, self.sizes = [0], {0: 0}, [0], [0], [0]
        rows = [[layer.get(t, {}).values() for layer in self.tmpcs] for t in self.tp]
        # At each t: least time, sync, a and b of a layer, and whether it has no TMPC.
        parts = [[list(zip(*(x[:4] for x in row), strict=True)) for row in q] for q in rows]
        least = [[[*map(min, four), 0] if four else [0, 0, 0, 0, 1] for four in q] for q in parts]
        self.sums = [[[0] * 5] for _ in self.tp]
        limit = max(1, min(MAX_DOWNSETS, MAX_BITS // self.instance.bits))
        ready = [sum(1 << v for v in range(n) if not after[v])]
        for i, mask in enumerate(self.masks):  # which grows meanwhile
            for v in bits(ready[i]):
                new = mask | 1 << v
                if new in self.known:
                    continue
                reject(len(self.masks) == limit, f"size: a graph of over {limit} downsets")
                self.known[new] = len(self.masks)
                self.masks.append(new)
                self.works.append(self.works[i] + self.work[v])
                self.sizes.append(self.sizes[i] + self.size[v])
                within, entering = sum(1 << e for e in outgoing[v].values()), sum(1 << e for e in incoming[v].values())
                self.crossing.append(self.crossing[i] & ~within | entering)
                freed = [u for u, _ in (ends[e] for e in incoming[v].values()) if not after[u] & ~new]
                ready.append(ready[i] & ~(1 << v) | sum(1 << u for u in freed))
                for sums, more in zip(self.sums, least, strict=True):
                    sums.append(list(map(add, sums[i], more[v])))
        need(self.masks[-1] == (1 << n) - 1, "a graph without cycles")

    def _pair(self, i: int, j: int, labels: list[Label]) -> None:
        """Rules 1 and 3 for stages from downset i to downset j."""
        free, stage = self.instance.K - self.rest[j], self.masks[j] & ~self.masks[i]
        into, out = self.crossing[j] & ~self.crossing[i], self.crossing[i] & ~self.crossing[j]
        goal = self.claims.get(i, 0) - self.rest[j] - 1  # what d t has to exceed
        most = max([goal, *(free - k for _, k in labels)])
        name = f"from {self.masks[i]:x} to {self.masks[j]:x}"
        for q, t in enumerate(self.tp):
            if most < t:
                break
            least = [y - x for x, y in zip(self.sums[q][i], self.sums[q][j], strict=True)]
            budget = self.budget(most // t)
            if least[4] or (budget is not None and least[0] > budget):
                continue
            ways = [(f"rule 1: {name}", int(i > 0), (0, bisect_right(self.instance.degrees, goal // t) - 1))]
            for s, k in labels:
                ways += [(f"rule 3: {name} at [{s}, {k}]", s, span) for span in self._uncovered(j, s, k, t, free)]
            for rule, s, span in ways:
                d = self._possible(t, stage, into, out, least, s, span)
                reject(d > 0, f"{rule}, a stage with d = {d}, t = {t} is not covered")

    def _uncovered(self, j: int, s: int, k: int, t: int, free: int) -> Iterator[tuple[int, int]]:
        """The degrees, by first and last position, at which a stage from [s, k] to downset j is not covered."""
        labels, degrees, first = self.labels.get(j, ()), self.instance.degrees, 0
        most = min((free - k) // t, self.instance.N - s)
        if self.instance.exactly:
            arrivals = dict(labels)  # the least k of each s comes last
            for at, d in enumerate(degrees[: bisect_right(degrees, most)]):
                if arrivals.get(s + d, math.inf) <= k + d * t:
                    yield first, at - 1
                    first = at + 1
        else:
            most = min([most, *(max(s1 - s, -(-(k1 - k) // t)) - 1 for s1, k1 in labels)])
        yield first, bisect_right(degrees, most) - 1

    def _possible(
        self, t: int, stage: int, into: int, out: int, least: list[int], s: int, span: tuple[int, int]
    ) -> int:
        """A degree among those positions at which the stage is possible at s + d; 0 if there is none."""
        pending = [span]
        while pending:
            first, last = pending.pop()
            if first > last:
                continue
            low, d = self.instance.degrees[first], self.instance.degrees[last]
            y, (part, whole) = -(-(s + d) // d), self.instance.share(low)
            budget = self.budget(d, whole)
            if least[2] * y + least[3] > self.instance.capacity:
                continue
            if budget is not None and least[0] * whole + least[1] * part > budget:
                continue
            if not self.fits(t, stage, into, out, low, d, y):
                continue
            if first == last:
                return d
            middle = (first + last) // 2
            pending += [(first, middle), (middle + 1, last)]
        return 0

    def _fits(self, t: int, stage: int, into: int, out: int, low: int, d: int, y: int) -> bool:
        """Whether a choice costs at most d L, with the synchronisation of ``low``, and y fit into the memory."""
        near, budget = self.instance.near, self.budget(d, self.instance.share(low)[1])
        held, holds = self.instance.held(stage), self.instance.holds
        groups = [self.group(v, t, low, y, into & near[v], out & near[v], held & holds[v]) for v in bits(stage)]
        return fits(groups, budget, self.instance.capacity)


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    done, s, K, held, slowest, ends = 0, 0, 0, 0, Fraction(0), list(enumerate(instance.ends))
    for stage in reversed(plan["stages"]):
        d, t, nodes = count(stage["dp_degree"]), count(stage["tp_degree"]), [str(node) for node in stage["nodes"]]
        reject(not nodes or not instance.index.keys() >= set(nodes), "plan: a stage without layers, or an unknown one")
        found = [instance.tmpcs[instance.index[v]].get(t, {}).get(stage["tmpcs"].get(v)) for v in nodes]
        chosen = [x for x in found if x is not None]
        reject(len(chosen) < len(nodes) or d not in instance.degrees, f"plan: TMPCs at t = {t}, or d = {d}")
        mask = sum(1 << v for v in {instance.index[v] for v in nodes})
        done, s, K, held = done | mask, s + d, K + d * t, held + len(nodes)
        into = sum(1 << e for e, (u, v) in ends if mask >> v & 1 and not mask >> u & 1)
        out = sum(1 << e for e, (u, v) in ends if mask >> u & 1 and not mask >> v & 1)
        reject(any(not done >> instance.ends[e][1] & 1 for e in bits(out)), "plan: an edge runs backwards")
        used = [instance.option(x, d, -(-s // d), into, out, instance.held(mask)) for x in chosen]
        reject(sum(memory for _, memory in used) > instance.capacity, "plan: memory")
        whole = d * instance.share(d)[1] * instance.B * instance.unit
        slowest = max(slowest, sum(cost for cost, _ in used) / whole)
    reject(held != len(instance.index) or done != (1 << held) - 1, "plan: every layer in one stage")
    reject(K > instance.K, f"plan: {K} devices")
    reject(s > instance.N or (instance.exactly and s < instance.N), f"plan: degrees that sum to {s}")
    return slowest


def tables(proof: Any) -> tuple[dict[int, list[Label]], dict[int, int]]:
    """The labels and the claimed numbers of devices of a proof, by downset."""
    labels: dict[int, list[Label]] = {}
    claims: dict[int, int] = {}
    for text, found, *claim in proof["downsets"]:
        mask = int(text, 16)
        need(mask not in labels and len(claim) < 2, "[downset, labels] or [downset, labels, r], no downset twice")
        labels[mask] = sorted(((count(s, 0), count(k, 0)) for s, k in found), reverse=True)
        claims.update((mask, count(r, 0)) for r in claim)
    return labels, claims


def proved(content: Any, certificate: Any) -> tuple[Fraction | None, Fraction | None]:
    """Objective and bound of a certificate of an instance, both as parsed JSON; `RejectedError`, or bad input."""
    reject(
        repr(certificate["format"]) != "1" or certificate["problem"] != "stage_partitioning",
        "format: not 1, or another problem's",
    )
    reject(certificate["proof"]["kind"] != "labels", "kind: a proof of another kind")
    reject(bool(content.get("requirements")), "requirements: they are not looked at")
    instance, plan = Instance(content), certificate["plan"]
    reject(certificate["instance_sha256"] != instance.digest, "instance: the certificate is of another one")
    stated = [certificate["objective"], certificate["bound"]]
    need(all(text is None or FRACTION.fullmatch(text) for text in stated), "fractions as text")
    objective, bound = (None if text is None else Fraction(text) for text in stated)
    labels, claims = tables(certificate["proof"])
    need((plan is None) == (objective is None), "a plan and its objective, or neither")
    need(plan is None or bound is not None, "a bound beside a plan")
    if plan is not None:
        reject(plan_time(instance, plan) != objective, "objective: not the time of the plan")
    if bound is None or bound > 0:
        Table(instance, bound).prove(labels, claims)
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
        "accepted": accepted, "problem": "stage_partitioning", "kind": "labels", "reason": reason,
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
