"""Alpa's and Galvatron's dynamic programs: against all plans by their own costs, and never below the optimum."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from oracles.training_strategy import optimum, plans, random_instance
from stopping import StopsAfter

import planner
from formulations.training_strategy import FAMILY, heuristics, planners
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import chosen, chunk_times, evaluate, gradient_sum, violations
from formulations.training_strategy.definition.sharing import bandwidth, shared_in, shares_of_sums
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.problems.training_strategy import Schedule, StrategyInstance, of_chain
from solvers.outcome import Limits, Watch

Steps = Callable[[StrategyInstance, StrategyPlan], list[float]]
METHODS = {"alpa": planners.alpa, "formula": heuristics.formula, "uniap": planners.uniap}


def watching(instance: StrategyInstance) -> Watch:
    """A watch that knows what is minimised."""
    watch = Watch()
    watch.evaluate = lambda plan: evaluate(instance, plan)
    return watch


def by_alpa(instance: StrategyInstance, plan: StrategyPlan) -> list[float]:
    """Of each stage, all passes of a micro-batch."""
    return [each.forward + each.backward for each in (chunk_times(instance, plan, chunk) for chunk in plan.chunks)]


def by_uniap(instance: StrategyInstance, plan: StrategyPlan) -> list[float]:
    """The same with sums of gradients spread, and what is sent across each cut as steps of their own."""
    m, by = instance.flat.num_microbatches // plan.dp_degree, shared_in(instance, plan)
    rate, (_, left) = bandwidth(instance, by.of_stages), shares_of_sums(instance, by)
    steps = [left * gradient_sum(instance, plan, chunk) / m for chunk in plan.chunks] + [0.0] * (plan.pp_degree - 1)
    stage = {node: position for position, chunk in enumerate(plan.chunks) for node in chunk}
    for node, position in stage.items():
        steps[position] += chosen(instance, plan, node).time
    for u, v, size in ((edge.source, edge.target, edge.bytes) for edge in instance.flat.edges):
        ends = (chosen(instance, plan, v).sync_forward_bytes, u), (chosen(instance, plan, u).sync_backward_bytes, v)
        more = max(sync.get(other, 0.0) for sync, other in ends)
        for cut in range(stage[u], stage[v]):
            steps[plan.pp_degree + cut] += 2 * (size / by.context + more) / rate
    return steps


@pytest.mark.parametrize(("memory", "way"), [("80GB", "vanilla"), ("8GB", "activation recomp")])
def test_torchtitan_counts_ends_as_a_block_each_and_recomputes_all_blocks_or_none(memory: str, way: str) -> None:
    """18 in four parts of 5, 5, 4, 4; in front of the blocks are two layers, behind them one."""
    given = {"problem": "training_strategy", "layers": 16, "hidden_size": 2048, "devices": 8, "microbatches": 16}
    instance = planner.load("gpt", **given, memory=memory, require=["pp_degree == 4", "tp_degree == 1"])
    plan = heuristics.torchtitan(instance, Limits(), watching(instance)).plan
    assert plan is not None and [len(chunk) for chunk in plan.chunks] == [2 + 4, 5, 4, 3 + 1]
    assert {plan.tmpcs[layer] for layer in range(2, 18)} == {way} and not violations(instance, plan)
    assert evaluate(instance, plan) >= planner.solve(instance, exact=True).bound * (1 - 1e-9)


@pytest.mark.parametrize(("name", "steps"), [("alpa", by_alpa), ("uniap", by_uniap)])
def test_each_has_the_best_plan_of_all_devices_by_its_own_cost(cases: int, name: str, steps: Steps) -> None:
    found = 0
    for number in range(cases):
        instance = random_instance(random.Random(f"{name} {number}"), most_layers=3)
        if Schedule.ONE_F_ONE_B not in instance.schedules:
            continue
        every = [
            plan
            for each in plans(instance)
            if (plan := FAMILY.plan_from_json(instance, each)).schedule == Schedule.ONE_F_ONE_B
            and (name == "uniap" or plan.tp_degree.bit_count() == plan.dp_degree.bit_count() == 1)
        ]
        most = max((plan.num_devices for plan in every), default=0)
        fitting = [plan for plan in every if plan.num_devices == most and not violations(instance, plan)]
        answer = METHODS[name](instance, Limits(), watching(instance))
        assert (answer.plan is None) == (not fitting), number
        if answer.plan is not None:
            found += 1
            value, *others = (
                sum(own := steps(instance, plan)) + (instance.flat.num_microbatches // plan.dp_degree - 1) * max(own)
                for plan in (answer.plan, *fitting)
            )
            assert value == pytest.approx(min(others), rel=1e-9), number
    assert found > cases // 8


@pytest.mark.parametrize("memory", [0.0, 5e-324, 1e-300])
def test_a_limit_of_nothing_has_no_plan(memory: float) -> None:
    """Of all degrees; one that is stopped says nothing of those that it did not reach."""
    for method in (*METHODS.values(), planners.galvatron, heuristics.even):
        assert method(equal_layers(2, memory), Limits(), watching(equal_layers(2, memory))).reason
        assert not method(equal_layers(2, 100.0), Limits(), StopsAfter(0)).reason


def test_no_times_of_layouts_are_made_once_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heuristics, "chain_of", lambda *_: pytest.fail("one is made"))
    assert heuristics.even(equal_layers(2, 100.0), Limits(), StopsAfter(0)).plan is None


@pytest.mark.parametrize("method", [planners.alpa, planners.galvatron, planners.uniap])
def test_none_is_faster_than_the_optimum(cases: int, method: object) -> None:
    found = 0
    for instance in (random_instance(random.Random(f"planners {number}")) for number in range(cases)):
        plan = method(instance, Limits(), watching(instance)).plan  # type: ignore[operator]
        if plan is not None:
            found += 1
            assert not violations(instance, plan) and evaluate(instance, plan) >= optimum(instance) * (1 - 1e-9)
    assert found > cases // 8


def equal_layers(count: int, memory: float) -> StrategyInstance:
    """Layers of 3 s, 4 bytes and 1 for each micro-batch in flight; recomputed 4 s, and none, on two devices."""
    ways = (Tmpc("keep", 3.0, 2.0, 1.0, 4.0), Tmpc("again", 4.0, 2.0, 0.0, 4.0))
    layers = tuple(Layer(v, {1: ways}) for v in range(count))
    edges = tuple(Edge(v, v + 1, 0.0) for v in range(count - 1))
    return of_chain(StageInstance("equal", layers, edges, 2, memory, 1.0, 8, max_dp_degree=1))


@pytest.mark.parametrize(("memory", "recomputed"), [(18.01, 0), (16.0, 1), (15.9, 2), (12.01, 6), (12.0, None)])
def test_galvatron_recomputes_as_little_as_fits_in_each_stage(memory: float, recomputed: int | None) -> None:
    """Three layers a stage, 12 bytes and two micro-batches in flight on the first device, one on the second.

    12 bytes would do if no layer were rounded up to whole steps.
    """
    instance = equal_layers(6, memory)
    plan = planners.galvatron(instance, Limits(), watching(instance)).plan
    assert recomputed == (None if plan is None else sum(way == "again" for way in plan.tmpcs.values()))
    assert plan is None or [len(chunk) for chunk in plan.chunks] == [3, 3]


def test_steps_of_memory_round_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """In four steps of 4.5 bytes, where all layers would fit without these, four of six recompute."""
    instance = equal_layers(6, 18.0)
    monkeypatch.setattr(planners, "_STEPS", 4)
    plan = planners.galvatron(instance, Limits(), watching(instance)).plan
    # 4 and 1 byte take two steps, 4 bytes one: one layer of the four steps keeps its activations.
    assert plan is not None and sum(way == "again" for way in plan.tmpcs.values()) == 4


def test_alpa_leaves_out_the_sum_of_gradients() -> None:
    """Two replicas take 6 + 3 * 6 = 24 s, and 8 s for gradients; two stages 6 + 7 * 3 = 27 s."""
    whole = equal_layers(2, 1e9)
    instance = of_chain(replace(whole.flat, max_dp_degree=None))
    plans = {name: method(instance, Limits(), watching(instance)).plan for name, method in METHODS.items()}
    assert plans["alpa"] is not None and (plans["alpa"].pp_degree, plans["alpa"].dp_degree) == (1, 2)
    for name in ("formula", "uniap"):
        assert plans[name] is not None and (plans[name].pp_degree, plans[name].dp_degree) == (2, 1)
    odd = of_chain(replace(instance.flat, num_devices=3, num_microbatches=9))
    assert [METHODS[name](odd, Limits(), watching(odd)).plan.num_devices for name in ("alpa", "uniap")] == [2, 3]


def test_sends_are_steps_of_uniap() -> None:
    """Of 10, 11 and 20 s. The first cut takes 22 + 7 * 10 s and the second 23 + 7 * 11, though its stages take 6 s."""
    edges = tuple(Edge(v, v + 1, size) for v, size in enumerate((5.0, 5.5, 10.0)))
    instance = of_chain(replace(equal_layers(4, 1e9).flat, edges=edges))
    plan = planners.uniap(instance, Limits(), watching(instance)).plan
    assert plan is not None and [len(chunk) for chunk in plan.chunks] == [1, 3]
