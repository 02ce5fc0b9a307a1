"""Stage partitioning by columns: against brute force, and its prices and its flow one at a time."""

import math
import random
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from model_checks import check_answer, long_chain, random_plan
from strategies import random_stage_instance

from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import (
    MEMORY_SLACK,
    evaluate,
    stage_memory,
    stage_time,
    violations,
)
from formulations.stage_partitioning.model_size import MAX_DOWNSETS, columns_supports
from formulations.stage_partitioning.models import cpsat_columns, milp_columns
from formulations.stage_partitioning.models.assignment_data import Terms
from formulations.stage_partitioning.models.stage_costs import Prices
from formulations.stage_partitioning.models.usable_arcs import Reach, first_reach
from instances.graph import downsets
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc
from solvers.milp.backend import NATURAL
from solvers.outcome import Limits, Stop, Watch


def cheapest_stage(instance: StageInstance, nodes: list[int], t: int, d: int, in_flight: int) -> float:
    """The least time of a stage by trying all its TMPCs; inf if none fits."""
    best = math.inf
    layers = [instance.layers[v] for v in nodes]
    for choice in product(*(layer.tmpcs.get(t, ()) for layer in layers)):
        tmpcs = {layer.id: x.id for layer, x in zip(layers, choice, strict=True)}
        stage = Stage(tuple(layer.id for layer in layers), d, t, tmpcs)
        if stage_memory(instance, stage, in_flight * d) <= instance.memory_bytes * MEMORY_SLACK:
            best = min(best, stage_time(instance, stage))
    return best


def all_downsets(instance: StageInstance) -> list[int]:
    found = downsets(len(instance.layers), instance.edge_indices, 1000)
    assert found is not None
    return found


def within(instance: StageInstance, target: float) -> milp_columns.Model:
    """The model of all plans in which no stage takes more than a target."""
    prices = Prices(Terms(instance), all_downsets(instance), Watch())
    return milp_columns.Model(prices, Reach(prices, target))


BOTH = pytest.mark.parametrize("room", [milp_columns, cpsat_columns], ids=["milp", "cpsat"])


def test_every_price_is_the_least_time(cases: int) -> None:
    for seed in range(cases // 4):
        instance = random_stage_instance(seed, max_nodes=4, max_devices=4)
        prices = Prices(Terms(instance), all_downsets(instance), Watch())
        limit = prices.terms.largest_time
        for blocks in prices.blocks:
            for block in blocks:
                priced = set(prices.configs(block, limit))
                for t, d in prices.terms.configs:
                    for in_flight in (1, 2, 4):
                        least = cheapest_stage(instance, list(block.nodes), t, d, in_flight)
                        found = prices.price(block, t, d, in_flight, limit)
                        assert (found is None) is math.isinf(least)
                        assert found is None or (t, d) in priced
                        assert found is None or found[0] == pytest.approx(least, rel=1e-12, abs=1e-12)


def test_a_price_holds_below_at_and_above_its_limit() -> None:
    for seed in range(30):
        instance = random_stage_instance(seed, memory="ample")
        prices = Prices(Terms(instance), all_downsets(instance), Watch())
        block = prices.blocks[0][0]
        for t, d in prices.configs(block, prices.terms.largest_time):
            found = prices.price(block, t, d, 1, prices.terms.largest_time)
            if found is not None and found[0] > 0:
                assert prices.price(block, t, d, 1, found[0] * (1 - 1e-6)) is None
                assert prices.price(block, t, d, 1, found[0]) == found
                assert prices.price(block, t, d, 1, found[0] * 2) == found


def test_a_looser_limit_asks_again() -> None:
    instance = random_stage_instance(3, memory="ample")
    prices = Prices(Terms(instance), all_downsets(instance), Watch())
    block = prices.blocks[0][-1]
    t, d = next(iter(prices.configs(block, prices.terms.largest_time)))
    assert prices.price(block, t, d, 1, 0.0) is None
    assert prices.price(block, t, d, 1, prices.terms.largest_time) is not None


def test_every_feasible_plan_is_a_path_no_slower_than_itself(cases: int) -> None:
    seen = 0
    for seed in range(6 * cases):
        rng = random.Random(seed)
        instance = random_stage_instance(seed, memory=rng.choice(["planted", "ample"]))
        stages = min(len(instance.layers), instance.num_devices, instance.num_microbatches)
        plan = random_plan(rng, instance, rng.randint(1, stages)) if instance.tp_degrees else None
        if plan is None or violations(instance, plan) or evaluate(instance, plan) == 0:
            continue
        seen += 1
        model = within(instance, evaluate(instance, plan))
        pairs = list(model.values_of(plan))
        assert sum(value for _, value in pairs) == len(plan.stages)
        for variable, value in pairs:
            variable.fix(value)
        run = model.run(Limits(), Watch())
        assert not run.infeasible and run.objective is not None
        assert run.objective * model.unit <= evaluate(instance, plan) * (1 + 1e-6)
        assert violations(instance, model.decode(run.values)) == ()
    assert seen > cases // 4


def test_the_devices_of_a_path_are_counted() -> None:
    """Every arc is part of a plan on 9 devices; without the row on devices the solver's path takes 13."""
    check_answer(milp_columns.solve, random_stage_instance(141))


def test_too_many_downsets_are_refused_with_the_reason() -> None:
    layers = tuple(Layer(v, {1: (Tmpc("x", 1.0, 0, 0, 0),)}) for v in range(10))
    instance = StageInstance("loose", layers, (), 4, 8.0, 1.0, 4)
    assert "downsets" in (columns_supports(instance) or "") and MAX_DOWNSETS < 2**10
    answer = milp_columns.solve(instance, Limits(), Watch())
    assert (answer.plan, answer.stop, answer.infeasible) == (None, Stop.SIZE_LIMIT, False)
    with pytest.raises(ValueError, match="downsets"):
        milp_columns.model_of(instance)


def test_an_empty_budget_of_time_is_no_division_by_zero() -> None:
    layers = tuple(Layer(v, {1: (Tmpc("x", 0.0, 0, 0, 1.0),)}) for v in range(3))
    instance = StageInstance("idle", layers, (), 2, 2.0, 1.0, 2)
    answer = milp_columns.solve(instance, Limits(), Watch())
    assert answer.plan is not None and len(answer.plan.stages) == 2
    assert (evaluate(instance, answer.plan), answer.bound) == (0.0, 0.0)


def test_unpriced_stages_are_named() -> None:
    instance = random_stage_instance(1, memory="ample")
    prices = Prices(Terms(instance), all_downsets(instance), Watch())
    t, d = prices.terms.configs[0]
    with pytest.raises(ValueError, match="has no price"):
        prices.decisions_of(prices.blocks[0][-1], t, d, 1, -1.0)


def test_a_plan_comes_from_the_pass_itself() -> None:
    for seed in range(40):
        instance = random_stage_instance(seed, memory="planted")
        watch = Watch()
        reach = first_reach(Prices(Terms(instance), all_downsets(instance), watch), watch)
        plan: StagePlan | None = watch.best_plan
        assert reach.possible is (plan is not None)
        assert plan is None or evaluate(instance, plan) <= reach.target


def test_stages_far_slower_than_all_plans_hide_none() -> None:
    # Two replicas of these weights take 5e11 s: sums with such times are rounded by more than a stage takes.
    layers = tuple(Layer(f"{v}", {1: (Tmpc("x", 0.5, 1e12, 0.0, 0.0),)}) for v in range(3))
    instance = StageInstance("far", layers, (), num_devices=2, memory_bytes=1e13, bandwidth=1.0, num_microbatches=2)
    answer = milp_columns.solve(instance, Limits(), Watch())
    assert answer.bound == pytest.approx(1.0, rel=1e-5)
    assert answer.plan is not None


def test_layers_that_take_no_time_end_the_search() -> None:
    chain = long_chain(6, 3)
    instance = replace(
        chain, layers=tuple(replace(each, tmpcs={1: (Tmpc("x", 0.0, 0.0, 1.0, 1.0),)}) for each in chain.layers)
    )
    answer = milp_columns.solve(instance, Limits(time_s=20), Watch(Limits(time_s=20)))
    assert answer.stop is Stop.PROVED and answer.bound == 0


@BOTH
def test_the_search_by_targets_finds_the_optimum_by_itself(room: Any, cases: int) -> None:
    """Without a plan that it knows: the least target that a path meets, where the model with rows on time has it."""
    for seed in range(cases // 4):
        instance = random_stage_instance(seed)
        prices = Prices(Terms(instance), all_downsets(instance), Watch())
        model = room.Model(prices, Reach(prices, prices.terms.largest_time), search=True)
        found = model.run(Limits(), Watch(), lambda _: None, lambda _: None)
        direct = milp_columns.Model(prices, model.reach).run(Limits(), Watch())
        assert found.infeasible is direct.infeasible
        if not found.infeasible:
            assert found.stop is Stop.PROVED
            time = direct.objective * model.reach.target / NATURAL
            assert evaluate(instance, model.decode(found.values)) == pytest.approx(time, rel=1e-6)
            assert model.lower_bound(found.bound) == pytest.approx(time, rel=2e-6)
