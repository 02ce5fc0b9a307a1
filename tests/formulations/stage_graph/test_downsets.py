"""Bounds on the bottleneck, and the program over upsets of models with equal branches, against all partitions."""

import random
from dataclasses import replace

import pytest
from branching_cases import least_of_all, random_graph

import planner
from formulations.stage_graph import downsets
from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.definition.problem import evaluate, violations
from formulations.stage_graph.upsets import bounds, levels
from formulations.stage_graph.upsets.branches import EqualBranches, Structure, UnsuitableError, structure_of
from instances.generators.branching import candle_uno, dlrm, mmt, sequential_transformer
from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph, TableTime
from solvers.outcome import Limits, Status, Stop, Watch


def branching(seed: int, most: int = 9) -> StageGraph:
    """Random classes of equal chains, side by side, and a random chain behind them."""
    rng = random.Random(f"branches {seed}")
    operators: list[Operator] = []
    edges: list[OperatorEdge] = []

    def draw() -> Operator:
        one, two = AffineTime(rng.uniform(0, 0.5), rng.uniform(0.5, 2)), AffineTime(0.0, rng.uniform(1, 4))
        forward = TableTime((1, 2, 4), (1.0, 1.7, 3.0)) if rng.random() < 0.2 else one
        return Operator("", forward, two, rng.choice((0.0, 5.0, 20.0)), float(rng.randint(1, 10)))

    def row(made: list[Operator], sizes: list[float], before: list[tuple[int, float]]) -> int:
        for number, operator in enumerate(made):
            operators.append(operator)
            here = len(operators) - 1
            sources = before if number == 0 else [(here - 1, sizes[number - 1])]
            edges.extend(OperatorEdge(source, here, size) for source, size in sources)
        return len(operators) - 1

    def size() -> float:
        return rng.choice((0.0, 1.0, 5.0))

    ends: list[tuple[int, float]] = []
    for _ in range(rng.randint(1, 2)):
        example = [draw() for _ in range(rng.randint(1, 3))]
        tensors, last = [size() for _ in example], size()
        for _ in range(rng.randint(1, 3)):
            if len(operators) + len(example) <= most - 1:
                ends.append((row(example, tensors, []), last))
    if not ends or rng.random() < 0.8:
        tail = [draw() for _ in range(rng.randint(1, max(1, min(3, most - len(operators)))))]
        row(tail, [size() for _ in tail], ends)
    whole = sum(4 * each.weight_bytes + each.activation_bytes for each in operators)
    memory = float(int(whole * rng.uniform(0.3, 2)))
    numbers = rng.choice((5.0, 50.0)), rng.choice((0.0, 0.05)), rng.choice((4, 6, 8, 9, 15))
    return StageGraph(f"branching-{seed}", tuple(operators), tuple(edges), rng.randint(1, 4), memory, *numbers)


def test_downsets_against_levels(cases: int) -> None:
    closed = infeasible = improved = 0
    for seed in range(cases):
        instance = branching(seed)
        watch = Watch()
        costs = Costs(instance)
        exact = levels.solve(instance, Limits(), Watch())
        found = bounds.prove(costs, EqualBranches(costs, watch), watch, bounds.Proof(bounds.simple_bound(costs)))
        if exact.plan is None:
            assert found.plan is None, seed
            infeasible += 1
            continue
        optimum = evaluate(instance, exact.plan)
        assert found.bound_s <= optimum * (1 + 1e-12), seed
        assert not found.infeasible
        if found.plan is not None:
            assert violations(instance, found.plan) == ()
            assert evaluate(instance, found.plan) >= optimum * (1 - 1e-9)
        closed += found.is_closed
        improved += found.bound_s > bounds.simple_bound(costs) * (1 + 1e-6)
        if found.is_closed:
            assert found.value_s == pytest.approx(optimum, rel=1e-6), seed
    assert closed > cases / 2 and infeasible > 0 and improved > cases / 3


def test_bounds_against_every_partition(cases: int) -> None:
    for seed in range(cases // 4):
        instance = branching(seed + 10_000, 5)
        watch, costs = Watch(), Costs(instance)
        optimum = least_of_all(instance)
        found = bounds.prove(costs, EqualBranches(costs, watch), watch, bounds.Proof(bounds.simple_bound(costs)))
        assert bounds.simple_bound(costs) <= optimum and (found.infeasible or found.bound_s <= optimum * (1 + 1e-12))
        assert not found.infeasible or optimum == float("inf")


def test_joint_sizes_and_the_pace_of_devices_refute_no_target(monkeypatch: pytest.MonkeyPatch, cases: int) -> None:
    paces = (lambda *_: float("inf"), EqualBranches._pace)
    for seed in range(cases):
        instance = replace(branching(seed + 20_000, 7), num_devices=6, minibatch=(12, 15, 8)[seed % 3])
        costs, needs = Costs(instance), []
        target = bounds.simple_bound(costs) * random.Random(seed).uniform(0.9, 3)
        for pace in paces:
            monkeypatch.setattr(EqualBranches, "_pace", pace)
            questions = [[size] for size in instance.microbatch_sizes[:4]] + [list(instance.microbatch_sizes[:4])]
            needs.append([min(EqualBranches(costs, Watch()).least(target, each) or 0, 7) for each in questions])
        assert needs[0] == needs[1] and needs[0][-1] <= min(needs[0]), seed
    ends = tuple(Operator("", AffineTime(*time), AffineTime(*time), 0.0, 0.0) for time in ((0.0, 15.0), (15.0, 0.0)))
    branches = EqualBranches(Costs(StageGraph("", ends, (OperatorEdge(0, 1, 0.0),), 6, 0.0, 1.0, 0.0, 12)), Watch())
    assert [branches.least(10.001, sizes) for sizes in ([3], [4], [3, 4])] == [4, 5, 4]


def test_the_simple_bound_on_any_graph(cases: int) -> None:
    for seed in range(cases // 2):
        instance = random_graph(seed, (1, 7), 1 + seed % 4, series_parallel=bool(seed % 2))
        exact = levels.solve(instance, Limits(), Watch())
        if exact.plan is not None:
            bound, by = bounds.cheap_bound(Costs(instance), Watch(), exact.plan)
            assert bound <= evaluate(instance, exact.plan) and by in ("bounds", "downsets")


@pytest.mark.slow
@pytest.mark.parametrize("devices", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_models_of_the_evaluation_are_proved(devices: int) -> None:
    for instance in (candle_uno(devices=devices), dlrm(devices=devices), mmt(layers=3, devices=devices)):
        answer = downsets.solve_downsets(instance, Limits(), Watch())
        assert answer.plan is not None and answer.bound is not None and answer.stop is Stop.PROVED
        assert violations(instance, answer.plan) == ()
        assert answer.bound <= evaluate(instance, answer.plan) <= answer.bound * (1 + 1e-6)


def test_structures() -> None:
    structure = structure_of(Costs(candle_uno(7, 4)))
    assert (structure.num_upsets(), structure.num_pairs()) == (331, 32_670)
    assert structure_of(Costs(mmt(4, 8))).num_upsets() == 20_476
    assert [len(group) for group in structure_of(Costs(dlrm(3, 2))).classes] in ([3, 2], [2, 3])
    assert structure_of(Costs(sequential_transformer(4))).tail == ()
    different = Structure((), tuple((tuple(range(first, first + 15)),) for first in range(0, 240, 15)))
    assert different.num_upsets() == 2**64 and not different.numbering()[1].any()  # more than have a number


def test_branches_are_equal_in_all_and_the_last_stage_keeps_one_micro_batch() -> None:
    one = Operator("", AffineTime(0.0, 1.0), AffineTime(0.0, 1.0), 0.0, 1.0)
    for other, sent in ((one, 0.0), (replace(one, weight_bytes=1.0), 0.0), (replace(one, activation_bytes=0.0), 0.0),
                        (replace(one, forward=AffineTime(1.0, 0.0)), 0.0), (one, 0.5)):  # fmt: skip
        made, edges = (one, other, one, replace(one, activation_bytes=6.0)), ((0, 2, 0.0), (1, 2, sent), (2, 3, 0.0))
        pair = StageGraph("", made, tuple(OperatorEdge(*each) for each in edges), 4, 6.0, 1.0, 0.0, 2)
        assert len(structure_of(Costs(pair)).classes) == (1 if (other, sent) == (one, 0.0) else 2)
        assert sent or other.weight_bytes or EqualBranches(Costs(pair), Watch()).least(6.0, (1,)) == 2


def test_other_structures_are_refused() -> None:
    instance = candle_uno(2, 3)
    skipping = replace(instance, edges=(*instance.edges, OperatorEdge(0, 2, 1.0)))
    with pytest.raises(UnsuitableError, match="skips"):
        structure_of(Costs(skipping))
    answer = downsets.solve_downsets(skipping, Limits(), Watch())  # as levels does
    assert answer.plan is not None and answer.bound == pytest.approx(evaluate(skipping, answer.plan), rel=1e-9)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_chain_that_keeps_nothing_has_no_replica_without_a_sample() -> None:
    """No size has a sample for each of four replicas: infinitely many in flight of no bytes are no bytes."""
    time = AffineTime(0.0, 1.0)
    operators = tuple(Operator(name, time, time, 1.0, 0.0) for name in "abcd")
    edges = tuple(OperatorEdge(*ends, 0.0) for ends in ((0, 2), (1, 2), (2, 3)))
    costs = Costs(StageGraph("idle", operators, edges, 4, 100.0, 1.0, 0.0, 2))
    assert EqualBranches(costs, Watch()).least(4.0, (1, 2)) == 2
    assert EqualBranches(costs, Watch()).least(1.0, (1, 2)) > 4


@pytest.mark.slow
def test_operators_that_take_no_time_meet_a_target_of_zero() -> None:
    """And do not fit by a rounding error: two plans of nothing are compared by memory alone."""
    operator = Operator("0", AffineTime(0.0, 0.0), AffineTime(0.0, 0.0), 6e-6, 1e-6)
    instance = StageGraph("nothing", (operator,), (), 4, 2.4999999999999998e-05, 1.0, 0.0, 2)
    for name in ("downsets", "cpsat", "milp-columns"):
        found = planner.solve(instance, method=name)
        assert found.plan is None and found.status in (Status.INFEASIBLE, Status.UNKNOWN), name
    roomy = replace(instance, memory_bytes=1.0)
    assert planner.solve(roomy, method="downsets").objective == 0.0
