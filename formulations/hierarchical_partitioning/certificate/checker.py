"""Check a certificate of hierarchical partitioning: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in this room's README, whose letters it uses
(K_1, K_2, B_1, B_2, N, S, s, x, d_1, d_2, t). Amounts of an instance are the float64 numbers that its JSON denotes, as
exact rationals. M+ is M (1 + 1e-12) (1 + 2^-50): what the definition admits, with the rounding of its sums.

**Claims.** ``plan`` keeps every rule and takes ``objective``; every plan takes more than ``bound``, T (if T is 0: none
takes less, which needs no proof). If ``bound`` is null there is no plan; then T is infinite below. The proof holds
nothing else: the checker looks for a plan within T by itself, as below.

**Theorem.** If it finds none, every plan takes more than T.

**The search.** V are the layers. A *downset* U holds all successors of its layers; the last stages of a plan hold one,
and so do its last superstages. A superstage from U to a larger U' on d_2 machines is *possible* if its link takes at
most T and w(U' - U) <= K_1 d_2 T; w is the sum over layers of the least t X.time over all t <= K_1 and X in T(v, t)
with X.a + X.b <= M+ (all X if memory is not counted). rest(U) is the least sum of d_2 of possible superstages that lead
from U to V, and infinite if that is more than K_2. The empty set has the label [0, 0], degrees and machines. From every
label [s, k] of U and for every d_2 <= K_2 - k a machine is filled: U has the inner label [0, 0], degrees d_1 and
devices. From every inner label [x, h] of W, for every larger W' and every t, a stage leads to W' with the least d_1 <=
(K_1 - h) / t at which a choice of X in T(v, t) takes at most d_2 T, and at most M+ with its micro-batches in flight,
ceil((s + d_2 (x + d_1)) / (d_1 d_2)), or ceil(S / d_1) if they are counted crudely. W' has the inner label [x + d_1,
h + d_1 t] then, if s + d_2 (x + d_1) <= N and h + d_1 t + ceil(w(U' - W') / (d_2 T)) <= K_1 for an *end* U': one that
holds W', to which the superstage from U is possible, with k + d_2 + rest(U') <= K_2. Every inner label [x, h] of an end
U' gives it the label [s + d_2 x, k + d_2]. Labels (of a downset, or of one in the same
machine) that another one is nowhere larger than are dropped.

*Proof.* Assume a plan within T. Each of its superstages is possible: stages inside take at most d_2 T and communication
takes no negative time, so the layers of a stage on d_1 t devices of a machine have work of at most d_1 t d_2 T, and a
machine has K_1 devices. So if its last superstages hold U, the others are on at least rest(U) machines.

(a) *If the last superstages hold U, with degrees that sum to s* and k* machines, U has a label [s, k] with s <= s* and
k <= k*.* It holds for the empty set. Assume it for U, and let the superstage before lead to U', on d_2 machines.

(b) *If the last stages hold W, which is U or within U', with degrees d_1 that sum to x* and h* devices since U, W has
an inner label [x, h] with x <= x* and h <= h*.* It holds for U. Assume it for W; let the stage before lead to W', of
degrees t and d_1. With s and x for s* and x* no more micro-batches are in flight, and they need no more memory, so that
the same choice fits: a least d_1' <= d_1 was found, and the inner label [x + d_1', h + d_1' t] or one nowhere larger:
U' is an end, and all that is left of its superstage is on K_1 - h* - d_1 t devices of a machine at most.

For W' = U' this gives the label [s + d_2 x, k + d_2] of (a) or one nowhere larger. For U' = V it is a label of V. If
there is none, there was no plan.

All times are integers, multiples of 1 / (B_1 unit).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from operator import add, itemgetter
from typing import Any, NamedTuple

MAX_BYTES = 64 * 2**20  # of a file
MAX_COUNT, MAX_AMOUNT = 10**6, 1e30
MAX_DOWNSETS, MAX_BITS = 20_000, 2**31  # of a graph, and of all its downsets together, with their edges
MAX_ENDS = 5_000_000  # of TMPCs at edges of their layers
MAX_STEPS, MAX_WAYS = 5_000_000, 20_000_000  # of stages behind an inner label, and of superstages
MAX_STATES, MAX_KEPT = 1_000_000, 200_000  # of a knapsack's list, and of what is kept between knapsacks
FRACTION = re.compile("[0-9]{1,2000}(/[1-9][0-9]{0,1999})?")

Option = tuple[int, int]  # cost and memory
Label = tuple[int, int]  # s and k, or x and h
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
        flat, self.model = content["flat"], content.get("memory_model", "precise")
        layers, edges = flat["layers"], flat.get("edges", [])
        need(content["problem"] == "hierarchical_partitioning", "an instance of hierarchical_partitioning")
        need(
            flat.get("cost_model", "paper") == "paper" and flat.get("exactly", False) is False, "the paper's cost model"
        )
        need(flat.get("max_dp_degree") is None, "no largest degree")
        need(self.model in ("none", "crude", "precise"), "a memory model: none, crude or precise")
        self.K1, self.K2 = count(content["devices_per_machine"]), count(content["num_machines"])
        self.N = count(flat["num_microbatches"])
        need(self.K1 * self.K2 <= MAX_COUNT, f"at most {MAX_COUNT} devices")
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
        self.B1, self.B2 = exact(content["inner_bandwidth"]), exact(content["outer_bandwidth"])
        sizes = [exact(edge["bytes"]) for edge in edges]
        need(self.B1 > 0 and self.B2 > 0, "positive bandwidths")

        ends = zip(self.incoming, self.outgoing, layers, strict=True)
        ends_of_all = sum((len(i) + len(o)) * sum(map(len, layer["tmpcs"].values())) for i, o, layer in ends)
        reject(ends_of_all > MAX_ENDS, f"size: over {MAX_ENDS} TMPCs at edges of their layers")

        def crossing(x: Any, way: str, near: dict[str, int]) -> dict[int, Fraction]:
            sync = {name: exact(c) for name, c in x.get(f"sync_{way}_bytes", {}).items()}
            need(sync.keys() <= near.keys(), "sync volumes of a layer's own edges")
            return {e: 2 * (sizes[e] + sync.get(name, 0)) for name, e in near.items()}

        rows = [
            (v, count(int(t)), str(x["id"]), self.B1 * exact(x["time"]), 4 * exact(x["weight_bytes"]),
             exact(x["activation_bytes"]), exact(x["static_bytes"]),
             crossing(x, "forward", self.incoming[v]), crossing(x, "backward", self.outgoing[v]))
            for v, layer in enumerate(layers) for t, row in layer["tmpcs"].items() for x in row
        ]  # fmt: skip
        memory, cluster = exact(flat["memory_bytes"]), [self.model, self.K1, self.K2, self.B1, self.B2]
        declared = [cluster, self.N, memory, ids, self.ends, sizes, rows]
        self.digest = hashlib.sha256(str(declared).encode()).hexdigest()
        # All denominators are powers of two, so that the largest is a common one.
        costs = (c for row in rows for c in (*row[3:5], *row[7].values(), *row[8].values()))
        self.unit = unit = max(c.denominator for c in costs)
        self.grain = grain = max(m.denominator for row in rows for m in row[5:7])
        slack = (1 + Fraction(1, 10**12)) * (1 + Fraction(1, 2**50))
        self.capacity = math.inf if self.model == "none" else math.floor(memory * slack * grain)
        #: Of the link, in units of 1 / (B_2 ``byte``): 4 w of a layer, the least t X.w, and 2 c of an edge.
        weights = [min((t * w for u, t, _, _, w, *_ in rows if u == v), default=Fraction(0)) for v in range(len(ids))]
        self.byte = max(c.denominator for c in (*weights, *sizes))
        self.whole, self.bytes = [int(w * self.byte) for w in weights], [int(2 * c * self.byte) for c in sizes]
        self.tmpcs: list[dict[int, dict[str, Tmpc]]] = [{} for _ in ids]
        for v, t, name, cost, weight, a, b, enters, leaves in rows:
            into, out = ({e: int(c * unit) for e, c in costs.items()} for costs in (enters, leaves))
            need(name not in self.tmpcs[v].setdefault(t, {}), "TMPCs, none twice")
            amounts = int(cost * unit), int(weight * unit), int(a * grain), int(b * grain)
            self.tmpcs[v][t][name] = Tmpc(*amounts, into, out)

    def in_flight(self, s: int, d1: int, d2: int) -> int:
        """Micro-batches of a stage behind which, and in which, degrees sum to s."""
        return -(-min(self.N, self.K1 * self.K2) // d1) if self.model == "crude" else -(-s // (d1 * d2))


def option(x: Tmpc, d1: int, y: int, into: int, out: int) -> Option:
    """Cost, d_1 d_1 times the time, and memory with y in flight; two sets of edges cross the stage's boundary."""
    crossing = sum(c for e, c in x.into.items() if into >> e & 1) + sum(c for e, c in x.out.items() if out >> e & 1)
    return (x.time + crossing) * d1 + x.sync * (d1 - 1), x.a * y + x.b


def bits(mask: int) -> Iterator[int]:
    """The positions in a set."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def undominated(options: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs that none beats in both, by rising first and falling second numbers."""
    kept: list[tuple[int, int]] = []
    for option in sorted(options):
        if not kept or option[1] < kept[-1][1]:
            kept.append(option)
    return kept


def savings(options: list[Option]) -> list[tuple[int, int, int]]:
    """The lower convex hull of undominated options as steps (ratio, more cost, less memory), ratios rising."""
    hull: list[Option] = []
    for c, m in options:
        while len(hull) > 1:
            (c0, m0), (c1, m1) = hull[-2:]
            if (c1 - c0) * (m1 - m) < (c - c1) * (m0 - m1):
                break
            hull.pop()
        hull.append((c, m))
    return [((c - c0 << 64) // (m0 - m), c - c0, m0 - m) for (c0, m0), (c, m) in pairwise(hull)]


def fits(groups: list[list[Option]], budget: int | None, capacity: float) -> bool:
    """Whether one of the undominated options of each group can be chosen within both limits; no budget: any cost."""
    if sum(group[-1][1] for group in groups) > capacity:
        return False
    if budget is None:
        return True
    left, over = budget - sum(group[0][0] for group in groups), sum(group[0][1] for group in groups) - capacity
    if left < 0 or over <= 0:
        return left >= 0
    p, q = 0, 0  # cost for memory, where the relaxed knapsack ends
    for _, p, q in sorted((step for group in groups for step in savings(group)), key=itemgetter(0)):
        left, over = left - p, over - q  # in the order of a group's steps
        if over <= 0:
            break
    if left >= 0:
        return True  # with the steps that were taken
    # For any p, q >= 0, q cost + p memory of a choice within the limits exceeds its least value by ``slack`` at most.
    least = [min(q * c + p * m for c, m in group) for group in groups]
    slack = q * budget + p * int(capacity) - sum(least)
    states, used = [(0, 0)], slack
    cheapest, lightest = sum(group[0][0] for group in groups), sum(group[-1][1] for group in groups)
    for group, low in zip(groups, least, strict=True):
        cheapest, lightest, used = cheapest - group[0][0], lightest - group[-1][1], used + low
        near = [(c, m) for c, m in group if q * c + p * m <= slack + low]
        reject(len(states) * len(near) > MAX_STATES, f"size: a knapsack with over {MAX_STATES} states")
        sums = [(c0 + c, m0 + m) for c0, m0 in states for c, m in near]
        most, room = budget - cheapest, capacity - lightest
        states = undominated((c, m) for c, m in sums if c <= most and m <= room and q * c + p * m <= used)
    return bool(states)


class Lattice:
    """The downsets of an instance from smaller to larger ones, with their sums."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.tmpcs = instance, instance.tmpcs
        self.tp = sorted({t for layer in self.tmpcs for t, row in layer.items() if row and t <= instance.K1})
        small = [
            [(t, x) for t in self.tp for x in layer.get(t, {}).values() if x.a + x.b <= instance.capacity]
            for layer in self.tmpcs
        ]
        self.work = [min((t * x.time for t, x in row), default=0) for row in small]
        self.unplaced = not all(small)
        incoming, outgoing, n = instance.incoming, instance.outgoing, len(self.tmpcs)
        after = [sum(1 << instance.ends[e][1] for e in row.values()) for row in outgoing]
        self.masks, self.crossing, self.works, self.whole, known = [0], [0], [0], [0], {0}
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
                self.whole.append(self.whole[i] + instance.whole[v])
                edges = sum(1 << e for e in incoming[v].values()), sum(1 << e for e in outgoing[v].values())
                self.crossing.append(self.crossing[i] & ~edges[1] | edges[0])
                freed = [u for u in (instance.ends[e][0] for e in incoming[v].values()) if not after[u] & ~new]
                ready.append(ready[i] & ~(1 << v) | sum(1 << u for u in freed))
                for sums, more in zip(self.sums, least, strict=True):
                    sums.append(list(map(add, sums[i], more[v])))
        need(self.masks[-1] == (1 << n) - 1, "a graph without cycles")


class Search:
    """The search for a plan within T; None: of any time."""

    def __init__(self, lattice: Lattice, bound: Fraction | None) -> None:
        self.lattice, self.instance, self.steps, self.tried = lattice, lattice.instance, 0, 0
        instance, last = self.instance, len(lattice.masks) - 1
        self.limit = None if bound is None else bound * instance.B1 * instance.unit
        self.link = None if bound is None else bound * instance.B2 * instance.byte
        #: The work of all machines.
        self.most = math.inf if self.limit is None else math.floor(instance.K1 * instance.K2 * self.limit)
        kept = min(MAX_KEPT, MAX_BITS // 8 // instance.bits)
        self.volume = lru_cache(kept)(lambda edges: sum(instance.bytes[e] for e in bits(edges)))
        self.fits, self.group = lru_cache(kept)(self._fits), lru_cache(kept)(self._group)
        self.budget = lru_cache(kept)(self._budget)
        self.labels: list[set[Label]] = [set() for _ in range(last + 1)]
        self.labels[0].add((0, 0))
        #: The larger downsets of each from which V can be reached, with the d_2 of possible superstages.
        self.ways: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(last + 1)]
        self.rest: list[float] = [math.inf] * last + [0]

    def run(self) -> Iterator[int]:
        """All downsets from larger to smaller ones, then from smaller to larger ones."""
        order = range(0 if self.lattice.unplaced else len(self.lattice.masks) - 1)
        for i in reversed(order):
            yield i
            self._prepare(i)
        for i in order:
            yield i
            self._extend(i)

    def _prepare(self, i: int) -> None:
        """Possible superstages from a downset, and the machines that they need, once it is done for larger ones."""
        masks, works, K2 = self.lattice.masks, self.lattice.works, self.instance.K2
        for j in range(i + 1, len(masks)):
            if masks[j] & masks[i] == masks[i] and self.rest[j] < K2 and works[j] - works[i] <= self.most:
                self.tried += K2 - int(self.rest[j])
                reject(self.tried > MAX_WAYS, f"size: over {MAX_WAYS} superstages")
                degrees = tuple(d2 for d2 in range(1, K2 - int(self.rest[j]) + 1) if self._is_possible(i, j, d2))
                if degrees:
                    self.ways[i].append((j, degrees))
                    self.rest[i] = min(self.rest[i], degrees[0] + self.rest[j])

    def _is_possible(self, i: int, j: int, d2: int) -> bool:
        lattice = self.lattice
        if self.limit is None or self.link is None:
            return True
        if lattice.works[j] - lattice.works[i] > self.instance.K1 * d2 * self.limit:
            return False
        crossing = self.volume(lattice.crossing[i] ^ lattice.crossing[j])
        return (d2 - 1) * (lattice.whole[j] - lattice.whole[i]) + d2 * crossing <= d2 * d2 * self.link

    def _extend(self, i: int) -> None:
        """All superstages in front of a downset, once it was done for smaller ones."""
        K2 = self.instance.K2
        for s, k in undominated(self.labels[i]):
            for d2 in range(1, K2 - k + 1):
                ends = {j for j, degrees in self.ways[i] if d2 in degrees and k + d2 + self.rest[j] <= K2}
                if ends:
                    self._fill(i, s, k, d2, ends)

    def _fill(self, i: int, s: int, k: int, d2: int, ends: set[int]) -> None:
        """Fill a machine from downset i on, as far as one of ``ends``."""
        masks, works = self.lattice.masks, self.lattice.works
        inner: dict[int, set[Label]] = {i: {(0, 0)}}
        inside: list[tuple[int, int]] = []  # downsets from i to one of the ends, with the devices that they may take
        for w in range(i, max(ends) + 1):
            behind = [works[j] - works[w] for j in ends if masks[j] & masks[w] == masks[w]]
            if behind and masks[w] & masks[i] == masks[i]:
                rest = 0 if self.limit is None else math.ceil(min(behind) / (d2 * self.limit))
                inside.append((w, self.instance.K1 - rest))
        for place, (w, _) in enumerate(inside):
            found = undominated(inner.get(w, ()))
            if w in ends:
                self.labels[w].update((s + d2 * x, k + d2) for x, _ in found)
            for j, most in inside[place + 1 :] if found else ():
                if masks[j] & masks[w] == masks[w]:
                    inner.setdefault(j, set()).update(self._stages(w, j, s, d2, found, most))

    def _stages(self, w: int, j: int, s: int, d2: int, found: list[Label], most: int) -> Iterator[Label]:
        """Where stages from downset w to downset j lead to from inner labels, with at most that many devices."""
        lattice, instance = self.lattice, self.instance
        layers = lattice.masks[j] & ~lattice.masks[w]
        into, out = lattice.crossing[j] & ~lattice.crossing[w], lattice.crossing[w] & ~lattice.crossing[j]
        for q, t in enumerate(lattice.tp):
            cost, sync, a, b, missing = (y - x for x, y in zip(lattice.sums[q][w], lattice.sums[q][j], strict=True))
            if missing or a + b > instance.capacity:
                continue
            for x, h in found:
                self.steps += 1
                reject(self.steps > MAX_STEPS, f"size: over {MAX_STEPS} stages behind inner labels")
                for d1 in range(1, min((most - h) // t, (instance.N - s) // d2 - x) + 1):
                    y, budget = instance.in_flight(s + d2 * (x + d1), d1, d2), self.budget(d1, d2)
                    if budget is not None and cost * d1 + sync * (d1 - 1) > budget:
                        continue
                    if a * y + b <= instance.capacity and self.fits((t, layers, into, out), d1, d2, y):
                        yield x + d1, h + d1 * t
                        break

    def _budget(self, d1: int, d2: int) -> int | None:
        return None if self.limit is None else math.floor(d1 * d1 * d2 * self.limit)

    def _group(self, v: int, t: int, d1: int, y: int, into: int, out: int) -> list[Option]:
        return undominated(option(x, d1, y, into, out) for x in self.lattice.tmpcs[v][t].values())

    def _fits(self, stage: Stage, d1: int, d2: int, y: int) -> bool:
        """Whether a choice takes at most d_2 T, and with y in flight at most M+."""
        (t, layers, into, out), near = stage, self.instance.near
        groups = [self.group(v, t, d1, y, into & near[v], out & near[v]) for v in bits(layers)]
        return fits(groups, self.budget(d1, d2), self.instance.capacity)


def prove(instance: Instance, bound: Fraction | None) -> None:
    """`RejectedError` if a plan within the bound may exist."""
    search = Search(Lattice(instance), bound)
    for _ in search.run():
        pass
    reject(bool(search.labels[-1]), "bound: a plan within it is not excluded")


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    done, s, machines, held, slowest = 0, 0, 0, 0, Fraction(0)
    for superstage in reversed(plan["stages"]):
        d2, begin, devices = count(superstage["dp_degree"]), done, 0
        reject(not superstage["inner"], "plan: a superstage without stages")
        for stage in reversed(superstage["inner"]):
            d1, t, nodes = count(stage["dp_degree"]), count(stage["tp_degree"]), [str(v) for v in stage["nodes"]]
            reject(not nodes or not instance.index.keys() >= set(nodes), "plan: an empty stage, or an unknown layer")
            found = [instance.tmpcs[instance.index[v]].get(t, {}).get(stage["tmpcs"].get(v)) for v in nodes]
            chosen = [x for x in found if x is not None]
            reject(len(chosen) < len(nodes), f"plan: TMPCs at t = {t}")
            mask = sum(1 << v for v in {instance.index[v] for v in nodes})
            done, s, devices, held = done | mask, s + d1 * d2, devices + d1 * t, held + len(nodes)
            into, out = _crossing(instance, mask)
            reject(any(not done >> instance.ends[e][1] & 1 for e in bits(out)), "plan: an edge runs backwards")
            used = [option(x, d1, instance.in_flight(s, d1, d2), into, out) for x in chosen]
            reject(sum(memory for _, memory in used) > instance.capacity, "plan: memory")
            cost = Fraction(sum(cost for cost, _ in used), d1 * d1 * d2)
            slowest = max(slowest, cost / (instance.B1 * instance.unit))
        mask, machines = done & ~begin, machines + d2
        volume = d2 * sum(instance.bytes[e] for way in _crossing(instance, mask) for e in bits(way))
        weights = (d2 - 1) * sum(instance.whole[v] for v in bits(mask))
        slowest = max(slowest, Fraction(volume + weights, d2 * d2) / (instance.B2 * instance.byte))
        reject(devices > instance.K1, f"plan: {devices} devices of a machine")
    reject(held != len(instance.index) or done != (1 << held) - 1, "plan: every layer in one stage")
    reject(machines > instance.K2, f"plan: {machines} machines")
    reject(s > instance.N, f"plan: degrees that sum to {s}")
    return slowest


def _crossing(instance: Instance, mask: int) -> tuple[int, int]:
    """The edges that enter a set of layers, and those that leave it."""
    ends = list(enumerate(instance.ends))
    into = sum(1 << e for e, (u, v) in ends if mask >> v & 1 and not mask >> u & 1)
    return into, sum(1 << e for e, (u, v) in ends if mask >> u & 1 and not mask >> v & 1)


def proved(content: Any, certificate: Any) -> tuple[Fraction | None, Fraction | None]:
    """Objective and bound of a certificate of an instance, both as parsed JSON; `RejectedError`, or bad input."""
    reject(
        repr(certificate["format"]) != "1" or certificate["problem"] != "hierarchical_partitioning",
        "format: not 1, or another problem's",
    )
    reject(certificate["proof"]["kind"] != "search", "kind: a proof of another kind")
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
        prove(instance, bound)
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
        "accepted": accepted, "problem": "hierarchical_partitioning", "kind": "search", "reason": reason,
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
