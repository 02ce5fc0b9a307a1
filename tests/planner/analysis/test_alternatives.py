"""The best plans one after the other, and fronts of time, memory and devices: brute force's, and no others."""

import importlib
import json
import math
import random
import signal
from dataclasses import replace
from itertools import islice
from typing import Any

import oracles.layer_assignment
import pytest
from plan_amounts import OTHERS, everything, fullest, taken
from small_instances import random_case
from thinned import thinned

import planner
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.problems.training_strategy import StrategyInstance
from planner.analysis import alternatives as study
from planner.analysis.alternatives import alternatives
from planner.analysis.pareto import pareto
from planner.cli.app import main
from planner.files.load import family_of
from solvers.outcome import Limits, Status

MOST_PLANS = 3_000


def by_class(name: str, instance: Any) -> dict[Any, float] | None:
    """The least objective of each class of plans, by what distinguishes them; ``None``: too many plans."""
    family, oracle = family_of(instance), importlib.import_module(f"oracles.{name}")
    listed = list(islice(oracle.plans(instance), MOST_PLANS + 1))
    if len(listed) > MOST_PLANS:
        return None
    found: dict[Any, float] = {}
    for content in listed:
        plan = family.plan_from_json(instance, content)
        if not family.judge(instance, plan):
            key = class_of(content)
            found[key] = min(found.get(key, math.inf), family.evaluate(instance, plan))
    return found


def class_of(content: dict[str, Any]) -> Any:
    """What the documentation says that distinct plans differ in."""
    if "lengths" in content:
        return tuple(content["lengths"])
    if "chunks" in content:
        left_out = {"chunks", "tmpcs", "num_microbatches", "sharded"}
        left_out |= {"sharding"} if content["dp_degree"] * content["cp_degree"] == 1 else set()
        return tuple(content[name] for name in sorted({*content} - left_out))
    stages = content["stages"]
    if "replicas" in content:
        return frozenset(zip(map(frozenset, stages), content["replicas"], strict=True))
    if "edges" in content:
        devices = [each["devices"] for each in stages]
        counts = [own if isinstance(own, int) else len(own) for own in devices]
        return frozenset((frozenset(each["nodes"]), own) for each, own in zip(stages, counts, strict=True))
    return frozenset((frozenset(each["nodes"]), each["dp_degree"], each["tp_degree"]) for each in stages)


def listed(found: study.Alternatives, classes: dict[Any, float]) -> list[float]:
    """The objectives of the plans, each verified to be the best of a class of its own."""
    keys = [class_of(each["plan"]) for each in found.plans]
    assert len(set(keys)) == len(keys)
    for key, each in zip(keys, found.plans, strict=True):
        assert each["verified"] and each["objective"] == pytest.approx(classes[key], rel=1e-6)
    return [each["objective"] for each in found.plans]


#: A part of the cases where models are solved for each part of the plans.
SHARE = {
    "stage_partitioning": 3, "flushed_partitioning": 13, "layer_assignment": 5, "operator_partitioning": 8,
    "stage_graph": 13, "training_strategy": 8,
}  # fmt: skip
#: By default of some problems those that have several plans, found soon.
FEW = {"stage_graph": (1, 5, 6), "flushed_partitioning": (0, 6, 7)}


@thinned("name", SHARE)
def test_the_best_plans_are_those_of_brute_force(name: str, many: int) -> None:
    several, tried = 0, range(many // SHARE[name]) or FEW.get(name) or range(40 // SHARE[name])
    for number in tried:
        instance = random_case(name, 23, number)
        classes = by_class(name, instance)
        if classes is None or family_of(instance).nearby.refusal(instance):
            continue
        rng = random.Random(f"alternatives {name} {number}")
        first = planner.solve(instance, exact=True)
        count = rng.randint(1, 5)
        found = alternatives(instance, first, count=count)
        wanted = sorted(classes.values())
        assert found.is_complete and listed(found, classes) == pytest.approx(wanted[:count], rel=2e-6), number
        rest = wanted[count] if len(wanted) > count else math.inf
        assert found.bound <= rest * (1 + 1e-6), number
        assert not found.plans or found.bound >= found.plans[-1]["objective"] * (1 - 2e-6), number
        several += len(found.plans) > 1
    assert several > len(tried) / 10


def test_one_replica_shares_nothing_at_any_level() -> None:
    layers = tuple(Layer(v, {1: (Tmpc("x", 1.0, 1.0, 1.0, 20.0),)}) for v in range(2))
    flat = StageInstance("levels", layers, (Edge(0, 1, 0.0),), 2, 1e3, 1.0, 2)
    instance = StrategyInstance(flat, sharded_per_weight=2.0, sharding=(0, 1, 2, 3))
    classes = by_class("training_strategy", instance)
    assert classes is not None
    found = alternatives(instance, planner.solve(instance, exact=True), count=50)
    assert listed(found, classes) == pytest.approx(sorted(classes.values())) and len(classes) == 6


def test_all_plans_within_a_share_of_the_optimum(cases: int) -> None:
    cut = whole = 0
    for number in range(cases // 2):
        instance = random_case("stage_partitioning", 29, number)
        classes = by_class("stage_partitioning", instance)
        if not classes:
            continue
        share = random.Random(f"within {number}").choice([0.0, 0.13, 0.9])
        first = planner.solve(instance, exact=True)
        found = alternatives(instance, first, within=share, count=3)
        most = min(classes.values()) * (1 + share)
        near = sorted(value for value in classes.values() if value <= most * (1 + 1e-9))
        assert listed(found, classes) == pytest.approx(near[:3], rel=1e-6), number
        assert found.is_complete == (len(near) <= 3), number
        if found.is_complete:
            assert found.bound >= most * (1 - 1e-6)
        cut, whole = cut + (not found.is_complete), whole + found.is_complete
    assert cut and whole


def test_requirements_stay() -> None:
    instance = replace(planner.load("chain8", memory="60MB"), requirements=("num_stages <= 2",))
    found = alternatives(instance, planner.solve(instance, exact=True), count=4)
    assert len(found.plans) == 4 and all(len(each["plan"]["stages"]) <= 2 for each in found.plans)


def test_what_is_not_proved_is_said_to_be_incomplete() -> None:
    instance = planner.load("chain8")
    first = planner.solve(instance, exact=True)
    found = alternatives(instance, replace(first, status=Status.FEASIBLE, bound=0.02), count=3)
    assert (found.plans, found.is_complete, found.bound) == ((), False, 0.02)
    late = alternatives(instance, first, count=3, limits=Limits(time_s=0.0))
    assert len(late.plans) == 1 and not late.is_complete
    assert late.bound == pytest.approx(first.objective, rel=1e-6) and late.to_json()["complete"] is False


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["alternatives", "chain8", "--memory", "60MB", "--count", "3"]
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    objectives = [each["objective"] for each in found["alternatives"]]
    assert found["complete"] and len(objectives) == 3 and objectives == sorted(objectives)
    assert objectives[0] == pytest.approx(found["objective"]) and found["bound_of_others"] >= objectives[-1] * (
        1 - 1e-6
    )
    assert found["distinct"].startswith("plans that differ in which nodes share a stage")
    assert main([*given, "--within", "0.01%"]) == 0
    shown = capsys.readouterr().out
    assert "plan (nodes / dp_degree / tp_degree)" in shown and "no other plan is below" in shown
    assert main([*given[:-1], "1", "--within", "5%"]) == 3
    assert "incomplete; no other plan is below" in capsys.readouterr().out
    assert main(["alternatives", "chain8-strategy", "--count", "2"]) == 0
    [heads] = [line.split() for line in capsys.readouterr().out.splitlines() if "objective," in line]
    assert heads[-3:] == ["more", "schedule", "plan"]  # only what differs


def test_old_options_of_solve_work_and_name_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for option, command, more in (
        ("--alternatives=2", "alternatives", ["--count=2"]),
        ("--pareto=time,devices", "alternatives", ["--pareto=time,devices"]),
        ("--linearize=id,lifo", "sweep", ["--orders=id,lifo"]),
        ("--batch-size=2", "sweep", ["--batch-size=2"]),
    ):
        assert main(["solve", "diamond", option, "--json"]) == 0
        old = capsys.readouterr()
        assert old.err == f"note: solve {option.partition('=')[0]} is now planner {command}\n"
        assert main([command, "diamond", *more, "--json"]) == 0
        new = capsys.readouterr()
        found, expected = json.loads(old.out), json.loads(new.out)
        assert not new.err and found.keys() == expected.keys()
        assert (found["objective"], found["options"]) == (expected["objective"], expected["options"])


def test_an_interruption_gives_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = planner.load("chain8")
    first = planner.solve(instance, exact=True)
    real, calls = planner.solve, []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        result = real(*args, **kwargs)
        return replace(result, signal=int(signal.SIGINT)) if len(calls) == 4 else result

    monkeypatch.setattr("planner.analysis.alternatives.solve", interrupted)
    found = alternatives(instance, first, count=50)
    assert found.effort.signal == signal.SIGINT and not found.is_complete and 1 <= len(found.plans) < 50
    assert len(calls) == 4


AXES = [("time", "memory", "devices"), ("time", "memory"), ("time", "devices")]


def covers(one: dict[str, float], other: dict[str, float], axes: tuple[str, ...], slack: float) -> bool:
    return all(one[axis] <= other[axis] * (1 + (slack if axis == "time" else slack / 1e3)) for axis in axes)


@thinned("axes", AXES)
def test_fronts_are_those_of_brute_force(axes: tuple[str, ...], cases: int) -> None:
    cases = max(cases, 20)  # fewer do not show every kind
    assert compared("stage_partitioning", axes, cases // 2) >= cases / 10


@thinned("name", OTHERS)
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


def test_the_command_of_fronts(capsys: pytest.CaptureFixture[str]) -> None:
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
