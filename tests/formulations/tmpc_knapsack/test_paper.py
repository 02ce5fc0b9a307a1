"""The bang-per-buck heuristics by hand, against each other, and against the optimum."""

import random
from typing import Any

import pytest
from hypothesis import given
from oracles.tmpc_knapsack import knapsacks, make, optimum, random_instance

from formulations.contract.family import Answer
from formulations.tmpc_knapsack import FAMILY, paper
from formulations.tmpc_knapsack.definition.problem import evaluate, violations
from instances.errors import InstanceError
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.outcome import Limits, Stop, Watch

VARIANTS = ("rerank", "sort-once", "truncating")


def solve(instance: KnapsackInstance, knapsack: str = "rerank") -> Answer[Any]:
    return paper.solve(instance, Limits(), Watch(), knapsack=knapsack)


def choice(instance: KnapsackInstance, knapsack: str = "rerank") -> str:
    return "".join(solve(instance, knapsack).plan.choice.values())


@pytest.mark.parametrize("knapsack", VARIANTS)
def test_all_fastest_if_that_fits(knapsack: str) -> None:
    assert choice(make(10, [(2, 1), (1, 5)], [(1, 5), (3, 0)]), knapsack) == "ba"


def test_the_time_limit_ends_the_swaps() -> None:
    """Each of some 20,000 truncating swaps looks at all options: seconds, but for the limit."""
    instance = make(20_000, *([(0, 2 + node % 7), (1 + node % 11, 1)] for node in range(20_000)))
    limits = Limits(time_s=0.05)
    answer = paper.solve(instance, limits, Watch(limits), knapsack="truncating")
    assert (answer.plan, answer.stop) == (None, Stop.TIME_LIMIT)


def _reranked(instance: KnapsackInstance) -> list[int] | None:
    """The paper's rule word for word: look at all options anew after every swap."""
    options = [node.options for node in instance.nodes]
    chosen = [min(range(len(each)), key=lambda j, each=each: each[j].time) for each in options]
    while sum(each[j].memory_bytes for each, j in zip(options, chosen, strict=True)) > instance.capacity_bytes:
        best: tuple[float, int, int] | None = None
        for v, (each, now) in enumerate(zip(options, chosen, strict=True)):
            for j, other in enumerate(each):
                saved, added = each[now].memory_bytes - other.memory_bytes, other.time - each[now].time
                ratio = float("inf") if added <= 0 else saved / added
                if saved > 0 and (best is None or ratio > best[0]):
                    best = ratio, v, j
        if best is None:
            return None
        chosen[best[1]] = best[2]
    return chosen


def test_a_heap_takes_the_swaps_of_the_rule(cases: int) -> None:
    moved = 0
    for number in range(10 * cases):
        rng = random.Random(f"heap {number}")
        rows = [[(rng.randint(1, 9), rng.randint(0, 9)) for _ in range(rng.randint(1, 5))] for _ in range(6)]
        instance = make(rng.randint(5, 40), *rows)
        expected = _reranked(instance)
        found: Any = solve(instance).plan
        assert (found is None) == (expected is None), number
        if expected is not None:
            assert list(found.choice.values()) == [
                node.options[j].id for node, j in zip(instance.nodes, expected, strict=True)
            ], number
            moved += any(j != 0 for j in expected)
    assert moved > cases


@pytest.mark.parametrize("knapsack", VARIANTS)
def test_best_ratio_goes_first(knapsack: str) -> None:
    # Bytes per time: 6/3, 4/1, 5/5; four bytes are needed.
    assert choice(make(17, [(0, 7), (3, 1)], [(0, 7), (1, 3)], [(0, 7), (5, 2)]), knapsack) == "aba"


@pytest.mark.parametrize("knapsack", VARIANTS)
def test_it_goes_on_until_the_choice_fits(knapsack: str) -> None:
    rows = [(0, 7), (3, 1)], [(0, 7), (1, 3)], [(0, 7), (5, 2)]
    assert choice(make(16, *rows), knapsack) == "bba"
    assert choice(make(6, *rows), knapsack) == "bbb"


def test_the_heuristic_can_be_suboptimal() -> None:
    # Node 0 saves 9 bytes for 3 (3 per time), node 1 saves 2 bytes for 1 (2 per time); only 2 are needed.
    instance = make(18, [(0, 10), (3, 1)], [(0, 10), (1, 8)])
    answer = solve(instance)
    assert evaluate(instance, answer.plan) == 3.0
    assert optimum(instance) == 1.0
    assert answer.bound <= 1.0
    assert answer.stop is Stop.COMPLETED


def test_truncating_counts_only_the_bytes_that_are_needed() -> None:
    # The same: 2 needed bytes for 3 against 2 for 1.
    instance = make(18, [(0, 10), (3, 1)], [(0, 10), (1, 8)])
    assert choice(instance, "sort-once") == "ba"
    assert choice(instance, "truncating") == "ab"


def test_ties_go_to_the_lowest_node_and_option() -> None:
    assert choice(make(9, [(0, 5), (1, 4)], [(0, 5), (1, 4)])) == "ba"
    assert choice(make(9, [(1, 6), (1, 6), (2, 5)], [(1, 4)])) == "ca"
    assert choice(make(3, [(0, 4), (1, 3), (1, 3)])) == "b"
    assert choice(make(8, [(1, 4), (1, 4)], [(0, 4)])) == "aa"


@pytest.mark.parametrize("knapsack", VARIANTS)
def test_bytes_saved_for_nothing_go_first(knapsack: str) -> None:
    assert choice(make(9, [(0, 5), (1e-9, 0)], [(2, 5), (2, 4)]), knapsack) == "ab"


def test_infeasible_is_a_proof_and_says_what_would_help() -> None:
    answer = solve(make(3.5, [(0, 5), (1, 2)], [(0, 5), (1, 2)]))
    assert answer.infeasible
    assert answer.plan is None
    assert "need 4 bytes" in answer.reason


@pytest.mark.parametrize("knapsack", VARIANTS)
def test_a_running_sum_of_large_and_small_bytes_proves_nothing(knapsack: str) -> None:
    large = [[(17.0, 702e6), (0.1, 7.102885245757e18)], [(0.1, 4e6)], [(0.2, 6777e6), (0.1, 6.861119986682e18)]]
    thirds = [[(0.0, 4 / 3), (1.0, 0.0)] for _ in range(9)]
    for nodes, capacity in ((large, 7483e6), (thirds, 0.0)):
        assert solve(make(capacity, *nodes), knapsack).plan is not None


def test_sort_once_takes_at_most_two_options() -> None:
    instance = make(5, [(0, 5), (1, 2)], [(0, 5), (1, 2), (2, 1)])
    with pytest.raises(InstanceError, match=r"nodes\[1\].options\) is 3; expected at most 2 .*rerank"):
        solve(instance, "sort-once")


def test_the_option_is_parsed_by_name() -> None:
    setting = FAMILY.method("piper").options[0]
    assert [setting.parse(name) for name in VARIANTS] == list(VARIANTS)
    with pytest.raises(ValueError, match="rerank or sort-once or truncating"):
        setting.parse("best")
    assert solve(make(1, [(0, 1)])).options == {"knapsack": "rerank"}


def test_with_two_options_sorting_once_is_enough(cases: int) -> None:
    for case in range(5 * cases):
        instance = random_instance(random.Random(case), max_nodes=12, max_options=2)
        once, anew = solve(instance, "sort-once"), solve(instance)
        assert once.infeasible is anew.infeasible
        if once.plan is not None and not instance.name.startswith(("fractions", "wide")):  # ratios may round apart
            assert once.plan == anew.plan


@given(knapsacks())
def test_bound_optimum_objective(instance: KnapsackInstance) -> None:
    best = optimum(instance)
    for knapsack in ("rerank", "truncating"):
        answer = solve(instance, knapsack)
        assert answer.infeasible is (best is None)
        if best is not None:
            assert violations(instance, answer.plan) == ()
            assert answer.bound <= best <= evaluate(instance, answer.plan) * (1 + 1e-15)
