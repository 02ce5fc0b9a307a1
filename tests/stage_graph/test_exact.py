"""CP-SAT and the columns against levels on random models, and against every plan on unlike devices."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest
from branching_cases import partitions, random_graph

import planner
from formulations.family import Answer
from formulations.stage_graph import FAMILY, cpsat, levels, milp_columns, plus
from formulations.stage_graph.costs import Costs, with_in_flight
from formulations.stage_graph.problem import Stage, StagePlan, data_edges, evaluate, violations
from instances.branching import mmt
from instances.stage_graph import AffineTime, DeviceGraph, Operator, StageGraph
from planner.errors import UsageError
from solvers.outcome import Limits, Stop, Watch


def value(instance: StageGraph, answer: Answer[StagePlan]) -> float:
    """The objective of a plan that keeps all rules and meets its bound; ``inf`` where none is proved to exist."""
    assert answer.stop is Stop.PROVED
    if answer.plan is None:
        assert answer.infeasible
        return math.inf
    assert violations(instance, answer.plan) == () and answer.bound is not None
    objective = evaluate(instance, answer.plan)
    assert objective * (1 - 1e-6) <= answer.bound <= objective
    return objective


def without_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT has to find its plans by itself."""
    monkeypatch.setattr(plus, "solve", lambda *_: Answer())


def test_cpsat_and_columns_and_levels_agree(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_start(monkeypatch)
    infeasible = columns = 0
    for seed in range(cases // 3):
        instance = random_graph(seed + 4000, (1, 8), 1 + seed % 4, series_parallel=bool(seed % 2))
        optimum = value(instance, levels.solve(instance, Limits(), Watch()))
        assert value(instance, cpsat.solve(instance, Limits(), Watch())) == pytest.approx(optimum, rel=1e-6), seed
        if instance.num_operators <= 5:
            found = value(instance, milp_columns.solve(instance, Limits(), Watch()))
            assert found == pytest.approx(optimum, rel=1e-6), seed
            columns += 1
        infeasible += optimum == math.inf
    assert 0 < infeasible < cases // 4 and columns > cases // 10


def test_sizes_that_do_not_divide_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_start(monkeypatch)
    for seed in range(6):
        instance = replace(random_graph(seed, (3, 6), 4, series_parallel=True), minibatch=12, microbatches=(2, 3, 4))
        optimum = value(instance, levels.solve(instance, Limits(), Watch()))
        assert value(instance, cpsat.solve(instance, Limits(), Watch())) == pytest.approx(optimum, rel=1e-6), seed


def unlike_devices(seed: int) -> StageGraph:
    """A small random model on devices with memories and links of their own, some of them missing."""
    rng = random.Random(f"unlike {seed}")
    instance = random_graph(seed + 6000, (2, 4), 3, series_parallel=bool(seed % 2))
    links = [[0.0 if u == v else rng.choice((0.0, 2.0, 5.0, 50.0, 50.0)) for v in range(3)] for u in range(3)]
    memory = tuple(float(int(instance.memory_bytes * rng.uniform(0.6, 1.5))) for _ in range(3))
    graph = DeviceGraph(memory, tuple(map(tuple, links)))
    return replace(instance, device_graph=graph, minibatch=4)


def least_on_devices(instance: StageGraph) -> float:
    """The optimum over all partitions, sets of devices and sizes."""
    best = math.inf
    for parts in partitions(list(range(instance.num_operators))):
        for owner in itertools.product(range(len(parts) + 1), repeat=instance.num_devices):
            held = [tuple(d for d, own in enumerate(owner) if own == stage) for stage in range(len(parts))]
            if not all(held):
                continue
            for size in instance.microbatch_sizes:
                stages = [
                    Stage(tuple(part), len(ids), size, size, device_ids=ids)
                    for part, ids in zip(parts, held, strict=True)
                ]
                idle = instance.num_devices - sum(map(len, held))
                try:
                    plan = with_in_flight(instance, StagePlan(tuple(stages), data_edges(instance, stages), idle))
                except ValueError:
                    continue
                if not violations(instance, plan):
                    best = min(best, evaluate(instance, plan))
    return best


def test_unlike_devices(cases: int) -> None:
    found = []
    for seed in range(cases // 4):
        instance = unlike_devices(seed)
        optimum = least_on_devices(instance)
        assert value(instance, cpsat.solve(instance, Limits(), Watch())) == pytest.approx(optimum, rel=1e-6), seed
        found.append(optimum)
    assert 0 < sum(map(math.isinf, found)) < len(found)


def test_what_exact_methods_are_chosen() -> None:
    def chosen(instance: StageGraph, exact: bool = True) -> str:
        return FAMILY.choose(instance, Limits(), exact)[0]

    time = AffineTime(0.0, 1.0)
    apart = StageGraph("apart", (Operator("", time, time, 1.0, 1.0),) * 22, (), 4, 1e3, 1.0, 0.0, 4)
    mixed = tuple(replace(each, weight_bytes=float(number)) for number, each in enumerate(apart.operators))
    assert (chosen(mmt()), chosen(mmt(), False)) == ("cpsat", "downsets")
    assert chosen(replace(apart, operators=mixed)) == "cpsat"
    assert chosen(random_graph(1, (6, 6), 4, series_parallel=False)) == "levels"
    assert chosen(unlike_devices(0)) == chosen(unlike_devices(0), False) == "cpsat"


def test_proofs_are_of_the_least_time_per_sample_only() -> None:
    for instance in (mmt(), random_graph(1, (6, 6), 4, series_parallel=False)):
        with pytest.raises(UsageError, match="objective iteration"):
            planner.solve(replace(instance, objective="iteration"), exact=True)


def test_columns_have_a_limit() -> None:
    answer = milp_columns.solve(mmt(devices=4), Limits(), Watch())
    assert answer.stop is Stop.SIZE_LIMIT and answer.plan is None


def test_a_time_limit_keeps_plan_and_bound() -> None:
    limits = Limits(time_s=3.0)
    watch = Watch(limits)
    instance = random_graph(7000, (20, 20), 6, series_parallel=False)
    answer = cpsat.solve(instance, limits, watch)
    assert watch.elapsed_s() < 6 and answer.plan is not None and answer.bound is not None
    assert 0 < answer.bound <= evaluate(instance, answer.plan)
    assert Costs(instance).work_s(Costs(instance).everything) / 6 <= answer.bound * (1 + 1e-6)
