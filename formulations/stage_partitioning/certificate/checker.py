"""Check a certificate of stage partitioning: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in its README, whose letters it uses
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
import math
import sys
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from formulations.contract.checker.downsets import MAX_BITS, Option, fits, undominated
from formulations.contract.checker.frame import Checker, bits, count, exact, need, reject
from formulations.contract.checker.layers import Lattice, Layers, Tmpc

MAX_DOWNSETS = 100_000  # of a graph
MAX_KEPT = 100_000  # of what is kept between knapsacks

Label = tuple[int, int]  # s and k


class Instance(Layers):
    """An instance in integers."""

    def __init__(self, content: Any) -> None:
        model, exactly = content.get("cost_model", "paper"), content.get("exactly", False)
        most = content.get("max_dp_degree")
        need(model in ("paper", "released", "runtime") and type(exactly) is bool, "a cost model; exactly true or false")
        self.released, self.exactly = model != "paper", exactly
        self.K, self.N = count(content["num_devices"]), count(content["num_microbatches"])
        largest = min(self.K, self.N, self.K if most is None else count(most))
        self.degrees = [d for d in range(1, largest + 1) if not self.released or self.N % d == 0]
        self.B = exact(content["bandwidth"])
        super().__init__(content, self.B)
        self.holds = [sum(1 << h for h, (u, _) in enumerate(self.carried) if u == v) for v in range(len(self.ids))]
        flags, memory = [self.released, self.exactly, self.K, self.N, self.degrees], exact(content["memory_bytes"])
        declared = [flags, memory, self.B, self.ids, self.ends, self.sizes, self.rows]
        declared += [self.tensors] if self.tensors else []
        self.digest = hashlib.sha256(str(declared).encode()).hexdigest()

    def share(self, d: int) -> tuple[int, int]:
        """What part of ``sync`` is paid at d, numerator and denominator, in d times the time of a stage."""
        return d - 1, self.N if self.released else d

    def held(self, stage: int) -> int:
        """Which of ``carried`` the layers of a stage add, as a set."""
        return sum(1 << h for h, (v, before) in enumerate(self.carried) if stage >> v & 1 and not stage & before)

    def option(self, x: Tmpc, d: int, y: int, into: int, out: int, held: int) -> Option:
        """Cost, times `share`'s denominator, and memory of a TMPC; two sets of edges cross the stage's boundary."""
        part, whole = self.share(d)
        a = x.a + sum(m for h, m in x.kept.items() if held >> h & 1)
        return x.cost(into, out) * whole + x.sync * part, a * y + x.b


class Table(Lattice[Instance]):
    """The downsets of an instance with their sums, and whether rules 1 to 4 hold for labels and claims."""

    def __init__(self, instance: Instance, bound: Fraction | None) -> None:
        super().__init__(instance, instance.K)
        self.limit = None if bound is None else bound * instance.B * instance.unit  # a stage's cost at d = 1
        unplaced = self.unplaced or (instance.exactly and instance.N > instance.K)
        self.settled = unplaced or self.devices(sum(self.work)) > instance.K
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
        self.enumerate(MAX_DOWNSETS)
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
    done, s, K, slowest = 0, 0, 0, Fraction(0)
    for stage in reversed(plan["stages"]):
        d, t, mask, chosen, into, out = instance.stage(stage, done)
        reject(d not in instance.degrees, f"plan: d = {d}")
        done, s, K = done | mask, s + d, K + d * t
        used = [instance.option(x, d, -(-s // d), into, out, instance.held(mask)) for x in chosen]
        reject(sum(memory for _, memory in used) > instance.capacity, "plan: memory")
        whole = d * instance.share(d)[1] * instance.B * instance.unit
        slowest = max(slowest, sum(cost for cost, _ in used) / whole)
    reject(done != (1 << len(instance.ids)) - 1, "plan: every layer in one stage")
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


def prove(instance: Instance, bound: Fraction | None, proof: Any) -> None:
    """`RejectedError` if a rule is broken."""
    Table(instance, bound).prove(*tables(proof))


CHECKER = Checker("stage_partitioning", ("labels",), Instance, plan_time, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
