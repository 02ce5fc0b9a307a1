"""Requirements of schedules, and one model of each instance: what brute force over all orders says."""

import random
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from oracles.microbatch_schedule import optimum, plans, random_instance

import planner
from formulations.microbatch_schedule import FAMILY
from formulations.microbatch_schedule.models import cpsat as cpsat_model
from formulations.microbatch_schedule.models import milp as milp_model
from instances.problems.microbatch_schedule import ScheduleInstance, chain, pipeline
from solvers.outcome import Limits, Status, Stop, Watch


def least(instance: ScheduleInstance) -> float:
    read = (FAMILY.plan_from_json(instance, each) for each in plans(instance))
    return min(FAMILY.evaluate(instance, plan) for plan in read if not FAMILY.judge(instance, plan))


@pytest.mark.parametrize("method", ["cpsat", "milp"])
@pytest.mark.parametrize(
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
@pytest.mark.parametrize(
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


@pytest.mark.parametrize("method", ["cpsat", "milp"])
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
