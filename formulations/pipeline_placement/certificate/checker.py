"""Check a certificate of pipeline placement: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definitions in the READMEs of this room and of both
phases' rooms. Amounts of an instance are the float64 numbers that its JSON denotes, as exact rationals. A stage fits if
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
import re
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

MAX_BYTES = 64 * 2**20  # of a file
MAX_COUNT, MAX_AMOUNT, MAX_DEVICES = 10**6, 1e30, 2048
MAX_OPERATORS = 10_000
MAX_STEPS, MAX_DEPTH = 2_000_000, 400  # operators and nodes that are tried somewhere, and in one plan
FRACTION = re.compile("[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")
SLACK = (1 + Fraction(1, 10**12)) * (1 + Fraction(1, 2**50))
ONE = 2**80

Stages = list[list[int]]  # operators of each


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


def index(value: Any) -> int:
    """The number of a layer, from 0 on."""
    return count(value, 0)


def stated(text: Any) -> Fraction | None:
    """An exact fraction as text, or nothing."""
    need(text is None or FRACTION.fullmatch(text) is not None, "fractions as text")
    return None if text is None else Fraction(text)


def bits(mask: int) -> Iterator[int]:
    """The positions in a set."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


class Instance:
    """Operators and tensors with exact amounts, memory in units of 1 / ``grain`` bytes, and bandwidths."""

    def __init__(self, content: Any) -> None:
        need(content["problem"] == "pipeline_placement", "an instance of pipeline_placement")
        graph, matrix, objective = content["operators"], content["bandwidth_bytes_per_s"], content["objective"]
        need(objective in ("p2p", "allreduce", "full") and content["ring"] in ("index", "free"), "objective and ring")
        operators, tensors, training = graph["operators"], graph["tensors"], graph.get("training")
        self.S, self.R = count(graph["num_stages"]), count(graph.get("replicas", 1))
        self.D, self.pooled = self.S * self.R, graph.get("pooled_memory", False)
        need(self.D == len(matrix) <= MAX_DEVICES and all(len(row) == self.D for row in matrix), "S R devices")
        need(type(self.pooled) is bool and graph.get("num_devices") is None, "stages and replicas that are given")
        need(graph.get("at_most", False) is False, "as many stages as are given")
        self.B = [
            [Fraction(0) if a == b else exact(each) for b, each in enumerate(row)] for a, row in enumerate(matrix)
        ]
        pairs = ((self.B[a][b], self.B[b][a]) for a in range(self.D) for b in range(a))
        need(all(one == other > 0 for one, other in pairs), "a matrix that is symmetric and positive")
        self.index = {str(each["id"]): v for v, each in enumerate(operators)}
        need(len(self.index) == len(operators) > 0, "operators, none twice")
        reject(len(operators) > MAX_OPERATORS, f"size: over {MAX_OPERATORS} operators")
        self.sources = [self.index[str(each["source"])] for each in tensors]
        self.targets = [[self.index[str(target)] for target in each["targets"]] for each in tensors]
        in_order = all(
            found and source < min(found) and len(set(found)) == len(found)
            for source, found in zip(self.sources, self.targets, strict=True)
        )
        need(in_order, "targets after their source, none twice")
        self.compute, self.volume = (
            [exact(v["compute_s"]) for v in operators],
            [exact(t["volume_bytes"]) for t in tensors],
        )
        self.sizes, outputs, held = (
            [exact(v.get(key, 0)) for v in operators] for key in ("parameter_bytes", "activation_bytes", "memory_bytes")
        )
        self.sends, self.reduces = objective != "allreduce", objective != "p2p" and self.R > 1
        self.free = content["ring"] == "free" and self.reduces and self.R > 3
        self.memory = None if graph.get("memory_bytes") is None else exact(graph["memory_bytes"])
        self.microbatches, self.gpipe, self.recompute = 0, False, True
        if training is not None:
            need(training["schedule"] in ("1f1b", "gpipe"), "1f1b or gpipe")
            self.microbatches, self.gpipe = count(training["microbatches"]), training["schedule"] == "gpipe"
            self.recompute = training["recompute"]
            need(type(self.recompute) is bool, "recompute: true or false")
            copies = exact(training["weight_copies"])
            held = [own + copies * size for own, size in zip(held, self.sizes, strict=True)]
        else:
            outputs = [Fraction(0)] * len(operators)
        # All denominators are powers of two, so that the largest is a common one.
        self.grain = max(each.denominator for each in (*held, *outputs))
        self.held, self.outputs = ([int(each * self.grain) for each in row] for row in (held, outputs))
        amounts = (
            [str(each) for each in row] for row in (self.compute, self.volume, self.sizes, held, outputs, *self.B)
        )
        flags = [objective, content["ring"], self.pooled, self.microbatches, self.gpipe, self.recompute]
        declared = [self.S, self.R, str(self.memory), *flags, self.sources, self.targets, *amounts, *self.index]
        self.digest = hashlib.sha256(json.dumps(declared, separators=(",", ":")).encode()).hexdigest()
        self.before, self.after = ([0] * len(operators) for _ in range(2))  # sets
        for source, found in zip(self.sources, self.targets, strict=True):
            for v in found:
                self.before[v] |= 1 << source
                self.after[source] |= 1 << v

    def fits(self, stages: Stages) -> bool:
        """Whether the stages fit the memory of their devices."""
        if self.memory is None:
            return True
        room = math.floor(self.memory * (self.R if self.pooled else 1) * SLACK * self.grain)
        masks = [sum(1 << v for v in stage) for stage in stages]
        return all(self.memory_of(mask, self.S - s - 1) <= room for s, mask in enumerate(masks))

    def memory_of(self, members: int, behind: int) -> int:
        """What a stage needs in front of so many others."""
        inside, entering = list(bits(members)), 0
        for v in inside:
            entering |= self.before[v]
        fixed = sum(self.held[v] for v in inside)
        in_flight = self.microbatches if self.gpipe else min(self.microbatches, behind + 1)
        inputs = in_flight * sum(self.outputs[u] for u in bits(entering & ~members))
        if not self.recompute:
            return fixed + inputs + self.microbatches * sum(self.outputs[v] for v in inside)
        leaving: dict[int, int] = {}  # what is live until an operator has run
        peak = live = 0
        for v in inside:
            live += self.outputs[v]
            peak = max(peak, live)
            last = max((self.after[v] & members).bit_length() - 1, v)
            leaving[last] = leaving.get(last, 0) + self.outputs[v]
            live -= leaving.pop(v, 0)
        return fixed + inputs + peak

    def exchanged(self, home: dict[int, int]) -> dict[tuple[int, int], Fraction]:
        """Bytes between stages; a tensor counts once for each stage that takes it."""
        found: dict[tuple[int, int], Fraction] = {}
        for source, targets, volume in zip(self.sources, self.targets, self.volume, strict=True):
            for taker in {home[v] for v in targets} - {home[source]}:
                found[home[source], taker] = found.get((home[source], taker), Fraction(0)) + volume
        return found if self.sends else {}

    def reduced(self, stage: list[int]) -> Fraction:
        """Bytes that a stage's all-reduce sends over each link of its ring."""
        return 2 * (self.R - 1) * sum((self.sizes[v] for v in stage), Fraction(0)) / self.R * self.reduces


class Search:
    """All plans within a bound; none: within any time."""

    def __init__(self, instance: Instance, bound: Fraction | None) -> None:
        self.instance, self.steps, self.scale = instance, 0, Fraction(0) if bound is None else ONE / bound
        self.compute = [math.floor(seconds * self.scale) for seconds in instance.compute]
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
        volumes = instance.exchanged({v: s for s, stage in enumerate(stages) for v in stage})
        near: list[list[tuple[int, Fraction]]] = [[] for _ in stages]
        for (one, other), volume in volumes.items():
            near[one].append((other, volume * scale))
            near[other].append((one, volume * scale))
        computing = [sum(self.compute[v] for v in stage) for stage in stages]
        rings = [instance.reduced(stage) * scale for stage in stages]
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
    reject(sum(map(len, stages)) != len(home) or len(home) != len(instance.compute), "plan: every operator once")
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
    times = [[sum((instance.compute[v] for v in stage), Fraction(0))] * R for stage in stages]
    for (one, other), volume in instance.exchanged(home).items():
        for r in range(R):
            seconds = volume / B[devices[one][r]][devices[other][r]]
            times[one][r] += seconds
            times[other][r] += seconds
    for s, row in enumerate(devices if instance.reduces else []):
        slowest = min(B[a][b] for a, b in zip(row, row[1:] + row[:1], strict=True))
        times[s] = [seconds + instance.reduced(stages[s]) / slowest for seconds in times[s]]
    return max(map(max, times))


def proved(content: Any, certificate: Any) -> tuple[Fraction | None, Fraction | None]:
    """Objective and bound of a certificate of an instance, both as parsed JSON; `RejectedError`, or bad input."""
    reject(
        repr(certificate["format"]) != "1" or certificate["problem"] != "pipeline_placement",
        "format: not 1, or another problem's",
    )
    reject(certificate["proof"]["kind"] != "search", "kind: a proof of another kind")
    required = bool(content.get("requirements")) or bool(content["operators"].get("requirements"))
    reject(required, "requirements: they are not looked at")
    instance, plan = Instance(content), certificate["plan"]
    reject(certificate["instance_sha256"] != instance.digest, "instance: the certificate is of another one")
    objective, bound = stated(certificate["objective"]), stated(certificate["bound"])
    need((plan is None) == (objective is None), "a plan and its objective, or neither")
    need(plan is None or bound is not None, "a bound beside a plan")
    if plan is not None:
        reject(plan_time(instance, plan) != objective, "objective: not the time of the plan")
    if bound is None or bound > 0:
        reject(Search(instance, bound).finds_a_plan(), "search: there is a plan within the bound")
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
        "accepted": accepted, "problem": "pipeline_placement", "kind": "search", "reason": reason,
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
