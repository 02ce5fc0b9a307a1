"""The published dynamic program under every knapsack rule, and the linear orders beside it."""

import random
from dataclasses import replace

import numpy as np
import pytest
from oracles.stage_partitioning import BruteForce, brute_force
from strategies import random_stage_instance

import planner
from formulations.compiled.downsets import all_downsets
from formulations.stage_partitioning.definition.problem import evaluate, violations
from formulations.stage_partitioning.exact import interval_plans, threshold
from formulations.stage_partitioning.exact.effort import choose
from formulations.stage_partitioning.paper import piper
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc
from instances.rules import NodeId
from solvers.outcome import Limits, Stop, Watch


def agrees_when_exact(instance: StageInstance) -> None:
    answer, best = piper.solve_exact_knapsack(instance, Limits(), Watch()), brute_force(instance)
    if best is None:
        assert answer.infeasible and answer.plan is None
    else:
        assert answer.plan is not None and violations(instance, answer.plan) == ()
        assert evaluate(instance, answer.plan) == pytest.approx(best.time, rel=1e-9)
        assert answer.bound is not None and answer.bound <= best.time


def test_exact_knapsacks_make_it_exact(cases: int) -> None:
    for seed in range(cases):
        agrees_when_exact(random_stage_instance(seed))


@pytest.mark.parametrize("held", [threshold._SAVING_ORDERS, 0])
def test_two_exact_methods_agree_beyond_brute_force(held: float, cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long chains and tight memory: stages that save at several layers, with room for all saving orders and for one."""
    monkeypatch.setattr(threshold, "_SAVING_ORDERS", held)
    for seed in range(cases // 4):
        rng = random.Random(seed)
        base = random_stage_instance(seed, max_nodes=14, shape="chain", uniform=True, memory="ample", exactly=False)
        light = sum(min(x.static_bytes + x.activation_bytes for x in next(iter(v.tmpcs.values()))) for v in base.layers)
        instance = replace(base, num_devices=8, memory_bytes=rng.uniform(0.3, 1.5) * light)
        one, other = (f(instance, Limits(), Watch()) for f in (threshold.solve, piper.solve_exact_knapsack))
        assert one.infeasible == other.infeasible
        if one.plan is not None and other.plan is not None:
            assert evaluate(instance, one.plan) == pytest.approx(evaluate(instance, other.plan), rel=3e-9)


@pytest.mark.parametrize("rule", ["rerank", "sort-once", "truncating"])
def test_heuristic_plans_are_feasible_and_never_better(rule: str, cases: int) -> None:
    worse = 0
    for seed in range(cases):
        instance = random_stage_instance(seed, max_tmpcs=2 if rule == "sort-once" else 4)
        answer, best = piper.solve(instance, Limits(), Watch(), rule), brute_force(instance)
        if best is None:
            assert answer.infeasible and answer.plan is None
            continue
        assert answer.plan is not None and violations(instance, answer.plan) == ()
        objective = evaluate(instance, answer.plan)
        assert objective >= best.time * (1 - 1e-12)
        assert answer.bound is not None and answer.bound <= best.time
        worse += objective > best.time * (1 + 1e-9)
    assert worse < cases / 4


class BangPerBuck(BruteForce):
    """All plans, where a stage's TMPCs are not the best ones but those of section 4's heuristic, as its text has it."""

    def __init__(self, instance: StageInstance, *, capped: bool) -> None:
        super().__init__(instance)
        self.capped = capped

    def _cheapest(self, stage: frozenset[NodeId], d: int, t: int, y: int) -> tuple[float, tuple[str, ...]] | None:
        nodes = sorted(stage, key=str)
        lists = [self.tmpcs[v].get(t, ()) for v in nodes]
        if not all(lists):
            return None

        def time(at: int, x: Tmpc) -> float:
            return self._share(stage, nodes[at], x, d)

        def memory(x: Tmpc) -> float:
            return x.activation_bytes * y + x.static_bytes

        chosen = [min(found, key=lambda x, at=at: time(at, x)) for at, found in enumerate(lists)]
        while (excess := sum(map(memory, chosen)) - self.instance.memory_bytes) > 0:
            swaps = [
                (min(saved, excess) if self.capped else saved, time(at, x) - time(at, chosen[at]), at, x)
                for at, found in enumerate(lists)
                for x in found
                if (saved := memory(chosen[at]) - memory(x)) > 0
            ]
            if not swaps:
                return None
            _, _, at, x = max(swaps, key=lambda swap: swap[0] / swap[1])
            chosen[at] = x
        return sum(time(at, x) for at, x in enumerate(chosen)), tuple(x.id for x in chosen)


@pytest.mark.parametrize("rule", ["rerank", "sort-once", "truncating"])
def test_piper_ends_where_its_recursion_does(rule: str, cases: int) -> None:
    """Least slowest stage over all plans, stages priced by the rule. Times are odd, so that no two ratios are equal."""
    pressed, most = 0, 2 if rule == "sort-once" else 4
    for seed in range(3 * cases):
        rng = random.Random(seed)
        drawn = random_stage_instance(rng, max_tmpcs=most, uniform=seed % 6 > 0, memory="tight")

        def odd(x: Tmpc, rng: random.Random = rng) -> Tmpc:
            return replace(x, time=x.time + rng.random())

        layers = tuple(
            replace(v, tmpcs={t: tuple(map(odd, found)) for t, found in v.tmpcs.items()}) for v in drawn.layers
        )
        instance = replace(drawn, layers=layers)
        expected = BangPerBuck(instance, capped=rule == "truncating").solve()
        plan = piper.solve(instance, Limits(), Watch(), rule).plan
        if expected is None:
            assert plan is None
            continue
        assert plan is not None and evaluate(instance, plan) == pytest.approx(expected.time, rel=1e-9), seed
        free = brute_force(replace(instance, memory_bytes=1e30))
        pressed += free is not None and free.time < expected.time * (1 - 1e-9)
    assert pressed > cases // 8


def test_both_cost_orders_give_the_same_rule(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of TMPCs: sorting once is re-ranking, since a swap changes no other ratio."""
    monkeypatch.setattr(threshold, "_SAVING_ORDERS", 1.0)  # room for one row of swaps, which seeds 10 and 15 fill anew
    for seed in range(10, 10 + cases):
        instance = random_stage_instance(seed, max_tmpcs=2, max_nodes=12, uniform=True, memory="tight", exactly=False)
        found = [piper.solve(instance, Limits(), Watch(), rule).plan for rule in ("rerank", "sort-once")]
        if found[0] is None:
            assert found[1] is None
        else:
            assert found[1] is not None
            assert evaluate(instance, found[0]) == pytest.approx(evaluate(instance, found[1]), rel=1e-9)


def trap() -> StageInstance:
    """One stage must save 10 bytes: the best ratio saves 6 for 3, which then needs the dear 10 for 9 as well."""
    first = Layer("a", {1: (Tmpc("fast", 1.0, 0, 0, 20.0), Tmpc("light", 4.0, 0, 0, 14.0))})
    second = Layer("b", {1: (Tmpc("fast", 1.0, 0, 0, 20.0), Tmpc("light", 10.0, 0, 0, 10.0))})
    return StageInstance("trap", (first, second), (Edge("a", "b", 1.0),), 1, 30.0, 1.0, 1, CostModel.PAPER)


@pytest.mark.parametrize(("rule", "time"), [("rerank", 14.0), ("sort-once", 14.0), ("exact", 11.0)])
def test_the_greedy_rule_can_be_led_astray(rule: str, time: float) -> None:
    instance = trap()
    answer = piper.solve(instance, Limits(), Watch(), rule)
    assert answer.plan is not None and evaluate(instance, answer.plan) == time
    assert answer.bound is not None and answer.bound <= 11.0  # a plan that was led astray is no bound


def test_sort_once_refuses_a_third_tmpc() -> None:
    three = tuple(Tmpc(name, 1.0, 0, 0, 1.0) for name in "xyz")
    instance = StageInstance("three", (Layer(0, {1: three}),), (), 1, 8.0, 1.0, 1)
    assert piper.resolve(instance, "auto") == "rerank"
    with pytest.raises(ValueError, match="--knapsack rerank"):
        piper.solve(instance, Limits(), Watch(), "sort-once")


def test_auto_follows_the_cost_model() -> None:
    assert piper.resolve(trap(), "auto") == "rerank"
    released = StageInstance(**{**vars_of(trap()), "cost_model": CostModel.RELEASED})
    assert piper.resolve(released, "auto") == "sort-once"


def vars_of(instance: StageInstance) -> dict[str, object]:
    return {name: getattr(instance, name) for name in instance.__dataclass_fields__}


def test_linear_orders_give_a_plan_and_a_bound(cases: int) -> None:
    optimal = 0
    for seed in range(cases):
        instance = random_stage_instance(seed)
        answer, best = interval_plans.solve(instance, Limits(), Watch()), brute_force(instance)
        assert not answer.infeasible
        if answer.plan is None:
            continue
        assert best is not None and violations(instance, answer.plan) == ()
        objective = evaluate(instance, answer.plan)
        assert objective >= best.time * (1 - 1e-12)
        assert answer.bound is not None and answer.bound <= best.time
        optimal += objective <= best.time * (1 + 1e-4)
    assert optimal > cases // 3


def test_wide_graphs_get_a_plan_from_the_dispatcher() -> None:
    """30 independent nodes have 2^30 downsets."""
    layers = tuple(Layer(v, {1: (Tmpc("only", 1.0 + v, 0, 0, 1.0),)}) for v in range(30))
    instance = StageInstance("wide", layers, (), 4, 100.0, 1.0, 8)
    assert choose(instance, Limits(), False)[0] == "linearised"
    answer = interval_plans.solve(instance, Limits(), Watch())
    assert answer.plan is not None and violations(instance, answer.plan) == ()
    assert answer.bound == pytest.approx(sum(1.0 + v for v in range(30)) / 4)
    assert evaluate(instance, answer.plan) <= 1.05 * answer.bound
    assert threshold.solve(instance, Limits(), Watch()).stop is Stop.SIZE_LIMIT


def test_downsets_near_a_plan_repair_what_linear_orders_miss() -> None:
    """On three branches the orders alone end 0.43 % above the optimum of all downsets."""
    instance = planner.load("random-layers:layers=24,branches=3", devices=64, microbatches=256, memory="32GiB")
    optimum = threshold.solve(instance, Limits(), Watch()).bound
    plan = interval_plans.solve(instance, Limits(), Watch()).plan
    assert plan is not None and optimum is not None and evaluate(instance, plan) <= 1.0001 * optimum
    every = {each.tobytes() for each in all_downsets(instance, 1000)}
    assert {each.tobytes() for each in interval_plans.near_plan(instance, plan, 1000)} == every
    near = [each.tobytes() for each in interval_plans.near_plan(instance, plan, 40)]
    ends = {each.tobytes() for each in interval_plans.near_plan(instance, plan, len(plan.stages) + 1)}
    assert len({*near}) == 40 and {*near} <= every and {*near[: len(ends)]} == ends
    rest = [{node for stage in plan.stages[k:] for node in stage.nodes} for k in range(len(plan.stages) + 1)]
    assert ends == {np.array([sum(1 << instance.index[v] for v in each)], np.uint64).tobytes() for each in rest}
