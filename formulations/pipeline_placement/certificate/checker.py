"""Check a certificate of pipeline placement: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definitions in the READMEs of this problem and of
both phases. Amounts of an instance are the float64 numbers that its JSON denotes, as exact rationals. A stage fits if
it needs at most M (1 + 1e-12) (1 + 2^-50): what the definition admits, with the rounding of its sums.

**Claims.** ``plan`` keeps every rule and takes ``objective``; every plan takes more than ``bound``, L (if L is 0: none
takes less, which needs no proof). If ``bound`` is null there is no plan; then L is infinite below.

**Search.** The certificate holds no proof: the checker tries all plans by itself, as far as they may be within L, and
refuses to try very many.

1. *Partitions.* Operators are taken in their order, in which tensors go forward; each joins a stage that is not before
   those that feed it, so all partitions in which stages come after those that feed them arise, each once. A part is
   left out if a stage computes longer than L already, or more stages are empty than operators are left. What does not
   fit the memory in the end is left out.
2. *Mappings.* Replicas of a stage get a device each, in the order of replicas, and stages in turn. Each node's time is
   what it computes, what it sends to the neighbours that have a device, and its ring as slow as the slowest link
   between replicas that have one: this never falls, and is the node's time in the end. A part is left out if it is over
   L for some node. Numbering all replicas from another one on, in the same order of the ring, changes no node's time:
   so the first stage's first replica is on the least of its devices.

Times are counted in units of L / 2^80, each part rounded down, so that nothing is left out which is within L.

**Theorem.** If this finds no plan, every plan takes more than L. *Proof.* A plan within L, renumbered as said, would be
left out at no step. Rings of up to three replicas are the same in every order; with more and free rings it is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from formulations.contract.checker.frame import Checker, bits, count, exact, need, reject
from formulations.contract.checker.operators import Operators

MAX_DEVICES = 2048
MAX_OPERATORS = 10_000
MAX_STEPS, MAX_DEPTH = 2_000_000, 400  # operators and nodes that are tried somewhere, and in one plan
ONE = 2**80

Stages = list[list[int]]  # operators of each


class Instance(Operators):
    """Operators and tensors with exact amounts, and bandwidths."""

    def __init__(self, content: Any) -> None:
        graph, matrix, objective = content["operators"], content["bandwidth_bytes_per_s"], content["objective"]
        reject(objective == "step", "a step of a flushed pipeline: it is not looked at")
        need(objective in ("p2p", "allreduce", "full") and content["ring"] in ("index", "free"), "objective and ring")
        reject(len(graph["operators"]) > MAX_OPERATORS, f"size: over {MAX_OPERATORS} operators")
        super().__init__(graph)
        self.S, self.R = count(graph["num_stages"]), count(graph.get("replicas", 1))
        self.D = self.S * self.R
        need(self.D == len(matrix) <= MAX_DEVICES and all(len(row) == self.D for row in matrix), "S R devices")
        need(graph.get("num_devices") is None, "stages and replicas that are given")
        need(graph.get("at_most", False) is False, "as many stages as are given")
        self.B = [
            [Fraction(0) if a == b else exact(each) for b, each in enumerate(row)] for a, row in enumerate(matrix)
        ]
        pairs = ((self.B[a][b], self.B[b][a]) for a in range(self.D) for b in range(a))
        need(all(one == other > 0 for one, other in pairs), "a matrix that is symmetric and positive")
        self.sends, self.reduces = objective != "allreduce", objective != "p2p" and self.R > 1
        self.free = content["ring"] == "free" and self.reduces and self.R > 3
        amounts = ([str(each) for each in row] for row in (self.seconds, self.bytes, *self.amounts, *self.B))
        flags = [objective, content["ring"], self.pooled, self.microbatches, self.gpipe, self.recompute]
        declared = [self.S, self.R, str(self.memory), *flags, self.sources, self.targets, *amounts, *self.index]
        self.digest = hashlib.sha256(json.dumps(declared, separators=(",", ":")).encode()).hexdigest()

    def fits(self, stages: Stages) -> bool:
        """Whether the stages fit the memory of their devices."""
        room = self.room(self.R)
        if room is None:
            return True
        masks = [sum(1 << v for v in stage) for stage in stages]
        return all(self.memory_of(mask, self.S - s - 1) <= room for s, mask in enumerate(masks))

    def exchange_bytes(self, home: dict[int, int]) -> dict[tuple[int, int], Fraction]:
        """Bytes between stages; a tensor counts once for each stage that takes it."""
        found: dict[tuple[int, int], Fraction] = {}
        for source, targets, volume in zip(self.sources, self.targets, self.bytes, strict=True):
            for taker in {home[v] for v in targets} - {home[source]}:
                found[home[source], taker] = found.get((home[source], taker), Fraction(0)) + volume
        return found if self.sends else {}

    def allreduce_bytes(self, stage: list[int]) -> Fraction:
        """Bytes that a stage's all-reduce sends over each link of its ring."""
        return 2 * (self.R - 1) * sum((self.sizes[v] for v in stage), Fraction(0)) / self.R * self.reduces


class Search:
    """All plans within a bound; none: within any time."""

    def __init__(self, instance: Instance, bound: Fraction | None) -> None:
        self.instance, self.steps, self.scale = instance, 0, Fraction(0) if bound is None else ONE / bound
        self.compute = [math.floor(seconds * self.scale) for seconds in instance.seconds]
        depth = len(self.compute) + instance.D
        reject(depth > MAX_DEPTH, f"size: over {MAX_DEPTH} operators and devices")
        reject(instance.free, "rings: in any order of over three replicas they are not looked at")

    def step(self) -> None:
        """Count one."""
        self.steps += 1
        reject(self.steps > MAX_STEPS, f"size: over {MAX_STEPS} operators and nodes are tried")

    def partitions(self, home: dict[int, int], loads: list[int]) -> Iterator[Stages]:
        """All that go on from the stages of the first operators."""
        instance, v = self.instance, len(home)
        if v == len(self.compute):
            stages: Stages = [[] for _ in range(instance.S)]
            for operator, s in home.items():
                stages[s].append(operator)
            yield stages
            return
        empty = set(range(instance.S)) - set(home.values())
        for s in range(max((home[u] for u in bits(instance.before[v])), default=0), instance.S):
            self.step()
            if loads[s] + self.compute[v] <= ONE and len(empty - {s}) < len(self.compute) - v:
                after = [*loads[:s], loads[s] + self.compute[v], *loads[s + 1 :]]
                yield from self.partitions({**home, v: s}, after)

    def can_be_placed(self, stages: Stages) -> bool:
        """Whether the nodes of these stages can get devices within the bound."""
        instance, scale = self.instance, self.scale
        S, R, B, devices = instance.S, instance.R, instance.B, range(instance.D)
        volumes = instance.exchange_bytes({v: s for s, stage in enumerate(stages) for v in stage})
        near: list[list[tuple[int, Fraction]]] = [[] for _ in stages]
        for (one, other), volume in volumes.items():
            near[one].append((other, volume * scale))
            near[other].append((one, volume * scale))
        computing = [sum(self.compute[v] for v in stage) for stage in stages]
        rings = [instance.allreduce_bytes(stage) * scale for stage in stages]
        at: dict[tuple[int, int], int] = {}
        sent = dict.fromkeys(((s, r) for s in range(S) for r in range(R)), 0)
        reducing = [0] * S

        def goes_on(number: int) -> bool:
            if number == S * R:
                return True
            r, s = divmod(number, S)
            for device in devices:
                if device in taken or (s == 0 and r and device < at[0, 0]):
                    continue
                self.step()
                links = [
                    (other, math.floor(volume / B[device][at[other, r]]))
                    for other, volume in near[s]
                    if (other, r) in at
                ]
                round_ = [at[s, q] for q in ({(r - 1) % R, (r + 1) % R} - {r}) if (s, q) in at] if rings[s] else []
                ring = max([reducing[s], *(math.floor(rings[s] / B[device][other]) for other in round_)])
                before, reducing[s] = reducing[s], ring
                at[s, r] = device
                for other, seconds in links:
                    sent[s, r] += seconds
                    sent[other, r] += seconds
                changed = {s} | {other for other, _ in links}
                possible = all(
                    computing[t] + sent[t, q] + reducing[t] <= ONE for t in changed for q in range(R) if (t, q) in at
                )
                taken.add(device)
                if possible and goes_on(number + 1):
                    return True
                taken.discard(device)
                del at[s, r]
                reducing[s] = before
                for other, seconds in links:
                    sent[s, r] -= seconds
                    sent[other, r] -= seconds
            return False

        taken: set[int] = set()
        return goes_on(0)

    def finds_a_plan(self) -> bool:
        """Whether a plan is within the bound."""
        for stages in self.partitions({}, [0] * self.instance.S):
            if self.instance.fits(stages) and self.can_be_placed(stages):
                return True
        return False


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    S, R, B = instance.S, instance.R, instance.B
    partition, devices = plan["partition"], [[count(d, 0) for d in row] for row in plan["mapping"]["devices"]]
    stages = [[instance.index[str(v)] for v in stage] for stage in partition["stages"]]
    home = {v: s for s, stage in enumerate(stages) for v in stage}
    reject(sum(map(len, stages)) != len(home) or len(home) != len(instance.seconds), "plan: every operator once")
    reject(
        len(stages) != S or not all(stages) or [*map(count, partition["replicas"])] != [R] * S,
        "plan: stages and replicas",
    )
    ordered = all(
        home[u] <= home[v] for u, found in zip(instance.sources, instance.targets, strict=True) for v in found
    )
    reject(not ordered, "plan: a stage comes after those that feed it")
    reject(not instance.fits(stages), "plan: memory")
    reject(len(devices) != S or any(len(row) != R for row in devices), "plan: R devices for each stage")
    reject(sorted(d for row in devices for d in row) != list(range(instance.D)), "plan: every device once")
    reject(instance.free, "rings: in any order of over three replicas they are not looked at")
    times = [[sum((instance.seconds[v] for v in stage), Fraction(0))] * R for stage in stages]
    for (one, other), volume in instance.exchange_bytes(home).items():
        for r in range(R):
            seconds = volume / B[devices[one][r]][devices[other][r]]
            times[one][r] += seconds
            times[other][r] += seconds
    for s, row in enumerate(devices if instance.reduces else []):
        slowest = min(B[a][b] for a, b in zip(row, row[1:] + row[:1], strict=True))
        times[s] = [seconds + instance.allreduce_bytes(stages[s]) / slowest for seconds in times[s]]
    return max(map(max, times))


def prove(instance: Instance, bound: Fraction | None, _: Any) -> None:
    """`RejectedError` if a plan is within the bound."""
    reject(Search(instance, bound).finds_a_plan(), "search: there is a plan within the bound")


CHECKER = Checker("pipeline_placement", ("search",), Instance, plan_time, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
