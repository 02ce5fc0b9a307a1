"""The definition of micro-batch schedules: every rule broken alone, hand-computed values, and what is refused."""

import copy
from typing import Any

import pytest

from formulations.microbatch_schedule import FAMILY
from formulations.microbatch_schedule.definition.plan import SchedulePlan, plan_from_json
from formulations.microbatch_schedule.definition.problem import evaluate, violations
from instances.errors import InstanceError
from instances.exchange import to_json
from instances.problems.microbatch_schedule import ScheduleInstance

TWO: dict[str, Any] = {
    "problem": "microbatch_schedule",
    "schema_version": 1,
    "minibatch": 2,
    "stages": [
        {"forward_s": 1, "backward_s": 2, "in_flight": 2, "weight_bytes": 4, "activation_bytes": 3, "memory_bytes": 10},
        {"forward_s": 2, "backward_s": 4, "microbatch": 2, "activation_bytes": 1},
    ],
    "edges": [{"source": 0, "target": 1, "delay_s": 0.5, "bytes_per_sample": 1}],
    "bandwidth_bytes_per_s": 2,
    "deadline_s": 20,
}
#: A message of one sample takes 0.5 + 1 / 2 seconds forward, one of two samples 0.5 + 2 / 2 backward.
TASKS = [
    [0, "F", 0, 0, 1],
    [0, "F", 1, 1, 2],
    [1, "F", 0, 3, 5],
    [1, "B", 0, 5, 9],
    [0, "B", 0, 10.5, 12.5],
    [0, "B", 1, 12.5, 14.5],
]


def _instance(**changes: Any) -> ScheduleInstance:
    return FAMILY.read({**copy.deepcopy(TWO), **changes}, "test", {})


def _plan(*moved: tuple[int, list[Any]]) -> SchedulePlan:
    tasks = [list(task) for task in TASKS]
    for number, task in moved:
        tasks[number] = task
    return plan_from_json(_instance(), {"tasks": tasks})


def _broken(instance: ScheduleInstance, plan: SchedulePlan) -> set[str]:
    return {found.rule for found in violations(instance, plan)}


def test_the_earliest_schedule_keeps_all_rules() -> None:
    assert not violations(_instance(), _plan())
    assert evaluate(_instance(), _plan()) == 14.5
    assert evaluate(_instance(objective="memory"), _plan()) == 4 + 2 * 3


@pytest.mark.parametrize(
    ("rule", "moved"),
    [
        ("start", ((0, [0, "F", 0, -0.5, 0.5]),)),
        ("duration", ((5, [0, "B", 1, 12.5, 14]),)),
        ("overlap", ((1, [0, "F", 1, 0.5, 1.5]),)),
        ("order", ((0, [0, "F", 1, 0, 1]), (1, [0, "F", 0, 1, 2]))),
        ("precedence", ((4, [0, "B", 0, 10, 12]),)),
        ("precedence", ((2, [1, "F", 0, 2.5, 4.5]),)),
        ("precedence", ((3, [1, "B", 0, 1, 5]), (2, [1, "F", 0, 5, 7]))),
        ("passes", ((5, [0, "B", 0, 12.5, 14.5]),)),
        ("passes", ((5, [0, "B", 2, 12.5, 14.5]),)),
        ("passes", ((5, [7, "B", 1, 12.5, 14.5]),)),
    ],
)
def test_a_plan_that_breaks_a_rule_is_rejected_by_its_name(rule: str, moved: tuple[tuple[int, list[Any]], ...]) -> None:
    assert rule in _broken(_instance(), _plan(*moved))
    if rule not in ("passes", "order") and len(moved) == 1:
        assert _broken(_instance(), _plan(*moved)) == {rule}
    with pytest.raises(ValueError, match=rule):
        evaluate(_instance(), _plan(*moved))


@pytest.mark.parametrize(
    ("rule", "field", "at", "below"), [("in-flight", "in_flight", 2, 1), ("memory", "memory_bytes", 10, 9.9)]
)
def test_room_below_and_at_what_is_held(rule: str, field: str, at: float, below: float) -> None:
    for value, expected in ((at, set()), (below, {rule})):
        stages = copy.deepcopy(TWO["stages"])
        stages[0][field] = value
        assert _broken(_instance(stages=stages), _plan()) == expected


def test_the_deadline_below_and_at_the_iteration() -> None:
    assert _broken(_instance(deadline_s=14.5), _plan()) == set()
    assert _broken(_instance(deadline_s=14.49), _plan()) == {"deadline"}


def test_room_counts_whole_microbatches_within_bytes_and_samples() -> None:
    assert _instance().rooms == (2, 1)
    stages = copy.deepcopy(TWO["stages"])
    stages[0] |= {"memory_bytes": 9.99}
    stages[1] |= {"in_flight": 1}
    assert _instance(stages=stages).rooms == (1, 0)


#: Two stages, split, on one device: F takes 1, B 2, W 1 second, and a micro-batch 3 or 1 bytes.
ONE_DEVICE: dict[str, Any] = {
    "minibatch": 2,
    "stages": [
        {"forward_s": 1, "backward_s": 2, "weight_s": 1, "weight_bytes": 4, "activation_bytes": 3, "memory_bytes": 15},
        {"forward_s": 1, "backward_s": 2, "weight_s": 1, "activation_bytes": 1},
    ],
    "edges": [{"source": 0, "target": 1, "delay_s": 9}],
    "devices": [0, 0],
}
SPLIT_TASKS = [
    [0, "F", 0, 0, 1], [0, "F", 1, 1, 2], [1, "F", 0, 2, 3], [1, "B", 0, 3, 5], [0, "B", 0, 5, 7],
    [1, "F", 1, 7, 8], [1, "W", 0, 8, 9], [0, "W", 0, 9, 10], [1, "B", 1, 10, 12], [1, "W", 1, 12, 13],
    [0, "B", 1, 13, 15], [0, "W", 1, 15, 16],
]  # fmt: skip


def _split(*moved: tuple[int, list[Any]]) -> SchedulePlan:
    tasks = [list(task) for task in SPLIT_TASKS]
    for number, task in moved:
        tasks[number] = task
    return plan_from_json(_shared(), {"tasks": tasks})


def _shared(**changes: Any) -> ScheduleInstance:
    return FAMILY.read({"problem": "microbatch_schedule", **copy.deepcopy(ONE_DEVICE), **changes}, "test", {})


def test_activations_are_held_until_the_weight_gradients_on_a_memory_that_stages_share() -> None:
    """At 7 to 9 s both micro-batches are held by both stages: 4 + 2 * 3 + 2 * 1 bytes; no message within a device."""
    assert not violations(_shared(), _split())
    assert evaluate(_shared(), _split()) == 16
    assert evaluate(_shared(objective="memory"), _split()) == 12
    for room, expected in ((12, set()), (11.9, {"memory"})):
        stages = copy.deepcopy(ONE_DEVICE["stages"])
        stages[1]["memory_bytes"] = room
        assert _broken(_shared(stages=stages), _split()) == expected


@pytest.mark.parametrize(
    ("rule", "moved"),
    [
        ("overlap", ((11, [0, "W", 1, 14.5, 15.5]),)),
        ("order", ((7, [0, "W", 1, 9, 10]), (11, [0, "W", 0, 15, 16]))),
        ("precedence", ((3, [1, "W", 0, 3, 4]), (6, [1, "B", 0, 8, 10]))),
        ("passes", ((11, [0, "B", 1, 15, 17]),)),
        ("duration", ((11, [0, "W", 1, 15, 17]),)),
    ],
)
def test_split_passes_that_break_a_rule_are_rejected_by_its_name(
    rule: str, moved: tuple[tuple[int, list[Any]], ...]
) -> None:
    assert rule in _broken(_shared(), _split(*moved))


@pytest.mark.parametrize("devices", [[0], [0, 2], [1, 1], [0, 2**61]])
def test_devices_that_are_no_numbering_are_refused(devices: list[int]) -> None:
    with pytest.raises(InstanceError, match="devices"):
        _shared(devices=devices)


def test_an_instance_without_devices_and_split_passes_is_written_as_before() -> None:
    written = to_json(_instance())
    assert "devices" not in written and not any("weight_s" in stage for stage in written["stages"])
    assert to_json(_shared())["devices"] == [0, 0] and _shared().rooms == (2, 2)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"stages": []}, "stages"),
        ({"stages": [{"forward_s": 0, "backward_s": 1}]}, "forward_s"),
        ({"stages": [{"forward_s": 1}]}, "backward_s"),
        ({"stages": [{"forward_s": 1, "backward_s": 1, "microbatch": 3}], "edges": []}, "microbatch"),
        ({"stages": [{"forward_s": 1, "backward_s": 1e-20}], "edges": []}, "shortest pass"),
        ({"edges": [{"source": 0, "target": 2}]}, r"edges\[0\]"),
        ({"edges": [{"source": 0, "target": 0}]}, r"edges\[0\]"),
        ({"edges": [{"source": 0, "target": 1}] * 2}, r"edges\[1\]"),
        ({"edges": [{"source": 0, "target": 1}, {"source": 1, "target": 0}]}, "cycle"),
        ({"minibatch": 10**6}, "passes"),
        ({"objective": "speed"}, "objective"),
    ],
)
def test_bad_instances_are_refused_in_one_line(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InstanceError, match=named) as found:
        _instance(**changes)
    assert "\n" not in str(found.value) and "expected" in str(found.value)
