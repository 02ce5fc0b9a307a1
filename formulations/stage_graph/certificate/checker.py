"""Check a certificate of a stage graph: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in its README, whose letters it uses
(B, b, r, n, TPS, M). Amounts of an instance are the float64 numbers that its JSON denotes, as exact rationals; times
between two entries of a table are their chord. Memory is what the definition computes in float64: exact sums of weights
and of what a sample keeps, each rounded once, then two products and their sum; none of it falls where an amount rises.
Identical devices that share no operators, the objective ``tps`` and the schedule ``uniform`` (one size b in all stages,
1F1B) only.

**Claims.** ``plan`` keeps every rule and takes ``objective``; every plan takes more than ``bound``, T (if T is 0: none
takes less, which needs no proof). If ``bound`` is null there is no plan; then T is infinite below. The proof holds
nothing else: the checker looks for a plan within T by itself, as below.

**Theorem.** If it finds none for any size b that plans may use, every plan takes more than T.

**The search at a size b.** D devices; V are the operators. A *downset* U holds all successors of its operators. w is
the least of r (fw + bw) / b of an operator, and of r times what an edge adds to the TPS of a stage at each of its ends,
over all r <= min(D, b) with fw, bw and edges for the n samples at r. rest(U) is ceil(w / T), w summed over the
operators outside U and the edges from there into U. Labels of U are [k, depths]: devices, and for every operator
outside U with an edge into U the most stages on a path from one of those edges on, but no more than B/b. The empty set
has the label [0]. From every label of U and for every larger U' a stage leads to U' that holds U' - U. Its depth is 1
more than the largest of the depths of its operators (1 if there are none), but no more than B/b, and its r the least r
<= b with TPS <= T and, with depth micro-batches in flight, memory of at most M. U' has the label [k + r, depths] then,
if k + r + rest(U') <= D. A label that another one of U' is nowhere larger than is dropped.

*Proof.* Assume a plan of size b within T. Its stages, in an order in which no edge between two of them runs backwards
(there is one, as they form no cycle), from the last one on, lead from the empty set to V through downsets. A stage of r
devices has r TPS >= the sum of w over its operators and edges, as its other terms are not negative: all stages that
hold V - U take at least rest(U) devices, those that hold U at least as many as w over U and the edges that enter U says
(downsets for which both together are over D are left out), and one that holds U' - U at least ceil(w / T) with w of it.
A stage with d stages on its longest path (edges of the plan that no tensor needs only make it longer) keeps at least
min(d, B/b) micro-batches in flight: each stage one more than those behind it, up to B samples.

*If the stages that hold U take k* devices and have depths*, U has a label that is nowhere larger.* It holds for the
empty set. Assume it for U, and let the next stage, of r devices, lead to U'. From the label its depth is no larger, so
it needs no more memory, and r is possible: a least r' <= r was found. So a label that is nowhere larger than the plan's
arises at U'. It is not dropped for its devices, as k* + r + rest(U') <= D; if another label is nowhere larger, that one
serves. For U = V it is a label of V. If there is none, there was no plan.

**Equal chains.** Where there are too many downsets, those that differ by an exchange of equal chains are searched as
one. A *chain* has operators c1, c2, ..., each with its only edge out to the one before it, whose only edge in it is.
Chains of a *class* have equal operators and edges; c1 has edges to the same operators outside (the targets), and so has
the last one from there; no class borders on another. In a downset U a chain has c1 up to some c_l, and l is its height.
The search takes only downsets whose heights fall along each class. At a pair of them U, U' it counts, of the n edges
from a follower to its c_l in the chains of a class that enter U, and the n' that enter U', max(0, n' - n) as entering
the stage, and max(0, n - n') as leaving it. A class that is not all in U has one depth, that of its edges to its
targets; it counts for a stage that any operator of the class is in.

*Proof.* Sort the heights of each class in all downsets of a plan. What comes out is searched, and nested: if l <= l'
for each chain, so it is for the sorted heights. The stage between two has equally many operators of every kind as the
plan's, so equal work and weights; so are its edges without an end in a class, and those between a class and what is
outside, of which there is one for each c1, or each last operator, in the stage. Of the edges from followers to c_l at
least max(0, n' - n) enter the plan's stage, as those that enter U' and not U do, and at least max(0, n - n') leave it.
So its time and memory are no less than what is counted. Nor is its depth: a chain that goes on in the plan's stage has
an edge to a target in a stage behind, or to a lower operator of its own in one, from which the chain leads to all
targets. That stage is at least as deep as the edges to the targets say. So labels stay nowhere larger than the plan's.

Times at r are integers, multiples of one unit for each r; so are amounts of memory.
"""

from __future__ import annotations

import hashlib
import math
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import le
from typing import Any, NamedTuple

from formulations.contract.checker.downsets import MAX_BITS, Downsets
from formulations.contract.checker.frame import Checker, RejectedError, bits, count, exact, need, reject

MAX_DOWNSETS = 25_000  # of a graph
MAX_SUMS = 2_000_000  # of times of downsets at all degrees
MAX_STEPS = 20_000_000  # of pairs of nested downsets, of all sizes together
MAX_KEPT, MAX_NUMBERS = 100_000, 50_000_000  # of what is kept between pairs, and numbers in labels

Label = tuple[int, ...]  # k and depths


class Pass(NamedTuple):
    """Seconds of a pass: those of any number of samples, and of each, or at some numbers of samples."""

    fixed: Fraction
    each: Fraction
    table: tuple[tuple[int, Fraction], ...]

    def seconds(self, n: int) -> Fraction:
        """Of n samples on one device."""
        if not self.table:
            return self.fixed + self.each * n
        (low, early), (high, late) = self.table[0], self.table[-1]
        if n <= low or n >= high:
            return early if n <= low else late * n / high
        (low, early), (high, late) = next(pair for pair in pairwise(self.table) if pair[1][0] >= n)
        return early + (late - early) * Fraction(n - low, high - low)


def pass_of(declared: Any) -> Pass:
    """A pass as an instance declares it."""
    if "samples" not in declared:
        return Pass(exact(declared["fixed_s"]), exact(declared["per_sample_s"]), ())
    table = [(count(n), exact(t)) for n, t in zip(declared["samples"], declared["seconds"], strict=True)]
    need(bool(table) and all(m < n and t <= u for (m, t), (n, u) in pairwise(table)), "a table that rises")
    return Pass(Fraction(0), Fraction(0), tuple(table))


class Instance:
    """An instance; operators and edges by position."""

    def __init__(self, content: Any) -> None:
        for key, only in (("device_graph", None), ("objective", "tps"), ("schedule", "uniform")):
            reject(content.get(key, only) != only, f"{key}: {only or 'identical devices'} only")
        operators, edges = content["operators"], content["edges"]
        reject(any(each.get("tensor_parallel") for each in operators), "tensor_parallel: none only")
        self.D, self.B, M = count(content["num_devices"]), count(content["minibatch"]), exact(content["memory_bytes"])
        self.M, self.copies = float(M), float(exact(content["weight_copies"]))
        self.bandwidth, self.latency = exact(content["bandwidth_bytes_per_s"]), exact(content["latency_s"])
        inner, near = content.get("inner_bandwidth_bytes_per_s"), content.get("devices_per_node")
        self.inner, self.near = (exact(inner), count(near)) if inner is not None else (self.bandwidth, 0)
        need(self.bandwidth > 0 and self.inner > 0, "positive bandwidths")
        every = (b for d in range(1, math.isqrt(self.B) + 1) if self.B % d == 0 for b in (d, self.B // d))
        self.sizes = sorted({count(b) for b in content.get("microbatches") or every})
        need(all(self.B % b == 0 for b in self.sizes), "sizes that divide the mini-batch")
        ids = [str(each["id"]) for each in operators]
        self.index = {name: v for v, name in enumerate(ids)}
        self.ends = [(self.index[str(edge["source"])], self.index[str(edge["target"])]) for edge in edges]
        need(len(self.index) == len(ids) > 0 and len(set(self.ends)) == len(edges), "operators and edges, none twice")
        reject(len(ids) >= MAX_BITS // (len(ids) + len(edges)), "size: a graph of too many operators and edges")
        weights = [exact(each["weight_bytes"]) for each in operators]
        kept, sent = [exact(x["activation_bytes"]) for x in operators], [exact(e["bytes_per_sample"]) for e in edges]
        # All denominators are powers of two, so that the largest is a common one.
        self.grain = max(m.denominator for m in (*weights, *kept, *sent))
        #: Both passes of operators, and amounts of memory.
        self.passes = [(pass_of(x["forward"]), pass_of(x["backward"])) for x in operators]
        self.weights, self.kept, self.sent = ([int(m * self.grain) for m in row] for row in (weights, kept, sent))
        declared = [self.D, self.B, M, self.bandwidth, self.latency, self.inner, self.near, self.sizes, ids, self.ends]
        amounts = [Fraction(self.copies), weights, kept, sent, self.passes]
        self.digest = hashlib.sha256(str([declared, amounts]).encode()).hexdigest()

    def seconds(self, v: int, n: int) -> Fraction:
        """Both passes of an operator for n samples on one device."""
        forward, backward = self.passes[v]
        return forward.seconds(n) + backward.seconds(n)

    def costs(self, b: int, r: int) -> tuple[list[Fraction], list[Fraction], Fraction]:
        """What an operator, and an edge with one end in the stage, add to its TPS, and what it has without them."""
        n, bandwidth = -(-b // r), self.inner if r <= self.near else self.bandwidth
        reduce = Fraction(2 * (r - 1), r * self.B * self.grain) / bandwidth
        own = [self.seconds(v, n) / b + w * reduce for v, w in enumerate(self.weights)]
        each = [2 * (self.latency + Fraction(m * n, self.grain) / self.bandwidth) / b for m in self.sent]
        return own, each, 2 * r * self.latency / self.B if r > 1 else Fraction(0)

    def memory(self, weights: int, kept: int, samples: int) -> float:
        """Of a stage with so many samples in flight on a device; quotients of integers are rounded once."""
        return self.copies * (weights / self.grain) + samples * (kept / self.grain)


def equal_chains(instance: Instance) -> list[list[list[int]]]:
    """The classes of equal chains; operators behind come first in a chain."""
    ends, n = instance.ends, len(instance.passes)
    out = [[e for e, (u, _) in enumerate(ends) if u == v] for v in range(n)]
    into = [[e for e, (_, u) in enumerate(ends) if u == v] for v in range(n)]
    link = {v: u for u, v in ends if len(out[u]) == len(into[v]) == 1}
    found: dict[Any, list[list[int]]] = {}
    for first in set(range(n)) - set(link.values()):
        chain = [first]
        while chain[-1] in link:
            chain.append(link[chain[-1]])
        own = [(instance.passes[v], instance.weights[v], instance.kept[v]) for v in chain]
        inner = [instance.sent[out[v][0]] for v in chain[1:]]
        targets = sorted((ends[e][1], instance.sent[e]) for e in out[first])
        sources = sorted((ends[e][0], instance.sent[e]) for e in into[chain[-1]])
        found.setdefault(str([own, inner, targets, sources]), []).append(chain)
    classes: list[list[list[int]]] = []
    for chains in found.values():
        near = {v for e in (*out[chains[0][0]], *into[chains[0][-1]]) for v in ends[e]}
        if len(chains) > 1 and not any(near & set(chain) for others in classes for chain in others):
            classes.append(chains)
    return classes


class Lattice(Downsets):
    """The downsets of an instance from smaller to larger ones, with classes only those whose heights fall."""

    def __init__(self, instance: Instance, classes: Iterable[list[list[int]]] = ()) -> None:
        n, ends = len(instance.passes), instance.ends
        self.instance, self.steps, self.numbers = instance, 0, 0
        #: The operators behind each by which its depth is known, and those that have this depth: of a class the last.
        self.after, self.stands = [sum(1 << v for u, v in ends if u == w) for w in range(n)], [1 << v for v in range(n)]
        first, kinds = list(self.after), list[list[int]]()  # what is taken before an operator; equal edges
        for chains in classes:
            for chain, later in pairwise(chains):
                for u, v in zip(chain, later, strict=True):
                    first[v] |= 1 << u
            for front, back in pairwise(zip(*chains, strict=True)):
                kinds.append([1 << ends.index(pair) for pair in zip(back, front, strict=True)])
            members, last, targets = [v for chain in chains for v in chain], chains[-1][-1], self.after[chains[0][0]]
            for v in members:
                self.after[v] = self.stands[v] = 0
            self.after[last], self.stands[last] = targets, sum(1 << v for v in members)
        super().__init__(first, ends, MAX_DOWNSETS)
        for kind in kinds:  # as many of them, but always the first ones
            every, least = sum(kind), [0, *accumulate(kind)]
            self.crossing = [edges & ~every | least[(edges & every).bit_count()] for edges in self.crossing]
        #: The operators outside a downset that have an edge into it.
        self.front = [[v for v in range(n) if self.after[v] & mask and not mask >> v & 1] for mask in self.masks]
        self.weights, self.kept = self.sums(instance.weights), self.sums(instance.kept)


def lattice_of(instance: Instance) -> Lattice:
    """All downsets, or if they are too many those that no exchange of equal chains makes equal."""
    try:
        return Lattice(instance)
    except RejectedError:
        return Lattice(instance, equal_chains(instance))


class Degree:
    """Times of stages of r devices in integers, multiples of one unit."""

    def __init__(self, lattice: Lattice, b: int, r: int, bound: Fraction | None) -> None:
        own, each, fixed = lattice.instance.costs(b, r)
        unit = math.lcm(*(cost.denominator for cost in (*own, *each, fixed)))
        self.n = -(-b // r)
        self.own, self.edges = lattice.sums([int(cost * unit) for cost in own]), [int(cost * unit) for cost in each]
        #: What is left for operators and edges.
        self.limit = math.inf if bound is None else math.floor((bound - fixed) * unit)
        kept = min(MAX_KEPT, MAX_BITS // 8 // (1 + len(each)))
        self.sent = lru_cache(kept)(lambda edges: sum(self.edges[e] for e in bits(edges)))


class Search:
    """The search for a plan of size b within T; None: of any time."""

    def __init__(self, lattice: Lattice, b: int, bound: Fraction | None) -> None:
        instance = self.instance = lattice.instance
        self.lattice, self.most = lattice, instance.B // b
        largest, last = min(instance.D, b), len(lattice.masks) - 1
        reject(largest * (last + 1) > MAX_SUMS, f"size: over {MAX_SUMS} times of downsets at all degrees")
        self.degrees = [Degree(lattice, b, r, bound) for r in range(1, largest + 1)]
        costs = [(r, instance.costs(b, r)[1]) for r in range(1, largest + 1)]
        least = [
            min(r * instance.seconds(v, -(-b // r)) / b for r in range(1, largest + 1))
            for v in range(len(instance.passes))
        ]
        cross = [min(r * each[e] for r, each in costs) for e in range(len(instance.ends))]
        unit = math.lcm(*(w.denominator for w in (*least, *cross)))
        self.limit = None if bound is None else bound * unit  # work of a device
        works, sent = lattice.sums([int(w * unit) for w in least]), [int(w * unit) for w in cross]
        paid = [sum(sent[e] for e in bits(edges)) for edges in lattice.crossing]
        rest = [self._devices(works[-1] - work + more) for work, more in zip(works, paid, strict=True)]
        front = [self._devices(work + more) for work, more in zip(works, paid, strict=True)]
        usable = [i for i in range(last + 1) if front[i] + rest[i] <= instance.D]
        self.order = sorted(usable, key=lambda i: (works[i], i))  # what holds a downset comes after it
        self.works, self.rest = [works[i] for i in self.order], rest
        self.labels: list[set[Label]] = [set() for _ in range(last + 1)]
        self.labels[0].add((0,))

    def _devices(self, work: int) -> int:
        return 0 if self.limit is None else math.ceil(work / self.limit)

    def run(self) -> Iterator[int]:
        """All downsets from smaller to larger ones."""
        masks, D = self.lattice.masks, self.instance.D
        for place, i in enumerate(self.order):
            yield i
            labels = least_labels(self.labels[i])
            if labels:
                free = D - labels[0][0]
                most = math.inf if self.limit is None else self.works[place] + free * self.limit
                for at in range(place + 1, bisect_right(self.works, most)):
                    j = self.order[at]
                    if masks[j] & masks[i] == masks[i]:
                        fewest = max(1, self._devices(self.works[at] - self.works[place]))
                        if fewest + self.rest[j] <= free:
                            self._extend(i, j, labels, range(fewest, free - self.rest[j] + 1))

    def _extend(self, i: int, j: int, labels: list[Label], degrees: range) -> None:
        """What labels of downset i lead to at downset j, with some of these degrees."""
        lattice, front = self.lattice, self.lattice.front
        lattice.steps += 1
        reject(lattice.steps > MAX_STEPS, f"size: over {MAX_STEPS} pairs of downsets")
        options = list(self._options(i, j, degrees))
        if not options:
            return
        stage = lattice.masks[j] & ~lattice.masks[i]
        at_i = {v: at for at, v in enumerate(front[i], start=1)}
        behind = [at for v, at in at_i.items() if lattice.stands[v] & stage]
        kept = [(at_i.get(v, 0), bool(lattice.after[v] & stage)) for v in front[j]]
        for label in labels:
            depth = min(self.most, 1 + max((label[at] for at in behind), default=0))
            r = next((r for r, y in options if y >= depth), self.instance.D + 1)
            if label[0] + r + self.rest[j] <= self.instance.D:
                depths = [max(label[at] if at else 0, depth if reaches else 0) for at, reaches in kept]
                lattice.numbers += 1 + len(depths)
                reject(lattice.numbers > MAX_NUMBERS, f"size: labels of over {MAX_NUMBERS} numbers")
                self.labels[j].add((label[0] + r, *depths))

    def _options(self, i: int, j: int, degrees: range) -> Iterator[tuple[int, int]]:
        """Degrees of a stage within T, rising, and the micro-batches that fit, as far as these are more each time."""
        lattice, instance, best = self.lattice, self.instance, 0
        entering, leaving = (lattice.crossing[a] & ~lattice.crossing[b] for a, b in ((j, i), (i, j)))
        kept = lattice.kept[j] - lattice.kept[i] + sum(instance.sent[e] for e in bits(entering))
        weights = lattice.weights[j] - lattice.weights[i]
        for r in degrees[: max(0, len(self.degrees) + 1 - degrees.start)]:
            at = self.degrees[r - 1]
            y = self.most
            if instance.memory(weights, kept, y * at.n) > instance.M:
                y = bisect_right(range(1, y), instance.M, key=lambda y: instance.memory(weights, kept, y * at.n))
            if y > best and at.own[j] - at.own[i] + at.sent(entering | leaving) <= at.limit:
                best = y
                yield r, y
            if best == self.most:
                return


def least_labels(labels: Iterable[Label]) -> list[Label]:
    """The labels that no other one beats, by rising devices."""
    kept: list[Label] = []
    for label in sorted(labels):
        if not any(all(map(le, other, label)) for other in kept):
            kept.append(label)
    return kept


def prove(instance: Instance, bound: Fraction | None, _: Any) -> None:
    """`RejectedError` if a plan within the bound may exist."""
    lattice = lattice_of(instance)
    for b in instance.sizes:
        search = Search(lattice, b, bound)
        for _ in search.run():
            pass
        reject(bool(search.labels[-1]), f"bound: a plan of size {b} within it is not excluded")


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    stages, place = plan["stages"], dict[int, int]()
    after: list[set[int]] = [set() for _ in stages]
    for before, behind in plan["edges"]:
        need(min(before, behind) >= 0 and max(before, behind) < len(stages) and before != behind, "pairs of stages")
        after[before].add(behind)
    for number, stage in enumerate(stages):
        found = [instance.index[str(v)] for v in stage["nodes"] if str(v) in instance.index]
        reject(not found or len(found) < len(stage["nodes"]), "plan: a stage without operators, or an unknown one")
        reject(any(v in place for v in found), "plan: every operator in one stage")
        place.update(dict.fromkeys(found, number))
    reject(len(place) < len(instance.passes), "plan: every operator in one stage")
    across = {(place[u], place[v]) for u, v in instance.ends if place[u] != place[v]}
    reject(any(v not in after[u] for u, v in across), "plan: a tensor without an edge")
    left = set(range(len(stages)))
    while left:
        free = {s for s in left if not after[s] & left}
        reject(not free, "plan: stages wait for each other")
        left -= free
    b, used = count(stages[0]["microbatch"]), sum(count(stage["devices"]) for stage in stages)
    reject(
        b not in instance.sizes or any(stage["microbatch"] != b for stage in stages), "plan: one size, an allowed one"
    )
    reject(any(stage.get(key, 1) != 1 for stage in stages for key in ("k", "tp_degree")), "plan: k, tp_degree")
    reject(used + plan.get("idle_devices", 0) != instance.D or used > instance.D, "plan: devices")
    return max(_stage_time(instance, stages, after[s], place, s, b) for s in range(len(stages)))


def _stage_time(instance: Instance, stages: Any, after: set[int], place: dict[int, int], s: int, b: int) -> Fraction:
    """TPS of stage s, which keeps as much in flight as it must, and fits."""
    r, flying = count(stages[s]["devices"]), count(stages[s]["in_flight"])
    least = min(instance.B, b + max((count(stages[behind]["in_flight"]) for behind in after), default=0))
    reject(flying % b > 0 or not least <= flying <= instance.B, "plan: samples in flight")
    reject(r > b, "plan: replicas without samples")
    own, each, fixed = instance.costs(b, r)
    inside = [v for v in place if place[v] == s]
    entering = [e for e, (u, v) in enumerate(instance.ends) if place[v] == s != place[u]]
    leaving = [e for e, (u, v) in enumerate(instance.ends) if place[u] == s != place[v]]
    kept = sum(instance.kept[v] for v in inside) + sum(instance.sent[e] for e in entering)
    weights = sum(instance.weights[v] for v in inside)
    reject(instance.memory(weights, kept, flying // b * -(-b // r)) > instance.M, "plan: memory")
    return sum(own[v] for v in inside) + sum(each[e] for e in (*entering, *leaving)) + fixed


CHECKER = Checker("stage_graph", ("search",), Instance, plan_time, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
