"""Rows on how many operators a stage can have: against all sets, against all partitions, and where they decide."""

import itertools
import random
from dataclasses import replace

import pytest
from branching_cases import random_graph

import planner
from formulations.modelling.warm_start import First
from formulations.stage_graph.definition.problem import evaluate
from formulations.stage_graph.models import cardinality_cuts, cpsat, size_search
from formulations.stage_graph.models.data import Data
from formulations.stage_graph.paper import fewest_devices
from formulations.stage_graph.upsets import levels
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Limits, Status, Stop, Watch


def by_all_sets(instance: StageGraph, counted: list[int], stage: cardinality_cuts.Stage, high: int) -> int:
    """The most of some operators in any set that takes so many units; 0 if not even the empty one does."""
    found = 0
    for size in range(instance.num_operators + 1):
        for nodes in map(set, itertools.combinations(range(instance.num_operators), size)):
            cut = sum(
                units
                for edge, units in zip(instance.edges, stage.sending, strict=True)
                if (edge.source in nodes) != (edge.target in nodes)
            )
            if sum(stage.passes[v] for v in nodes) + cut + stage.waiting <= high:
                found = max(found, len(nodes & set(counted)))
    return found


def test_the_most_is_that_of_all_sets(cases: int) -> None:
    rng, beaten = random.Random(3), 0
    for seed in range(max(10, cases // 2)):
        instance = random_graph(seed, (4, 7), 3, series_parallel=bool(seed % 2))
        data = Data(instance, ((instance.microbatch_sizes[-1],),), cpsat.scale_of(instance), 0)
        r = rng.choice(list(data.degrees))
        stage = cardinality_cuts.Stage(data.passes[*r, 0], data.sending[*r, 0], data.waiting(r))
        stage = replace(stage, sending=[rng.randint(0, max(stage.passes)) for _ in stage.sending])
        high = rng.randint(0, sum(stage.passes) + stage.waiting + 1)
        counted = rng.sample(range(instance.num_operators), rng.randint(1, instance.num_operators))
        expected = by_all_sets(instance, counted, stage, high)
        assert cardinality_cuts.most(instance, counted, stage, high, Watch()) == expected, seed
        beaten += 0 < expected < len(counted)
    assert beaten > 3


def test_small_models_have_the_same_optimum_with_these_rows(monkeypatch: pytest.MonkeyPatch, cases: int) -> None:
    """From a plan of the smallest micro-batches on, so that there are better plans to be lost."""
    monkeypatch.setattr(cardinality_cuts, "FEWEST_OPERATORS", 0)

    def report(watch: Watch) -> None:
        plan = levels.solve(replace(instance, microbatches=(1,)), Limits(), Watch()).plan
        if plan is not None:
            watch.plan(plan, evaluate(instance, plan))

    monkeypatch.setattr(size_search, "first_plan", lambda *_: First("smallest", report))
    beaten = 0
    for seed in range(max(3, cases // 3)):
        instance = random_graph(seed, (4, 8), 4, series_parallel=bool(seed % 2))
        expected, found = (room.solve(instance, Limits(), Watch()) for room in (levels, cpsat))
        assert found.infeasible is expected.infeasible, seed
        if not found.infeasible:
            optimum = evaluate(instance, expected.plan)
            beaten += found.stats.get("first_plan", 0.0) > optimum
            assert evaluate(instance, found.plan) == pytest.approx(optimum, rel=1e-6), seed
            assert found.stop is Stop.PROVED and optimum * (1 - 1e-6) <= found.bound <= optimum * (1 + 1e-9), seed
    assert beaten


@pytest.mark.parametrize("name", ["candle-uno", *(pytest.param(n, marks=pytest.mark.slow) for n in ("dlrm", "mmt"))])
def test_work_that_does_not_divide_is_proved(name: str) -> None:
    """CANDLE-Uno has 28 equal operators and one more for 8 devices: 19 % were left open."""
    found = planner.solve(planner.load(name, devices=8), method="cpsat")
    assert (found.status, found.proved_by) == (Status.OPTIMAL, "solver")
    assert found.stats["plan_by"] == ("graphpipe-plus" if name == "mmt" else "downsets")


def test_rows_are_only_for_plans_that_are_to_be_beaten() -> None:
    """What others may extend has none, nor has a model without a plan; without time nothing is claimed."""
    instance = planner.load("candle-uno", devices=4)
    groups = {group.name for group in planner.model(instance, "cpsat").sizes().groups}
    assert "work" in groups and not groups & {"capacity", "capacities"}
    scale, watch = cpsat.scale_of(instance), Watch()
    unknown = cpsat.model_within(instance, ((instance.microbatch_sizes[-1],),), scale, watch)
    assert not {"capacity", "capacities"} & {group.name for group in unknown.inspected().groups}
    plan = fewest_devices.solve(instance, Limits(), Watch()).plan
    watch.plan(plan, evaluate(instance, plan))
    built = cpsat.model_within(instance, ((plan.stages[0].microbatch,),), scale, watch)
    assert {"capacity", "capacities"} <= {group.name for group in built.inspected().groups}
    stopped = Watch()
    stopped.stop(Stop.INTERRUPTED)
    assert cardinality_cuts.most(instance, [0, 1, 2], cardinality_cuts.Stage([], [], 0), 0, stopped) == 3
