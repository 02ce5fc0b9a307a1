"""Steps of flushed pipelines on devices: the definition by hand, both joint models against brute force."""

import random
from dataclasses import replace
from typing import Any

import pytest
from oracles.pipeline_placement import optimum, random_instance

import planner
from formulations.device_mapping.definition.plan import Mapping
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.problem import evaluate, step_parts
from formulations.pipeline_placement.models import two_phase
from instances.errors import InstanceError
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor
from instances.problems.pipeline_placement import PlacementInstance, place_on
from solvers.outcome import Limits, Watch

SECONDS = Limits(time_s=30)


def solve(method: Any, instance: PlacementInstance) -> Any:
    return method(instance, SECONDS, Watch(SECONDS))


def drawn(label: str) -> PlacementInstance:
    rng = random.Random(label)
    stages, replicas = rng.choice([(2, 2), (3, 1), (2, 1), (1, 3), (4, 1), (1, 1)])
    made = random_instance(rng, stages, replicas, "full")
    return replace(made, objective="step", microbatches=rng.choice([1, 2, 3, 8, 64]))


def test_a_step_by_hand() -> None:
    """Two replicas of two stages: the replica on the slow link decides the pipeline, a slow ring the all-reduce."""
    operators = (Operator("a", 4.0, 6.0), Operator("b", 3.0, 2.0))
    graph = OperatorInstance("two", operators, (Tensor(0, (1,), 2.0),), 2, replicas=2, bandwidth_bytes_per_s=1.0)
    slow = {(0, 2): 0.5, (0, 1): 3.0, (2, 3): 1.0}  # devices 0, 1 run a, 2, 3 run b; others have 1
    matrix = tuple(tuple(0.0 if d == e else slow.get((min(d, e), max(d, e)), 1.0) for e in range(4)) for d in range(4))
    instance = place_on(graph, matrix, objective="step", microbatches=5)
    plan = PlacementPlan(OperatorPlan(((0,), (1,)), (2, 2)), Mapping(((0, 1), (2, 3))))
    # Replica 0 sends 2 bytes at 0.5: stages take 8 and 7; replica 1 at 1: 6 and 5. Rings take 6 / 3 and 2 / 1.
    assert step_parts(instance, plan) == (15.0, 4 * 8.0, 2.0)
    assert evaluate(instance, plan) == 49.0
    assert evaluate(replace(instance, microbatches=1), plan) == 17.0
    assert evaluate(replace(instance, objective="full"), plan) == 10.0


def test_phases_report_steps(cases: int) -> None:
    """What the mapping minimises is another objective: only whole plans and their steps are reported."""
    for case in range(max(2, cases // 5)):
        instance = drawn(f"phases {case}")
        for method in (two_phase.solve, two_phase.solve_decoupled, two_phase.solve_turns):
            watch = Watch(SECONDS)
            answer = method(instance, SECONDS, watch)
            assert evaluate(instance, answer.plan) >= optimum(instance) * (1 - 1e-12), case
            plan, value = watch.incumbent()
            assert value == pytest.approx(evaluate(instance, plan), rel=1e-12), case


def test_a_step_is_declared() -> None:
    instance = planner.load("placement", objective="step", microbatches=32)
    assert (instance.objective, instance.microbatches) == ("step", 32)
    assert planner.solve(instance, method="decoupled").objective > 0
    with pytest.raises(InstanceError, match="flushed is True"):
        place_on(replace(instance.operators, flushed=True, step_microbatches=8), instance.bandwidth_bytes_per_s)
