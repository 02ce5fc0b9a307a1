"""Check a certificate of hierarchical partitioning: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in its README, whose letters it uses
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
import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from formulations.contract.checker.downsets import MAX_BITS, Option, fits, undominated
from formulations.contract.checker.frame import MAX_COUNT, Checker, bits, count, exact, need, reject
from formulations.contract.checker.layers import Lattice, Layers, Tmpc

MAX_DOWNSETS = 20_000  # of a graph
MAX_STEPS, MAX_WAYS = 5_000_000, 20_000_000  # of stages behind an inner label, and of superstages
MAX_KEPT = 200_000  # of what is kept between knapsacks

Label = tuple[int, int]  # s and k, or x and h
Stage = tuple[int, int, int, int]  # t, and sets: layers, edges that enter and that leave it


class Instance(Layers):
    """An instance in integers; costs are in units of 1 / (B_1 ``unit``)."""

    def __init__(self, content: Any) -> None:
        flat, self.model = content["flat"], content.get("memory_model", "precise")
        need(not content.get("upper_levels"), "no levels above machines")
        need(content.get("objective", "steady") == "steady", "the objective steady")
        need(
            flat.get("cost_model", "paper") == "paper" and flat.get("exactly", False) is False, "the paper's cost model"
        )
        need(flat.get("max_dp_degree") is None, "no largest degree")
        need(self.model in ("none", "crude", "precise"), "a memory model: none, crude or precise")
        self.K1, self.K2 = count(content["devices_per_machine"]), count(content["num_machines"])
        self.N = count(flat["num_microbatches"])
        need(self.K1 * self.K2 <= MAX_COUNT, f"at most {MAX_COUNT} devices")
        self.B1, self.B2 = exact(content["inner_bandwidth"]), exact(content["outer_bandwidth"])
        need(self.B2 > 0, "positive bandwidths")
        super().__init__(flat, self.B1)
        if self.model == "none":
            self.capacity = math.inf
        memory, cluster = exact(flat["memory_bytes"]), [self.model, self.K1, self.K2, self.B1, self.B2]
        declared = [cluster, self.N, memory, self.ids, self.ends, self.sizes, self.rows]
        self.digest = hashlib.sha256(str(declared).encode()).hexdigest()
        #: Of the link, in units of 1 / (B_2 ``byte``): 4 w of a layer, the least t X.w, and 2 c of an edge.
        weights = [
            min((t * w for u, t, _, _, w, *_ in self.rows if u == v), default=Fraction(0)) for v in range(len(self.ids))
        ]
        self.byte = max(c.denominator for c in (*weights, *self.sizes))
        self.whole, self.bytes = [int(w * self.byte) for w in weights], [int(2 * c * self.byte) for c in self.sizes]

    def in_flight(self, s: int, d1: int, d2: int) -> int:
        """Micro-batches of a stage behind which, and in which, degrees sum to s."""
        return -(-min(self.N, self.K1 * self.K2) // d1) if self.model == "crude" else -(-s // (d1 * d2))


def option(x: Tmpc, d1: int, y: int, into: int, out: int) -> Option:
    """Cost, d_1 d_1 times the time, and memory with y in flight; two sets of edges cross the stage's boundary."""
    return x.cost(into, out) * d1 + x.sync * (d1 - 1), x.a * y + x.b


class Search:
    """The search for a plan within T; None: of any time."""

    def __init__(self, lattice: Lattice[Instance], bound: Fraction | None) -> None:
        self.lattice, self.instance, self.steps, self.tried = lattice, lattice.instance, 0, 0
        instance, last = self.instance, len(lattice.masks) - 1
        self.whole = lattice.downsets.sums(instance.whole)
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
        return (d2 - 1) * (self.whole[j] - self.whole[i]) + d2 * crossing <= d2 * d2 * self.link

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


def lattice_of(instance: Instance) -> Lattice[Instance]:
    """All downsets."""
    lattice = Lattice(instance, instance.K1)
    lattice.enumerate(MAX_DOWNSETS)
    return lattice


def prove(instance: Instance, bound: Fraction | None, _: Any) -> None:
    """`RejectedError` if a plan within the bound may exist."""
    search = Search(lattice_of(instance), bound)
    for _ in search.run():
        pass
    reject(bool(search.labels[-1]), "bound: a plan within it is not excluded")


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    done, s, machines, slowest = 0, 0, 0, Fraction(0)
    for superstage in reversed(plan["stages"]):
        d2, begin, devices = count(superstage["dp_degree"]), done, 0
        reject(not superstage["inner"], "plan: a superstage without stages")
        for stage in reversed(superstage["inner"]):
            d1, t, mask, chosen, into, out = instance.stage(stage, done)
            done, s, devices = done | mask, s + d1 * d2, devices + d1 * t
            used = [option(x, d1, instance.in_flight(s, d1, d2), into, out) for x in chosen]
            reject(sum(memory for _, memory in used) > instance.capacity, "plan: memory")
            cost = Fraction(sum(cost for cost, _ in used), d1 * d1 * d2)
            slowest = max(slowest, cost / (instance.B1 * instance.unit))
        mask, machines = done & ~begin, machines + d2
        volume = d2 * sum(instance.bytes[e] for way in instance.crossing(mask) for e in bits(way))
        weights = (d2 - 1) * sum(instance.whole[v] for v in bits(mask))
        slowest = max(slowest, Fraction(volume + weights, d2 * d2) / (instance.B2 * instance.byte))
        reject(devices > instance.K1, f"plan: {devices} devices of a machine")
    reject(done != (1 << len(instance.ids)) - 1, "plan: every layer in one stage")
    reject(machines > instance.K2, f"plan: {machines} machines")
    reject(s > instance.N, f"plan: degrees that sum to {s}")
    return slowest


CHECKER = Checker("hierarchical_partitioning", ("search",), Instance, plan_time, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
