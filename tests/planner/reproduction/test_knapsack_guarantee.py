"""Appendix C: what the heuristics guarantee, tested against brute force, and the families that show the limits."""

import math
import random

import pytest
from hypothesis import given
from oracles.tmpc_knapsack import knapsacks, make, optimum, random_instance

from formulations.tmpc_knapsack import paper
from formulations.tmpc_knapsack.definition.problem import MEMORY_SLACK, evaluate, violations
from instances.problems.tmpc_knapsack import KnapsackInstance
from planner.reproduction.piper.knapsack_guarantee import hard_for_ratios, hard_for_truncating, truncating_factor
from solvers.outcome import Limits, Watch

RULES = ("rerank", "sort-once", "truncating")


def heuristic(instance: KnapsackInstance, rule: str = "truncating") -> float | None:
    plan = paper.solve(instance, Limits(), Watch(), rule).plan
    assert plan is None or violations(instance, plan) == ()
    return None if plan is None else evaluate(instance, plan)


def keeps_its_promise(instance: KnapsackInstance) -> bool:
    """Checks time <= F + H (Z* - F) and H <= 1 + ln(R_1 / R_n); returns whether there was anything to promise."""
    best, found, factor = optimum(instance), heuristic(instance), truncating_factor(instance)
    if best is None:
        assert found is None and factor == math.inf
        return False
    assert found is not None
    fastest = math.fsum(min(option.time for option in node.options) for node in instance.nodes)
    promised = fastest + factor * (best - fastest)
    assert found <= promised * (1 + 1e-9) + 1e-12
    return factor > 1 + 1e-9


def test_truncating_keeps_its_promise(cases: int) -> None:
    rng = random.Random(41)
    assert sum(keeps_its_promise(random_instance(rng)) for _ in range(3 * cases)) > cases / 10


@given(knapsacks())
def test_truncating_keeps_its_promise_on_odd_numbers(instance: KnapsackInstance) -> None:
    keeps_its_promise(instance)


def test_the_factor_is_logarithmic(cases: int) -> None:
    """Whole bytes: H <= 1 + ln(excess), and never more than one for each swap."""
    rng = random.Random(43)
    grown = 0
    for _ in range(3 * cases):
        instance = random_instance(rng)
        whole = all(
            option.memory_bytes == int(option.memory_bytes) for node in instance.nodes for option in node.options
        )
        if not whole or optimum(instance) is None:
            continue
        excess = -math.floor(instance.capacity_bytes * MEMORY_SLACK)
        excess += sum(int(min(node.options, key=lambda option: option.time).memory_bytes) for node in instance.nodes)
        factor = truncating_factor(instance)
        assert factor <= sum(len(node.options) - 1 for node in instance.nodes) + 1e-9
        if excess > 0:
            grown += factor > 1
            assert 0 < factor <= 1 + math.log(excess) + 1e-9
    assert grown > cases / 20


def test_the_factor_by_hand() -> None:
    """5 bytes too many: the free swap saves 3 of them, then the other saves the last 2."""
    assert truncating_factor(make(1, [(0, 4), (0, 1)], [(0, 2), (5, 0)])) == pytest.approx(3 / 5 + 1)
    assert truncating_factor(make(6, [(0, 4), (0, 1)], [(0, 2), (5, 0)])) == 0
    assert truncating_factor(make(0, [(0, 4), (0, 1)])) == math.inf


@pytest.mark.parametrize("swaps", [1, 2, 5, 10, 20])
def test_no_constant_is_enough_for_truncating(swaps: int) -> None:
    instance = hard_for_truncating(swaps)
    if swaps <= 10:
        assert optimum(instance) == 1.0
    found = heuristic(instance)
    assert found == pytest.approx(1 + swaps / 2, rel=1e-5)
    assert truncating_factor(instance) == pytest.approx(1 + swaps / 2, rel=1e-5)
    assert found is not None and found <= truncating_factor(instance)


@pytest.mark.parametrize("factor", [1.5, 10.0, 1e6])
@pytest.mark.parametrize("rule", RULES)
def test_no_factor_at_all_for_plain_ratios(rule: str, factor: float) -> None:
    instance = hard_for_ratios(factor)
    assert optimum(instance) == 1.0
    assert heuristic(instance, rule) == pytest.approx(1.0 if rule == "truncating" else factor)


def test_truncating_is_not_always_better() -> None:
    """The other way round: the plain ratios take the node that saves everything at once."""
    instance = hard_for_truncating(10, slack=-1e-6)  # now the halves cost slightly more
    assert heuristic(instance, "truncating") == heuristic(instance, "rerank") == 1.0
    instance = hard_for_truncating(10)
    times = {rule: heuristic(instance, rule) for rule in RULES}
    assert times["truncating"] == pytest.approx(6.0, rel=1e-5)
    assert times["rerank"] == times["sort-once"]
