"""Outside input: reading, one-line errors, round trips, fuzz; and the generator."""

import copy
from typing import Any

import pytest

from formulations.tmpc_knapsack import FAMILY
from instances.errors import InstanceError
from instances.problems.tmpc_knapsack import KINDS, generate

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
