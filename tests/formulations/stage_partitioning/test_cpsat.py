"""Stage partitioning by CP-SAT: against brute force, and its constraints one plan at a time."""

import math
from dataclasses import replace

import pytest
from model_checks import long_chain
from strategies import random_stage_instance

import planner
from formulations.stage_partitioning.definition.problem import evaluate
from formulations.stage_partitioning.models import cpsat
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Limits, Stop, Watch


def test_memory_without_a_limit() -> None:
    """As relaxations have it; more than every stage takes is the same."""
    chain = planner.load("chain8", first=4)
    endless, plenty = (replace(chain, memory_bytes=memory) for memory in (math.inf, 1e12))
    answers = [cpsat.solve(each, Limits(time_s=30), Watch()) for each in (endless, plenty)]
    assert answers[0].stop is Stop.PROVED
    assert evaluate(endless, answers[0].plan) == evaluate(plenty, answers[1].plan)


@pytest.mark.parametrize(("seed", "size", "time"), [(35, 5, 28 / 9), (101587, 6, 4.0)])
def test_no_false_proof_of_presolve(seed: int, size: int, time: float) -> None:
    """CP-SAT 9.15 with its default presolve proves an optimum of 5.0 for the first, infeasibility for the second."""
    instance = random_stage_instance(seed, max_nodes=size, max_devices=size)
    model = cpsat.model_of(instance, complete=seed == 35)
    run = model.run(Limits(), Watch(), lambda _: None, lambda _: None)
    assert not run.infeasible
    assert evaluate(instance, model.decode(run.values)) == pytest.approx(time, rel=1e-6)


def test_no_false_proof_of_large_sums() -> None:
    """A boundary takes 1e9 times as long as the layers: with sums up to 2^60 CP-SAT 9.15 called this infeasible."""
    weighty = (Tmpc("x", 16.799999999999997, 730e6, 1460e6, 0.0), Tmpc("x", 16.799999999999997, 879470419.67, 0.0, 0.0))
    first = Layer("a", {1: (Tmpc("x", 3.5, 0.0, 730e6, 511e9), Tmpc("y", 2.0979, 0.0, 0.0, 16311541242.83))})
    first = replace(first, tmpcs={**first.tmpcs, 4: (Tmpc("x", 5.23389654452369, 730e6, 3650e6, 8760e6),)})
    layers = (first, Layer("b", {1: weighty[:1], 2: weighty[1:]}))
    instance = StageInstance("large", layers, (Edge("a", "b", 11680e6),), 5, 16060e6, 1.4, 4, max_dp_degree=1)
    answer = cpsat.solve(instance, Limits(time_s=30), Watch())
    assert not answer.infeasible
    assert math.isclose(evaluate(instance, answer.plan), 16685714302.51, rel_tol=1e-9)


def test_no_formula_bounds_the_time_from_below() -> None:
    """The bound that the units are chosen by is no constraint: the proof is the solver's."""
    assert cpsat.model_of(long_chain(4, 4)).model.variables["time"][()].proto.domain[0] == 0
