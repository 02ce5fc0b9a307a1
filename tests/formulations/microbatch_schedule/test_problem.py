"""The definition of micro-batch schedules: every rule broken alone, hand-computed values, and what is refused."""

import copy
import random
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from oracles.microbatch_schedule import optimum, plans, random_instance
from thinned import thinned

import planner
from formulations.microbatch_schedule import FAMILY
from formulations.microbatch_schedule.definition.plan import SchedulePlan, plan_from_json
from formulations.microbatch_schedule.definition.problem import evaluate, violations
from formulations.microbatch_schedule.models import cpsat as cpsat_model
from formulations.microbatch_schedule.models import milp as milp_model
from instances.errors import InstanceError
from instances.exchange import to_json
from instances.problems.microbatch_schedule import ScheduleInstance, chain, pipeline
from solvers.outcome import Limits, Status, Stop, Watch

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
    [0, "F", 0, 0, 1], [0, "F", 1, 1, 2], [1, "F", 0, 3, 5], [1, "B", 0, 5, 9], [0, "B", 0, 10.5, 12.5],
    [0, "B", 1, 12.5, 14.5],
]  # fmt: skip


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


def least(instance: ScheduleInstance) -> float:
    read = (FAMILY.plan_from_json(instance, each) for each in plans(instance))
    return min(FAMILY.evaluate(instance, plan) for plan in read if not FAMILY.judge(instance, plan))


@pytest.mark.parametrize("method", ["cpsat", "milp"])
@thinned(
    "required",
    [
        ("in_flight(0) <= 1",),  # far slower than the greedy schedule
        pytest.param(("warm_up(2) >= 4", "in_flight(0) == 4"), marks=pytest.mark.slow),
        ("warm_up(0) <= 2", "in_flight(0) >= 3", "in_flight(0) <= 3"),
        pytest.param(("in_flight(1) == 3", "warm_up(1) == 2"), marks=pytest.mark.slow),
        ("in_flight(1) == 3", "warm_up(1) == 1"),
    ],
)
def test_schedules_far_from_the_greedy_one(method: str, required: tuple[str, ...]) -> None:
    instance = replace(chain(3, 4), requirements=required)
    found = planner.solve(instance, method=method)
    assert found.objective == pytest.approx(least(instance), rel=1e-6)
    assert found.status is Status.OPTIMAL or "HiGHS failed: Solve error" in found.reason  # the last of them


@pytest.mark.parametrize("method", ["cpsat", "milp"])
@thinned(
    ("instance", "required"),
    [
        (pipeline((0, 1), 2, 1.0, 2.0, 1.0), ("in_flight(0) <= 1",)),
        (pipeline((0, 0), 2, 1.0, 2.0, 1.0, 3.0), ("warm_up(0) == 2",)),
        (pipeline((0, 1, 0), 2, 1.0, 2.0, room=2.0), ("in_flight(0) == 1", "in_flight(2) == 1")),
    ],
)
def test_requirements_on_split_passes_and_shared_devices(
    method: str, instance: ScheduleInstance, required: tuple[str, ...]
) -> None:
    instance = replace(instance, requirements=required)
    found = planner.solve(instance, method=method)
    assert found.status is Status.OPTIMAL and found.objective == pytest.approx(least(instance), rel=1e-6)


@thinned("method", ["cpsat", "milp"], 2)
def test_the_least_memory_with_requirements(method: str) -> None:
    instance = replace(chain(3, 4), objective="memory", requirements=("warm_up(1) == 2", "in_flight(2) >= 3"))
    found = planner.solve(instance, method=method)
    assert found.status is Status.OPTIMAL and found.objective == pytest.approx(least(instance), rel=1e-9)
    none = planner.solve(replace(instance, requirements=("warm_up(1) == 3", "in_flight(1) <= 2")), method=method)
    assert none.status is Status.INFEASIBLE


@pytest.mark.parametrize("room", [cpsat_model, milp_model], ids=["cpsat", "milp"])
def test_one_model_of_the_least_memory(room: Any, cases: int) -> None:
    cases = max(cases, 40)  # fewer do not show every kind
    rng = random.Random(3)
    made = (replace(random_instance(rng), objective="memory", deadline_s=None) for _ in range(cases // 4))
    tiny = [each for each in made if len(list(islice(plans(each), 200))) < 200]
    assert any(optimum(each) is None for each in tiny) and sum(optimum(each) is not None for each in tiny) > 3
    for instance in tiny:
        best, model = optimum(instance), room.model_of(instance)
        run = model.run(Limits(), Watch())
        assert run.stop is Stop.PROVED
        if best is None:
            assert run.infeasible
            continue
        assert FAMILY.evaluate(instance, model.decode(run.values)) == pytest.approx(best, rel=1e-9)
        assert model.lower_bound(run.bound) == pytest.approx(best, rel=1e-5, abs=1e-9)
