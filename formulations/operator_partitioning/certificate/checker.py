"""Check a certificate of operator partitioning: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in its README, whose letters it uses
(S, R, D, B). Steps of flushed pipelines are refused. Amounts of an instance are the float64 numbers that its JSON
denotes, as exact rationals. A stage fits if it needs at most M (1 + 1e-12) (1 + 2^-50): what the definition admits,
with the rounding of its sums.

**Claims.** ``plan`` keeps every rule and takes ``objective``; every plan takes more than ``bound``, L (if L is 0: none
takes less, which needs no proof). If ``bound`` is null there is no plan; then T is infinite below.

**Labels.** V are the operators. A plan is a chain of sets V = F_0 > F_1 > ... > F_m = {} that are closed under
predecessors: the j-th stage from the end is F_(j-1) - F_j. The certificate names the tensors that are *counted*; any
other tensor counts once for the stage that sends it, if it leaves that stage at all, so a load is at most the true one.
A label (j, k, x) of F stands for j stages that hold V - F and use k devices (k = 0 where R is given), and for each
counted tensor with its source in F, that x of these stages take it. What the stage before, from F to F', takes is then
known: computing, the tensors from F' that it takes, and its own, once or x times. So is the memory that it needs, as j
stages follow. `Search` makes the labels of all sets from that of V, (0, 0, 0). It leaves out

1. stages that take more than T on their R devices, or on D where replicas are free, or do not fit any of these numbers,
2. what is left in front that cannot be done: F' with its tensors that leave it takes at least their sum; it has no more
   than T for each device that is left, and at least as many operators as there are stages to come,
3. labels that need no less than another of the same set and j: as many devices, or more, and as many takers of each
   tensor. Whatever goes on from them goes on from the other one, stage by stage, with no more load.

Replicas, where they are free, are as few as load and memory allow: more only use devices up.

**Theorem.** If no label of the empty set arises with j = S (``at_most``: j <= S) and k <= D, no plan has stages that
all take at most T, by device: t(s) / r_s <= T. *Proof.* By induction over the stages of such a plan from the end, some
label of F_j needs no more of anything than the plan's own last j stages: rule 1 cannot leave out the next stage, nor
rule 2 its set, as the plan does both; rule 3 leaves a label that is as good. In the end the empty set has one.

**Fixed S.** T is L. **Free S.** For each shape (S, R) a step takes n T + A, with n = (MB + S - 1) R, T the slowest
t(s) / R and A the slowest all-reduce. Caps 0 < a_1 < ... < a_m on it are given; let a_0 = 0 and a_(m+1) be infinite. If
a plan takes at most L, its A is at most a_(i+1) and at least a_i for the least such i, and T at most (L - a_i) / n: so
it is enough that no plan within that has an all-reduce of at most a_(i+1), for i = 0 to m.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from formulations.contract.checker.frame import Checker, bits, count, exact, need, reject, stated
from formulations.contract.checker.operators import MAX_BITS, Operators

MAX_STEPS, MAX_CAPS = 10_000_000, 1_000  # stages behind labels that are looked at, in all
FIELD = 24  # bits for the takers of a tensor; the highest stays free

Label = tuple[int, int, int]  # j, k, takers of counted tensors in fields of an integer


class Instance(Operators):
    """An instance in integers: load in units of 1 / (B ``unit``) seconds."""

    def __init__(self, content: Any) -> None:
        super().__init__(content)

        def optional(key: str) -> int | None:
            return None if content.get(key) is None else count(content[key])

        self.S, self.D, self.step = optional("num_stages"), optional("num_devices"), optional("step_microbatches")
        need(self.S is not None or None not in (self.D, self.step), "devices and micro-batches where stages are free")
        self.R, self.B = count(content.get("replicas", 1)), exact(content["bandwidth_bytes_per_s"])
        reject(content.get("flushed", False) is not False, "a step of a flushed pipeline: it is not looked at")
        at_most = content.get("at_most", False)
        need(self.B > 0 and type(at_most) is bool, "a positive bandwidth, and true or false")
        self.at_most, computing, volume = at_most and self.S is not None, [self.B * t for t in self.seconds], self.bytes
        # All denominators are powers of two, so that the largest is a common one.
        self.unit = max(each.denominator for each in (*computing, *volume))
        self.compute, self.volume = ([int(each * self.unit) for each in row] for row in (computing, volume))
        amounts = ([str(each) for each in row] for row in (computing, volume, *self.amounts))
        flags = [at_most, self.pooled, self.trains, self.microbatches, self.gpipe, self.recompute]
        numbers = [self.S, self.D, self.step, self.R, str(self.B), str(self.memory), *flags]
        declared = [*numbers, self.sources, self.targets, *amounts, *self.index]
        self.digest = hashlib.sha256(json.dumps(declared, separators=(",", ":")).encode()).hexdigest()
        self.into, self.out = ([0] * len(self.index) for _ in range(2))  # sets
        for t, (source, found) in enumerate(zip(self.sources, self.targets, strict=True)):
            self.out[source] |= 1 << t
            for v in found:
                self.into[v] |= 1 << t

    def rounds(self, S: int, R: int) -> int:
        """How often the slowest stage's t(s) / R counts in a step, where S is free."""
        return ((self.step or 0) // R + S - 1) * R

    def bytes_in(self, seconds: Fraction | None, R: int) -> Fraction | None:
        """The parameters of a stage whose all-reduce takes so long; nothing: any."""
        return None if seconds is None or R == 1 else seconds * R * self.B / (2 * (R - 1))

    def shapes(self) -> list[tuple[int, int]]:
        """(S, R) of a plan where S is free."""
        assert self.D is not None and self.step is not None
        both = math.gcd(self.D, self.step)
        return [(self.D // R, R) for R in range(1, both + 1) if both % R == 0 and len(self.compute) >= self.D // R]


class Stage(NamedTuple):
    """What a stage leaves in front, and what it takes but for counted tensors of its own."""

    low: int
    ready: int  # operators that could be the next to join it
    sending: int  # computing and uncounted tensors of its own: never less for larger stages
    taking: int  # tensors from the set in front
    taken: int  # these tensors
    crossing: int  # tensors that leave the set in front
    rest: int  # computing of that set, and its uncounted tensors that leave it
    size: Fraction  # bytes of parameters
    held: int  # bytes of memory, whatever else it needs


class Search:
    """Labels for one T and one cap on the parameters of a stage; ``found`` if the empty set has one."""

    def __init__(
        self, instance: Instance, S: int, R: int | None, T: Fraction | None, cap: Fraction | None, counted: list[int]
    ) -> None:
        self.instance, self.S, self.R, self.cap = instance, S, R, cap
        self.limit = None if T is None else T * instance.B * instance.unit  # of a device
        self.shares = (instance.D or 1) if R is None else R
        self.most = math.inf if self.limit is None else math.floor(self.limit * self.shares)
        self.room, self.steps, self.found = instance.room(self.shares), 0, False
        self.field = {t: place * FIELD for place, t in enumerate(counted)}
        self.counted = sum(1 << t for t in counted)
        self.guard = sum(1 << place + FIELD - 1 for place in self.field.values())
        whole = (1 << len(instance.compute)) - 1
        self.labels: list[dict[int, list[Label]]] = [{} for _ in range(len(instance.compute) + 1)]
        self.labels[-1][whole] = [(0, 0, 0)]

    def stages(self, high: int) -> Iterator[Stage]:
        """All stages that end at a set, but those whose part that never falls is too much."""
        instance = self.instance
        ready = sum(1 << v for v in bits(high) if not instance.after[v] & high)
        crossing = behind = 0
        for v in bits(high):
            for t in bits(instance.out[v]):
                crossing |= (1 << t) * any(not high >> target & 1 for target in instance.targets[t])
        behind = crossing
        rest = sum(instance.compute[v] for v in bits(high))
        rest += sum(instance.volume[t] for t in bits(crossing & ~self.counted))
        waiting, seen = [Stage(high, ready, 0, 0, 0, crossing, rest, Fraction(0), 0)], {high}
        while waiting:
            stage = waiting.pop()
            for v in bits(stage.ready):
                low = stage.low & ~(1 << v)
                if low in seen:
                    continue
                seen.add(low)
                reject(
                    len(seen) * (1_000 + len(instance.compute)) > MAX_BITS, "size: too many stages in front of a set"
                )
                own, into = instance.out[v], instance.into[v]
                left = own & behind & ~self.counted
                sending = stage.sending + instance.compute[v] + sum(instance.volume[t] for t in bits(left))
                size, held = stage.size + instance.sizes[v], stage.held + instance.held[v]
                if sending > self.most or (self.cap is not None and size > self.cap):
                    continue
                if self.room is not None and held > self.room:
                    continue
                taking = stage.taking + sum(instance.volume[t] for t in bits(into & ~stage.taken))
                taking -= sum(instance.volume[t] for t in bits(own & stage.taken))
                rest = stage.rest - instance.compute[v]
                rest += sum(instance.volume[t] for t in bits(into & ~stage.crossing & ~self.counted))
                rest -= sum(instance.volume[t] for t in bits(own & stage.crossing & ~self.counted))
                ready = stage.ready & ~(1 << v)
                for u in bits(instance.before[v]):
                    ready |= (1 << u) * (not instance.after[u] & low)
                taken, crossing = (stage.taken | into) & ~own, (stage.crossing | into) & ~own
                found = Stage(low, ready, sending, taking, taken, crossing, rest, size, held)
                waiting.append(found)
                yield found

    def replicas(self, load: int, members: int, behind: int) -> int | None:
        """The fewest that load and memory allow; ``None`` if none do."""
        if self.R is not None:
            r = self.R
        else:
            r = 1 if self.limit is None else max(1, math.ceil(load / self.limit))
        if self.room is not None:
            needed = self.instance.memory_of(members, behind)
            while needed > (self.instance.room(r) or 0):
                r += 1
                if self.R is not None or r > self.shares or not self.instance.pooled:
                    return None
        return r

    def is_possible(self, low: int, rest: int, j: int, k: int) -> bool:
        """Whether what is left in front may fit the stages and devices that are left."""
        stages = self.S - j
        if not low:
            return stages == 0 or (stages > 0 and self.instance.at_most)
        if stages < 1 or (not self.instance.at_most and low.bit_count() < stages):
            return False
        if self.R is not None:
            return rest <= self.most * stages
        devices = self.shares - k
        needed = 1 if self.instance.at_most else stages
        return devices >= needed and (self.limit is None or rest <= self.limit * devices)

    def extend(self, size: int) -> None:
        """Make all labels that follow from those of the sets of so many operators; larger ones have been done."""
        instance = self.instance
        for high, labels in self.labels[size].items():
            for stage in self.stages(high):
                low, members = stage.low, high & ~stage.low
                self.steps += len(labels)
                reject(self.steps > MAX_STEPS, f"size: over {MAX_STEPS} stages behind labels")
                keep = more = 0
                own = [
                    (place, instance.volume[t]) for t, place in self.field.items() if members >> instance.sources[t] & 1
                ]
                front = []
                for t, place in self.field.items():
                    if low >> instance.sources[t] & 1:
                        keep |= (1 << FIELD) - 1 << place
                        front.append((place, instance.volume[t]))
                        more += (stage.taken >> t & 1) << place
                for j, k, x in labels:
                    load = stage.sending + stage.taking
                    for place, volume in own:
                        load += (x >> place & (1 << FIELD) - 1) * volume
                    if load > self.most:
                        continue
                    fresh = (x & keep) + more
                    rest = stage.rest + sum((fresh >> place & (1 << FIELD) - 1) * volume for place, volume in front)
                    if not self.is_possible(low, rest, j + 1, k + (self.R is None)):
                        continue
                    r = self.replicas(load, members, j)
                    if r is None:
                        continue
                    used = k + r if self.R is None else 0
                    if used <= self.shares and self.is_possible(low, rest, j + 1, used):
                        self.found = self.found or not low
                        self.add(low, (j + 1, used, fresh))
        self.labels[size] = {}

    def add(self, low: int, label: Label) -> None:
        """A label of a set, unless another one needs no more."""
        j, k, x = label
        kept = self.labels[low.bit_count()].setdefault(low, [])
        for one in kept:
            if one[0] == j and one[1] <= k and ((x | self.guard) - one[2]) & self.guard == self.guard:
                return
        kept[:] = [
            one for one in kept
            if one[0] != j or one[1] < k or ((one[2] | self.guard) - x) & self.guard != self.guard
        ]  # fmt: skip
        kept.append(label)

    def finds_a_plan(self) -> bool:
        """Whether the empty set has a label in the end."""
        for size in range(len(self.labels) - 1, 0, -1):
            self.extend(size)
        return self.found


def searches(instance: Instance, bound: Fraction | None, proof: Any) -> Iterator[Search]:
    """The searches none of which may find a plan: the bound follows, or that there is none."""
    counted = proof["counted"]
    need(all(type(t) is int and 0 <= t < len(instance.sources) for t in counted), "indices of tensors")
    need(len(set(counted)) == len(counted), "tensors, none twice")
    if instance.S is not None:
        R = instance.R if instance.D is None else None
        if len(instance.compute) >= instance.S or instance.at_most:
            yield Search(instance, instance.S, R, bound, None, counted)
        return
    shapes, rows = instance.shapes(), proof["caps"]
    need(len(rows) == len(shapes) and sum(map(len, rows)) <= MAX_CAPS, f"up to {MAX_CAPS} caps, a list for each shape")
    for (S, R), row in zip(shapes, rows, strict=True):
        if bound is None:
            yield Search(instance, S, R, None, None, counted)
            continue
        caps = [cap for cap in map(stated, row) if cap is not None]
        need(all(low < high for low, high in pairwise([Fraction(0), *caps])), "caps that rise")
        for low, high in zip([Fraction(0), *caps], [*caps, None], strict=True):
            if low <= bound:
                yield Search(instance, S, R, (bound - low) / instance.rounds(S, R), instance.bytes_in(high, R), counted)


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    stages, replicas = (
        [[instance.index[str(v)] for v in each] for each in plan["stages"]],
        list(map(count, plan["replicas"])),
    )
    home = {v: s for s, stage in enumerate(stages) for v in stage}
    reject(sum(map(len, stages)) != len(home) or len(home) != len(instance.compute), "plan: every operator once")
    reject(not all(stages) or len(replicas) != len(stages), "plan: no empty stage, and replicas of each")
    if instance.S is None:
        reject(
            len(set(replicas)) > 1 or (len(stages), replicas[0]) not in instance.shapes(), "plan: stages and replicas"
        )
    else:
        reject(
            len(stages) > instance.S or (len(stages) < instance.S and not instance.at_most), "plan: number of stages"
        )
        wrong = set(replicas) != {instance.R} if instance.D is None else sum(replicas) > instance.D
        reject(wrong, "plan: replicas")
    loads = [sum(instance.compute[v] for v in stage) for stage in stages]
    for source, targets, volume in zip(instance.sources, instance.targets, instance.volume, strict=True):
        takers = {home[v] for v in targets} - {home[source]}
        reject(any(s < home[source] for s in takers), "plan: a stage comes after those that feed it")
        for s in takers:
            loads[s] += volume
            loads[home[source]] += volume
    for s, (stage, r) in enumerate(zip(stages, replicas, strict=True)):
        room = instance.room(r)
        needed = instance.memory_of(sum(1 << v for v in stage), len(stages) - s - 1)
        reject(room is not None and needed > room, f"plan: memory of stage {s}")
    scale = instance.B * instance.unit
    if instance.S is not None:
        return max(Fraction(load) / (scale * r) for load, r in zip(loads, replicas, strict=True))
    R, largest = replicas[0], max(sum((instance.sizes[v] for v in stage), Fraction(0)) for stage in stages)
    return instance.rounds(len(stages), R) * max(loads) / (scale * R) + 2 * (R - 1) * largest / (R * instance.B)


def prove(instance: Instance, bound: Fraction | None, proof: Any) -> None:
    """`RejectedError` if a search finds a plan."""
    steps = 0
    for search in searches(instance, bound, proof):
        search.steps = steps
        reject(search.finds_a_plan(), "labels: those of the operators reach the empty set")
        steps = search.steps


CHECKER = Checker("operator_partitioning", ("labels",), Instance, plan_time, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
