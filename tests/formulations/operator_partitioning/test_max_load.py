"""The max-load dynamic program: a lower bound by its own value, and the optimum where tensors have one target."""

import random
from dataclasses import replace

import pytest
from oracles.operator_partitioning import optimum, random_instance

from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.paper import parmesan
from instances.problems.operator_partitioning import OperatorInstance, per_pair
from solvers.outcome import Limits, Watch


def drawn(number: int) -> OperatorInstance | None:
    """A small graph with a given number of stages and of replicas of each."""
    instance = random_instance(random.Random(f"max load {number}"), 6)
    if instance.num_stages is None or instance.flushed:
        return None
    return replace(instance, num_devices=None)


@pytest.mark.parametrize("single", [False, True])
def test_its_value_is_a_bound_and_the_optimum_where_tensors_have_one_target(cases: int, single: bool) -> None:
    met = below = 0
    for number in range(2 * cases):
        instance = drawn(number)
        if instance is None:
            continue
        instance = per_pair(instance) if single else instance
        answer = parmesan.solve_max_load(instance, Limits(), Watch())
        best = optimum(instance)
        if best is None:
            assert answer.plan is None
            continue
        assert answer.plan is not None and not violations(instance, answer.plan)
        value, own = answer.stats["max_load"], evaluate(instance, answer.plan)
        assert value <= best * (1 + 1e-9) and own >= best * (1 - 1e-9)
        assert not single or own == pytest.approx(best, rel=1e-9)
        met += own <= best * (1 + 1e-9)
        below += value < best * (1 - 1e-9)
    assert met > cases // 4 and (single or cases < 100 or below)
    assert not single or not below
