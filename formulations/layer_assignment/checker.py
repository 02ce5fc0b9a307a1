"""Check a certificate of layer assignment: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in this room's README, whose letters it
uses. Seconds of an instance are the float64 numbers that its JSON denotes, as exact rationals. An all-reduce is not
looked at.

**Claims.** ``plan`` cuts the L layers into S stages, none of them empty, and takes ``objective``; every plan takes more
than ``bound``, B (if B is 0: none takes less, which needs no proof). If ``bound`` is null there is no plan.

**Proof.** There is no plan if S > L. Else the proof has ``caps``, rising seconds c_1 < ... < c_m; let c_0 be 0 and
c_(m+1) infinite. phi(c) is the least sum of e(cut_j, j) over all plans whose stages take at most c each, infinite if
there are none. The rule is, for i = 0 to m,

    (N - 1) c_i + sum of all t_l + phi(c_(i+1)) > B.

**Theorem.** If it holds, every plan takes more than B.

*Proof.* Let T be the time of a plan's slowest stage. As T >= 0 and c_(m+1) is infinite, there is an i with T <= c_(i+1)
and T >= c_i: the least i for which T <= c_(i+1). All its stages take at most c_(i+1), so its cuts cost at least
phi(c_(i+1)); its stages together take the sum of all t_l, whatever the cuts. So it takes at least the left side.

phi is found from the input side on: for each number of stages j and of layers i, the least cost of cutting the first i
layers into j stages of at most c. The last of these stages begins in a window of layers that moves with i only forward.
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
KEYS = dict.fromkeys(("format", "problem", "instance_sha256", "plan", "objective", "bound", "proof")).keys()


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
    need(exact(value).denominator == 1 and least <= value <= MAX_COUNT, f"an integer from {least} to {MAX_COUNT}")
    return int(value)


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
        self.rings = any(exact(ring) > 0 for ring in content.get("ring_s_per_parameter", []))
        declared = [self.N, self.S, [float(t) for t in times], [[float(e) for e in row] for row in cuts]]
        self.digest = hashlib.sha256(json.dumps(declared, separators=(",", ":")).encode()).hexdigest()

    def cut(self, layers: int, stage: int) -> int:
        """The cost of the cut behind so many layers and that stage; none behind the last."""
        if stage == self.S - 1:
            return 0
        row = self.cuts[layers - 1]
        return row[0] if len(row) == 1 else row[stage]

    def cheapest(self, cap: int | None) -> float:
        """phi: an integer, or infinity; no cap: any time."""
        n, S = len(self.times), self.S
        first, within, begin = [0], 0, 0  # where the longest stage that ends behind so many layers begins
        for end, seconds in enumerate(self.times, start=1):
            within += seconds
            while cap is not None and within > cap and begin < end:
                within -= self.times[begin]
                begin += 1
            first.append(begin)
        costs: list[float] = [0, *[math.inf] * n]
        for stage in range(S):
            ends = range(stage + 1, n - S + stage + 2)  # every stage holds a layer
            reached = {end: min(costs[first[end] : end], default=math.inf) for end in ends}
            costs = [math.inf] * (n + 1)
            for end, cost in reached.items():
                if cost < math.inf:
                    costs[end] = cost + self.cut(end, stage)
        return costs[n]


def prove(instance: Instance, bound: Fraction | None, caps: list[Fraction]) -> None:
    """`RejectedError` if it does not follow that every plan takes more than the bound, or that there is none."""
    if len(instance.times) < instance.S:
        return
    reject(bound is None, "stages: there are as many layers")
    assert bound is not None
    need(all(low < high for low, high in pairwise(caps)), "caps that rise")
    for low, high in zip([Fraction(0), *caps], [*caps, None], strict=True):
        sent = instance.cheapest(None if high is None else math.floor(high * instance.unit))
        least = (instance.N - 1) * low * instance.unit + instance.total
        reject(sent < math.inf and least + int(sent) <= bound * instance.unit, f"caps: from {float(low)!r} on")


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    lengths = [count(length, 0) for length in plan["lengths"]]
    reject(len(lengths) != instance.S or 0 in lengths, "plan: as many stages as declared, none of them empty")
    reject(sum(lengths) != len(instance.times), "plan: all layers")
    ends = list(accumulate(lengths))
    slowest = max(sum(instance.times[end - length : end]) for length, end in zip(lengths, ends, strict=True))
    sent = sum(instance.cut(end, stage) for stage, end in enumerate(ends))
    return Fraction((instance.N - 1) * slowest + sent + instance.total, instance.unit)


def proved(content: Any, certificate: Any) -> tuple[Fraction | None, Fraction | None]:
    """Objective and bound of a certificate of an instance, both as parsed JSON; `RejectedError`, or bad input."""
    need(
        isinstance(certificate, dict) and certificate.keys() >= KEYS, f"a certificate, with the keys {', '.join(KEYS)}"
    )
    reject(certificate["format"] != 1 or certificate["problem"] != "layer_assignment", "format: of another problem")
    reject(certificate["proof"]["kind"] != "caps", "kind: a proof of another kind")
    reject(bool(content.get("requirements")), "requirements: they are not looked at")
    instance, plan = Instance(content), certificate["plan"]
    reject(instance.rings, "all-reduce: it is not looked at")
    reject(certificate["instance_sha256"] != instance.digest, "instance: the certificate is of another one")
    objective, bound = stated(certificate["objective"]), stated(certificate["bound"])
    need((plan is None) == (objective is None), "a plan and its objective, or neither")
    need(plan is None or bound is not None, "a bound beside a plan")
    if plan is not None:
        reject(plan_time(instance, plan) != objective, "objective: not the time of the plan")
    if bound is None or bound > 0:
        caps = [cap for cap in map(stated, certificate["proof"]["caps"]) if cap is not None]
        reject(len(caps) > MAX_CAPS, f"size: over {MAX_CAPS} caps")
        prove(instance, bound, caps)
    return objective, bound


def verify(content: Any, certificate: Any) -> dict[str, Any]:
    """The verdict on a certificate of an instance, both as parsed JSON; `ValueError` if one of them is none."""
    began, objective, bound, accepted = time.perf_counter(), None, None, False
    try:
        objective, bound = proved(content, certificate)
        reason = "there is no plan" if bound is None else f"every plan takes more than {float(bound)!r}"
        reason, accepted = reason + ("" if objective is None else f", this one {float(objective)!r}"), True
    except RejectedError as error:
        reason = str(error)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from None
    floats = [None if each is None else float(each) for each in (objective, bound)]
    head = {"accepted": accepted, "problem": "layer_assignment", "kind": "caps"}
    return {
        **head,
        "objective": floats[0],
        "bound": floats[1],
        "reason": reason,
        "seconds": time.perf_counter() - began,
    }


def main(files: list[str]) -> int:
    """0 accepted, 1 rejected, 2 bad input; a line that says why."""
    try:
        need(len(files) == 2, "INSTANCE.json CERTIFICATE.json")
        texts = [open(path, "rb").read(MAX_BYTES + 1) for path in files]  # noqa: SIM115
        need(max(map(len, texts)) <= MAX_BYTES, f"files of at most {MAX_BYTES} bytes")
        verdict = verify(*map(json.loads, texts))
    except (OSError, RecursionError, ValueError) as error:
        print(f"bad input: {error}", file=sys.stderr)
        return 2
    print("accepted:" if verdict["accepted"] else "rejected:", verdict["reason"])
    return 0 if verdict["accepted"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
