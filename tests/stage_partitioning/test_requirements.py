"""Requirements of stage partitioning: their quantities by hand, and what models must not leave out for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import planner
from formulations.stage_partitioning.problem import Stage, StagePlan, violations
from formulations.stage_partitioning.vocabulary import VOCABULARY
from formulations.vocabulary import meant
from instances.requirements import parse
from instances.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Status

MODELS = ("cpsat", "milp", "milp-columns")


def chain() -> StageInstance:
    """Three nodes; two devices for one of them are slower than one."""
    tmpcs = {1: (Tmpc("x", 1.0, 0, 0, 0),), 2: (Tmpc("x", 5.0, 0, 0, 0),)}
    layers = tuple(Layer(v, tmpcs) for v in "abc")
    edges = (Edge("a", "b", 0.0), Edge("b", "c", 0.0))
    return StageInstance("chain", layers, edges, num_devices=6, memory_bytes=1.0, bandwidth=1.0, num_microbatches=4)


PLAN = StagePlan(
    (
        Stage(("a",), dp_degree=2, tp_degree=1, tmpcs={"a": "x"}),
        Stage(("b", "c"), dp_degree=1, tp_degree=2, tmpcs={"b": "x", "c": "x"}),
    )
)


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("num_stages", 2),
        ("num_devices", 4),
        ("same_stage(b, c)", 1),
        ("same_stage(a, c)", 0),
        ("same_stage(a, a)", 1),
        ("stage_of(a)", 0),
        ("stage_of(c)", 1),
        ("nodes(0)", 1),
        ("nodes(1)", 2),
        ("nodes(2)", 0),
        ("tp_degree(0)", 1),
        ("tp_degree(1)", 2),
        ("tp_degree(2)", 0),
        ("dp_degree(0)", 2),
        ("dp_degree(1)", 1),
        ("dp_degree(2)", 0),
        ("tp_degree_of(c)", 2),
        ("dp_degree_of(a)", 2),
    ],
)
def test_a_quantity_of_a_plan(quantity: str, value: int) -> None:
    instance = chain()
    found, arguments = meant(VOCABULARY, instance, parse(quantity))
    assert found.of_plan(instance, PLAN, *arguments) == value
    assert violations(replace(instance, requirements=(f"{quantity} == {value}",)), PLAN) == ()
    broken = violations(replace(instance, requirements=(f"{quantity} == {value + 1}",)), PLAN)
    assert [each.rule for each in broken] == ["required"]


@pytest.mark.parametrize("method", MODELS)
@pytest.mark.parametrize(
    ("required", "time"),
    [
        (["num_devices <= 1"], 3.0),
        (["tp_degree_of(a) == 2"], 2.5),  # two replicas of a, on the four devices that b and c leave
        (["tp_degree_of(b) >= 2", "num_stages == 1"], 5.0),  # three replicas of all
        (["same_stage(a, b)", "not same_stage(b, c)"], 1.0),
        (["same_stage(a, b)", "not same_stage(b, c)", "dp_degree(0) <= 1"], 2.0),
        (["nodes(0) >= 2", "dp_degree_of(c) == 2"], 1.0),
        (["stage_of(c) <= 1", "num_stages >= 3"], None),
        (["tp_degree(1) == 2", "tp_degree(0) == 1", "stage_of(b) == 1", "dp_degree(2) == 1"], 2.5),
        (["nodes(2) == 1", "num_devices >= 6", "dp_degree_of(c) == 1"], 2.5),
        (["nodes(1) == 0", "dp_degree(0) <= 2", "num_devices == 2"], 1.5),
    ],
)
def test_plans_that_no_one_would_choose_freely(method: str, required: list[str], time: float | None) -> None:
    found = planner.solve(replace(chain(), requirements=tuple(required)), method=method)
    assert found.status is (Status.INFEASIBLE if time is None else Status.OPTIMAL)
    assert found.objective == (None if time is None else pytest.approx(time, rel=1e-6))


def test_models_agree_on_more_stages_than_any_good_plan_has() -> None:
    instance = planner.load(
        "chain8", first=5, devices=4, memory="60MB", require=["num_stages == 4", "dp_degree(3) <= 1"]
    )
    found = [planner.solve(instance, method=method) for method in MODELS]
    assert [each.status for each in found] == [Status.OPTIMAL] * 3
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-6)
    assert found[0].objective == pytest.approx(found[2].objective, rel=1e-6)
    assert found[0].objective > 1.01 * planner.solve(replace(instance, requirements=())).objective
