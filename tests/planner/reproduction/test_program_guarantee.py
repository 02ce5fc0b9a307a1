"""Piper loses at most the ratio of a node's slowest to its fastest TMPC: on random instances, and how near it comes."""

import math
import random
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
import strategies
from hypothesis import given

from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.definition.problem import evaluate, violations
from formulations.stage_partitioning.paper import piper
from formulations.stage_partitioning.questions.instance_space import mining
from instances.problems.stage_partitioning import CostModel, StageInstance
from planner.experiments.mining.mine import mine
from planner.experiments.mining.search import within_domains
from planner.files.load import validate
from planner.reproduction.piper.program_guarantee import hard_for_slowdown, slowdown
from planner.solving.solve import run
from solvers.outcome import Limits, Watch

RULES = ("rerank", "sort-once", "truncating")


def optimum(instance: StageInstance) -> float | None:
    return run(FAMILY, FAMILY.method("exact"), instance, Limits(), {}).objective


def found_by(instance: StageInstance, rule: str) -> float | None:
    plan = piper.solve(instance, Limits(), Watch(), rule).plan
    assert plan is None or violations(instance, plan) == ()
    return None if plan is None else evaluate(instance, plan)


def quotient(instance: StageInstance, rho: float) -> float:
    """Checks the statement for every rule that applies; the worst quotient to the optimum, 0 without a plan."""
    best, worst = optimum(instance), 0.0
    pairs = all(len(found) <= 2 for layer in instance.layers for found in layer.tmpcs.values())
    for rule in RULES if pairs else ("rerank", "truncating"):
        found = found_by(instance, rule)
        if best is None:
            assert found is None
            continue
        assert found is not None and found <= rho * best * (1 + 1e-9) + 1e-12, (rule, found, best, rho)
        worst = max(worst, found / best if best > 0 else 1.0)
    return worst


@given(strategies.stage_instances(uniform=True, max_nodes=4, max_devices=4))
def test_the_loss_is_at_most_the_slowdown(instance: StageInstance) -> None:
    rho = slowdown(instance)
    if math.isfinite(rho):
        quotient(instance, rho)


def drawn(seed: int, rho: Fraction) -> StageInstance | None:
    """A random instance with this slowdown at most, up to three TMPCs, in one of the cost models."""
    room = mining()
    genes = room.genes(
        {**room.limits, "nodes": 3, "devices": 3, "microbatches": 2, "tmpcs": 2 + seed % 2, "number": 24}
    )
    (domain,) = [each for each in room.domains if each.name == "max-slowdown"]
    genome = within_domains(genes, {domain: rho}, genes.random(random.Random(seed)))
    built = None if genome is None else genes.build(genome)
    if built is None:
        return None
    return validate(replace(built, cost_model=[CostModel.PAPER, CostModel.RELEASED][seed % 3 == 0]))


@pytest.mark.parametrize("rho", [Fraction(4, 3), Fraction(2), Fraction(8)], ids=str)
def test_random_instances_of_a_slowdown(rho: Fraction, cases: int) -> None:
    worst = []
    for seed in range(cases):
        instance = drawn(seed, rho)
        if instance is not None:
            assert slowdown(instance) <= rho
            worst.append(quotient(instance, float(rho)))
    assert sum(each > 0 for each in worst) > cases / 5


@pytest.mark.slow
def test_mined_losses_are_within_the_slowdown(cases: int) -> None:
    for seed in range(max(1, cases // 100)):
        mined = mine("piper", domains={"max-slowdown": 2}, most={"tp": 1}, limits=Limits(seed=seed), count=2000)
        assert mined.worst is not None and mined.worst <= 1 + 1e-9


@pytest.mark.parametrize("rule", ["rerank", "sort-once"])
def test_two_nodes_come_close(rule: str) -> None:
    instance = hard_for_slowdown(1000)
    assert slowdown(instance) == 4 / 3
    assert (found_by(instance, rule), optimum(instance)) == (4003.0, 3004.0)  # 1.33256
    assert found_by(instance, "truncating") == 3004.0
    for scale, rho in ((10, 2.0), (100, 5.0)):
        instance = hard_for_slowdown(scale, rho)
        expected = (rho * scale + 1) / (scale + rho)
        best, found = optimum(instance), found_by(instance, rule)
        assert best is not None and found is not None and found / best == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_one_stage_is_mined_towards_four_thirds() -> None:
    most = {"nodes": 2, "tp": 1, "devices": 1, "microbatches": 1, "number": 100}
    mined = mine("piper", domains={"recompute": None}, most=most, limits=Limits(seed=4), count=500)
    assert mined.loss is not None and 1.2 < 1 + mined.loss <= 4 / 3


def test_the_slowdown() -> None:
    instance = hard_for_slowdown(3)
    first = instance.layers[0]
    plain, slow = first.tmpcs[1]
    other = partial(replace, instance)
    assert slowdown(other(layers=(replace(first, tmpcs={1: (replace(plain, time=0.0), slow)}),))) == math.inf
    assert slowdown(other(layers=(replace(first, tmpcs={1: (plain,), 2: (slow,)}),))) == 1
    with pytest.raises(ValueError, match="node 0 differ in weights"):
        slowdown(other(layers=(replace(first, tmpcs={1: (plain, replace(slow, weight_bytes=1.0))}),)))
