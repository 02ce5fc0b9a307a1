"""Columns by generation: walks against all convex sets, prices against all stages, proofs against all partitions."""

import functools
import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from branching_cases import least_of_all, random_graph, stage_bytes, stage_s, uneven_graph

import planner
from formulations.modelling.warm_start import First
from formulations.stage_graph.costs.costs import Costs, bits
from formulations.stage_graph.definition.problem import evaluate, violations
from formulations.stage_graph.models import milp_columns
from formulations.stage_graph.models.first_plan import first_plan
from formulations.stage_graph.models.generation import pricing, targets
from formulations.stage_graph.models.generation.label_order import walk_over
from formulations.stage_graph.models.generation.master import Generation, classes_of
from formulations.stage_graph.models.generation.pricing import Kind, Pricing, kinds
from formulations.stage_graph.paper import fewest_devices
from formulations.stage_graph.upsets import levels
from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph
from solvers.milp.column_generation_lp import Growing
from solvers.outcome import Limits, Status, Stop, Watch

#: As many operators may be known on a walk as there are; one, so that edges are left out.
WIDTHS = (9, 1)


def convex_sets(instance: StageGraph) -> list[int]:
    """Every set of operators without a path that leaves it and comes back."""
    count = instance.num_operators
    reach = [[u == v for v in range(count)] for u in range(count)]
    for u in reversed(range(count)):
        for edge in instance.edges:
            if edge.source == u:
                reach[u] = [a or b for a, b in zip(reach[u], reach[edge.target], strict=True)]
    found = []
    for nodes in range(1, 1 << count):
        inside = list(bits(nodes))
        if not any(
            reach[u][w] and reach[w][v] for w in range(count) if not nodes >> w & 1 for u in inside for v in inside
        ):
            found.append(nodes)
    return found


def case(seed: int, operators: tuple[int, int] = (1, 6)) -> StageGraph:
    if seed % 3 == 2:
        return uneven_graph(seed, operators)
    return random_graph(seed, operators, 1 + seed % 4, series_parallel=bool(seed % 2))


def last(instance: StageGraph, nodes: int) -> bool:
    """Whether no edge leaves a set."""
    return not any(nodes >> e.source & 1 and not nodes >> e.target & 1 for e in instance.edges)


def all_walks(found: Pricing, kind: Kind) -> dict[int, tuple[float, float]]:
    """The least that each set of operators takes and holds along the walk."""
    walk, (takes, holds, _) = found.walk, found.amounts(kind)
    reached: list[set[tuple[int, float, float]]] = [{(0, 0.0, 0.0)}]
    for state in range(1, len(walk.start) - 1):
        reached.append(set())
        for step in range(walk.start[state], walk.start[state + 1]):
            own = int(walk.inside[step]) << int(walk.operator[step])
            reached[state] |= {
                (nodes | own, round(taken + takes[step], 9), round(held + holds[step], 9))
                for nodes, taken, held in reached[walk.tail[step]]
            }
    least: dict[int, tuple[float, float]] = {}
    for nodes, *both in reached[-1]:
        taken, held = least.get(nodes, (math.inf, math.inf))
        least[nodes] = min(taken, both[0]), min(held, both[1])
    return {nodes: each for nodes, each in least.items() if each[0] < math.inf}


@pytest.mark.parametrize("widest", WIDTHS)
def test_walks_are_the_convex_sets_and_say_what_they_take_and_hold(widest: int, cases: int) -> None:
    relaxed, held_back = 0, 0
    for seed in range(max(8, cases // 4)):
        instance, rng = case(seed), random.Random(seed)
        costs, size = Costs(instance), rng.choice(instance.microbatch_sizes)
        found = Pricing(costs, Watch())
        found.walk = walk_over(instance, Watch(), widest)
        relaxed += found.walk.is_relaxed
        convex = convex_sets(instance)
        for kind in kinds(costs, [size], rng.randint(1, min(size, instance.num_devices))):
            said = all_walks(found, kind)
            waiting = costs.all_reduce(0, kind.devices) / instance.minibatch
            expected = {nodes for nodes in convex if not kind.is_last or last(instance, nodes)}
            assert expected <= set(said) and (found.walk.is_relaxed or set(said) == {0, *expected})
            for nodes in expected:
                operators, depth = list(bits(nodes)), 1 if kind.is_last else 2
                roomy = replace(instance, memory_bytes=1e12)
                exact = stage_s(roomy, operators, size, kind.devices, 1), 0.0
                if kind.held:
                    exact = exact[0], stage_bytes(instance, operators, size, kind.devices, depth)
                    held_back += exact[1] > instance.memory_bytes
                pair = said[nodes][0] + waiting, said[nodes][1]
                assert all(one <= other * (1 + 1e-6) + 1e-8 for one, other in zip(pair, exact, strict=True))
                assert found.walk.is_relaxed or pair == pytest.approx(exact, rel=1e-6, abs=1e-8)
    assert bool(relaxed) is (widest == 1) and held_back


@pytest.mark.parametrize("most", [2_000, 2])
@pytest.mark.parametrize("widest", WIDTHS)
def test_prices_against_all_stages(most: int, widest: int, cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two labels of a state: then some are merged, and a stage is never worth less than it is."""
    monkeypatch.setattr(pricing, "_MOST", most)
    monkeypatch.setattr(pricing, "walk_over", functools.partial(walk_over, widest=widest))
    is_exact, beaten, listed = most > 2 and widest > 1, 0, 0
    for seed in range(max(20, cases)):
        instance, rng = case(seed), random.Random(seed)
        convex, size = convex_sets(instance), rng.choice(instance.microbatch_sizes)
        costs = Costs(instance)
        found = Pricing(costs, Watch())
        prices = np.array([rng.choice((0.0, 0.5, rng.random())) for _ in instance.operators])
        for kind in kinds(costs, [size], rng.randint(1, min(size, instance.num_devices))):
            allowed = [nodes for nodes in convex if not kind.is_last or last(instance, nodes)]
            depth = 1 if kind.is_last else 2
            times = {n: stage_s(instance, list(bits(n)), size, kind.devices, depth) for n in allowed}
            found.target_s = rng.choice([*(each for each in times.values() if each < math.inf), 0.0]) * (1 + 1e-9)
            worth = {n: sum(prices[v] for v in bits(n)) for n in allowed if times[n] <= found.target_s}
            best, (said, sets) = max(worth.values(), default=0.0), found.best(prices, kind)
            assert said >= best - 1e-12, seed
            assert not is_exact or said == pytest.approx(best), seed
            assert not is_exact or all(n in worth for n in sets), seed
            least = best * rng.choice((1.0, 0.8, 0.5))
            expected, each = {n for n in worth if worth[n] >= least}, found.sets(prices, kind, least, 10_000)
            assert each is not None and expected <= each, seed
            assert not is_exact or each == expected, seed
            beaten, listed = beaten + (0 < len(worth) < len(convex)), listed + (1 < len(expected) < len(worth))
            assert len(expected) < 2 or found.sets(prices, kind, least, 1) is None
    assert beaten > 3 and listed > 3


def test_bounds_are_below_the_devices_of_every_cover(cases: int) -> None:
    """For targets that are met by so many devices and no fewer; memory counts."""
    tight = 0
    for seed in range(max(8, cases // 4)):
        instance = case(seed)
        optimum = min(least_of_all(instance), 1e6)
        generation = Generation(Costs(instance), Pricing(Costs(instance), Watch()), Limits(), Watch())
        for target in (optimum * (1 + 1e-9), optimum * 0.8):
            devices = next(
                (
                    d
                    for d in range(1, instance.num_devices + 1)
                    if least_of_all(replace(instance, num_devices=d)) <= target
                ),
                math.inf,
            )
            proved = generation.bound(target, instance.microbatch_sizes)
            assert proved.devices <= devices * (1 + 1e-9), seed
            assert proved.prices.sum() == pytest.approx(proved.devices)
            tight += devices > proved.devices > devices - 1 > 0 or proved.devices > instance.num_devices
    assert tight > 3


def test_classes_are_of_operators_that_look_the_same() -> None:
    """The branches of CANDLE-Uno are exchanged place by place; a tensor of another size makes a branch another one."""
    instance = planner.load("candle-uno", devices=4)
    found = classes_of(Costs(instance))
    assert sorted(np.bincount(found)) == [1, 7, 7, 7, 7]
    first = instance.edges[0]
    other = (OperatorEdge(first.source, first.target, first.bytes_per_sample + 1), *instance.edges[1:])
    assert sorted(np.bincount(classes_of(Costs(replace(instance, edges=other))))) == [1, 1, 1, 1, 1, 6, 6, 6, 6]


def smallest(instance: StageGraph, _: Limits) -> First:
    """A plan of the smallest micro-batches, so that there are better ones."""

    def report(watch: Watch) -> None:
        plan = levels.solve(replace(instance, microbatches=(1,)), Limits(), Watch()).plan
        if plan is not None:
            watch.plan(plan, evaluate(instance, plan))

    return First("smallest", report)


def without(*_: object) -> First:
    return First("none", lambda _: None)


@pytest.mark.parametrize("first", [smallest, pytest.param(without, marks=pytest.mark.slow)])
def test_small_instances_are_proved(first: object, cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no convex set laid out beforehand: memory, odd replicas, tables, stages that would wait for each other."""
    monkeypatch.setattr(milp_columns, "FEW_OPERATORS", 0)
    monkeypatch.setattr(milp_columns, "first_plan", first)
    proved, infeasible, covers = 0, 0, 0.0
    for seed in range(max(12, cases // 4)):
        instance = case(seed)
        best, answer = least_of_all(instance), milp_columns.solve(instance, Limits(), Watch())
        assert answer.stop is Stop.PROVED and answer.infeasible is (best == math.inf), seed
        covers += float(answer.stats["covers"])
        infeasible += answer.infeasible
        if answer.plan is not None:
            proved += 1
            assert not violations(instance, answer.plan), seed
            assert evaluate(instance, answer.plan) == pytest.approx(best, rel=2e-6), seed
            assert answer.bound is not None and best * (1 - 2e-6) <= answer.bound <= best * (1 + 1e-9), seed
    assert proved > 3 and infeasible and covers > proved


def test_stages_that_wait_for_each_other_are_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chains, of 3 and 4 and of 1 and 2 seconds: two stages of 5 seconds would each wait for the other."""
    operators = tuple(Operator(str(t), AffineTime(0.0, float(t)), AffineTime(0.0, 0.0), 0.0, 0.0) for t in (3, 4, 1, 2))
    edges = (OperatorEdge(0, 1, 0.0), OperatorEdge(2, 3, 0.0))
    instance = StageGraph("crosswise", operators, edges, 2, 1.0, 1.0, 0.0, 1)
    monkeypatch.setattr(milp_columns, "FEW_OPERATORS", 0)
    monkeypatch.setattr(milp_columns, "first_plan", without)
    answer = milp_columns.solve(instance, Limits(), Watch())
    assert answer.stop is Stop.PROVED and answer.plan is not None
    assert evaluate(instance, answer.plan) == least_of_all(instance) == 6.0


def test_plans_that_take_very_long_are_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator may take any amount of seconds; no plan is known beforehand."""
    operators = tuple(Operator(str(v), AffineTime(0.0, 1e16), AffineTime(0.0, 0.0), 0.0, 1.0) for v in range(3))
    edges = (OperatorEdge(0, 1, 1.0), OperatorEdge(1, 2, 1.0))
    instance = StageGraph("long", operators, edges, 3, 3.0, 1e3, 0.0, 1)
    monkeypatch.setattr(milp_columns, "FEW_OPERATORS", 0)
    monkeypatch.setattr(milp_columns, "first_plan", without)
    answer = milp_columns.solve(instance, Limits(), Watch())
    assert answer.stop is Stop.PROVED and answer.plan is not None
    assert evaluate(instance, answer.plan) == least_of_all(instance) == 1e16


def test_what_deep_stages_hold_is_known_to_the_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three stages of a second each would keep three samples of the first operator; there is room for two."""
    operators = tuple(
        Operator(str(v), AffineTime(0.0, 1.0), AffineTime(0.0, 0.0), 0.0, kept)
        for v, kept in enumerate((1.0, 0.0, 0.0))
    )
    edges = (OperatorEdge(0, 1, 0.0), OperatorEdge(1, 2, 0.0))
    instance = StageGraph("deep", operators, edges, 3, 2.0, 1.0, 0.0, 4, microbatches=(1,))
    monkeypatch.setattr(milp_columns, "FEW_OPERATORS", 0)
    monkeypatch.setattr(milp_columns, "first_plan", without)
    answer = milp_columns.solve(instance, Limits(), Watch())
    assert answer.stop is Stop.PROVED and answer.plan is not None
    assert evaluate(instance, answer.plan) == least_of_all(instance) == 2.0


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("candle-uno", 8),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in itertools.product(("mmt", "dlrm", "candle-uno"), (4, 8, 16, 32))
            if each != ("candle-uno", 8)
        ),
    ],
)
def test_the_catalog_is_proved(name: str, devices: int) -> None:
    """By the relaxation alone: the first plan is the optimum."""
    found = planner.solve(planner.load(name, devices=devices), method="milp-columns")
    assert (found.status, found.proved_by) == (Status.OPTIMAL, "solver")
    assert found.stats["plan_by"] != "model" and found.stats["covers"] == 0


@pytest.fixture
def begins_with_the_recursion(monkeypatch: pytest.MonkeyPatch) -> None:
    """CANDLE-Uno on 32 devices is the one of the catalog of which ``graphpipe-plus`` has no optimum."""

    def recursion(instance: StageGraph, limits: Limits) -> First:
        return First("graphpipe-plus", lambda watch: fewest_devices.solve(instance, limits, watch))

    monkeypatch.setattr(milp_columns, "first_plan", recursion)


@pytest.mark.slow
@pytest.mark.usefixtures("begins_with_the_recursion")
def test_what_is_not_listed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for no column the bound is the relaxation's, and the plan the first one's."""
    monkeypatch.setattr(targets, "MAX_SETS", 0)
    answer = milp_columns.solve(planner.load("candle-uno", devices=32), Limits(), Watch())
    assert answer.stop is Stop.SIZE_LIMIT and "more than 0 stages" in answer.reason
    assert answer.plan is not None and answer.bound is not None
    assert 0.98 < answer.bound / evaluate(planner.load("candle-uno", devices=32), answer.plan) < 0.99


def test_models_begin_with_the_plan_of_downsets() -> None:
    """The recursion's is 1.4 % above it."""
    watch = Watch()
    first_plan(planner.load("candle-uno", devices=32), Limits()).find(watch)
    assert watch.best_objective == pytest.approx(9.3888125e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("begins_with_the_recursion")
def test_a_cover_is_better_than_the_recursion() -> None:
    found = planner.solve(planner.load("candle-uno", devices=32), method="milp-columns")
    assert found.stats["plan_by"] == "model" and found.objective == pytest.approx(9.3888125e-6)
    assert found.status is Status.OPTIMAL and found.stats["covers"] > 0


def test_a_program_that_grows() -> None:
    """Four and three are covered by two and one at once, for 3, or by one and two; before, each one costs 10."""
    program = Growing([4.0, 3.0], 10.0, Limits(), Watch())
    assert program.prices() == (70.0, pytest.approx([10.0, 10.0]))
    program.add(3.0, np.array([2.0, 1.0]))
    cost, prices = program.prices() or (0.0, np.zeros(2))
    assert cost == pytest.approx(9.0) and prices @ [2.0, 1.0] <= 3.0 + 1e-9
    program.add(3.0, np.array([1.0, 2.0]))
    cost, prices = program.prices() or (0.0, np.zeros(2))
    assert cost == pytest.approx(7.0) and prices == pytest.approx([1.0, 1.0])
