"""How many devices, replicas or micro-batches would repair an instance: the first number, also if more is no better."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from oracles.stage_graph import plans

import planner
from formulations.stage_graph import FAMILY
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor
from instances.problems.stage_graph import AffineTime, OperatorEdge, StageGraph
from instances.problems.stage_graph import Operator as Branch
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc
from planner import Status
from planner.display.explained import _lines


def repairs(instance: Any) -> dict[str, float]:
    found = planner.explain(instance)
    assert found.status is Status.INFEASIBLE
    return {each.change: each.amount for each in found.repairs}


def three(K: int, *requirements: str, minibatch: int = 1, memory: float = 100.0) -> StageGraph:
    """Two branches that meet."""
    time = AffineTime(1.0, 1.0)
    operators = tuple(Branch(name, time, time, 1.0, 1.0) for name in "abc")
    edges = (OperatorEdge(0, 2, 1.0), OperatorEdge(1, 2, 1.0))
    return StageGraph("three", operators, edges, K, memory, 1.0, 0.0, minibatch, requirements=requirements)


@pytest.mark.parametrize(
    ("requirements", "devices"),
    [
        (("idle_devices >= 2", "num_stages >= 3"), 5),  # beyond what all replicas can use
        (("idle_devices == 40",), 41),
        (("idle_devices >= 3", "idle_devices <= 1"), None),
        (("idle_devices <= 0", "num_stages >= 3"), 3),  # four or more would be too many again
        (("idle_devices == 2", "num_stages >= 3"), 5),
        (("num_stages >= 4",), None),
    ],
)
def test_idle_devices_that_are_required(requirements: tuple[str, ...], devices: int | None) -> None:
    instance = three(2, *requirements)
    assert repairs(instance).get("devices") == devices
    if devices is not None:
        solved = [planner.solve(replace(instance, num_devices=K), exact=True).status for K in (devices - 1, devices)]
        assert solved == [Status.INFEASIBLE, Status.OPTIMAL]


def test_a_number_between_two_that_do_not_do() -> None:
    """Three devices are used and one is idle: four, though plans may use up to six."""
    own = (f"devices_of({node}) == 1" for node in range(3))
    assert repairs(three(1, "num_stages >= 3", "idle_devices == 1", *own, minibatch=2))["devices"] == 4


def has_plan(instance: StageGraph) -> bool:
    """By the definition, of every plan that there is."""
    return any(not FAMILY.judge(instance, FAMILY.plan_from_json(instance, each)) for each in plans(instance))


def compared(number: int, seen: Counter[str]) -> None:
    """One random instance that has no plan, against all numbers of devices up to one that is beyond any use."""
    rng = random.Random(f"idle {number}")
    wanted = [f"idle_devices {rng.choice(('<=', '>=', '=='))} {rng.randint(0, 3)}" for _ in range(rng.randint(1, 2))]
    more = rng.choice(("num_stages >= 2", "num_stages >= 3", "devices_of(1) >= 2", "devices_of(0) == 1"))
    memory = rng.choice((5.0, 7.0, 9.0, 100.0))
    instance = three(rng.randint(1, 4), *wanted, more, minibatch=rng.choice((1, 2)), memory=memory)
    if has_plan(instance):
        return
    K = instance.num_devices
    most = 3 * instance.minibatch + 4  # three stages, three idle devices, and one more
    first = next((k for k in range(K + 1, most + 1) if has_plan(replace(instance, num_devices=k))), None)
    assert repairs(instance).get("devices") == first, (number, instance.requirements)
    seen["none" if first is None else "some"] += 1


def test_the_first_number_of_devices_is_that_of_brute_force(cases: int, many: int) -> None:
    seen: Counter[str] = Counter()
    for number in (2, 3, 5, *range(6, min(many, 500) or cases // 8)):  # 5 has some, 2 and 3 have none
        compared(number, seen)
    assert seen["some"] and seen["none"], seen


def operators(replicas: int, *requirements: str, pooled: bool, memory: float) -> OperatorInstance:
    own = tuple(Operator(name, 1.0, memory_bytes=70.0) for name in "ab")
    return OperatorInstance(
        "operators", own, (Tensor(0, (1,), 1.0),), 2, replicas=replicas, bandwidth_bytes_per_s=1.0,
        memory_bytes=memory, pooled_memory=pooled, requirements=requirements,
    )  # fmt: skip


def test_replicas_as_many_as_share_memory_or_are_required() -> None:
    assert repairs(operators(1, pooled=True, memory=1.0))["replicas"] == 70
    assert "replicas" not in repairs(operators(1, pooled=False, memory=1.0))
    assert repairs(operators(1, "replicas_of(a) == 4", pooled=False, memory=70.0))["replicas"] == 4
    assert "replicas" not in repairs(operators(1, "replicas_of(a) <= 3", pooled=True, memory=10.0))
    shared = replace(operators(1, pooled=True, memory=1.0), num_devices=139)
    assert repairs(shared)["devices"] == 140


def chain(K: int, N: int, cost_model: CostModel = CostModel.PAPER, **fields: Any) -> StageInstance:
    """Four layers, each of which fills a device."""
    layers = tuple(Layer(f"d{v}", {1: (Tmpc("x", 1.0, 0.0, 0.0, 10.0),)}, role="decoder") for v in range(4))
    edges = tuple(Edge(f"d{v}", f"d{v + 1}", 0.0) for v in range(3))
    return StageInstance("chain", layers, edges, K, 10.0, 1.0, N, cost_model=cost_model, **fields)


def test_a_trainer_that_uses_all_devices_is_asked_for_each_number() -> None:
    """It takes four devices, neither three nor five."""
    instance = chain(1, 8, requirements=("realizable(accelerate) == 1",))
    assert repairs(instance)["devices"] == 4


def test_what_is_not_tried_is_said() -> None:
    """Degrees that divide: three of three micro-batches would do, of which none but 4, 8, ... are tried."""
    instance = chain(4, 2, CostModel.RELEASED, requirements=("dp_degree(0) == 3",))
    found = planner.explain(instance)
    assert "micro-batches other than twice as many, up to 2048 in a batch" in found.untried
    assert "Not tried: micro-batches other than twice as many" in "\n".join(_lines(found))
    assert not planner.explain(three(2, "num_stages >= 4")).untried
