"""Check a certificate of layer assignment: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in its README, whose letters it
uses. Numbers of an instance are the float64 numbers that its JSON denotes, as exact rationals.

**Claims.** ``plan`` cuts the L layers into S stages, none of them empty, and takes ``objective``; every plan takes more
than ``bound``, B (if B is 0: none takes less, which needs no proof). If ``bound`` is null there is no plan.

**Proof.** There is no plan if S > L. Else the proof has ``rows``, pairs of an all-reduce's seconds, rising a_1 < ... <
a_n (none without an all-reduce), and of caps on the slowest stage below it, and ``caps``, those above a_n: rising
seconds c_1 < ... < c_m in each list. Let a_0 be 0, a_(n+1) infinite, and the same for c. phi(c, a) is the least sum of
all T_j and e(cut_j, j) over all plans with T_j <= c and A_j <= a for all stages j, infinite if there are none. The rule
is, for i = 0 to n, and for k = 0 to m with the caps below a_(i+1),

    (N - 1) c_k + phi(c_(k+1), a_(i+1)) + a_i > B.

**Theorem.** If it holds, every plan takes more than B.

*Proof.* Let A be the longest all-reduce of a plan (0 without), and T the time of its slowest stage. As A >= 0 and
a_(n+1) is infinite, there is an i with a_i <= A <= a_(i+1): the least i for which A <= a_(i+1). So there is a k with
c_k <= T <= c_(k+1). All its stages keep both upper limits, so they and its cuts take at least phi(c_(k+1), a_(i+1)).
So it takes at least the left side.

phi is found from the input side on: for each number of stages j and of layers i, the least of cutting the first i
layers into j stages within the limits. The last of these stages begins in a window of layers that moves with i only
forward, as more layers never take less time, nor have fewer parameters.
"""

from __future__ import annotations

import hashlib
import json
import sys
from fractions import Fraction
from typing import Any

from formulations.contract.checker.chain import Chain, Row, Tie
from formulations.contract.checker.frame import Checker, RejectedError, count, exact, index, need, reject, stated

MAX_CAPS = 10_000


class Instance(Chain):
    """An instance in integers."""

    def __init__(self, content: Any) -> None:
        N, S = count(content["num_microbatches"]), count(content["num_stages"])
        times = [exact(t) for t in content["layer_time_s"]]
        cuts = [[exact(e) for e in row] for row in content["cut_cost_s"]]
        need(0 < len(times) == len(cuts) + 1, "a cut behind every layer but the last")
        need(all(len(row) in (1, S - 1) for row in cuts), "the cost of a cut for each stage, or once")
        by_stage = [[exact(t) for t in row] for row in content.get("stage_time_s", [])]
        need(
            len(by_stage) in (0, S) and all(len(row) == len(times) for row in by_stage), "times of each stage, or none"
        )
        declared: list[Any] = [N, S, [float(t) for t in times], [[float(e) for e in row] for row in cuts]]
        declared += [[[float(t) for t in row] for row in by_stage]] if by_stage else []
        rings = [exact(ring) for ring in content.get("ring_s_per_parameter", [])]
        need(len(rings) in (0, 1, S), "an all-reduce for each stage, or once, or none")
        sizes, ties = [Fraction(0)] * len(times), list[Tie]()
        if any(rings):
            sizes = [exact(size) for size in content.get("parameters", [])] or sizes
            ties = [(frozenset(map(index, tie["layers"])), exact(tie["parameters"])) for tie in content.get("tied", [])]
            need(len(sizes) == len(times) and all(v < len(times) for layers, _ in ties for v in layers), "parameters")
            held = [[sorted(layers), float(size)] for layers, size in ties]
            declared += [[float(ring) for ring in rings], [float(size) for size in sizes], held]
        rings = rings if len(rings) == S else (rings or [Fraction(0)]) * S
        super().__init__(N, by_stage or [times] * S, cuts, rings, sizes, ties)
        self.digest = hashlib.sha256(json.dumps(declared, separators=(",", ":")).encode()).hexdigest()


def prove(instance: Instance, bound: Fraction | None, proof: Any) -> None:
    """`RejectedError` if it does not follow that every plan takes more than the bound, or that there is none."""
    rows = rows_of(proof)
    if instance.n < instance.S:
        return
    if bound is None:
        raise RejectedError("stages: there are as many layers")
    instance.prove(bound, rows)


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    return instance.time([count(length, 0) for length in plan["lengths"]])


def rows_of(proof: Any) -> list[Row]:
    """The rows of a proof, and its caps above all of them."""
    rows = [*proof.get("rows", []), (None, proof["caps"])]
    reject(sum(1 + len(caps) for _, caps in rows) > MAX_CAPS, f"size: over {MAX_CAPS} caps")
    need(all(type(text) is str for most, caps in rows[:-1] for text in (most, *caps)), "seconds as text")
    return [(stated(most), [cap for cap in map(stated, caps) if cap is not None]) for most, caps in rows]


CHECKER = Checker("layer_assignment", ("caps",), Instance, plan_time, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
