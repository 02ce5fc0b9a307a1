"""What Parmesan's flow solves inside: contracted graphs cost what the plans cost on the graph itself."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from oracles import operator_partitioning as oracle

from formulations.contract.inner_problems import Subproblem
from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.paper import parmesan
from formulations.operator_partitioning.paper.refinement import refine
from formulations.operator_partitioning.questions.studies.inside import (
    contract,
    moves_of_refine,
    states_of_dp,
    steps_of_parmesan,
)
from instances.errors import InstanceError
from instances.problems.operator_partitioning import OperatorInstance, TrainingMemory, check
from solvers.outcome import Limits, Watch

SEEDS = range(40)


def _instance(seed: int) -> OperatorInstance:
    return oracle.random_instance(random.Random(seed), plain=True)


def _made(arisen: Iterator[object]) -> list[Subproblem]:
    return [each() for each in arisen]  # type: ignore[operator]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_clustered_graph_costs_what_the_graph_costs(seed: int) -> None:
    instance = _instance(seed)
    found = _made(steps_of_parmesan(instance, Limits(), Watch()))
    clustered = found[0]
    check(clustered.instance, "clustered")
    plan, _ = parmesan.dynamic_program(instance, parmesan.cluster(instance, Watch()), Watch())
    assert (plan is None) == (clustered.plan is None)
    if plan is None:
        return
    assert evaluate(clustered.instance, clustered.plan) == pytest.approx(evaluate(instance, plan), rel=1e-12)
    last, count = refine(instance, plan)
    moves = found[1:]
    assert len(moves) == count
    for each in moves:
        check(each.instance, "move")
        assert violations(each.instance, each.plan) == ()
    if moves:
        assert evaluate(moves[-1].instance, moves[-1].plan) == pytest.approx(evaluate(instance, last), rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_of_a_random_contraction(seed: int) -> None:
    rng, instance = random.Random(seed), _instance(seed)
    plan = parmesan.equal(instance)
    if plan is None:
        return
    groups = [part for stage in plan.stages for part in _split(rng, stage)]
    small, order = contract(instance, groups)
    check(small, "contracted")
    stages = [[] for _ in plan.stages]
    for position, group in enumerate(order):
        stages[next(s for s, members in enumerate(plan.stages) if groups[group][0] in members)].append(position)
    there = replace(plan, stages=tuple(map(tuple, stages)))
    assert evaluate(small, there) == pytest.approx(evaluate(instance, plan), rel=1e-12)


def _split(rng: random.Random, stage: tuple[int, ...]) -> list[tuple[int, ...]]:
    cut = rng.randint(0, len(stage))
    return [part for part in (stage[:cut], stage[cut:]) if part]


@pytest.mark.parametrize("seed", SEEDS)
def test_states_have_the_values_of_the_table(seed: int) -> None:
    instance = _instance(seed)
    found = _made(states_of_dp(instance, Limits(), Watch()))
    clusters = parmesan.cluster(instance, Watch()).clusters
    tensors = parmesan.pair_tensors(instance, clusters)
    whole = [each for each in found if each.origin["clusters"] == len(clusters)
             and each.origin["in_stages"] == instance.num_stages]  # fmt: skip
    for each in found:
        check(each.instance, "state")
        assert violations(each.instance, each.plan) == ()
    plan, _ = parmesan.dynamic_program(instance, parmesan.cluster(instance, Watch()), Watch())
    assert (plan is None) == (not whole)
    if plan is not None:  # Equation 3 by hand, a tensor for each pair of adjacent clusters
        home = {operator: stage for stage, members in enumerate(plan.stages) for operator in members}
        loads = [math.fsum(instance.operators[each].compute_s for each in members) for members in plan.stages]
        for tensor in tensors:
            ends = home[tensor.source], home[tensor.targets[0]]
            for stage in set(ends) if ends[0] != ends[1] else ():
                loads[stage] += tensor.volume_bytes / instance.bandwidth_bytes_per_s
        assert evaluate(whole[0].instance, whole[0].plan) == pytest.approx(max(loads) / instance.replicas, rel=1e-12)


def test_what_leaves_a_state_is_paid_for() -> None:
    instance = next(found for found in map(_instance, range(100)) if found.tensors and found.num_stages == 2)
    first = next(each for each in _made(states_of_dp(instance, Limits(), Watch())) if each.origin["row"] == 1)
    inside = {operator.id for operator in first.instance.operators}
    sent = math.fsum(
        tensor.volume_bytes / instance.bandwidth_bytes_per_s
        for tensor in parmesan.pair_tensors(instance, parmesan.cluster(instance, Watch()).clusters)
        if instance.operators[tensor.source].id in inside and instance.operators[tensor.targets[0]].id not in inside
    )
    own = math.fsum(each.compute_s for each in instance.operators if each.id in inside)
    assert sum(each.compute_s for each in first.instance.operators) == pytest.approx(own + sent)


def test_moves_from_the_even_cut() -> None:
    counts = [len(_made(moves_of_refine(_instance(seed), Limits(), Watch()))) for seed in SEEDS]
    assert sum(counts) > 10


def test_the_memory_of_training_is_refused() -> None:
    instance = replace(_instance(1), memory_bytes=1e9, training=TrainingMemory())
    for arise in (steps_of_parmesan, states_of_dp, moves_of_refine):
        with pytest.raises(InstanceError, match="training"):
            list(arise(instance, Limits(), Watch()))
