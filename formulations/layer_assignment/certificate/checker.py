"""Check a certificate of layer assignment: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in this room's README, whose letters it
uses. Numbers of an instance are the float64 numbers that its JSON denotes, as exact rationals.

**Claims.** ``plan`` cuts the L layers into S stages, none of them empty, and takes ``objective``; every plan takes more
than ``bound``, B (if B is 0: none takes less, which needs no proof). If ``bound`` is null there is no plan.

**Proof.** There is no plan if S > L. Else the proof has ``rows``, pairs of an all-reduce's seconds, rising a_1 < ... <
a_n (none without an all-reduce), and of caps on the slowest stage below it, and ``caps``, those above a_n: rising
seconds c_1 < ... < c_m in each list. Let a_0 be 0, a_(n+1) infinite, and the same for c. phi(c, a) is the least sum of
e(cut_j, j) over all plans with T_j <= c and A_j <= a for all stages j, infinite if there are none. The rule is, for i
= 0 to n, and for k = 0 to m with the caps below a_(i+1),

    (N - 1) c_k + sum of all t_l + phi(c_(k+1), a_(i+1)) + a_i > B.

**Theorem.** If it holds, every plan takes more than B.

*Proof.* Let A be the longest all-reduce of a plan (0 without), and T the time of its slowest stage. As A >= 0 and
a_(n+1) is infinite, there is an i with a_i <= A <= a_(i+1): the least i for which A <= a_(i+1). So there is a k with
c_k <= T <= c_(k+1). All its stages keep both upper limits, so its cuts cost at least phi(c_(k+1), a_(i+1)); its stages
together take the sum of all t_l, whatever the cuts. So it takes at least the left side.

phi is found from the input side on: for each number of stages j and of layers i, the least cost of cutting the first i
layers into j stages within the limits. The last of these stages begins in a window of layers that moves with i only
forward, as more layers never take less time, nor have fewer parameters.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import time
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

MAX_BYTES = 64 * 2**20  # of a file
MAX_COUNT, MAX_AMOUNT = 10**6, 1e30
MAX_CAPS = 10_000
FRACTION = re.compile("[0-9]{1,2000}(/[1-9][0-9]{0,1999})?")


Row = tuple[Fraction | None, list[Fraction]]  # seconds of an all-reduce, none for infinity, and caps below it


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


class Instance:
    """An instance in integers: seconds are multiples of 1 / ``unit``."""

    def __init__(self, content: Any) -> None:
        need(content["problem"] == "layer_assignment", "an instance of layer_assignment")
        self.N, self.S = count(content["num_microbatches"]), count(content["num_stages"])
        times = [exact(t) for t in content["layer_time_s"]]
        cuts = [[exact(e) for e in row] for row in content["cut_cost_s"]]
        need(0 < len(times) == len(cuts) + 1, "a cut behind every layer but the last")
        need(all(len(row) in (1, self.S - 1) for row in cuts), "the cost of a cut for each stage, or once")
        # All denominators are powers of two, so that the largest is a common one.
        self.unit = max(seconds.denominator for row in (times, *cuts) for seconds in row)
        self.times = [int(t * self.unit) for t in times]
        self.cuts = [[int(e * self.unit) for e in row] for row in cuts]
        self.total = sum(self.times)
        declared: list[Any] = [self.N, self.S, [float(t) for t in times], [[float(e) for e in row] for row in cuts]]
        rings = [exact(ring) for ring in content.get("ring_s_per_parameter", [])]
        need(len(rings) in (0, 1, self.S), "an all-reduce for each stage, or once, or none")
        #: Seconds for each unit of parameters, by stage; parameters of layers, and of sets of layers that share them.
        self.rings, self.sizes, self.tied = [Fraction(0)] * self.S, [0] * len(times), list[tuple[frozenset[int], int]]()
        if any(rings):
            sizes = [exact(size) for size in content.get("parameters", [])] or [Fraction(0)] * len(times)
            ties = [(frozenset(map(index, tie["layers"])), exact(tie["parameters"])) for tie in content.get("tied", [])]
            need(len(sizes) == len(times) and all(v < len(times) for layers, _ in ties for v in layers), "parameters")
            grain = max(size.denominator for size in (*sizes, *(size for _, size in ties)))
            self.rings = [ring / grain for ring in (rings * self.S if len(rings) == 1 else rings)]
            self.sizes, self.tied = [int(m * grain) for m in sizes], [(held, int(m * grain)) for held, m in ties]
            held = [[sorted(layers), float(size)] for layers, size in ties]
            declared += [[float(ring) for ring in rings], [float(size) for size in sizes], held]
        self.ties = [[tie for tie, (layers, _) in enumerate(self.tied) if v in layers] for v in range(len(times))]
        self.digest = hashlib.sha256(json.dumps(declared, separators=(",", ":")).encode()).hexdigest()

    def cut(self, layers: int, stage: int) -> int:
        """The cost of the cut behind so many layers and that stage; none behind the last."""
        if stage == self.S - 1:
            return 0
        row = self.cuts[layers - 1]
        return row[0] if len(row) == 1 else row[stage]

    def parameters(self, begin: int, end: int) -> int:
        """Of a stage of the layers from ``begin`` to ``end`` - 1."""
        held = [size for layers, size in self.tied if any(begin <= v < end for v in layers)]
        return sum(self.sizes[begin:end]) + sum(held)

    def _first(self, cap: int | None, most: int | None) -> list[int]:
        """Where the longest stage begins that ends behind so many layers and has at most that time and parameters."""
        first, within, size, begin, held = [0], 0, 0, 0, [0] * len(self.tied)
        for end, seconds in enumerate(self.times, start=1):
            within, size = within + seconds, size + self.sizes[end - 1]
            for tie in self.ties[end - 1]:
                held[tie] += 1
                size += self.tied[tie][1] if held[tie] == 1 else 0
            while begin < end and ((cap is not None and within > cap) or (most is not None and size > most)):
                within, size = within - self.times[begin], size - self.sizes[begin]
                for tie in self.ties[begin]:
                    held[tie] -= 1
                    size -= self.tied[tie][1] if held[tie] == 0 else 0
                begin += 1
            first.append(begin)
        return first

    def cheapest(self, cap: int | None, most: Fraction | None = None) -> float:
        """phi: an integer, or infinity; no cap: any time; not most: all-reduces of any time."""
        n, S = len(self.times), self.S
        limits = [None if most is None or not ring else math.floor(most / ring) for ring in self.rings]
        windows = {limit: self._first(cap, limit) for limit in set(limits)}
        costs: list[float] = [0, *[math.inf] * n]
        for stage, limit in enumerate(limits):
            first, ends = windows[limit], range(stage + 1, n - S + stage + 2)  # every stage holds a layer
            reached = {end: min(costs[first[end] : end], default=math.inf) for end in ends}
            costs = [math.inf] * (n + 1)
            for end, cost in reached.items():
                if cost < math.inf:
                    costs[end] = cost + self.cut(end, stage)
        return costs[n]


def prove(instance: Instance, bound: Fraction | None, rows: list[Row]) -> None:
    """`RejectedError` if it does not follow that every plan takes more than the bound, or that there is none."""
    if len(instance.times) < instance.S:
        return
    reject(bound is None, "stages: there are as many layers")
    assert bound is not None
    least = Fraction(0)
    for most, caps in rows:
        need(all(low < high for low, high in pairwise(caps)) and (most is None or least < most), "caps that rise")
        for low, high in zip([Fraction(0), *caps], [*caps, None], strict=True):
            sent = instance.cheapest(None if high is None else math.floor(high * instance.unit), most)
            known = ((instance.N - 1) * low + least) * instance.unit + instance.total
            limit = f"caps: from {float(low)!r} on" + (f", and {float(least)!r} for the all-reduce" if least else "")
            reject(sent < math.inf and known + int(sent) <= bound * instance.unit, limit)
        least = most or least


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    lengths = [count(length, 0) for length in plan["lengths"]]
    reject(len(lengths) != instance.S or 0 in lengths, "plan: as many stages as declared, none of them empty")
    reject(sum(lengths) != len(instance.times), "plan: all layers")
    ends = list(accumulate(lengths))
    slowest = max(sum(instance.times[end - length : end]) for length, end in zip(lengths, ends, strict=True))
    sent = sum(instance.cut(end, stage) for stage, end in enumerate(ends))
    stages = zip(instance.rings, lengths, ends, strict=True)
    longest = max(ring * instance.parameters(end - length, end) for ring, length, end in stages)
    return Fraction((instance.N - 1) * slowest + sent + instance.total, instance.unit) + longest


def rows_of(proof: Any) -> list[Row]:
    """The rows of a proof, and its caps above all of them."""
    rows = [*proof.get("rows", []), (None, proof["caps"])]
    reject(sum(1 + len(caps) for _, caps in rows) > MAX_CAPS, f"size: over {MAX_CAPS} caps")
    need(all(type(text) is str for most, caps in rows[:-1] for text in (most, *caps)), "seconds as text")
    return [(stated(most), [cap for cap in map(stated, caps) if cap is not None]) for most, caps in rows]


def proved(content: Any, certificate: Any) -> tuple[Fraction | None, Fraction | None]:
    """Objective and bound of a certificate of an instance, both as parsed JSON; `RejectedError`, or bad input."""
    reject(
        repr(certificate["format"]) != "1" or certificate["problem"] != "layer_assignment",
        "format: not 1, or another problem's",
    )
    reject(certificate["proof"]["kind"] != "caps", "kind: a proof of another kind")
    reject(bool(content.get("requirements")), "requirements: they are not looked at")
    instance, plan = Instance(content), certificate["plan"]
    reject(certificate["instance_sha256"] != instance.digest, "instance: the certificate is of another one")
    objective, bound = stated(certificate["objective"]), stated(certificate["bound"])
    need((plan is None) == (objective is None), "a plan and its objective, or neither")
    need(plan is None or bound is not None, "a bound beside a plan")
    if plan is not None:
        reject(plan_time(instance, plan) != objective, "objective: not the time of the plan")
    if bound is None or bound > 0:
        prove(instance, bound, rows_of(certificate["proof"]))
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
        "accepted": accepted, "problem": "layer_assignment", "kind": "caps", "reason": reason,
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
