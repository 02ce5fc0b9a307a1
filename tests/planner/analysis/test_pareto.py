"""Fronts of time, memory and devices: every point of brute force's is reached, and none lies beside it."""

import json
from dataclasses import replace
from itertools import islice

import oracles.layer_assignment
import pytest
from plan_amounts import OTHERS, everything, fullest, taken
from small_instances import random_case

import planner
from planner.analysis.pareto import Front, pareto
from planner.cli.app import main
from planner.files.load import family_of
from solvers.outcome import Limits, Status

AXES = [("time", "memory", "devices"), ("time", "memory"), ("time", "devices")]


def covers(one: dict[str, float], other: dict[str, float], axes: tuple[str, ...], slack: float) -> bool:
    return all(one[axis] <= other[axis] * (1 + (slack if axis == "time" else slack / 1e3)) for axis in axes)


@pytest.mark.parametrize("axes", AXES)
def test_fronts_are_those_of_brute_force(axes: tuple[str, ...], cases: int) -> None:
    cases = max(cases, 20)  # fewer do not show every kind
    assert compared("stage_partitioning", axes, cases // 2) >= cases / 10


@pytest.mark.parametrize("name", OTHERS)
def test_time_and_memory_of_other_problems(name: str, cases: int) -> None:
    assert compared(name, ("time", "memory"), cases // 2) >= cases // 40


def compared(name: str, axes: tuple[str, ...], count: int) -> int:
    """How many fronts of several points there are among random instances; all are compared with brute force."""
    several = 0
    for number in range(count):
        instance = random_case(name, 31, number)
        if getattr(instance, "device_graph", None) is not None or not getattr(instance, "parameters", True):
            continue
        every = everything(instance)
        if every is None:
            continue
        front = pareto(instance, axes, planner.solve(instance, exact=True))
        points = [dict(point.amounts) for point in front.points]
        assert front.is_complete and bool(points) == bool(every)
        for plan in every:
            assert any(covers(point, plan, axes, 4e-6) for point in points), f"{number} misses {plan}"
        for point, found in zip(points, front.points, strict=True):
            own = taken(instance, found.plan, family_of(instance).plan_from_json(instance, found.plan))
            assert own == pytest.approx(point, rel=1e-9), number
            better = [plan for plan in every if covers(plan, point, axes, 0.0) and not covers(point, plan, axes, 4e-6)]
            assert not better, f"{number} has {point}, which {better[0]} beats"
            assert sum(covers(other, point, axes, 1e-9) for other in points) == 1, number
        several += len(points) > 1
    return several


def test_limits_on_parameters_leave_the_plans_that_keep_them() -> None:
    family = family_of(planner.load("layers"))
    for number in range(30):
        instance = random_case("layer_assignment", 47, number)
        if not instance.parameters:
            continue
        listed = [
            family.plan_from_json(instance, each) for each in islice(oracles.layer_assignment.plans(instance), 50)
        ]
        amounts = {fullest(instance, plan) for plan in listed}
        for amount in [*amounts, *(each * (1 - 1e-9) for each in amounts)]:
            limited = family.nearby.axes["memory"].limited(instance, amount)
            for plan in listed:
                assert (not family.judge(limited, plan)) is (fullest(instance, plan) <= amount), (number, amount)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["solve", "chain8", "--devices", "4", "--exact", "--pareto", "time,memory,devices"]
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["complete"] and found["axes"] == ["time", "memory", "devices"]
    assert found["front"][0]["time"] == pytest.approx(found["objective"]) and all(
        each["verified"] for each in found["front"]
    )
    one = found["front"][-1]
    limits = ["--devices", str(one["devices"]), "--memory", f"{one['memory']}B"]
    assert main(["solve", "chain8", *limits, "--exact", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objective"] == pytest.approx(one["time"])
    assert main(given) == 0
    shown = capsys.readouterr().out
    assert "memory, B" in shown and "no plan beats any of these" in shown


def test_what_was_known_when_the_time_was_over() -> None:
    instance = planner.load("chain8", devices=4)
    first = planner.solve(instance, exact=True)
    front = pareto(instance, AXES[0], first, limits=Limits(time_s=0.0))
    assert not front.is_complete and len(front.points) == 1 and front.to_json()["complete"] is False
    unproved = pareto(instance, AXES[0], replace(first, status=Status.FEASIBLE))
    assert not unproved.is_complete and len(unproved.points) == 1 and unproved.effort.solved == 0


def test_no_plan_has_an_empty_front() -> None:
    instance = planner.load("chain8", memory="1MB")
    front = pareto(instance, AXES[0], planner.solve(instance, exact=True))
    assert isinstance(front, Front) and front.is_complete and not front.points
