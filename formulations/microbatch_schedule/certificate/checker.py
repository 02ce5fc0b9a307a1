"""Check a certificate of micro-batch schedules: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in its README. Amounts of an instance
are the float64 numbers that its JSON denotes, as exact rationals.

**Claims.** ``plan`` keeps every rule, as the definition does within 1e-9 of the iteration, and takes ``objective``
(seconds of the iteration, or bytes of the device that holds most); every plan takes more than ``bound``, L (if L is 0:
none takes less, which needs no proof). If ``bound`` is null there is no plan within the deadline.

**Proof.** It is the bound of *heads and tails*, which the checker computes. Assume a plan whose iteration takes at most
H: L seconds (where seconds are minimised), and the deadline D with its tolerance, D (1 + 2e-9), if there is one. Let e
be (1e-9 + 2^-50) H, so that rules hold within e, with the rounding of what they compare. With start' = start + e >= 0,
every pass of u seconds, and v = u - 2 e:

- end <= H and end >= start + u - e, so start' + v <= H,
- where p comes before q, with a delay: start'(q) >= start'(p) + v(p) + delay, as end and start may both be off by e,
- of two passes of a device that follow each other the same holds without a delay, so they do not overlap with v; if
  all v > 0 (the checker refuses shorter passes) it holds for any two of a device, however many are between them.

So start' is a schedule that keeps the rules exactly, with the times v, within H. Room for c micro-batches in a stage
means that forward pass j + c comes after backward pass j, or after W of it where backward passes are split. c is what
``in_flight`` and memory allow (with 2^-50 of it for the rounding of a product) if all other stages of the device hold
their weights alone; where bytes are minimised also what L allows. Delays are taken 2^-50 smaller, and all
times rounded down to H / 2^60.

The *head* of a pass is the longest chain of passes and delays in front of it, its *tail* the longest one behind it.
There is no plan within H if a stage has no room for one micro-batch, if the passes wait for each other in a circle, or
if for some device this takes more than H: run its passes, none before its head, always the one with the longest tail
first, interrupting others; the greatest sum of an end and the tail behind it. (No order of a device's passes makes this
sum smaller, interrupted or not: before the end in question the device was busy, from some moment on, with nothing but
passes of at least that tail, none of which could have begun before that moment; Jackson.)

**Theorem.** If so, every plan takes more than L, or there is none. *Proof.* In a plan of at most L seconds, or of at
most L bytes within D, start' would be such a schedule.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import sys
from fractions import Fraction
from itertools import pairwise
from typing import Any

from formulations.contract.checker.frame import MAX_AMOUNT, Checker, count, exact, need, reject

MAX_PASSES, MAX_WAITS = 200_000, 2_000_000  # waits: passes over edges
TOLERANCE, ROUNDING, ONE = Fraction(1, 10**9), Fraction(1, 2**50), 2**60


class Instance:
    """Stages with their passes, F, B and, where these are split, W; edges with their delays, both ways."""

    def __init__(self, content: Any) -> None:
        need(content["objective"] in ("time", "memory"), "the objective time or memory")
        stages, self.in_bytes = content["stages"], content["objective"] == "memory"
        batch, latency = count(content["minibatch"]), exact(content.get("latency_s", 0))

        def optional(holder: Any, key: str) -> Fraction | None:
            return None if holder.get(key) is None else exact(holder[key])

        bandwidth, self.deadline = optional(content, "bandwidth_bytes_per_s"), optional(content, "deadline_s")
        need(bandwidth is None or bandwidth > 0, "a positive bandwidth")
        self.times = [[exact(each["forward_s"]), exact(each["backward_s"])] for each in stages]
        for row, each in zip(self.times, stages, strict=True):
            row += [] if optional(each, "weight_s") is None else [exact(each["weight_s"])]
        need(all(min(row) > 0 for row in self.times), "passes that take time")
        self.sizes = [count(each.get("microbatch", 1)) for each in stages]
        need(bool(stages) and all(batch % size == 0 for size in self.sizes), "micro-batches that divide the mini-batch")
        self.counts = [batch // size for size in self.sizes]
        passes = [len(row) * number for row, number in zip(self.times, self.counts, strict=True)]
        need(sum(passes) <= MAX_PASSES, f"at most {MAX_PASSES} passes")
        self.devices = [count(each, 0) for each in content.get("devices", [])] or list(range(len(stages)))
        need(len(self.devices) == len(stages), "a device of every stage")
        self.weights, self.activations = (
            [exact(each.get(key, 0)) for each in stages] for key in ("weight_bytes", "activation_bytes")
        )
        self.memory = [optional(each, "memory_bytes") for each in stages]
        self.most = [None if each.get("in_flight") is None else count(each["in_flight"]) for each in stages]
        self.edges = [(count(e["source"], 0), count(e["target"], 0)) for e in content["edges"]]
        need(all(max(pair) < len(stages) and pair[0] != pair[1] for pair in self.edges), "edges between stages")
        reject(sum(self.counts[s] for pair in self.edges for s in pair) > MAX_WAITS, f"size: over {MAX_WAITS} waits")
        self.delays = []
        for edge, ends in zip(content["edges"], self.edges, strict=True):
            fixed, volume = exact(edge.get("delay_s", 0)) + latency, exact(edge.get("bytes_per_sample", 0))
            if self.devices[ends[0]] == self.devices[ends[1]]:
                fixed = volume = Fraction(0)
            self.delays.append([fixed + (volume * self.sizes[s] / bandwidth if bandwidth else 0) for s in ends])
        self.firsts = [sum(passes[:s]) for s in range(len(stages))]
        declared = [self.in_bytes, batch, self.sizes, self.counts, self.most, self.edges]
        if content.get("devices") or any(len(row) > 2 for row in self.times):
            declared.append([self.devices, [len(row) for row in self.times]])
        numbers = [self.deadline, *self.memory, *self.weights, *self.activations]
        numbers += [each for row in (*self.times, *self.delays) for each in row]
        whole = [declared, [str(each) for each in numbers]]
        self.digest = hashlib.sha256(json.dumps(whole, separators=(",", ":")).encode()).hexdigest()

    def number(self, stage: int, kind: int, j: int) -> int:
        """Of a pass: F is of kind 0, B of kind 1, W of kind 2."""
        return self.firsts[stage] + kind * self.counts[stage] + j

    def release(self, stage: int, j: int) -> int:
        """Of the pass at whose end a micro-batch is no longer in flight: W if there is one, else B."""
        return self.number(stage, len(self.times[stage]) - 1, j)

    def beside(self, stage: int) -> list[int]:
        """The stages of a stage's device."""
        return [s for s, device in enumerate(self.devices) if device == self.devices[stage]]

    def room(self, stage: int, limit: Fraction | None) -> int:
        """Micro-batches that may be in flight; ``limit``: bytes."""
        room, most = self.counts[stage], self.most[stage]
        if most is not None:
            room = min(room, most // self.sizes[stage])
        for capacity in (*(self.memory[s] for s in self.beside(stage)), limit):
            if capacity is not None:
                left = capacity * (1 + ROUNDING) - sum(self.weights[s] for s in self.beside(stage))
                each = self.sizes[stage] * self.activations[stage]
                room = min(room, -1 if left < 0 else room if not each else math.floor(left / each))
        return room

    def waits(self) -> list[tuple[int, int, Fraction]]:
        """Pairs of passes of different kinds or stages, the first before the second, and the delay between them."""
        found = []
        for s, number in enumerate(self.counts):
            for kind in range(1, len(self.times[s])):
                found += [(self.number(s, kind - 1, j), self.number(s, kind, j), Fraction(0)) for j in range(number)]
        for (source, target), (forth, back) in zip(self.edges, self.delays, strict=True):
            for giver, taker, kind, delay in ((source, target, 0, forth), (target, source, 1, back)):
                for j in range(self.counts[taker]):
                    last = ((j + 1) * self.sizes[taker] - 1) // self.sizes[giver]
                    found.append((self.number(giver, kind, last), self.number(taker, kind, j), delay))
        return found


def heads_and_tails(instance: Instance, horizon: Fraction, limit: Fraction | None) -> bool:
    """Whether they leave no plan within so many seconds, and bytes."""
    rooms = [instance.room(s, limit) for s in range(len(instance.counts))]
    scale, slack = ONE / horizon, math.ceil(2 * (TOLERANCE + ROUNDING) * ONE)
    seconds = [
        math.floor(u * scale) - slack
        for s, row in enumerate(instance.times)
        for u in row
        for _ in range(instance.counts[s])
    ]
    reject(min(seconds) <= 0, "short: a pass takes no more than the tolerance of the definition")
    rules = [(p, q, math.floor(delay * (1 - ROUNDING) * scale)) for p, q, delay in instance.waits()]
    for s, number in enumerate(instance.counts):
        for j in range(1, number):
            kinds = range(len(instance.times[s]))
            rules += [(instance.number(s, kind, j - 1), instance.number(s, kind, j), 0) for kind in kinds]
        rules += [(instance.release(s, j), instance.number(s, 0, j + rooms[s]), 0) for j in range(number - rooms[s])]
    after: list[list[tuple[int, int]]] = [[] for _ in seconds]
    before = [0] * len(seconds)
    for p, q, delay in rules:
        after[p].append((q, delay))
        before[q] += 1
    order, heads, tails = [p for p, number in enumerate(before) if not number], [0] * len(seconds), [0] * len(seconds)
    for p in order:
        for q, delay in after[p]:
            heads[q] = max(heads[q], heads[p] + seconds[p] + delay)
            before[q] -= 1
            if not before[q]:
                order.append(q)
    if len(order) < len(seconds):
        return True
    for p in reversed(order):
        tails[p] = max((delay + seconds[q] + tails[q] for q, delay in after[p]), default=0)
    rows: dict[int, list[tuple[int, int, int]]] = {device: [] for device in instance.devices}
    for s, first in enumerate(instance.firsts):
        passes = range(first, first + len(instance.times[s]) * instance.counts[s])
        rows[instance.devices[s]] += [(heads[p], tails[p], seconds[p]) for p in passes]
    return any(alone(sorted(row)) > ONE for row in rows.values())


def alone(passes: list[tuple[int, int, int]]) -> int:
    """The greatest end with the tail behind it of passes (head, tail, seconds) of a device, the longest tail first."""
    waiting: list[list[int]] = []  # tail, negative, and seconds left
    clock = most = come = 0
    while come < len(passes) or waiting:
        if not waiting:
            clock = max(clock, passes[come][0])
        while come < len(passes) and passes[come][0] <= clock:
            heapq.heappush(waiting, [-passes[come][1], passes[come][2]])
            come += 1
        until = clock + waiting[0][1]
        if come < len(passes) and passes[come][0] < until:
            waiting[0][1] -= passes[come][0] - clock
            clock = passes[come][0]
            continue
        tail, _ = heapq.heappop(waiting)
        clock, most = until, max(most, until - tail)
    return most


def plan_value(instance: Instance, plan: Any) -> Fraction:
    """The objective of a plan, if it keeps every rule; `RejectedError` otherwise."""
    passes: dict[int, tuple[Fraction, Fraction]] = {}
    rows: dict[int, list[tuple[Fraction, Fraction, int, int]]] = {device: [] for device in instance.devices}
    for stage, kind, j, start, end in plan["tasks"]:
        need(type(start) in (int, float) and abs(start) <= MAX_AMOUNT, "a start")
        s = count(stage, 0)
        reject(s >= len(instance.counts) or count(j, 0) >= instance.counts[s], "plan: passes that exist")
        reject(kind not in ("F", "B", "W")[: len(instance.times[s])], "plan: passes that exist")
        number = instance.number(s, "FBW".index(kind), int(j))
        reject(number in passes, "plan: every pass once")
        passes[number] = Fraction(float(start)), exact(end)
        rows[instance.devices[s]].append((*passes[number], number, s))
    wanted = sum(len(row) * number for row, number in zip(instance.times, instance.counts, strict=True))
    reject(len(passes) != wanted, "plan: every pass")
    iteration = max(end for _, end in passes.values())
    slack, most = iteration * (TOLERANCE + ROUNDING), Fraction(0)
    done = [[0] * len(row) for row in instance.times]
    for device, row in rows.items():
        row.sort()
        own = [s for s, there in enumerate(instance.devices) if there == device]
        bytes_held = sum((instance.weights[s] for s in own), Fraction(0))
        limits = [limit * (1 + ROUNDING) for s in own if (limit := instance.memory[s]) is not None]
        reject(any(bytes_held > limit for limit in limits), "plan: memory")
        most = max(most, bytes_held)
        for start, end, number, s in row:
            kind, j = divmod(number - instance.firsts[s], instance.counts[s])
            took = end - start
            reject(start < -slack or abs(took - instance.times[s][kind]) > slack, "plan: starts and times of passes")
            reject(j != done[s][kind], "plan: passes in turn")
            done[s][kind] += 1
            change = 1 if kind == 0 else -int(kind == len(done[s]) - 1)
            bytes_held += change * instance.sizes[s] * instance.activations[s]
            most = max(most, bytes_held)
            reject(any(bytes_held > limit for limit in limits), "plan: memory")
            cap = instance.most[s]
            reject(cap is not None and (done[s][0] - done[s][-1]) * instance.sizes[s] > cap, "plan: room in flight")
        for earlier, later in pairwise(row):
            reject(later[0] < earlier[1] - slack, "plan: one pass at a time")
    for p, q, delay in instance.waits():
        reject(passes[q][0] < passes[p][1] + delay - slack, "plan: a pass waits for what it takes")
    reject(instance.deadline is not None and iteration > instance.deadline + slack, "plan: the deadline")
    return most if instance.in_bytes else iteration


def excludes(instance: Instance, bound: Fraction | None) -> bool:
    """Whether no plan has at most this objective; no bound: whether there is no plan."""
    limit = bound if instance.in_bytes else None
    if min(instance.room(s, limit) for s in range(len(instance.counts))) < 1:
        return True
    ends = [] if instance.deadline is None else [instance.deadline * (1 + 2 * TOLERANCE)]
    if bound is not None and not instance.in_bytes:
        ends.append(bound)
    # Without either a plan may wait for so long that its tolerance, a part of the iteration, admits any order.
    reject(not ends, "deadline: without one the tolerance of the definition has no limit")
    return min(ends) == 0 or heads_and_tails(instance, min(ends), limit)


def prove(instance: Instance, bound: Fraction | None, proof: Any) -> None:
    """`RejectedError` if heads and tails leave room."""
    reject(proof["name"] != "heads and tails", "name: another bound")
    reject(not excludes(instance, bound), "heads and tails: they leave room within the bound")


CHECKER = Checker("microbatch_schedule", ("bound",), Instance, plan_value, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
