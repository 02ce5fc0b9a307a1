"""The CP-SAT and MILP models: witnesses, pinned decisions, rounding, limits."""

import random
from dataclasses import replace
from types import ModuleType

import pytest
from oracles.tmpc_knapsack import make, optimum
from requirement_cases import compared

import planner
from formulations.tmpc_knapsack import FAMILY
from formulations.tmpc_knapsack.definition.problem import evaluate
from formulations.tmpc_knapsack.models import cpsat, milp
from instances.problems.tmpc_knapsack import KnapsackInstance, generate
from solvers.outcome import Limits, Stop, Watch, relative_gap

ROOMS = pytest.mark.parametrize("room", [cpsat, milp], ids=["cpsat", "milp"])
SECONDS = Limits(time_s=20)


def check(room: ModuleType, instance: KnapsackInstance, gap: float = 1e-6) -> None:
    expected = optimum(instance)
    answer = room.solve(instance, SECONDS, Watch(SECONDS))
    assert answer.infeasible is (expected is None)
    assert answer.stop is Stop.PROVED
    if expected is not None:
        objective = evaluate(instance, answer.plan)
        assert FAMILY.judge(instance, answer.plan) == ()
        assert objective == pytest.approx(expected, rel=1e-6, abs=0)
        assert answer.bound <= expected * (1 + 1e-15)
        assert relative_gap(objective, answer.bound) <= gap


@ROOMS
def test_wide_ranges_may_leave_a_gap_but_never_a_false_bound(room: ModuleType, cases: int) -> None:
    for case in range(cases // 4):
        rng = random.Random(case)
        rows = [
            [(rng.random() * 10 ** rng.randint(-9, 6), float(rng.randint(0, 10**13))) for _ in range(3)]
            for _ in range(3)
        ]
        instance = make(sum(rng.choice(row)[1] for row in rows), *rows)
        answer = room.solve(instance, SECONDS, Watch(SECONDS))
        assert FAMILY.judge(instance, answer.plan) == ()
        assert answer.bound <= optimum(instance) <= evaluate(instance, answer.plan) * (1 + 1e-15)


@ROOMS
@pytest.mark.parametrize("seed", range(3))
def test_a_stage_of_bert_size(room: ModuleType, seed: int) -> None:
    """Same optimum as a table over the few kinds of layers would give; here the compiled search is the witness."""
    from formulations.tmpc_knapsack import exact

    instance = generate(24, 2, tightness=0.37, seed=seed)
    best = exact.solve(instance, SECONDS, Watch(SECONDS))
    answer = room.solve(instance, SECONDS, Watch(SECONDS))
    assert evaluate(instance, answer.plan) == pytest.approx(evaluate(instance, best.plan), rel=1e-6)


@ROOMS
@pytest.mark.parametrize(("capacity", "fits"), [(8.999, False), (9, True), (9.001, True)])
def test_pinned_decisions_fit_from_the_capacity_on(room: ModuleType, capacity: float, fits: bool) -> None:
    model = room.model_of(make(capacity, [(1, 8), (3, 0)], [(2, 6), (5, 1)]))
    pinned = {(0, 0), (1, 1)}
    model.forbid([(0, 1), (1, 0), (1, 1)])  # so node 0 takes a ...
    model.forbid([(0, 0), (0, 1), (1, 0)])  # ... and node 1 takes b
    run = model.run(SECONDS, Watch(SECONDS), lambda _: None, lambda _: None)
    assert run.infeasible is not fits
    if fits:
        assert {(v, j) for v in range(2) for j in range(2) if model.takes(run.values, v, j)} == pinned


@ROOMS
def test_every_node_takes_exactly_one(room: ModuleType) -> None:
    """Without the memory row's help: taking no option would be cheapest, taking two would save memory."""
    model = room.model_of(make(10, [(1, 1), (2, 1)], [(3, 1), (9, 1)]))
    run = model.run(SECONDS, Watch(SECONDS), lambda _: None, lambda _: None)
    assert [[model.takes(run.values, v, j) for j in range(2)] for v in range(2)] == [[True, False]] * 2


def test_a_plan_that_only_rounding_let_through_is_cut_off() -> None:
    # Eight sizes lose nearly a unit each: all fast exceeds the capacity by 3e-12 of it, yet fits in whole units.
    size = (2**37 + 0.99) / 2**40
    instance = make(1 + 4e-12, *[[(1, size), (2 + v, size / 2)] for v in range(8)])
    answer = cpsat.solve(instance, SECONDS, Watch(SECONDS))
    assert "".join(answer.plan.choice.values()) == "baaaaaaa"
    assert answer.stats["rounds"] == 2
    assert answer.bound < 9


@ROOMS
def test_degenerate_instances(room: ModuleType) -> None:
    check(room, make(0))
    check(room, make(0, [(1, 0), (0, 1)], [(0, 0)]))
    check(room, make(0, [(1, 1)]))
    check(room, make(5, [(0, 0)], [(0, 9), (0, 2)]))


@ROOMS
def test_what_the_definition_forgives_fits(room: ModuleType) -> None:
    check(room, make(1e13, [(1, 1e13 + 5), (2, 0)]))
    check(room, make(1e13, [(1, 1e13 + 50), (2, 0)]))


@ROOMS
def test_what_it_finds_is_reported_while_it_runs(room: ModuleType) -> None:
    watch = Watch(SECONDS)
    instance = generate(12, 3, kind="uncorrelated", seed=1)
    answer = room.solve(instance, SECONDS, watch)
    assert watch.best_plan == answer.plan
    assert watch.best_objective == evaluate(instance, answer.plan)
    assert watch.best_bound == answer.bound


def test_sums_of_all_options_stay_within_64_bits() -> None:
    """CP-SAT adds up all options of a node, though one of them is chosen."""
    sizes = (2.32388495796e18, 4.59968960107e18, 3.39016267069e18, 4.03362023775e18)
    times = (4e18, 4.1e18, 4.2e18, 4.3e18)
    instance = make(4.6e18, tuple(zip(times, sizes, strict=True)))
    assert cpsat.solve(instance, Limits(), Watch()).plan.choice == {0: "a"}


@pytest.mark.parametrize("method", ["cpsat", "milp"])
@pytest.mark.parametrize(
    ("required", "time"),
    [
        (("chosen(0, a) == 0",), 5.0),
        (("num_chosen(a) <= 0",), 8.0),
        (("num_chosen(b) >= 1", "not chosen(0, b)"), 6.0),
        (("num_chosen(c) >= 2",), None),
        (("chosen(0, c)",), None),  # it has no such option
        (("chosen(0, c) <= 0", "chosen(1, c)"), 10.0),
    ],
)
def test_requirements(method: str, required: tuple[str, ...], time: float | None) -> None:
    """Of the options a, b (and c of the second node) with times 1, 3 and 2, 5, 9; all fit."""
    instance = replace(make(10, [(1, 1), (3, 1)], [(2, 1), (5, 1), (9, 1)]), requirements=required)
    found = planner.solve(instance, method=method)
    assert found.objective == (None if time is None else pytest.approx(time))
    assert found.status == ("infeasible" if time is None else "optimal")
    assert "--memory" not in found.reason


@pytest.mark.parametrize("number", [17, 70, 146, 220])
def test_options_that_take_far_longer_keep_no_proof_away(number: int) -> None:
    """The best choice that meets the requirements is lost in the tolerances beside times 10^5 as long."""
    found = compared("tmpc_knapsack", number)
    assert found is not None and found["proofs"] == found["exact"] == 2


@ROOMS
def test_times_beyond_a_known_plan_count_in_a_complete_model(room: ModuleType) -> None:
    instance, watch = make(9, [(1, 8), (3, 0)], [(2, 6), (500, 1)]), Watch()
    watch.plan(None, 5.0)  # 3 + 2
    pairs = ((instance, False, 4.0), (instance, True, 498.0))
    for each, complete, most in pairs:
        model = room.model_of(each, watch, complete=complete)
        model.forbid([(0, 0), (0, 1), (1, 0)])
        model.forbid([(0, 1), (1, 0), (1, 1)])
        run = model.run(SECONDS, Watch(SECONDS), lambda _: None, lambda _: None)
        assert model.extra_time(run.bound) == pytest.approx(most, rel=1e-5)
