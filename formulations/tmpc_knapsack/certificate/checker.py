"""Check a certificate of a TMPC knapsack: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in its README. Amounts of an instance
are the float64 numbers that its JSON denotes, as exact rationals. M+ is M (1 + 1e-12) (1 + 2^-50): what the definition
admits, with the rounding of its sum.

**Claims.** ``plan`` chooses one option of every node, of M+ bytes together at most, and takes ``objective``; every plan
takes more than ``bound``, L (if L is 0: none takes less, which needs no proof). If ``bound`` is null there is no plan.

**Proof.** There is no plan if the smallest options need more than M+ together. Else the proof has a ``multiplier`` u,
at least 0: a price of memory (time units per byte, an exact fraction). Let r(x) = time(x) + u memory(x) for an option
x, and r(v) the least of them at node v.

**Theorem.** Let a plan take at most L, and let D = L + u M+ - sum of r(v). Then D >= 0, the plan chooses an option with
r(x) <= r(v) + D at every node, and r(x) - r(v) sum to at most D over any of its nodes.

*Proof.* The plan's times sum to at most L and its memory to at most M+, so its r(x) sum to at most L + u M+, as u >= 0.
Each r(x) - r(v) is at least 0, and all of them sum to at most D; so does any part of them.

It follows that no plan takes at most L if the following list of partial choices ends empty. Begin with the empty one.
Node by node, extend every choice by every option with r(x) <= r(v) + D. Drop those whose r(x) - r(v) sum to more than
D; those that the fastest options of the other nodes bring above L, or the smallest above M+; and those that another one
beats or equals in both time and memory, since whatever completes the one to a plan within L completes the other, too. A
good multiplier leaves one option at most nodes, and a short list. All times and sizes are integers here, multiples of a
power of two.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from fractions import Fraction
from typing import Any

from formulations.contract.checker.downsets import Option, listed, undominated
from formulations.contract.checker.frame import SLACK, Checker, exact, need, reject, stated


class Instance:
    """An instance in integers: ``nodes[v][x]`` has time and memory in units of 1 / ``unit`` and 1 / ``grain``."""

    def __init__(self, content: Any) -> None:
        found = [
            (str(v["id"]), [(str(x["id"]), exact(x["time"]), exact(x["memory_bytes"])) for x in v["options"]])
            for v in content["nodes"]
        ]
        need(len(dict(found)) == len(found), "nodes, none twice")
        need(all(len({x for x, *_ in row}) == len(row) > 0 for _, row in found), "options of every node, none twice")
        # All denominators are powers of two, so that the largest is a common one.
        self.unit = max((c.denominator for _, row in found for _, c, _ in row), default=1)
        self.grain = max((m.denominator for _, row in found for *_, m in row), default=1)
        self.capacity = math.floor(exact(content["capacity_bytes"]) * SLACK * self.grain)
        self.nodes: dict[str, dict[str, Option]] = {
            v: {x: (int(c * self.unit), int(m * self.grain)) for x, c, m in row} for v, row in found
        }
        rows = [[v, [[x, float(c), float(m)] for x, c, m in row]] for v, row in found]
        text = json.dumps([float(exact(content["capacity_bytes"])), rows], separators=(",", ":"))
        self.digest = hashlib.sha256(text.encode()).hexdigest()


def leaves(instance: Instance, bound: Fraction | None, multiplier: Fraction | None) -> bool:
    """Whether the list of choices does not end empty; no bound: whether the smallest options fit."""
    groups = [undominated(row.values()) for row in instance.nodes.values()]
    if sum(group[-1][1] for group in groups) > instance.capacity:
        return False
    if bound is None:
        return True
    need(multiplier is not None, "a multiplier")
    price = (multiplier or Fraction(0)) * instance.unit / instance.grain
    budget = math.floor(bound * instance.unit)  # times are integers
    return listed(groups, budget, instance.capacity, price.numerator, price.denominator)


def prove(instance: Instance, bound: Fraction | None, proof: Any) -> None:
    """`RejectedError` if it does not follow that every plan takes more than the bound, or that there is none."""
    is_left = leaves(instance, bound, stated(proof["multiplier"]))
    reject(is_left, "memory: the smallest options fit" if bound is None else "bound: a choice is left within it")


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    choice = plan["choice"]
    reject(choice.keys() != instance.nodes.keys(), "plan: one option of every node")
    chosen = [row.get(choice[v]) for v, row in instance.nodes.items()]
    options = [x for x in chosen if x is not None]
    reject(len(options) < len(chosen), "plan: an option that a node does not have")
    reject(sum(m for _, m in options) > instance.capacity, "plan: memory")
    return Fraction(sum(c for c, _ in options), instance.unit)


CHECKER = Checker("tmpc_knapsack", ("multiplier",), Instance, plan_time, prove)
verify, main = CHECKER.verify, CHECKER.main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
