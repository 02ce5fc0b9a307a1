"""The definition by hand: objective, rules, and the capacity from below, at and above."""

import pytest
from oracles.tmpc_knapsack import make

from formulations.tmpc_knapsack import FAMILY
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.problem import evaluate, total_memory, violations
from instances.problems.tmpc_knapsack import generate
from solvers.outcome import Limits

PAIR = make(10, [(1, 8), (3, 5)], [(2, 6), (5, 1)])


def rules(plan: dict[int, str], instance=PAIR) -> list[str]:
    return [violation.rule for violation in violations(instance, KnapsackPlan(plan))]


def test_objective_and_memory_are_sums_over_nodes() -> None:
    plan = KnapsackPlan({0: "a", 1: "b"})
    assert evaluate(PAIR, plan) == 6.0
    assert total_memory(PAIR, plan) == 9.0
    assert rules({0: "a", 1: "b"}) == []


def test_no_node_costs_nothing() -> None:
    assert evaluate(make(0), KnapsackPlan({})) == 0.0
    assert violations(make(0), KnapsackPlan({})) == ()


@pytest.mark.parametrize("plan", [{0: "a"}, {0: "a", 1: "z"}, {0: "b", 1: "b", 7: "a"}])
def test_every_node_takes_one_of_its_own_options(plan: dict[int, str]) -> None:
    assert set(rules(plan)) == {"choice"}


def test_the_choice_must_fit() -> None:
    assert rules({0: "a", 1: "a"}) == ["memory"]


@pytest.mark.parametrize(("capacity", "broken"), [(8.999, ["memory"]), (9, []), (9.001, [])])
def test_capacity_below_at_and_above(capacity: float, broken: list[str]) -> None:
    assert rules({0: "a", 1: "b"}, make(capacity, [(1, 8), (3, 5)], [(2, 6), (5, 1)])) == broken


def test_float_noise_far_below_a_byte_is_forgiven() -> None:
    tenths = make(0.3, [(1, 0.1)], [(1, 0.2)])  # 0.1 + 0.2 > 0.3 as floats
    assert rules({0: "a", 1: "a"}, tenths) == []


@pytest.mark.parametrize("plan", [{0: "a"}, {0: "a", 1: "z"}])
def test_evaluate_refuses_a_plan_with_holes(plan: dict[int, str]) -> None:
    with pytest.raises(ValueError, match="node 1 has no TMPC"):
        evaluate(PAIR, KnapsackPlan(plan))


def test_the_dispatcher_takes_the_compiled_search_and_models_refuse_what_they_cannot_build_in_time() -> None:
    for exact in (False, True):
        name, reason = FAMILY.choose(generate(7), Limits(), exact)
        assert name == "exact" and "7 nodes" in reason
    huge = generate(1000, 101)
    assert "101000 options" in str(FAMILY.method("milp").supports(huge))
    assert FAMILY.method("exact").supports(huge) is None
    assert FAMILY.method("cpsat").supports(generate(40)) is None
    assert FAMILY.method("exact").effort(generate(40)) < FAMILY.method("cpsat").effort(generate(40))
