"""Check a certificate of flushed partitioning: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in its README, whose letters it uses
(K, K_1, m, L, C, R, s, d, t). Amounts of an instance are the float64 numbers that its JSON denotes, as exact rationals.
M+ is M (1 + 1e-12) (1 + 2^-50): what the definition admits, with the rounding of its sums. Without machines all devices
are one: K_1 = K, with the bandwidth of the network inside.

**Claims.** ``plan`` keeps every rule and takes ``objective``; every plan takes more than ``bound``, Q (if Q is 0: none
takes less, which needs no proof). If ``bound`` is null there is no plan; then Q is infinite below.

**Proof.** ``caps`` are rising times c_1 < ... < c_n; let c_0 be 0 and c_(n+1) be Q (no caps if Q is infinite). For
i = 0 to n no plan may have C <= c_(i+1), as many stages L on its longest path and such an R that
(1 + (L - 1)/m) c_i + R <= Q. The checker looks for such plans by itself, as below.

Where replicas fill, with T a stage's time for a micro-batch on one of its d replicas, p takes the place of C: the most
of (ceil(m/d) - 1) T/m. S is the largest sum of T on a path, a plan takes S/m + p + R, and no plan may have
p <= c_(i+1) and S/m + c_i + R <= Q.

**Theorem.** If it finds none, every plan takes more than Q.

*Proof.* Assume a plan of (1 + (L - 1)/m) C + R <= Q. As L >= 1 and R >= 0, C <= Q = c_(n+1), and C >= 0. Let i be the
least with C <= c_(i+1); then C >= c_i, and (1 + (L - 1)/m) c_i + R <= Q: a plan that was looked for. Where replicas
fill, so with p.

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
2. (1 + (l - 1)/m) low + r > Q, or where replicas fill l/m + low + r > Q;
3. another label of U' is nowhere larger.

Where replicas fill, ``high`` limits (ceil(m/d) - 1) T/m, and what steps take, and n divides by, is Q - low + high: with
S/m + low + R <= Q, T/d <= ceil(m/d) T/m <= S/m + p is no more. l and depths are sums of T on paths instead of numbers
of stages. Of a stage every degree is taken, with every choice within the limits that no other one beats in both T and
weights, up to the first degree with one that no choice beats in either, were nothing in flight.

*No plan is missed.* Take one that is looked for. Communication takes no negative time, so a stage on d t devices spends
at most d t high device-time, and at least w of its layers: any part of the stages takes n of its layers in devices at
least. Claim: if the last stages of the plan hold U, U has a label that is nowhere larger than their [s, k, r, l,
depths]. It holds for the empty set. Assume it for U, and let the stage before, of degrees t and d, lead to U'. From the
label of U a stage of degree d has no more micro-batches in flight, so the same choice fits, and the least weights w' at
d are no more than its own. Both limits get looser with larger d. So a d' <= d was taken: d itself, with w', or a less
one at which the weights are the least of all; and 4 (d - 1)/d rises with d. (Where replicas fill: at d a choice was
taken that takes no more T and weights, or one that none beats at a less degree.) Fewer replicas behind fewer devices
end no later; so they do inside one machine, if the plan's stage is: they straddle none, or begin the next one.
Elsewhere r counts a bandwidth that is no less than the plan's. The stage has one more stage on its paths than the
deepest of those that its edges lead to, or its T more. So a label that is nowhere larger than the plan's arises at U'.
It is not dropped by 1 and 2, as the plan has s <= m, k' + n(V - U') <= K, and at the end no smaller l and r than here,
and is looked for; if it is dropped by 3, the other one serves. For U = V this is a label of V. If none is left, there
was no plan.

All times are integers, multiples of 1 / (B unit); r is m B unit R rounded down, which only keeps more labels.

**Iterations.** With that objective a plan takes E/m + R, E when its last pass ends. Of each micro-batch a stage runs F,
of T/3, on one of its replicas, and B, of 2T/3; micro-batch j is on replica j mod d. F waits for F of the stages from
which an edge enters, B for its own F and for B of those to which one leads. Replicas run their passes in an order:
under GPipe all F, then all B; under 1F1B of p stages of one degree the i-th (from 0 on) p - 1 - i of F, or all, then F
and B in turn, and the rest of B. Where degrees differ, 1F1B is the order in which they would run if T were 3 d: what
can start does, B before F, lower micro-batches first, and F only while less than ceil(s/d) are in flight. The proof
(``plans``) has no data: the checker lists the plans that may take Q or less by itself, and simulates each.

*None is missed.* Plans grow from the output side: in front of each downset every larger one, of every t and d, by every
choice of TMPCs that fits and that no other one beats in both T and weights. As orders depend on degrees alone, E is
the longest path through one graph, which no larger T makes shorter; so what is beaten takes no less. Devices and r are
counted as above. What begins a plan is left where s exceeds m; where K is exceeded with n(V - U'), the least integer
from m w(V - U') / (m Q) on, as m T/d is at most E and so m Q; or where r and what follows exceed m Q together.

1. On the first replica of a stage M = ceil(m/d) micro-batches run, at most k at once: M under GPipe; under 1F1B of one
   degree p - i, which is s/d; else ceil(s/d). Let q be the largest sum of T on a path of stages behind. From its first
   pass to its last there are M T. Its first B begins T/3 + q after the first pass, or later, and until then at most k
   of F are done: left are (M - k) T/3 + M 2T/3. When its last F ends, M of F and M - k of B are done, and q + 2T/3
   later, or still later, its B ends. If M > k, some B ends before the last F begins; so the first B begins T/3 + q
   after the first pass, M - k of F and M - k of B lie between that and the end of the last F, and q + 2T/3 behind it.
2. In a stage behind, F of micro-batch 0 is the first pass, and waits for F here; its last B is followed by B here. So a
   stage takes T more than that one, from its first pass to its last.
3. In front of a stage's first pass are F of all layers on any path into it, and behind its last one B of them, of the
   least X.time of each.
"""

from __future__ import annotations

import hashlib
import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise, product
from operator import itemgetter, le
from typing import Any, NamedTuple

from formulations.contract.checker.downsets import MAX_BITS, MAX_STATES, savings, undominated
from formulations.contract.checker.frame import Checker, RejectedError, bits, count, exact, need, reject, stated
from formulations.contract.checker.layers import Lattice, Layers, Tmpc

MAX_CAPS = 1_000
MAX_DOWNSETS = 100_000  # of a graph
MAX_STEPS, MAX_NUMBERS = 5_000_000, 50_000_000  # of stages behind a label, and numbers in labels, of all searches
MAX_KEPT = 100_000  # of what is kept between knapsacks
MAX_GROWN = 1_000_000  # of stages in front of what begins a plan
MAX_PASSES, MAX_OF_PLAN = 5_000_000, 100_000  # of all plans that are simulated, and of one
FINE = 2**60  # parts of a unit, as r is rounded

Choice = tuple[int, int, int]  # cost, memory and weights
Label = tuple[int, ...]  # s, k, r, l and depths
Stage = tuple[int, int, int, int]  # t, and sets: layers, edges that enter and that leave it


class Instance(Layers):
    """An instance in integers; costs are in units of 1 / (B ``unit``)."""

    def __init__(self, content: Any) -> None:
        flat, schedule = content["flat"], content.get("schedule", "1f1b")
        most, model = flat.get("max_dp_degree"), flat.get("cost_model", "paper")
        need(
            model in ("paper", "released", "runtime") and flat.get("exactly", False) is False,
            "a cost model; exactly is false",
        )
        need(schedule in ("1f1b", "gpipe"), "the schedule 1f1b or gpipe")
        kept = model == "runtime" and bool(flat.get("kept"))
        reject(kept, "kept: activations that layers of several stages keep are not looked at")
        fill = content.get("fill", "stages")
        need(fill in ("stages", "replicas"), "the fill stages or replicas")
        objective = content.get("objective", "formula")
        need(objective in ("formula", "iteration"), "the objective formula or iteration")
        self.by_replicas, self.simulated = fill == "replicas", objective == "iteration"
        self.gpipe, self.K, self.m = schedule == "gpipe", count(flat["num_devices"]), count(flat["num_microbatches"])
        size = content.get("devices_per_machine")
        self.K1 = self.K if size is None else count(size)
        largest = min(self.K, self.m, self.K if most is None else count(most))
        self.degrees = [d for d in range(1, largest + 1) if model == "paper" or self.m % d == 0]
        self.B = exact(flat["bandwidth"])
        inner = self.B if size is None else exact(content["inner_bandwidth"])
        need(0 < self.B <= inner and self.K % self.K1 == 0, "whole machines, and a positive bandwidth, inside no less")
        self.inside = self.B / inner  # what synchronising in one machine takes, as a part of what it takes between them
        super().__init__(flat, self.B, FINE)
        memory = exact(flat["memory_bytes"])
        declared = [self.gpipe, self.K, self.m, self.degrees, memory, self.B, self.ids, self.ends, self.rows]
        declared += [] if size is None else [self.K1, inner]
        declared += [fill] if self.by_replicas else []
        declared += [objective] if self.simulated else []
        self.digest = hashlib.sha256(str(declared).encode()).hexdigest()

    def in_flight(self, s: int, d: int) -> int:
        """Micro-batches of a stage behind which, and in which, degrees sum to s."""
        return -(-(self.m if self.gpipe else s) // d)

    def later(self, d: int) -> int:
        """Micro-batches of the busiest of d replicas behind its first."""
        return -(-self.m // d) - 1

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
        return math.floor(Fraction((d - 1) * weights, d) * (self.inside if inside else 1))


def option(x: Tmpc, y: int, into: int, out: int) -> Choice:
    """Cost, memory with y in flight, and weights of a TMPC; two sets of edges cross the stage's boundary."""
    return x.cost(into, out), x.a * y + x.b, x.sync


def least_choices(options: list[Choice]) -> list[Choice]:
    """The options that none beats in all three, by rising cost."""
    kept: list[Choice] = []
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


def lightest(groups: list[list[Choice]], budget: int | None, capacity: float) -> int | None:
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
    steps = (step for group in groups for step in savings(undominated(x[:2] for x in group))) if over > 0 else ()
    for _, p, q in sorted(steps, key=itemgetter(0)):  # which keeps the order of a group's steps
        left, over = left - p, over - q
        if over <= 0:
            break
    if left >= 0 and all(w == group[0][2] for group in groups for _, _, w in group):
        return sum(group[0][2] for group in groups)  # with the steps that were taken it fits
    # For any p, q >= 0, q cost + p memory of a choice within the limits exceeds its least value by ``slack`` at most.
    least = [min(q * c + p * m for c, m, _ in group) for group in groups]
    slack = q * budget + p * int(capacity) - sum(least)
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
        states = least_choices([x for x in sums if x[0] <= most and x[1] <= room and q * x[0] + p * x[1] <= used])
    return min((w for _, _, w in states), default=None)


def choices(groups: list[list[Choice]], capacity: float) -> list[tuple[int, int]]:
    """Cost and weights of the choices of one option of each group within the capacity that none beats in both."""
    if sum(group[0][1] for group in groups) <= capacity and all(
        group[0][2] == min(w for _, _, w in group) for group in groups
    ):
        return [(sum(group[0][0] for group in groups), sum(group[0][2] for group in groups))]
    least_memory = [min(m for _, m, _ in group) for group in groups]
    states, smallest = [(0, 0, 0)], sum(least_memory)
    for group, memory in zip(groups, least_memory, strict=True):
        smallest -= memory
        reject(len(states) * len(group) > MAX_STATES, f"size: a knapsack with over {MAX_STATES} states")
        sums = [(c0 + c, m0 + m, w0 + w) for c0, m0, w0 in states for c, m, w in group]
        states = least_choices([x for x in sums if x[1] + smallest <= capacity])
    return undominated((c, w) for c, _, w in states)


class Searches(Lattice[Instance]):
    """The downsets of an instance, with what all searches among them share."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance, instance.K1)
        self.steps = self.numbers = 0
        self.enumerate(MAX_DOWNSETS)
        self.keep = min(MAX_KEPT, MAX_BITS // 8 // instance.bits)
        self.group = lru_cache(self.keep)(self._group)
        #: The layers outside a downset that have an edge into it.
        self.front = [sorted({instance.ends[e][0] for e in bits(edges)}) for edges in self.crossing]

    def _group(self, v: int, t: int, y: int, into: int, out: int) -> list[Choice]:
        return least_choices([option(x, y, into, out) for x in self.tmpcs[v][t].values()])


class Search:
    """Labels of all downsets for plans of C <= ``high`` that take at most ``bound`` with C = ``low``; None: any.

    Where replicas fill, C is p.
    """

    def __init__(self, lattice: Searches, bound: Fraction | None, low: Fraction, high: Fraction | None) -> None:
        self.lattice, self.instance = lattice, lattice.instance
        scale, m = self.instance.B * self.instance.unit, self.instance.m
        self.by_replicas = self.instance.by_replicas
        self.limit = None if high is None else high * scale
        self.cap = None if self.limit is None else m * self.limit
        if self.limit is not None and bound is not None and self.by_replicas:
            self.limit += (bound - low) * scale
        #: The largest r that rule 2 allows, by l; ``None``: any. Where replicas fill, the largest r + l.
        self.room = None
        if bound is not None and self.by_replicas:
            self.room = [math.floor((bound - low) * m * scale)]
        elif bound is not None:
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
        self.lightest = lru_cache(lattice.keep)(self._lightest)
        self.choices = lru_cache(lattice.keep)(self._choices)

    def _devices(self, work: int) -> int:
        """n of some layers, at least one."""
        return 1 if self.limit is None else max(1, math.ceil(work / self.limit))

    def _is_late(self, r: int, depth: int) -> bool:
        """Rule 2."""
        if self.room is not None and self.by_replicas:
            return r + depth > self.room[0]
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
        kept = [(at_i.get(v, 3), bool(instance.after[v] & stage)) for v in lattice.front[j]]
        for q, t in enumerate(lattice.tp):
            cost, weights, a, b, missing = (y - x for x, y in zip(lattice.sums[q][i], lattice.sums[q][j], strict=True))
            if missing or a + b > instance.capacity:
                continue
            first = 0 if self.limit is None else bisect_left(instance.degrees, cost / self.limit)
            for label in labels:
                s, k, r = label[:3]
                degrees = instance.degrees[first : bisect_right(instance.degrees, min((free - k) // t, instance.m - s))]
                deepest = max((label[at] for at in behind), default=0)
                if not degrees or self._is_late(r, max(label[3], deepest + (cost if self.by_replicas else 1))):
                    continue
                lattice.steps += 1
                reject(lattice.steps > MAX_STEPS, f"size: over {MAX_STEPS} stages behind labels")
                for d, own, added in self._taken(degrees, weights, s, (t, stage, into, out)):
                    depth = deepest + added if self.room is not None else 0
                    top = max(label[3], depth)
                    depths = [max(label[at] if at > 3 else 0, depth if reaches else 0) for at, reaches in kept]
                    for end, inside in instance.ends_of(k, d, t):
                        longest = max(r, instance.sync(d, own, inside))
                        lattice.numbers += 4 + len(depths)
                        reject(lattice.numbers > MAX_NUMBERS, f"size: labels of over {MAX_NUMBERS} numbers")
                        if end <= free and not self._is_late(longest, top):
                            self.reached[j].add((s + d, end, longest, top, *depths))

    def _taken(self, degrees: list[int], least: int, s: int, stage: Stage) -> Iterator[tuple[int, int, int]]:
        """The degrees taken behind degrees that sum to s, with weights, at best the ``least``, and what adds to l."""
        if self.by_replicas:
            yield from self._taken_by_replicas(degrees, s, stage)
            return

        def weights(d: int) -> int | None:
            return self.lightest(stage, d, self.instance.in_flight(s + d, d))

        if weights(degrees[-1]) is not None:
            for d in degrees[bisect_left(degrees, True, key=lambda d: weights(d) is not None) :]:
                own = weights(d) or 0
                yield d, own, 1
                if self.room is None or own == least:
                    return

    def _taken_by_replicas(self, degrees: list[int], s: int, stage: Stage) -> Iterator[tuple[int, int, int]]:
        ample = self.choices(stage, 0)  # by rising costs and falling weights
        for d in degrees if ample else ():
            for cost, own in self.choices(stage, self.instance.in_flight(s + d, d)):
                slow = self.limit is not None and cost > d * self.limit
                if not slow and (self.cap is None or self.instance.later(d) * cost <= self.cap):
                    yield d, own, cost
                    if self.room is None or (cost, own) == (ample[0][0], ample[-1][1]):
                        return

    def _choices(self, stage: Stage, y: int) -> list[tuple[int, int]]:
        """Cost and weights of what fits with y in flight."""
        t, layers, into, out = stage
        edges = self.instance.near
        groups = [self.lattice.group(v, t, y, into & edges[v], out & edges[v]) for v in bits(layers)]
        return choices(groups, self.instance.capacity)

    def _lightest(self, stage: Stage, d: int, y: int) -> int | None:
        """The least weights of a choice that fits with degree d and y in flight; ``None`` if there is none."""
        t, layers, into, out = stage
        edges, budget = self.instance.near, None if self.limit is None else math.floor(d * self.limit)
        groups = [self.lattice.group(v, t, y, into & edges[v], out & edges[v]) for v in bits(layers)]
        return lightest(groups, budget, self.instance.capacity)


Pass = tuple[int, int, int]  # 0 for F and 1 for B, stage, micro-batch
Hands = list[tuple[int, int]]  # which stages hand to which


@lru_cache(16)
def orders(gpipe: bool, degrees: tuple[int, ...], m: int) -> list[list[Pass]]:
    """The passes of every replica, stage by stage."""
    if not gpipe and len(set(degrees)) > 1:
        return paced(degrees, m)
    found = []
    for i, d in enumerate(degrees):
        for batches in (range(r, m, d) for r in range(d)):
            ahead = len(batches) if gpipe else min(len(batches), len(degrees) - 1 - i)
            order = [(0, i, j) for j in batches[:ahead]]
            for n, j in enumerate(batches):
                order += [(0, i, later) for later in batches[ahead + n : ahead + n + 1]]
                order.append((1, i, j))
            found.append(order)
    return found


def paced(degrees: tuple[int, ...], m: int) -> list[list[Pass]]:
    """1F1B of degrees that differ: what can start does, if F takes d and B 2 d; at each time all ends come first."""
    replicas = [(i, r) for i, d in enumerate(degrees) for r in range(d)]
    found: dict[tuple[int, int], list[Pass]] = {key: [] for key in replicas}
    waiting: dict[tuple[int, int], tuple[list[int], list[int]]] = {key: ([], []) for key in replicas}  # F and B
    held, free = dict.fromkeys(replicas, 0), dict.fromkeys(replicas, True)
    running: list[tuple[int, Pass]] = []
    for j in range(m):
        waiting[0, j % degrees[0]][0].append(j)
    now, looked_at = 0, {(0, r) for r in range(degrees[0])}  # replicas of which something has changed
    while True:
        for i, r in looked_at:
            forward, backward = waiting[i, r]
            if free[i, r] and (backward or (forward and held[i, r] < -(-sum(degrees[i:]) // degrees[i]))):
                kind = 1 if backward else 0
                j = heappop(waiting[i, r][kind])
                held[i, r], free[i, r] = held[i, r] + 1 - kind, False
                found[i, r].append((kind, i, j))
                heappush(running, (now + degrees[i] * (1 + kind), (kind, i, j)))
        if not running:
            return list(found.values())
        now, looked_at = running[0][0], set()
        while running and running[0][0] == now:
            kind, i, j = heappop(running)[1]
            key = i, j % degrees[i]
            held[key], free[key] = held[key] - kind, True
            after, at = (1, i - 1) if kind else (1, i) if i == len(degrees) - 1 else (0, i + 1)
            looked_at.add(key)
            if at >= 0:
                heappush(waiting[at, j % degrees[at]][after], j)
                looked_at.add((at, j % degrees[at]))


def last_end(passes: list[list[Pass]], costs: list[int], hands: Hands) -> int:
    """Three times the end of the last pass; F takes a third of a stage's cost."""
    front = [[u for u, v in hands if v == i] for i in range(len(costs))]
    behind = [[v for u, v in hands if u == i] for i in range(len(costs))]
    end: dict[Pass, int] = {}
    places, free = [0] * len(passes), [0] * len(passes)
    asleep: dict[Pass, list[int]] = {}  # replicas by the pass that they wait for
    awake = list(range(len(passes)))
    while awake:
        r = awake.pop()
        while places[r] < len(passes[r]):
            kind, i, j = passes[r][places[r]]
            needs = [(1, v, j) for v in behind[i]] + [(0, i, j)] if kind else [(0, u, j) for u in front[i]]
            missing = next((each for each in needs if each not in end), None)
            if missing is not None:
                asleep.setdefault(missing, []).append(r)
                break
            free[r] = max([free[r], *(end[each] for each in needs)]) + costs[i] * (1 + kind)
            end[kind, i, j] = free[r]
            places[r] += 1
            awake += asleep.pop((kind, i, j), [])
    reject(places != list(map(len, passes)), "plan: its passes wait for each other")
    return max(end.values())


class Behind(NamedTuple):
    """The last stages of a plan, from the output side on, with ``low``: three times the least that its passes take."""

    i: int  # the downset that they hold
    s: int
    k: int
    r: int
    low: int
    stages: tuple[Last, ...]


class Last(NamedTuple):
    """A stage: layers, d, t, cost and weights, q behind it, three times its part of ``low``, and its edges out."""

    layers: int
    d: int
    t: int
    cost: int
    weights: int
    q: int
    span: int
    out: int


def batch_of(instance: Instance, stages: tuple[Last, ...]) -> Fraction:
    """m B unit times what a plan takes, its stages from the output side on."""
    ordered = stages[::-1]
    reject(2 * instance.m * len(stages) > MAX_OF_PLAN, f"size: a plan of over {MAX_OF_PLAN} passes")
    place = {v: i for i, stage in enumerate(ordered) for v in bits(stage.layers)}
    hands = sorted({(i, place[instance.ends[e][1]]) for i, stage in enumerate(ordered) for e in bits(stage.out)})
    passes = orders(instance.gpipe, tuple(stage.d for stage in ordered), instance.m)
    end = last_end(passes, [stage.cost for stage in ordered], hands)
    return Fraction(end, 3) + longest(instance, [(stage.d, stage.t, stage.weights) for stage in stages])


def within(lattice: Searches, bound: Fraction | None) -> Iterator[bool]:
    """For every stage that is looked at whether a plan ends with it that takes at most ``bound``; None: any plan."""
    instance, masks, full = lattice.instance, lattice.masks, len(lattice.masks) - 1
    m, K = instance.m, instance.K
    room = None if bound is None else bound * m * instance.B * instance.unit
    tops = path_times(lattice)
    kept = lru_cache(lattice.keep)(
        lambda t, layers, into, out, y: choices(
            [lattice.group(v, t, y, into & instance.near[v], out & instance.near[v]) for v in bits(layers)],
            instance.capacity,
        )
    )
    rest = [
        0 if room is None or not room else math.ceil(m * (lattice.works[-1] - work) / room) for work in lattice.works
    ]
    stack, passes = [Behind(0, 0, 0, 0, 0, ())], 0
    while stack:
        i, s, k, r, low, stages = stack.pop()
        larger = (j for j in range(full + 1) if masks[j] & masks[i] == masks[i] and masks[j] != masks[i])
        for j, (q, t) in product(larger, enumerate(lattice.tp)):
            if lattice.sums[q][j][4] != lattice.sums[q][i][4]:
                continue  # a layer has no TMPC at t
            layers, most = masks[j] & ~masks[i], K - max(rest[j], int(j < full))
            into, out = lattice.crossing[j] & ~lattice.crossing[i], lattice.crossing[i] & ~lattice.crossing[j]
            next_ones = [each for each in stages if any(each.layers >> instance.ends[e][1] & 1 for e in bits(out))]
            behind = max((each.q + each.cost for each in next_ones), default=0)
            head = max((tops[instance.ends[e][0]] for e in bits(into)), default=0)
            for d in instance.degrees[: bisect_right(instance.degrees, min((most - k) // t, m - s))]:
                for cost, own in kept(t, layers, into, out, instance.in_flight(s + d, d)):
                    lattice.steps += 1
                    reject(lattice.steps > MAX_GROWN, f"size: over {MAX_GROWN} stages in front of others")
                    alone = span_of(-(-m // d), min(-(-m // d), instance.in_flight(s + d, d)), cost, behind)
                    span = max(alone, max((each.span for each in next_ones), default=0) + 3 * cost)
                    least, plan = max(low, span + 3 * head), (*stages, Last(layers, d, t, cost, own, behind, span, out))
                    for end, inside in instance.ends_of(k, d, t):
                        longer = max(r, instance.sync(d, own, inside))
                        if end > most or (room is not None and least + 3 * longer > 3 * room):
                            continue
                        if j < full:
                            stack.append(Behind(j, s + d, end, longer, least, plan))
                            continue
                        passes += 2 * m * len(plan)
                        reject(passes > MAX_PASSES, f"size: over {MAX_PASSES} passes of plans that are simulated")
                        yield room is None or batch_of(instance, plan) <= room
                yield False


def span_of(M: int, k: int, T: int, q: int) -> int:
    """Three times what 1. says."""
    ways = [3 * M * T, T + 3 * q + (M - k) * T + 2 * M * T, M * T + (M - k) * 2 * T + 3 * q + 2 * T]
    return max(ways if k >= M else [*ways, 3 * T + 6 * q + (M - k) * 3 * T])


def path_times(lattice: Searches) -> list[int]:
    """For every layer the largest sum of least X.time on a path of layers that ends with it."""
    instance, found = lattice.instance, dict[int, int]()
    least = [min((x.time for row in layer.values() for x in row.values()), default=0) for layer in lattice.tmpcs]
    while len(found) < len(least):
        for v in range(len(least)):
            before = [u for u, w in instance.ends if w == v]
            if v not in found and all(u in found for u in before):
                found[v] = least[v] + max((found[u] for u in before), default=0)
    return [found[v] for v in range(len(least))]


def prove(instance: Instance, bound: Fraction | None, proof: Any) -> None:
    """`RejectedError` if a plan that is looked for may exist."""
    need((proof["kind"] == "plans") == instance.simulated, "caps for a formula, plans for an iteration")
    if instance.simulated:
        lattice = Searches(instance)
        reject(not lattice.unplaced and any(within(lattice, bound)), "plans: one takes no more than the bound")
        return
    reject(len(proof["caps"]) > MAX_CAPS, f"size: over {MAX_CAPS} caps")
    caps = [cap for cap in map(stated, proof["caps"]) if cap is not None]
    need(all(low < high for low, high in pairwise(caps)) and (not caps or bound is not None), "caps that rise")
    need(not caps or (caps[0] > 0 and bound is not None and caps[-1] < bound), "caps between 0 and the bound")
    lattice = Searches(instance)
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
    done, s, slowest = 0, 0, Fraction(0)
    depth: dict[int, int] = {}  # of the stage that holds a layer
    stages: list[Last] = []  # from the output side on
    for stage in reversed(plan["stages"]):
        d, t, mask, chosen, into, out = instance.stage(stage, done)
        reject(d not in instance.degrees, f"plan: d = {d}")
        done, s = done | mask, s + d
        used = [option(x, instance.in_flight(s, d), into, out) for x in chosen]
        reject(sum(memory for _, memory, _ in used) > instance.capacity, "plan: memory")
        cost = sum(cost for cost, _, _ in used)
        stages.append(Last(mask, d, t, cost, sum(weights for _, _, weights in used), 0, 0, out))
        own = (cost if instance.by_replicas else 1) + max((depth[instance.ends[e][1]] for e in bits(out)), default=0)
        depth.update(dict.fromkeys(bits(mask), own))
        slowest = max(slowest, Fraction(instance.later(d) * cost) if instance.by_replicas else Fraction(cost, d))
    reject(done != (1 << len(instance.ids)) - 1, "plan: every layer in one stage")
    reject(s > instance.m, f"plan: degrees that sum to {s}")
    if instance.simulated:
        return batch_of(instance, tuple(stages)) / (instance.m * instance.B * instance.unit)
    top = max(depth.values())
    batch = top + slowest if instance.by_replicas else (instance.m + top - 1) * slowest
    replicas = [(stage.d, stage.t, stage.weights) for stage in stages]
    return (batch + longest(instance, replicas)) / (instance.m * instance.B * instance.unit)


def longest(instance: Instance, replicas: list[tuple[int, int, int]]) -> Fraction:
    """m B unit times the longest synchronisation of stages, lain from the output side on so that it is shortest."""
    ways = [[Fraction((d - 1) * own, d) * part for part in (instance.inside, 1)] for d, _, own in replicas]
    for most in sorted({each for row in ways for each in row}):
        k = 0
        for (d, t, _), (inside, between) in zip(replicas, ways, strict=True):
            reject(t > instance.K1, f"plan: t = {t} in a machine")
            found = [end for end, near in instance.ends_of(k, d, t) if (inside if near else between) <= most]
            k = min(found, default=instance.K + 1)
        if k <= instance.K:
            return most
    raise RejectedError(f"plan: it does not fit on {instance.K} devices")


CHECKER = Checker("flushed_partitioning", ("caps", "plans"), Instance, plan_time, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
