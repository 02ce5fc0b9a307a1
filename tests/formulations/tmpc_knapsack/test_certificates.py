"""Certificates of knapsacks: accepted where they are true by brute force in fractions, and nowhere else."""

import math
import random
from fractions import Fraction
from itertools import count, product

import pytest
from certificate_cases import Spoiling, certified, claimed, parsed
from small_instances import random_case

import planner
from formulations.contract.checker import downsets
from formulations.contract.family import UncertifiedError
from formulations.tmpc_knapsack.certificate import checker
from formulations.tmpc_knapsack.certificate.writer import write
from instances.problems.tmpc_knapsack import Choice, KnapsackInstance, KnapsackNode, generate
from solvers.outcome import Watch

#: What the definition admits of the capacity.
_SLACK = (1 + Fraction(1, 10**12)) * (1 + Fraction(1, 2**50))


def optimum(instance: KnapsackInstance) -> Fraction | float:
    """The least time of any choice, exactly; infinite if none fits."""
    fits = [
        sum(Fraction(x.time) for x in choice)
        for choice in product(*(node.options for node in instance.nodes))
        if sum(Fraction(x.memory_bytes) for x in choice) <= Fraction(instance.capacity_bytes) * _SLACK
    ]
    return min(map(Fraction, fits), default=math.inf)


def claim(instance: KnapsackInstance, bound: Fraction | None, multiplier: Fraction) -> dict:
    return claimed(instance, bound, {"kind": "multiplier", "multiplier": str(multiplier)})


def small(number: int) -> KnapsackInstance:
    """With at most 300 choices."""
    drawn = (random_case("tmpc_knapsack", 16, 1000 * number + k) for k in count())
    return next(each for each in drawn if math.prod(len(node.options) for node in each.nodes) <= 300)


def test_a_bound_is_accepted_if_and_only_if_it_is_below_the_optimum(cases: int) -> None:
    """Whatever the multiplier: it decides how much work the checker has, not what it concludes."""
    counts = {True: 0, False: 0}
    for number in range(cases):
        instance = small(number)
        rng, best = random.Random(number), optimum(instance)
        around = Fraction(1 if best == math.inf else best)
        for bound in (around, around * (1 - Fraction(1, 10**15)), around * (1 + Fraction(1, 10**15)), around / 3, None):
            if bound == 0:
                continue
            multiplier = rng.choice([Fraction(0), Fraction(1), Fraction(rng.random()), Fraction(10**9)])
            accepted = checker.verify(parsed(instance), claim(instance, bound, multiplier))["accepted"]
            assert accepted is (best == math.inf if bound is None else best > bound), (number, bound, multiplier)
            counts[accepted] += 1
    assert min(counts.values()) >= cases // 2


SPOILING = Spoiling(small, optimum)


def two(capacity: float = 3.0) -> KnapsackInstance:
    options = Choice("fast", 1.0, 2.0), Choice("small", 3.0, 1.0)
    return KnapsackInstance("two", tuple(KnapsackNode(v, options) for v in "ab"), capacity)


@pytest.mark.parametrize(
    ("capacity", "bound", "accepted"),
    [
        (3.0, Fraction(4), False), (3.0, Fraction(399, 100), True), (4.0, Fraction(2), False),
        (4.0, Fraction(199, 100), True), (2.0, Fraction(599, 100), True), (2.0, Fraction(6), False),
        (1.0, None, True), (2.0, None, False), (2 * (1 - 1e-11), None, True), (2 * (1 - 0.9e-12), None, False),
    ],
)  # fmt: skip
def test_bounds_below_and_at_the_optimum(capacity: float, bound: Fraction | None, accepted: bool) -> None:
    found = checker.verify(parsed(two(capacity)), claim(two(capacity), bound, Fraction(2)))
    assert found["accepted"] is accepted, found["reason"]


def test_long_lists_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = generate(30, 4, kind="correlated", seed=3)
    result = planner.solve(instance, method="exact", limits=planner.Limits(time_s=10))
    assert result.plan is not None and result.bound is not None
    monkeypatch.setattr(downsets, "MAX_STATES", 20)
    with pytest.raises(UncertifiedError, match="size: a knapsack with over 20 states"):
        write(instance, result.plan, result.bound, Watch())


@pytest.mark.slow
def test_large_instances_take_a_moment() -> None:
    assert certified(generate(1000, 3, kind="uncorrelated"))[1]["plan"]
