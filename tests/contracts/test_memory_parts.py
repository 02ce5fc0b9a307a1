"""Memory is shown in the parts that an instance declares; what it declares as one sum is called one."""

from dataclasses import replace

import pytest

import planner
from formulations.contract.figures.plan_figures import Stack
from formulations.operator_partitioning import FAMILY as OPERATORS
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import memory_bytes
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor, TrainingMemory
from planner.files.load import family_of

TRAINING = TrainingMemory(weight_copies=4.0, microbatches=8)


def instance(training: TrainingMemory | None, declared: float = 0.0) -> OperatorInstance:
    """Two operators of 10 and 20 bytes of weights, and a tensor of 5 bytes between them."""
    operators = [
        Operator("a", 1.0, parameter_bytes=10.0, activation_bytes=5.0, memory_bytes=declared),
        Operator("b", 1.0, parameter_bytes=20.0, activation_bytes=7.0, memory_bytes=declared),
    ]
    return OperatorInstance(
        "two",
        tuple(operators),
        (Tensor(0, (1,), 5.0),),
        num_stages=2,
        replicas=1,
        bandwidth_bytes_per_s=1.0,
        training=training,
    )


def parts(made: OperatorInstance) -> dict[str, list[float]]:
    """The parts of the picture of memory."""
    plan = OperatorPlan(((0,), (1,)), (1, 1))
    assert OPERATORS.breakdown is not None
    [found] = [
        each
        for each in OPERATORS.breakdown(made, plan).pictures
        if isinstance(each, Stack) and each.measure == "memory of a stage"
    ]
    for stage in range(2):
        assert found.total(stage) == pytest.approx(memory_bytes(made, plan.stages[stage], 2 - stage), rel=1e-12)
    return {name: list(values) for name, values in found.parts.items()}


def test_weights_gradients_and_optimiser_stand_apart() -> None:
    shown = parts(instance(TRAINING))
    assert (shown["weights"], shown["gradients"], shown["optimiser"]) == ([10, 20], [10, 20], [20, 40])
    assert shown["inputs in flight"] == [0, 5] and "activations of a micro-batch" in shown
    assert "optimiser" not in parts(instance(replace(TRAINING, weight_copies=2.0)))
    assert "activations in flight" in parts(instance(replace(TRAINING, recompute=False)))


def test_a_declared_number_is_one_sum() -> None:
    assert parts(instance(None, 3.0)) == {"declared (one sum)": [3.0, 3.0]}
    chain = planner.load("chain8", memory="80MB")
    plan = planner.solve(chain).plan
    family = family_of(chain)
    assert family.breakdown is not None
    pictures = family.breakdown(chain, family.plan_from_json(chain, plan)).pictures
    [memory] = [each for each in pictures if isinstance(each, Stack) and each.limits is not None]
    assert list(memory.parts) == ["always stored (one sum)", "activations in flight"] and "one sum" in memory.note
