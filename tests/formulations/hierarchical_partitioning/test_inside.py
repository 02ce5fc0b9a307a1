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


def test_splits_cost_the_same_alone_and_are_of_both_kinds(many: int) -> None:
    precise = 0
    for seed in range(many or 40):
        instance = random_hierarchical(seed)
        plan = solve(instance, Limits(), Watch()).plan
        found = [each() for each in splits(instance, Limits(), Watch())]
        if plan is None or instance.memory_model is MemoryModel.CRUDE:
            assert found == [], seed
            continue
        assert len(found) == 2 * (len(plan.stages) if instance.memory_model is MemoryModel.NONE else 1), seed
        precise += len(found) * (instance.memory_model is MemoryModel.PRECISE)
        for planned, published in zip(found[::2], found[1::2], strict=True):
            check(planned.instance, "split")
            assert planned.instance == published.instance
            assert violations(planned.instance, planned.plan) == ()
            superstage = plan.stages[int(planned.origin["superstage"])]
            slowest = max(stage_time(instance.inner, stage) for stage in superstage.inner)
            assert evaluate(planned.instance, planned.plan) == pytest.approx(slowest, rel=1e-12), seed
            if published.plan is not None:
                least = solve_flat(planned.instance, Limits(), Watch()).bound
                assert least is not None
                assert all(evaluate(each.instance, each.plan) >= least * (1 - 1e-9) for each in (planned, published))
    assert precise > 5
    unlimited = [on_machines(random_hierarchical(seed).flat, 1, 3, 8.0, 4.0, MemoryModel.NONE) for seed in range(20)]
    assert max(sum(1 for _ in splits(instance, Limits(), Watch())) for instance in unlimited) > 2
