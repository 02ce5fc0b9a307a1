"""What the tests of certificates share: claims as checkers take them, and mutants that must not prove falsehoods."""

import copy
import dataclasses
import importlib
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, get_type_hints

import planner
from formulations.contract.family import Claim
from instances.errors import InstanceError
from planner.files.load import family_of
from planner.solving.certify import Certification

SEARCH = {"kind": "search"}


def checker_of(problem: str) -> Any:
    """The checker of a problem's room."""
    return importlib.import_module(f"formulations.{problem}.certificate.checker")


def writer_of(problem: str) -> Any:
    """Who writes the certificates of a problem."""
    return importlib.import_module(f"formulations.{problem}.certificate.writer")


def parsed(instance: Any) -> dict:
    """The instance as its file has it."""
    return json.loads(json.dumps(family_of(instance).to_json(instance)))


def claimed(instance: Any, bound: Fraction | None, proof: dict | None = None) -> dict:
    """A certificate without a plan: every plan takes more than the bound; ``None``: there is none."""
    problem = family_of(instance).name
    return {
        "format": 1, "problem": problem, "instance_sha256": checker_of(problem).Instance(parsed(instance)).digest,
        "plan": None, "objective": None, "bound": None if bound is None else str(bound), "proof": proof or SEARCH,
    }  # fmt: skip


def exactly(part: Any, is_number: bool = False) -> Any:
    """An instance, or a part, with fractions in place of its numbers: brute force on it sums and compares exactly."""
    if dataclasses.is_dataclass(part):
        hints = get_type_hints(type(part))
        numbers = {each.name: "float" in str(hints[each.name]) for each in dataclasses.fields(part)}
        return replace(part, **{name: exactly(getattr(part, name), found) for name, found in numbers.items()})  # type: ignore[type-var]
    if isinstance(part, Mapping):
        return {key: exactly(each, is_number) for key, each in part.items()}
    if isinstance(part, tuple):
        return tuple(exactly(each, is_number) for each in part)
    return Fraction(part) if is_number and isinstance(part, int | float) and math.isfinite(part) else part


def exact_optimum(brute_force: Callable[[Any], Any], instance: Any) -> Fraction | float:
    """What brute force finds, exactly; infinite if there is no plan."""
    found = brute_force(exactly(instance))
    assert not found or found == math.inf or isinstance(found, Fraction | int), "a float among its numbers"
    return math.inf if found in (None, math.inf) else Fraction(found)


def proves(instance: Any, bound: Fraction | None, proof: dict | None = None) -> bool:
    """Whether the checker accepts this claim."""
    certificate = json.loads(json.dumps(claimed(instance, bound, proof)))
    return bool(checker_of(family_of(instance).name).verify(parsed(instance), certificate)["accepted"])


def certified(instance: Any) -> tuple[planner.Result, dict]:
    """An exact result and its certificate, which is accepted and claims what was reported, but for rounding."""
    found = planner.certify(instance, planner.solve(instance, exact=True))
    assert found.content is not None, found.result.reason
    return found.result, confirmed(instance, found)


def judged(instance: Any) -> Certification:
    """An exact result with its certificate, or why it has none; `AssertionError` if one is refused."""
    found = planner.certify(instance, planner.solve(instance, exact=True))
    if found.content is not None:
        confirmed(instance, found, 6e-7 if found.content["proof"].get("name") == "heads and tails" else 1e-10)
    return found


def accepted_or_why(instance: Any) -> str:
    """``accepted``, or why an exact result has no certificate; `AssertionError` if one is refused."""
    exact = (method for method in family_of(instance).methods if method.claim is Claim.EXACT)
    if all(method.refusal(instance) for method in exact):
        return "no exact method takes it"
    found = judged(instance)
    return "accepted" if found.content is not None else found.uncertified.split("(")[0]


def confirmed(instance: Any, found: Certification, below: float = 1e-10) -> dict:
    """The content of a certificate, as the checker reads it; it claims at most a share ``below`` of the bound less."""
    assert found.result.certificate is not None and found.result.certificate["bytes"] == len(found.text)
    result, content = found.result, json.loads(found.text)
    verdict = planner.verify(instance, content)
    assert verdict.accepted, (verdict.reason, found.text)
    if verdict.bound is None:
        assert result.status == "infeasible" and verdict.objective is None
    else:
        assert result.bound is not None and result.objective is not None and verdict.objective is not None
        assert result.bound * (1 - below) <= verdict.bound <= result.bound * (1 + 1e-15)
        assert math.isclose(verdict.objective, result.objective, rel_tol=1e-13)
    return content


def spoiled(rng: random.Random, content: Any) -> Any:
    """A copy with another number in one place, or with a list that lacks a part or has its parts in another order."""
    copied = copy.deepcopy(content)
    lists: list[tuple[Any, Any]] = []
    numbers: list[tuple[Any, Any]] = []

    def walk(holder: Any) -> None:
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(value, dict | list):
                lists.extend([(holder, key)] * (isinstance(value, list) and len(value) > 0))
                walk(value)
            elif _number(value) is not None:
                numbers.append((holder, key))

    walk(copied)
    if kinds := [each for each in (numbers, numbers, lists) if each]:
        holder, key = rng.choice(rng.choice(kinds))
        value = holder[key]
        if isinstance(value, list):
            rng.shuffle(value) if rng.random() < 0.5 and len(value) > 1 else value.pop(rng.randrange(len(value)))
        elif isinstance(value, int):  # brute force tries all plans on a little more of anything
            holder[key] = value + 1 if value < 4 and rng.random() < 0.5 else max(0, value - 1)
        else:
            other = rng.choice([_number(value) * Fraction(rng.choice(["0", "0.5", "0.9", "2", "4"])), Fraction(1)])
            holder[key] = str(other) if isinstance(value, str) else float(other)
    return copied


def _number(value: Any) -> Fraction | None:
    """The number that a part of a file is, or that its text is; ``None``: it is none."""
    try:
        return None if isinstance(value, bool) else Fraction(value)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None


def turned(part: dict) -> Iterator[dict]:
    """A plan with one of its lists in the other order."""
    for key, value in part.items():
        if isinstance(value, list):
            yield {**part, key: value[::-1]}
        elif isinstance(value, dict):
            yield from ({**part, key: each} for each in turned(value))


def mutants(rng: random.Random, content: dict, good: dict) -> Iterator[tuple[dict, dict]]:
    """An instance and a certificate, one of them with a fault, whatever the problem."""
    if good["plan"]:
        yield from ((content, good | {"plan": each}) for each in turned(good["plan"]))
    for part in ("plan", "plan", "plan", "proof", "proof"):
        if good[part]:
            yield content, good | {part: spoiled(rng, good[part])}
    yield from ((spoiled(rng, content), good) for _ in range(4))


@dataclass(frozen=True)
class Spoiling:
    """How certificates of a problem are spoiled, and how one knows whether what they claim is true.

    Parameters
    ----------
    case
        The instance of a number, which brute force can solve.
    optimum
        The least objective of all plans of an instance, exactly; infinite if there is none.
    mutants
        ``mutants(rng, content, certificate)``: instances and certificates, one of them with a fault beside those that
        all problems share. What it is given must not be changed.
    price
        Of a plan that keeps every rule, exactly; without it what the definition says in float64 is compared.
    rejected
        The share of mutants that has to be rejected: with fewer the faults are none.
    """

    case: Callable[[int], Any]
    optimum: Callable[[Any], Fraction | float]
    mutants: Callable[[random.Random, dict, dict], Iterator[tuple[dict, dict]]] = mutants
    price: Callable[[Any, dict], Fraction] | None = None
    rejected: float = 0.25

    def check(self, cases: int) -> None:
        """Try the mutants of so many instances."""
        outcomes: Counter[str] = sum(self.outcomes(range(cases)), Counter())
        tried = outcomes["accepted"] + outcomes["rejected"]
        assert tried >= 4 * cases and outcomes["rejected"] >= self.rejected * tried, outcomes

    def outcomes(self, numbers: Iterable[int], rounds: int = 1) -> Iterator[Counter[str]]:
        """How many mutants of each instance are accepted and rejected; `AssertionError` if one claims falsehoods."""
        others: list[dict] = []
        for number in numbers:
            instance, found = self.case(number), Counter[str]()
            good = planner.certify(instance).content
            if good is not None:
                good, rng = json.loads(json.dumps(good)), random.Random(f"mutants {number}")
                given = parsed(instance)
                mutants = (each for _ in range(rounds) for each in self._mutants(rng, given, good, others))
                found = self._outcomes(number, mutants, _text((given, good)))
                others = [*others[-9:], good]
            yield found

    def _mutants(
        self, rng: random.Random, content: dict, good: dict, others: list[dict]
    ) -> Iterator[tuple[dict, dict]]:
        """Those of all problems, and its own."""
        yield content, rng.choice(others or [good])
        none = {"plan": None, "objective": None}
        yield content, good | none | {"bound": None}
        if good["bound"] is not None:
            factor = rng.choice([Fraction(10**9 + 2, 10**9), Fraction(11, 10), Fraction(2), Fraction(9, 10)])
            yield content, good | {"bound": good["objective"]}
            yield content, good | none | {"bound": good["objective"]}
            yield content, good | {"bound": str(Fraction(good["bound"]) * factor)}
            yield content, good | {"objective": str(Fraction(good["objective"]) * Fraction(9, 10))}
        yield from self.mutants(rng, content, good)

    def _outcomes(self, number: int, mutants: Iterable[tuple[dict, dict]], original: str) -> Counter[str]:
        found, optima, seen = Counter[str](), dict[str, Fraction | float](), {original}
        for content, given in mutants:
            instance_of = checker_of(content["problem"]).Instance
            try:
                mutant = given | {"instance_sha256": instance_of(content).digest}  # it must not be what saves us
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                continue  # no instance
            if (text := _text((content, mutant))) in seen:
                continue
            seen.add(text)
            assert given["instance_sha256"] == mutant["instance_sha256"] or not _is_accepted(content, given), (
                number,
                "another instance",
            )
            accepted = _is_accepted(content, mutant)
            found["accepted" if accepted else "rejected"] += 1
            if accepted:
                try:
                    changed, about = planner.load(content), _text(content)
                except InstanceError:
                    continue  # which planner does not let through to its checker
                if about not in optima:
                    optima[about] = self.optimum(changed)  # once for all mutants of an instance
                assert self._is_true(changed, mutant, optima[about]), (number, text)
        return found

    def _is_true(self, instance: Any, certificate: dict, best: Fraction | float) -> bool:
        """Whether an accepted certificate says what is true; a bound of 0 says that nothing takes less."""
        plan, bound = certificate["plan"], certificate["bound"]
        if plan is not None:
            checked, objective = planner.check(instance, plan), Fraction(certificate["objective"])
            if checked.objective is None or not math.isclose(checked.objective, objective, rel_tol=1e-12):
                return False
            if checked.violations or (self.price is not None and self.price(instance, plan) != objective):
                return False
        return best == math.inf if bound is None else best > Fraction(bound) or Fraction(bound) == 0


def _is_accepted(content: dict, certificate: dict) -> bool:
    try:
        return bool(checker_of(content["problem"]).verify(content, certificate)["accepted"])
    except ValueError:
        return False


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
