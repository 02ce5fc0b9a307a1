"""The frame of all checkers: numbers of files, two kinds of refusal, the verdict and the command."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

MAX_BYTES = 64 * 2**20  # of a file
MAX_COUNT, MAX_AMOUNT = 10**6, 1e30
FRACTION = re.compile("[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")
#: What the definition admits beyond a memory, with the rounding of its sums.
SLACK = (1 + Fraction(1, 10**12)) * (1 + Fraction(1, 2**50))


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


def amount(value: Any) -> float:
    """A number as the float64 that it denotes."""
    need(type(value) in (int, float) and 0 <= value <= MAX_AMOUNT, f"a number from 0 to {MAX_AMOUNT:g}")
    return float(value)


def exact(value: Any) -> Fraction:
    """A number: the float64 that it denotes, as an exact rational."""
    return Fraction(amount(value))


def count(value: Any, least: int = 1, most: int = MAX_COUNT) -> int:
    """An integer."""
    need(type(value) is int and least <= value <= most, f"an integer from {least} to {most}")
    return int(value)


def index(value: Any, end: int = MAX_COUNT + 1) -> int:
    """An integer from 0 on, below ``end``."""
    return count(value, 0, end - 1)


def stated(text: Any) -> Fraction | None:
    """An exact fraction as text, or nothing."""
    need(text is None or FRACTION.fullmatch(text) is not None, "fractions as text")
    return None if text is None else Fraction(text)


def bits(mask: int) -> Iterator[int]:
    """The positions in a set."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def floor(bound: Fraction) -> float:
    """The largest float64 that is no more than a bound."""
    nearest = float(bound)
    return nearest if nearest <= bound else math.nextafter(nearest, 0.0)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The content of an object in a file, which has no key twice."""
    need(len(dict(pairs)) == len(pairs), "objects with no key twice")
    return dict(pairs)


class Checker(NamedTuple):
    """A problem's own part. Each function raises `RejectedError`, or `ValueError` and the like for bad input."""

    problem: str
    kinds: tuple[str, ...]  # of proofs
    read: Callable[[Any], Any]  # an instance, whose ``digest`` names its numbers and ids
    price: Callable[[Any, Any], Fraction]  # the objective of a plan, which keeps every rule
    prove: Callable[[Any, Fraction | None, Any], None]  # that every plan takes more than the bound, by a proof

    def proved(self, content: Any, certificate: Any) -> tuple[Fraction | None, Fraction | None]:
        """Objective and bound of a certificate of an instance, both as parsed JSON."""
        ours = repr(certificate["format"]) == "1" and certificate["problem"] == self.problem
        reject(not ours, "format: not 1, or another problem's")
        reject(certificate["proof"]["kind"] not in self.kinds, "kind: a proof of another kind")
        inside = [part for part in content.values() if isinstance(part, dict)]
        required = any(part.get("requirements") for part in (content, *inside))
        reject(required, "requirements: they are not looked at")
        need(content["problem"] == self.problem, f"an instance of {self.problem}")
        instance, plan = self.read(content), certificate["plan"]
        reject(certificate["instance_sha256"] != instance.digest, "instance: the certificate is of another one")
        objective, bound = stated(certificate["objective"]), stated(certificate["bound"])
        need((plan is None) == (objective is None), "a plan and its objective, or neither")
        need(plan is None or bound is not None, "a bound beside a plan")
        if plan is not None:
            reject(self.price(instance, plan) != objective, "objective: not that of the plan")
        if bound is None or bound > 0:
            self.prove(instance, bound, certificate["proof"])
        return objective, bound

    def verify(self, content: Any, certificate: Any) -> dict[str, Any]:
        """The verdict on a certificate of an instance, both as parsed JSON; `ValueError` if one of them is none."""
        began, objective, bound, accepted = time.perf_counter(), None, None, False
        try:
            kind = certificate["proof"]["kind"]
            found, least = self.proved(content, certificate)
            objective, bound = None if found is None else float(found), None if least is None else floor(least)
            reason = f"every plan takes more than {bound!r}" if bound else "no plan takes less than 0.0"
            reason = "there is no plan" if bound is None else reason
            reason, accepted = reason + ("" if objective is None else f", this one {objective!r}"), True
        except (MemoryError, RejectedError) as error:
            reason = str(error) or "size: memory ran out"
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{type(error).__name__}: {error}"[:200]) from None
        return {
            "accepted": accepted, "problem": self.problem, "kind": kind if kind in self.kinds else "none",
            "reason": reason, "objective": objective, "bound": bound, "seconds": time.perf_counter() - began,
        }  # fmt: skip

    def main(self, files: list[str]) -> int:
        """0 accepted, 1 rejected, 2 bad input; a line that says why."""
        try:
            need(len(files) == 2, "INSTANCE.json CERTIFICATE.json")
            texts = [open(path, "rb").read(MAX_BYTES + 1) for path in files]  # noqa: SIM115
            need(max(map(len, texts)) <= MAX_BYTES, f"files of at most {MAX_BYTES} bytes")
            verdict = self.verify(*(json.loads(text, object_pairs_hook=unique) for text in texts))
        except (MemoryError, OSError, RecursionError, ValueError) as error:
            print(f"bad input: {str(error) or 'memory ran out'}", file=sys.stderr)
            return 2
        print("accepted:" if verdict["accepted"] else "rejected:", verdict["reason"])
        return 0 if verdict["accepted"] else 1
