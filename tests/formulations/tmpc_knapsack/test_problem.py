"""The definition by hand: objective, rules, and the capacity from below, at and above."""

import copy
from typing import Any

import pytest
from oracles.tmpc_knapsack import make

from formulations.tmpc_knapsack import FAMILY
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.problem import evaluate, total_memory, violations
from instances.errors import InstanceError
from instances.problems.tmpc_knapsack import KINDS, generate
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


GOOD: dict[str, Any] = {
    "problem": "tmpc_knapsack",
    "schema_version": 1,
    "capacity_bytes": 10,
    "nodes": [
        {"id": 1, "options": [{"id": "fast", "time": 1, "memory_bytes": 8}]},
        {
            "id": "two",
            "options": [{"id": "x", "time": 2, "memory_bytes": 6}, {"id": "y", "time": 3, "memory_bytes": 0}],
        },
    ],
}


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    content = copy.deepcopy(GOOD)
    place: Any = content
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return content


def test_reading() -> None:
    instance = FAMILY.read(GOOD, "k.json", {})
    assert [node.id for node in instance.nodes] == [1, "two"]
    assert instance.nodes[1].options[0].memory_bytes == 6.0
    assert instance.capacity_bytes == 10.0


OPTION = ("nodes", 1, "options", 0)
BAD = [
    ((*OPTION, "time"), -1, "nodes[1].options[0].time is -1; expected 0 or a positive number from 1e-30 to 1e+30"),
    ((*OPTION, "memory_bytes"), -0.5, "nodes[1].options[0].memory_bytes is -0.5"),
    ((*OPTION, "memory_bytes"), 10**400, "nodes[1].options[0].memory_bytes is an integer of 1329 bits"),
    ((*OPTION, "id"), 5, "nodes[1].options[0].id is 5"),
    (("nodes", 1, "options", 1, "id"), "x", "nodes[1].options[1].id is 'x'; expected an id other than"),
    (("nodes", 1, "id"), "1", "nodes[1].id is '1'; expected an id other than that of nodes[0]"),
    (("nodes", 1, "id"), 1.5, "nodes[1].id is 1.5"),
    (("nodes", 0, "options"), [], "nodes[0].options is []; expected at least one option"),
    (("nodes", 0, "options"), {}, "nodes[0].options is {}; expected a list"),
    (("capacity_bytes",), -1, "capacity_bytes is -1"),
    (("origin",), {"a": None}, "origin.a is None"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD)
def test_bad_input_is_one_line_that_names_the_field(path: tuple[Any, ...], value: Any, message: str) -> None:
    with pytest.raises(InstanceError) as caught:
        FAMILY.read(changed(path, value), "k.json", {})
    assert str(caught.value).startswith(f"k.json: {message}")
    assert "\n" not in str(caught.value)


def test_memory_overrides_the_capacity() -> None:
    assert FAMILY.read(GOOD, "k.json", {"memory": "2GiB"}).capacity_bytes == 2.0**31
    assert FAMILY.read(changed(("capacity_bytes",), ...), "k.json", {"memory": "1KB"}).capacity_bytes == 1000.0
    assert FAMILY.read(generate(3), "k", {"memory": 5}).capacity_bytes == 5.0
    with pytest.raises(InstanceError, match="--memory is 'much'; expected a size"):
        FAMILY.read(GOOD, "k.json", {"memory": "much"})


@pytest.mark.parametrize("kind", KINDS)
def test_generated_instances_repeat_and_are_feasible(kind: str) -> None:
    one = generate(12, 3, kind=kind, tightness=0.0, seed=4)
    assert one == generate(12, 3, kind=kind, tightness=0.0, seed=4)
    assert one.nodes != generate(12, 3, kind=kind, tightness=0.0, seed=5).nodes
    least = sum(min(option.memory_bytes for option in node.options) for node in one.nodes)
    assert one.capacity_bytes == least
    assert FAMILY.read(FAMILY.to_json(one), "generated", {}) == one


@pytest.mark.parametrize("bad", [{"kind": "odd"}, {"num_nodes": -1}, {"num_options": 0}, {"tightness": 1.5}])
def test_generator_refuses_what_it_cannot_make(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        generate(**bad)


def test_unknown_nodes_of_a_plan_are_violations_and_bad_types_are_errors() -> None:
    instance = FAMILY.read(GOOD, "k.json", {})
    plan = FAMILY.plan_from_json(instance, {"choice": {"1": "fast", "two": "y", "3": "y"}})
    assert [violation.rule for violation in FAMILY.judge(instance, plan)] == ["choice"]
    for content in (None, [], {}, {"choice": []}, {"choice": {"1": 3}}):
        with pytest.raises(InstanceError):
            FAMILY.plan_from_json(instance, content)
