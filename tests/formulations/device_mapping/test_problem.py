"""The definition: hand-computed cases, one broken rule at a time, free rings against all orders."""

import random
from dataclasses import replace

import pytest
from oracles.device_mapping import random_mapping, seconds_of

from formulations.device_mapping import FAMILY
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import evaluate, violations
from instances.problems.device_mapping import DeviceMapping, MappingEdge, MappingStage, allreduce_ratio, with_objective

#: Two stages of two replicas; devices 0-1 and 2-3 are near, all else is far.
NEAR, FAR = 4.0, 1.0
MATRIX = tuple(tuple(0.0 if a == b else NEAR if a // 2 == b // 2 else FAR for b in range(4)) for a in range(4))
PAIR = DeviceMapping(
    "pair", (MappingStage(1.0, 8.0), MappingStage(2.0, 4.0)), (MappingEdge(0, 1, 12.0),), 2, MATRIX, "full"
)
TOGETHER = Mapping(((0, 1), (2, 3)))  # replicas near, stages far
APART = Mapping(((0, 2), (1, 3)))  # replicas far, stages near


@pytest.mark.parametrize(
    ("objective", "plan", "seconds"),
    [
        ("p2p", TOGETHER, 2 + 12),
        ("p2p", APART, 2 + 3),
        ("allreduce", TOGETHER, max(1 + 8 / 4, 2 + 4 / 4)),  # 2 (R - 1) / R is 1 for two replicas
        ("allreduce", APART, max(1 + 8, 2 + 4)),
        ("full", TOGETHER, max(1 + 2 + 12, 2 + 1 + 12)),
        ("full", APART, max(1 + 8 + 3, 2 + 4 + 3)),
    ],
)
def test_objectives_by_hand(objective: str, plan: Mapping, seconds: float) -> None:
    assert evaluate(replace(PAIR, objective=objective), plan) == pytest.approx(seconds, rel=1e-15)


def test_one_replica_has_no_all_reduce() -> None:
    alone = DeviceMapping("alone", (MappingStage(1.0, 8.0),), (), 1, ((0.0,),), "full")
    assert evaluate(alone, Mapping(((0,),))) == 1.0


def test_rings_of_four_in_any_order() -> None:
    """Links 0-2, 2-1, 1-3, 3-0 are fast: the index ring is slow, the free one is not, a stated one is as stated."""
    fast = {(0, 2), (1, 2), (1, 3), (0, 3)}
    matrix = tuple(
        tuple(0.0 if a == b else 6.0 if (min(a, b), max(a, b)) in fast else 1.0 for b in range(4)) for a in range(4)
    )
    index = DeviceMapping("ring", (MappingStage(0.0, 4.0),), (), 4, matrix, "allreduce")
    free = replace(index, ring="free")
    plan = Mapping(((0, 1, 2, 3),))
    assert evaluate(index, plan) == pytest.approx(6.0)
    assert evaluate(free, plan) == pytest.approx(1.0)
    assert evaluate(free, replace(plan, rings=((0, 1, 2, 3),))) == pytest.approx(6.0)
    assert evaluate(free, replace(plan, rings=((0, 2, 1, 3),))) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("plan", "rule"),
    [
        (Mapping(((0, 1),)), "stages"),
        (Mapping(((0, 1), (2,))), "replicas"),
        (Mapping(((0, 1), (2, 4))), "device"),
        (Mapping(((0, 1), (2, -1))), "device"),
        (Mapping(((0, 1), (2, 0))), "once"),
        (Mapping(((0, 1), (2, 3)), ((0, 1),)), "rings"),
        (Mapping(((0, 1), (2, 3)), ((0, 1), (0, 0))), "rings"),
    ],
)
def test_each_rule_alone(plan: Mapping, rule: str) -> None:
    assert {found.rule for found in violations(PAIR, plan)} == {rule}
    with pytest.raises(ValueError, match=r"\w"):
        evaluate(PAIR, plan)


def test_evaluate_agrees_with_the_oracle(cases: int) -> None:
    rng = random.Random(5)
    for _ in range(cases):
        instance = random_mapping(rng, max_devices=8)
        devices = list(range(instance.num_devices))
        rng.shuffle(devices)
        R = instance.replicas
        plan = Mapping(tuple(tuple(devices[s * R : s * R + R]) for s in range(instance.num_stages)))
        device = {(s, r): plan.devices[s][r] for s in range(instance.num_stages) for r in range(R)}
        assert evaluate(instance, plan) == pytest.approx(seconds_of(instance, device), rel=1e-12)


def test_the_ratio_rule() -> None:
    assert allreduce_ratio(PAIR) == pytest.approx((8 + 4) / (12 * 4))
    assert with_objective(PAIR, "auto").objective == "p2p"
    heavy = replace(PAIR, microbatches=1, edges=(MappingEdge(0, 1, 11.0),))
    assert with_objective(heavy, "auto").objective == "allreduce"
    assert with_objective(replace(PAIR, edges=()), "auto").objective == "allreduce"
    read = FAMILY.read(with_objective(PAIR, "auto"), "pair", {"microbatches": 1})
    assert read.objective == "p2p" and "1, allreduce" in read.options["chosen"]  # exactly 1 is not above 1
    assert FAMILY.read(PAIR, "pair", {"objective": "p2p", "ring": "free"}).options["objective"] == "p2p"
