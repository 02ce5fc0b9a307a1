"""What a hierarchical run solves inside: a split costs on its own machine what it costs in the whole."""

import pytest
from oracles.hierarchical_partitioning import random_hierarchical

from formulations.hierarchical_partitioning.paper import solve
from formulations.hierarchical_partitioning.questions.studies.inside import splits
from formulations.stage_partitioning.definition.problem import evaluate, stage_time, violations
from formulations.stage_partitioning.exact.threshold import solve as solve_flat
from instances.problems.hierarchical_partitioning import MemoryModel, on_machines
from instances.problems.stage_partitioning import check
from solvers.outcome import Limits, Watch

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_splits_cost_the_same_alone(seed: int) -> None:
    instance = random_hierarchical(seed)
    plan = solve(instance, Limits(), Watch()).plan
    found = [each() for each in splits(instance, Limits(), Watch())]
    if plan is None or instance.memory_model is MemoryModel.CRUDE:
        assert found == []
        return
    expected = len(plan.stages) if instance.memory_model is MemoryModel.NONE else 1
    assert len(found) == 2 * expected
    for planned, published in zip(found[::2], found[1::2], strict=True):
        check(planned.instance, "split")
        assert planned.instance == published.instance
        assert violations(planned.instance, planned.plan) == ()
        superstage = plan.stages[int(planned.origin["superstage"])]
        slowest = max(stage_time(instance.inner, stage) for stage in superstage.inner)
        assert evaluate(planned.instance, planned.plan) == pytest.approx(slowest, rel=1e-12)
        if published.plan is not None:
            least = solve_flat(planned.instance, Limits(), Watch()).bound
            assert least is not None
            for each in (planned, published):
                assert evaluate(each.instance, each.plan) >= least * (1 - 1e-9)


def test_there_are_splits_of_both_kinds() -> None:
    found = [(instance.memory_model, sum(1 for _ in splits(instance, Limits(), Watch())))
             for instance in map(random_hierarchical, SEEDS)]  # fmt: skip
    assert sum(count for model, count in found if model is MemoryModel.PRECISE) > 5
    unlimited = [on_machines(random_hierarchical(seed).flat, 1, 3, 8.0, 4.0, MemoryModel.NONE) for seed in SEEDS]
    assert max(sum(1 for _ in splits(instance, Limits(), Watch())) for instance in unlimited) > 2
