"""Fronts of time, memory and devices: every point of brute force's is reached, and none lies beside it."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace
from itertools import islice
from typing import Any

import oracles.layer_assignment
import pytest
from small_instances import random_case

import planner
from formulations.operator_partitioning.definition.problem import most_memory
from formulations.stage_graph.questions.alternatives import memory
from planner.analysis.pareto import Front, pareto
from planner.cli.app import main
from planner.files.load import family_of
from solvers.outcome import Limits, Status

MOST_PLANS = 3_000


def fullest(instance: Any, plan: Any) -> float:
    """Parameters of the stage that holds most: those of its layers, and what some of them share, once."""
    start, found = 0, []
    for length in plan.lengths:
        held = set(range(start, start + length))
        tied = [tie.parameters for tie in instance.tied if held & set(tie.layers)]
        found.append(math.fsum([*(instance.parameters[layer] for layer in held), *tied]))
        start += length
    return max(found)


OTHERS = {"operator_partitioning": most_memory, "stage_graph": memory, "layer_assignment": fullest}
AXES = [("time", "memory", "devices"), ("time", "memory"), ("time", "devices")]


def everything(instance: Any) -> list[dict[str, float]] | None:
    """What every plan takes, each figure from the plan's JSON; ``None``: too many plans."""
    family = family_of(instance)
    oracle = importlib.import_module(f"oracles.{family.name}")
    listed = list(islice(oracle.plans(instance), MOST_PLANS + 1))
    if len(listed) > MOST_PLANS:
        return None
    plans = [(each, family.plan_from_json(instance, each)) for each in listed]
    return [taken(instance, each, plan) for each, plan in plans if not family.judge(instance, plan)]


def taken(instance: Any, content: dict[str, Any], plan: Any) -> dict[str, float]:
    """Time, memory and devices of a plan."""
    family = family_of(instance)
    if family.name in OTHERS:
        return {"time": family.evaluate(instance, plan), "memory": OTHERS[family.name](instance, plan)}
    tmpcs = {(layer.id, t, x.id): x for layer in instance.layers for t, found in layer.tmpcs.items() for x in found}
    memory, later = 0.0, 0
    for stage in reversed(content["stages"]):
        later += stage["dp_degree"]
        in_flight = -(-later // stage["dp_degree"])
        chosen = [tmpcs[v, stage["tp_degree"], stage["tmpcs"][str(v)]] for v in stage["nodes"]]
        memory = max(memory, sum(x.activation_bytes * in_flight + x.static_bytes for x in chosen))
    devices = sum(stage["dp_degree"] * stage["tp_degree"] for stage in content["stages"])
    return {"time": family.evaluate(instance, plan), "memory": memory, "devices": devices}


def covers(one: dict[str, float], other: dict[str, float], axes: tuple[str, ...], slack: float) -> bool:
    return all(one[axis] <= other[axis] * (1 + (slack if axis == "time" else slack / 1e3)) for axis in axes)


@pytest.mark.parametrize("axes", AXES)
def test_fronts_are_those_of_brute_force(axes: tuple[str, ...], cases: int) -> None:
    cases = max(cases, 30)  # fewer do not show every kind
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
