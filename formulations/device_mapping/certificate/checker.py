"""Check a certificate of device mapping: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in its README, whose letters it uses
(S, R, c, M, B), with W(s) = 2 (R - 1) P(s) / R. Amounts of an instance are the float64 numbers that its JSON denotes,
as exact rationals.

**Claims.** ``plan`` maps the nodes (s, r) to the D = S R devices, one each, and takes ``objective``; every mapping
takes more than ``bound``, L (if L is 0: none takes less, which needs no proof). A part of a node's time is counted in
units of L / 2^80, *rounded down*: in a mapping within L the parts of each node add up to 2^80 at most.

**Least time of a node.** On device d the neighbours of a stage are on different devices: over all ways to give it
distinct links of d, its volumes take least in all with the largest on the fastest (exchanging two that are not in this
order makes the sum no less); what is rounded down is less still. Its ring passes one link of d if R = 2 and two if
R > 2, so it is as slow as the best, or second best, of them. If all is over 2^80, stage s is *excluded* from d.

**Kind "bound".** ``assignment``: the devices cannot be dealt out to the stages, R to each, none excluded (all
matchings are searched for). ``rings``: leave a stage the least of its exchanges over all devices; links whose ring
still meets L are fast for it, and those are all links from some bandwidth t(s) on. Order the stages with W(s) > 0 by
falling t. A ring within L is a link (R = 2) or a cycle of fast links: it lies inside the 1-core or 2-core of the graph
of links from t(s) on, and in one component. So do the rings of the first k stages in the graph of the k-th. Rejected
would be none of these: for some k the core's components have room for fewer than k rings of R devices, or k = S and the
size of one is no multiple of R, as all devices are in rings then.

**Kind "drup".** ``groups`` divide the devices into *places*; a place p has room for as many nodes as it has devices,
n(p). The bandwidth between two places, or inside one, is the greatest between their devices. ``levels`` fall, v_0 >=
all bandwidths; a link has the *class* k if v_(k+1) < B <= v_k (v_m = 0), and takes no less than with v_k. `clauses_of`
writes clauses that every mapping within L satisfies, if it is renumbered as below:

1. Each node is at one place, none that all of whose devices exclude it; n(p) nodes are at p. Further variables count:
   the k-th at a node says that k of the nodes up to it, or more, are at p.
2. For each edge and replica, and each stage's ring, variables say "class k or faster". Then, if one end is at p, the
   other is at a place that p reaches by such a link. If a place has at most ten devices, and no cycle of R among them
   has links of this class only, some node of the ring is elsewhere.
3. Classes of the parts of a node's time that, all at v_k, exceed 2^80: one of them has a faster class.
4. Symmetries. Without rings that order the replicas, replicas are renumbered so that the places of the first stage
   rise. A ring may be turned and mirrored: it begins at its least place and goes on to the lesser of the two beside
   it; so does each stage's, if there are no edges, and the first stage's otherwise, all others renumbered with it.
   If free rings stand beside edges, and R > 3, their order has variables of its own, and each is turned by itself:
   further nodes, on the devices of the stage.

``clauses`` are further clauses. Each is accepted if, all its literals being false, unit propagation in the clauses
before it ends in a conflict: it then follows from them. In the end unit propagation alone must end in a conflict.

**Theorem.** If one of these proofs is accepted, every mapping takes more than L. *Proof.* A mapping within L would deal
the devices out, fit its rings into the cores, and satisfy all clauses, as shown above, and none of them can be.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from fractions import Fraction
from itertools import pairwise
from operator import le
from typing import Any

from formulations.contract.checker.frame import Checker, RejectedError, amount, index, need, reject

MAX_DEVICES = 2048
MAX_LITERALS, MAX_CLASSES, MAX_CYCLE = 8_000_000, 20_000, 10  # of the clauses, looked at for a stage, of a place
ONE = 2**80

Clause = list[int]
Nodes = list[list[Clause]]  # [stage][replica][place]: variables


class Instance:
    """Stages, edges that count, and bandwidths; 0 between a device and itself."""

    def __init__(self, content: Any) -> None:
        stages, edges, matrix = content["stages"], content["edges"], content["bandwidth_bytes_per_s"]
        objective, ring = content["objective"], content["ring"]
        need(objective in ("p2p", "allreduce", "full") and ring in ("index", "free"), "an objective and a kind of ring")
        self.S, self.R, self.D = len(stages), index(content["replicas"], MAX_DEVICES + 1), len(matrix)
        need(0 < self.S * self.R == self.D <= MAX_DEVICES, f"as many devices as nodes, up to {MAX_DEVICES}")
        need(all(len(row) == self.D for row in matrix), "a square matrix")
        self.B = [[0.0 if a == b else amount(each) for b, each in enumerate(row)] for a, row in enumerate(matrix)]
        pairs = ((self.B[a][b], self.B[b][a]) for a in range(self.D) for b in range(a))
        need(all(one == other > 0 for one, other in pairs), "a matrix that is symmetric and positive")
        rows = [[amount(s["compute_s"]), amount(s["parameter_bytes"])] for s in stages]
        ends = [(index(e["source"], self.S), index(e["target"], self.S)) for e in edges]
        need(len({frozenset(pair) for pair in ends} - {frozenset([a]) for a, _ in ends}) == len(ends), "simple edges")
        volumes = [amount(e["volume_bytes"]) for e in edges]
        self.compute = [Fraction(seconds) for seconds, _ in rows]
        counted = objective != "p2p"
        self.W = [2 * (self.R - 1) * Fraction(size) / self.R if counted else Fraction(0) for _, size in rows]
        kept = objective != "allreduce"
        self.edges = [(a, b, Fraction(v)) for (a, b), v in zip(ends, volumes, strict=True) if kept and v > 0]
        self.at = [[e for e, edge in enumerate(self.edges) if s in edge[:2]] for s in range(self.S)]
        self.free = ring == "free" and self.R > 3 and any(self.W)  # else all orders are the same cycle, or none counts
        declared = [objective, ring, self.R, rows, ends, volumes, self.B]
        self.digest = hashlib.sha256(json.dumps(declared, separators=(",", ":")).encode()).hexdigest()


def units(amount_s: Fraction, bandwidth: float) -> int:
    """What so many bytes, times 2^80 / L, take on a link, rounded down."""
    p, q = bandwidth.as_integer_ratio()
    return amount_s.numerator * q // (amount_s.denominator * p)


class Parts:
    """The parts of the nodes' times in units of L / 2^80."""

    def __init__(self, instance: Instance, bound: Fraction) -> None:
        self.instance, scale = instance, ONE / bound
        self.compute = [units(seconds * scale, 1.0) for seconds in instance.compute]
        self.ring = [bytes_s * scale for bytes_s in instance.W]
        self.volume = [volume * scale for _, _, volume in instance.edges]
        best = [sorted(row, reverse=True) for row in instance.B]
        first = 0 if instance.R == 2 else 1
        self.exchange: list[list[int]] = []  # of a stage on a device, at least; computing is in it
        self.allowed: list[list[bool]] = []
        for s in range(instance.S):
            volumes = sorted((self.volume[e] for e in instance.at[s]), reverse=True)
            taken = [self.compute[s] + sum(map(units, volumes, row)) for row in best]
            rings = [units(self.ring[s], row[first]) if self.ring[s] else 0 for row in best]
            self.exchange.append(taken)
            self.allowed.append([each + ring <= ONE for each, ring in zip(taken, rings, strict=True)])

    def can_be_dealt(self) -> bool:
        """Whether every stage can have R devices of its own that do not exclude it."""
        held: list[set[int]] = [set() for _ in self.allowed]
        for device in range(self.instance.D):
            via: dict[int, tuple[int, int]] = {s: (device, -1) for s, row in enumerate(self.allowed) if row[device]}
            queue, end = list(via), -1
            for s in queue:
                if len(held[s]) < self.instance.R:
                    end = s
                    break
                for other in held[s]:
                    for t, row in enumerate(self.allowed):
                        if row[other] and t not in via:
                            via[t] = (other, s)
                            queue.append(t)
            if end < 0:
                return False
            while end >= 0:
                moved, before = via[end]
                held[end].add(moved)
                if before >= 0:
                    held[before].remove(moved)
                end = before
        return True

    def rings_fit(self) -> bool:
        """Whether the cores of fast links have room for the rings of the most demanding stages."""
        B, R, devices = self.instance.B, self.instance.R, range(self.instance.D)
        speeds = sorted({speed for row in B for speed in row if speed})
        rings = [(ring, ONE - min(taken)) for ring, taken in zip(self.ring, self.exchange, strict=True) if ring]
        slowest = [next((v for v in speeds if units(ring, v) <= left), math.inf) for ring, left in rings]
        for k, speed in enumerate(sorted(slowest, reverse=True), start=1):
            core, sizes = set(devices), []
            while True:
                kept = {a for a in core if sum(B[a][b] >= speed for b in core) >= min(R - 1, 2)}
                if kept == core:
                    break
                core = kept
            while core:
                reached = [core.pop()]
                for a in reached:
                    near = {b for b in core if B[a][b] >= speed}
                    core -= near
                    reached += near
                sizes.append(len(reached))
            if sum(size // R for size in sizes) < k or (k == self.instance.S and any(size % R for size in sizes)):
                return False
        return True


class Clauses:
    """Clauses over numbered variables; a negative number is a negation."""

    def __init__(self) -> None:
        self.count = self.literals = 0
        self.all: list[Clause] = []

    def variables(self, count: int) -> list[int]:
        """New ones."""
        self.count += count
        return list(range(self.count - count + 1, self.count + 1))

    def add(self, *literals: int) -> None:
        """One of them is true."""
        self.literals += len(literals)
        reject(self.literals > MAX_LITERALS, f"size: clauses of over {MAX_LITERALS} literals")
        self.all.append(list(literals))

    def at_most(self, literals: list[int], most: int) -> None:
        """No more of them are true."""
        before: list[int] = []
        for number, one in enumerate(literals, start=1):
            counts = self.variables(min(number, most))
            for low, high in zip(before, counts, strict=False):
                self.add(-low, high)
            for k, high in enumerate(counts):
                self.add(*([-before[k - 1]] if k else []), -one, high)
            if len(before) == most:
                self.add(*([-before[-1]] if most else []), -one)
            before = counts

    def exactly(self, literals: list[int], number: int) -> None:
        """So many are true."""
        self.at_most(literals, number)
        self.add(*literals) if number == 1 else self.at_most([-one for one in literals], len(literals) - number)


def has_cycle(instance: Instance, devices: list[int], above: float) -> bool:
    """Whether R of these devices make a ring of links above a bandwidth."""
    near = {a: [b for b in devices if instance.B[a][b] > above] for a in devices}

    def goes_on(path: list[int]) -> bool:
        if len(path) == instance.R:
            return path[0] in near[path[-1]]
        return any(b > path[0] and b not in path and goes_on([*path, b]) for b in near[path[-1]])

    return any(goes_on([a]) for a in devices)


def cuts(costs: list[list[int]], left: int) -> list[tuple[int, ...]]:
    """The least combinations of classes, one for each row of ``costs``, that take more than is left."""
    found: list[tuple[int, ...]] = []
    least = [sum(row[0] for row in costs[part:]) for part in range(len(costs) + 1)]
    looked_at = 0

    def choose(chosen: tuple[int, ...], left: int) -> None:
        nonlocal looked_at
        part, looked_at = len(chosen), looked_at + 1
        reject(looked_at > MAX_CLASSES, f"size: over {MAX_CLASSES} combinations of classes at a stage")
        if part == len(costs):
            if left < 0 and not any(all(map(le, other, chosen)) for other in found):
                found.append(chosen)
            return
        for k, cost in enumerate(costs[part]):
            choose((*chosen, k), left - cost)
            if left - cost < least[part + 1]:
                return

    choose((), left)
    return found


def clauses_of(instance: Instance, parts: Parts, groups: list[list[int]], levels: list[float]) -> Clauses:
    """The clauses of the theorem: rules 1 to 4."""
    S, R, B, f = instance.S, instance.R, instance.B, Clauses()
    places, room, above = range(len(groups)), [len(group) for group in groups], [*levels[1:], 0.0]
    speed = [[max(B[a][b] for a in one for b in other) for other in groups] for one in groups]
    reached = [[[q for q in places if row[q] > low] for row in speed] for low in above[:-1]]
    usable = [[any(row[device] for device in group) for group in groups] for row in parts.allowed]

    def nodes() -> Nodes:
        found = [[f.variables(len(groups)) for _ in range(R)] for _ in range(S)]
        for row, usable_here in zip(found, usable, strict=True):
            for node in row:
                f.exactly(node, 1)
                for one in (one for one, is_usable in zip(node, usable_here, strict=True) if not is_usable):
                    f.add(-one)
        return found

    def classes(links: list[tuple[Clause, Clause]]) -> Clause:
        found = f.variables(len(levels) - 1)
        for faster, slower in pairwise(found):
            f.add(-faster, slower)
        for one, near in zip(found, reached, strict=True):
            for p in places:
                if len(near[p]) < len(groups) - (room[p] == 1):  # else it excludes nothing
                    for a, b in links:
                        f.add(-one, -a[p], *[b[q] for q in near[p]])
                        f.add(-one, -b[p], *[a[q] for q in near[p]])
        return found

    def in_order(one: Clause, other: Clause) -> None:
        for p in places:
            f.add(-other[p], *one[: p if room[p] == 1 else p + 1])

    at = nodes()
    for p in places:
        f.exactly([node[p] for row in at for node in row], room[p])
    ring_at = at
    if instance.free and instance.edges:
        ring_at = nodes()
        for row, ring in zip(at, ring_at, strict=True):
            for p in places:
                passed = [node[p] for node in ring]
                f.at_most(passed, room[p])
                for one in passed:
                    f.add(-one, *[node[p] for node in row])
    edge_class = [[classes([(at[a][r], at[b][r])]) for r in range(R)] for a, b, _ in instance.edges]
    ring_class: list[Clause] = [[] for _ in range(S)]
    for s, ring in enumerate(ring_at):
        costs = [[units(parts.volume[e], v) for v in levels] for e in instance.at[s]]
        literals = [edge_class[e] for e in instance.at[s]]
        if parts.ring[s]:
            links = list(zip(ring, ring[1:] + ring[:1], strict=True))
            ring_class[s] = classes(links[: R if R > 2 else 1])
            for one, low in zip(ring_class[s], above, strict=False):
                for p in places:
                    if R <= room[p] <= MAX_CYCLE and not has_cycle(instance, groups[p], low):
                        f.add(-one, *[-node[p] for node in ring])
            costs.append([units(parts.ring[s], v) for v in levels])
            literals.append([ring_class[s]] * R)
        forbidden = cuts(costs, ONE - parts.compute[s])
        for r in range(R):
            for cut in forbidden:
                f.add(*[row[r][k - 1] for row, k in zip(literals, cut, strict=True) if k])
    if ring_at is not at or not any(instance.W):
        for node, after in pairwise(at[0]):
            in_order(node, after)
    if any(instance.W):
        for ring in ring_at if ring_at is not at or not instance.edges else ring_at[:1]:
            for node in ring[1:]:
                in_order(ring[0], node)
            if R > 2:
                in_order(ring[1], ring[-1])
    return f


def propagation_refutes(f: Clauses, further: list[Clause]) -> bool:
    """Whether unit propagation, also in the further clauses, which follow one after the other, ends in a conflict."""
    value = [0] * (2 * f.count + 1)  # 1 and -1 of what is true and false; -v stands at the end
    watched: list[list[Clause]] = [[] for _ in value]
    trail: list[int] = []

    def conflict(begin: int) -> bool:
        while begin < len(trail):
            false, begin = -trail[begin], begin + 1
            here, kept = watched[false], []
            for number, clause in enumerate(here):
                if clause[0] == false:
                    clause[0], clause[1] = clause[1], false
                first = clause[0]
                if value[first] <= 0:
                    for place in range(2, len(clause)):
                        other = clause[place]
                        if value[other] >= 0:
                            clause[1], clause[place] = other, false
                            watched[other].append(clause)
                            break
                    else:
                        kept.append(clause)
                        if value[first]:
                            watched[false] = kept + here[number + 1 :]
                            return True
                        assign(first)
                    continue
                kept.append(clause)
            watched[false] = kept
        return False

    def assign(literal: int) -> None:
        value[literal], value[-literal] = 1, -1
        trail.append(literal)

    def add(literals: Clause) -> bool:
        clause = sorted(set(literals), key=lambda one: -value[one])
        if len(clause) > 1:
            watched[clause[0]].append(clause)
            watched[clause[1]].append(clause)
        if not clause or value[clause[0]] < 0:
            return True
        if value[clause[0]] == 0 and (len(clause) == 1 or value[clause[1]] < 0):
            assign(clause[0])
            return conflict(len(trail) - 1)
        return False

    if any(map(add, f.all)):
        return True
    for number, literals in enumerate(further):
        begin = len(trail)
        satisfied = any(value[one] > 0 for one in literals)
        if not satisfied:
            for one in literals:
                if not value[one]:
                    assign(-one)
            reject(not conflict(begin), f"clauses: number {number} does not follow by unit propagation")
            for one in trail[begin:]:
                value[one] = value[-one] = 0
            del trail[begin:]
        if not satisfied and add(literals):
            return True
    return False


def prove(instance: Instance, bound: Fraction | None, proof: Any) -> None:
    """`RejectedError` if it does not follow that every mapping takes more than the bound."""
    if bound is None:
        raise RejectedError("bound: every instance has a plan")
    parts = Parts(instance, bound)
    if proof["kind"] == "bound":
        need(proof["name"] in ("assignment", "rings"), "a bound's name: assignment or rings")
        possible = parts.can_be_dealt() if proof["name"] == "assignment" else parts.rings_fit()
        reject(possible, f"{proof['name']}: the bound leaves room")
        return
    groups = [[index(device, instance.D) for device in group] for group in proof["groups"]]
    need(
        all(groups) and sorted(device for group in groups for device in group) == list(range(instance.D)),
        "groups that hold every device once",
    )
    levels = [amount(level) for level in proof["levels"]]
    need(bool(levels) and levels[-1] > 0 and all(high > low for high, low in pairwise(levels)), "levels that fall")
    reject(levels[0] < max(map(max, instance.B)), "levels: a link is faster than all of them")
    f, further = clauses_of(instance, parts, groups, levels), proof["clauses"]
    need(all(type(one) is int and 0 < abs(one) <= f.count for each in further for one in each), "clauses of literals")
    reject(not propagation_refutes(f, further), "clauses: unit propagation ends in no conflict")


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    S, R, D, B = instance.S, instance.R, instance.D, instance.B
    devices = [[index(device, D) for device in row] for row in plan["devices"]]
    reject(len(devices) != S or any(len(row) != R for row in devices), "plan: R devices for each stage")
    reject(len({device for row in devices for device in row}) != D, "plan: every device once")
    rings, declared = plan.get("rings"), [list(range(R))] * S
    reject(instance.free and rings is None, "plan: the order of free rings")
    orders = declared if rings is None else [[index(r, R) for r in row] for row in rings]
    reject(len(orders) != S or any(sorted(row) != list(range(R)) for row in orders), "plan: rings of every replica")
    slowest = Fraction(0)
    for s, (row, order) in enumerate(zip(devices, orders if instance.free else declared, strict=True)):
        ring = [row[r] for r in order]
        links = [B[a][b] for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]
        shared = instance.compute[s] + (instance.W[s] / Fraction(min(links)) if instance.W[s] else 0)
        for r in range(R):
            sent = [
                volume / Fraction(B[devices[a][r]][devices[b][r]])
                for a, b, volume in (instance.edges[e] for e in instance.at[s])
            ]
            slowest = max(slowest, shared + sum(sent))
    return slowest


CHECKER = Checker("device_mapping", ("bound", "drup"), Instance, plan_time, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
