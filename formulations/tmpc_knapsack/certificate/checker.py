"""Check a certificate of a TMPC knapsack: ``python checker.py INSTANCE.json CERTIFICATE.json``.

Standard library, integers and fractions only; written from the definition in this room's README. Amounts of an instance
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
import re
import sys
import time
from fractions import Fraction
from typing import Any

MAX_BYTES = 64 * 2**20  # of a file
MAX_AMOUNT = 1e30
MAX_STATES = 2_000_000  # of a list
FRACTION = re.compile("[0-9]{1,2000}(/[1-9][0-9]{0,1999})?")

Option = tuple[int, int]  # time and memory


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


def stated(text: Any) -> Fraction | None:
    """An exact fraction as text, or nothing."""
    need(text is None or FRACTION.fullmatch(text) is not None, "fractions as text")
    return None if text is None else Fraction(text)


class Instance:
    """An instance in integers: ``nodes[v][x]`` has time and memory in units of 1 / ``unit`` and 1 / ``grain``."""

    def __init__(self, content: Any) -> None:
        need(content["problem"] == "tmpc_knapsack", "an instance of tmpc_knapsack")
        found = [
            (str(v["id"]), [(str(x["id"]), exact(x["time"]), exact(x["memory_bytes"])) for x in v["options"]])
            for v in content["nodes"]
        ]
        need(len(dict(found)) == len(found), "nodes, none twice")
        need(all(len({x for x, *_ in row}) == len(row) > 0 for _, row in found), "options of every node, none twice")
        # All denominators are powers of two, so that the largest is a common one.
        self.unit = max((c.denominator for _, row in found for _, c, _ in row), default=1)
        self.grain = max((m.denominator for _, row in found for *_, m in row), default=1)
        slack = (1 + Fraction(1, 10**12)) * (1 + Fraction(1, 2**50))
        self.capacity = math.floor(exact(content["capacity_bytes"]) * slack * self.grain)
        self.nodes: dict[str, dict[str, Option]] = {
            v: {x: (int(c * self.unit), int(m * self.grain)) for x, c, m in row} for v, row in found
        }
        rows = [[v, [[x, float(c), float(m)] for x, c, m in row]] for v, row in found]
        text = json.dumps([float(exact(content["capacity_bytes"])), rows], separators=(",", ":"))
        self.digest = hashlib.sha256(text.encode()).hexdigest()


def undominated(options: list[Option]) -> list[Option]:
    """The options that none beats or equals in both, by rising time and falling memory."""
    kept: list[Option] = []
    for option in sorted(options):
        if not kept or option[1] < kept[-1][1]:
            kept.append(option)
    return kept


def prove(instance: Instance, bound: Fraction | None, multiplier: Fraction | None) -> None:
    """`RejectedError` if it does not follow that every plan takes more than the bound, or that there is none."""
    groups = [undominated(list(row.values())) for row in instance.nodes.values()]
    lightest, cheapest = sum(group[-1][1] for group in groups), sum(group[0][0] for group in groups)
    if lightest > instance.capacity:
        return
    reject(bound is None, "memory: the smallest options fit")
    need(multiplier is not None, "a multiplier")
    assert bound is not None and multiplier is not None
    budget = math.floor(bound * instance.unit)  # times are integers
    price = multiplier * instance.unit / instance.grain
    p, q = price.numerator, price.denominator
    least = [min(q * c + p * m for c, m in group) for group in groups]
    excess = q * budget + p * instance.capacity - sum(least)  # D, times q and the unit
    states, used = [(0, 0)], excess
    for group, low in zip(groups, least, strict=True):
        cheapest, lightest, used = cheapest - group[0][0], lightest - group[-1][1], used + low
        near = [(c, m) for c, m in group if q * c + p * m <= excess + low]
        reject(len(states) * len(near) > MAX_STATES, f"size: a list of over {MAX_STATES} choices")
        most, room = budget - cheapest, instance.capacity - lightest
        sums = [(c0 + c, m0 + m) for c0, m0 in states for c, m in near]
        states = undominated([(c, m) for c, m in sums if c <= most and m <= room and q * c + p * m <= used])
        if not states:
            return
    raise RejectedError("bound: a choice is left that may take no more")


def plan_time(instance: Instance, plan: Any) -> Fraction:
    """The time of a plan, if it keeps every rule; `RejectedError` otherwise."""
    choice = plan["choice"]
    reject(choice.keys() != instance.nodes.keys(), "plan: one option of every node")
    chosen = [row.get(choice[v]) for v, row in instance.nodes.items()]
    options = [x for x in chosen if x is not None]
    reject(len(options) < len(chosen), "plan: an option that a node does not have")
    reject(sum(m for _, m in options) > instance.capacity, "plan: memory")
    return Fraction(sum(c for c, _ in options), instance.unit)


def proved(content: Any, certificate: Any) -> tuple[Fraction | None, Fraction | None]:
    """Objective and bound of a certificate of an instance, both as parsed JSON; `RejectedError`, or bad input."""
    reject(
        repr(certificate["format"]) != "1" or certificate["problem"] != "tmpc_knapsack",
        "format: not 1, or another problem's",
    )
    reject(certificate["proof"]["kind"] != "multiplier", "kind: a proof of another kind")
    reject(bool(content.get("requirements")), "requirements: they are not looked at")
    instance, plan = Instance(content), certificate["plan"]
    reject(certificate["instance_sha256"] != instance.digest, "instance: the certificate is of another one")
    objective, bound = stated(certificate["objective"]), stated(certificate["bound"])
    need((plan is None) == (objective is None), "a plan and its objective, or neither")
    need(plan is None or bound is not None, "a bound beside a plan")
    if plan is not None:
        reject(plan_time(instance, plan) != objective, "objective: not the time of the plan")
    if bound is None or bound > 0:
        prove(instance, bound, stated(certificate["proof"]["multiplier"]))
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
        "accepted": accepted, "problem": "tmpc_knapsack", "kind": "multiplier", "reason": reason,
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
