"""What a model cuts off is that plan and nothing else: one after the other, all plans come out, best first."""

import gc
import random
from collections.abc import Callable
from itertools import pairwise, product
from types import ModuleType
from typing import Any

import pytest
from oracles import flushed_partitioning, hierarchical_partitioning, operator_partitioning
from thinned import thinned

from formulations.contract.family import Violation
from formulations.flushed_partitioning.models import cpsat as flushed_cpsat
from formulations.hierarchical_partitioning.models import cpsat as hierarchical_cpsat
from formulations.modelling.solve_model import Stopped, WithoutSizes, prove
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.models import cpsat as operator_cpsat
from formulations.operator_partitioning.models import milp as operator_milp
from formulations.pipeline_placement.models import cpsat as joint
from formulations.pipeline_placement.models import milp as placement_milp
from formulations.pipeline_placement.models import shared
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor
from instances.problems.pipeline_placement import place_on
from solvers.outcome import Limits, Run, Stop, Watch


def whole(plan: Any) -> Any:
    """All of a plan."""
    return plan


def test_models_are_built_without_garbage_collections() -> None:
    """They take longer the larger the model has become, and nobody asks the watch meanwhile."""
    seen = list[bool]()

    def build() -> Any:
        seen.append(gc.isenabled())
        raise Stopped

    assert gc.isenabled()
    prove(None, build, lambda *_: 0.0, lambda *_: (), Limits(), Watch())
    assert seen == [False] and gc.isenabled()


def one_by_one(
    room: ModuleType,
    instance: Any,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
    part: Callable[[Any], Any] = whole,
    judge: ModuleType | None = None,
) -> list[float]:
    """Objectives of the best plans, each found with those before it called too large; fewer than ``most``: all.

    ``part`` is what of a plan has a size; ``judge`` is the module that checks plans, if it is not the room's own.
    """
    rejected: list[Any] = []
    judge = judge or room
    own: Callable[[Any, Any], tuple[Violation, ...]] = judge.violations

    def rules(instance: Any, plan: Any) -> tuple[Violation, ...]:
        return (Violation("memory", "as this test says"),) if part(plan) in rejected else own(instance, plan)

    monkeypatch.setattr(judge, "violations", rules)
    values = []
    for _ in range(most):
        answer = room.solve(instance, Limits(), Watch())
        assert answer.stop is Stop.PROVED
        if answer.infeasible:
            break
        assert part(answer.plan) not in rejected
        rejected.append(part(answer.plan))
        values.append(judge.evaluate(instance, answer.plan))
    return values


def every_objective(instance: OperatorInstance) -> list[float]:
    """Objectives of all plans with the stages in order, ascending."""
    assert instance.num_stages is not None
    stages, found = instance.num_stages, {}
    for home in product(range(stages), repeat=len(instance.operators)):
        members = tuple(tuple(v for v, s in enumerate(home) if s == stage) for stage in range(stages))
        if all(members):
            plan = OperatorPlan(members, (instance.replicas,) * stages)
            if violations(instance, plan) == ():
                found[plan] = evaluate(instance, plan)
    return sorted(found.values())


class FailedModel(WithoutSizes):
    """Its solver reports plans, or none, and fails."""

    def __init__(self, received: list[float]) -> None:
        self.received = received

    def run(self, _limits: Limits, _watch: Watch, on_solution: Any, on_bound: Any) -> Run:
        for plan in self.received:
            on_solution(plan)
            on_bound(plan / 2)
        return Run(stop=Stop.COMPLETED, solver="S", reason="S failed: tired")

    def decode(self, values: float) -> float:
        return values

    def lower_bound(self, bound: float) -> float:
        return bound


@pytest.mark.parametrize("received", [[], [6.0, 4.0]], ids=["no plan", "two plans"])
def test_a_solver_that_failed_leaves_its_plans_and_its_message(received: list[float]) -> None:
    answer = prove(None, lambda: FailedModel(received), lambda _, plan: plan, lambda *_: (), Limits(), Watch())
    assert (answer.plan, answer.bound) == ((4.0, 3.0) if received else (None, None))
    assert (answer.infeasible, answer.stop, answer.reason) == (False, Stop.COMPLETED, "S failed: tired")


@thinned("room", [operator_cpsat, operator_milp])
def test_all_partitions_of_operators(room: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for seed in range(8):
        instance = operator_partitioning.random_instance(random.Random(seed), max_operators=5, plain=True)
        expected = every_objective(instance)[:6]
        seen += len(expected)
        with monkeypatch.context() as patch:
            assert one_by_one(room, instance, 6, patch)[: len(expected)] == pytest.approx(expected, rel=1e-6)
    assert seen >= 20


@pytest.mark.parametrize(
    ("room", "make"),
    [
        (flushed_cpsat, flushed_partitioning.random_flushed),
        (hierarchical_cpsat, hierarchical_partitioning.random_hierarchical),
    ],
)
def test_the_next_plan_is_no_better(room: ModuleType, make: Callable[[int], Any], monkeypatch: Any) -> None:
    longest = 0
    for seed in range(4):
        with monkeypatch.context() as patch:
            values = one_by_one(room, make(seed), 4, patch)
        assert all(later >= value * (1 - 1e-6) for value, later in pairwise(values))
        longest = max(longest, len(values))
    assert longest == 4


@pytest.mark.parametrize("room", [joint, placement_milp], ids=["joint", "milp"])
@pytest.mark.parametrize(("times", "expected"), [((1.0, 2.0, 4.0), [6, 6.25]), ((4.0, 2.0, 1.0), [4.25, 8])])
def test_all_partitions_of_a_placement(
    room: ModuleType, times: tuple[float, ...], expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain of three operators on two stages: two partitions; each is rejected whatever its mapping."""
    operators = tuple(Operator(v, time) for v, time in enumerate(times))
    tensors = (Tensor(0, (1,), 1.0), Tensor(1, (2,), 8.0))
    graph = OperatorInstance("row", operators, tensors, num_stages=2, replicas=1)
    instance = place_on(graph, ((0.0, 4.0), (4.0, 0.0)))
    found = one_by_one(room, instance, 5, monkeypatch, part=lambda plan: plan.partition, judge=shared)
    assert found == pytest.approx(expected)
