"""Random requirements on random tiny instances, and whether methods that honour them agree with brute force.

An oracle of each family lists the plans of a tiny instance (``oracles.<family>.plans``); the definition says which of
them keep the requirements, and which is the best.
"""

import importlib
import random
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from random_instances import LIMITS, warmed
from small_instances import random_case

from formulations.contract.family import Claim, Family
from instances.requirements import Requirement
from planner.files.load import validate
from planner.results.result import Result
from planner.solving.solve import run
from solvers.outcome import Status

#: Instances with more plans than this are not enumerated.
MOST_PLANS = 3_000


def enumerated(family: Family[Any, Any], instance: Any) -> list[Any] | None:
    """All plans that keep the rules, or ``None``: there are too many of them, or of what breaks a rule."""
    oracle = importlib.import_module(f"oracles.{family.name}")
    listed = list(islice(oracle.plans(instance), MOST_PLANS + 1))
    if len(listed) > MOST_PLANS:
        return None
    read = [family.plan_from_json(instance, each) for each in listed]
    return [plan for plan in read if not family.judge(instance, plan)]


def required(rng: random.Random, family: Family[Any, Any], instance: Any, plans: list[Any]) -> Any:
    """The instance with one to three random requirements, most of them such as some plan meets."""
    found = []
    for _ in range(rng.randint(1, 3)):
        quantity = rng.choice(family.vocabulary)
        domains = [list(domain.values(instance)) for domain in quantity.domains]
        if not all(domains):
            continue
        arguments = tuple(map(rng.choice, domains))
        value = quantity.of_plan(instance, rng.choice(plans), *arguments) if plans else rng.randint(0, 3)
        amount = value + rng.choice([-1, 0, 0, 0, 1])
        found.append(str(Requirement(quantity.name, arguments, rng.choice(["<=", ">=", "=="]), amount)))
    return replace(instance, requirements=tuple(found))


def judge(found: Result, best: float | None, where: str) -> None:
    """Compare what a method says with the best value that brute force has, ``None``: there is no plan.

    Raises:
        AssertionError: it says something false.
    """
    if best is None:
        assert found.objective is None, where
        return
    assert found.status is not Status.INFEASIBLE, where
    if found.bound is not None:
        assert found.bound <= best * (1 + 1e-6) + 1e-15, where
    if found.status is Status.OPTIMAL:
        assert found.objective == pytest.approx(best, rel=2e-6, abs=1e-15), where
    assert found.objective is None or found.objective >= best * (1 - 1e-9) - 1e-15, where


def compared(name: str, number: int) -> Counter[str] | None:
    """How the methods that honour requirements did on a random instance with some, or ``None``: it has too many plans.

    Counts ``runs``, those of ``exact`` methods, ``proofs``, and ``feasible`` instances (1 or 0).

    Raises:
        AssertionError: a method says something false.
    """
    family, rng = warmed(name), random.Random(f"requirements {name} {number}")
    plain = random_case(name, 7, number)
    plans = enumerated(family, plain)
    if plans is None:
        return None
    instance = validate(required(rng, family, plain, plans))
    best = min((family.evaluate(instance, plan) for plan in plans if not family.judge(instance, plan)), default=None)
    counted = Counter(feasible=int(best is not None))
    for method in family.methods:
        if not method.honours or method.refusal(instance) is not None:
            continue
        found = run(family, method, instance, LIMITS, {})
        judge(found, best, f"{name} {number} {method.name} {instance.requirements}: {found.status} {found.reason}")
        proved = found.status in (Status.OPTIMAL, Status.INFEASIBLE)
        counted.update(runs=1, exact=int(method.claim is Claim.EXACT), proofs=int(proved))
    return counted
