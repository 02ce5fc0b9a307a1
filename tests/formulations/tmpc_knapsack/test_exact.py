"""The compiled search against brute force, on hard numbers, at its limits, and by its properties."""

import itertools
import math
import random
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from oracles.tmpc_knapsack import knapsacks, make, optimum

from formulations.compiled.numba_kernels import FOUND, NONE
from formulations.contract.family import Answer
from formulations.tmpc_knapsack import exact
from formulations.tmpc_knapsack.costs import arrays
from formulations.tmpc_knapsack.definition.problem import evaluate, violations
from formulations.tmpc_knapsack.kernels import search
from formulations.tmpc_knapsack.kernels.decision import decide
from instances.problems.tmpc_knapsack import KnapsackInstance, generate
from solvers.outcome import Limits, Stop, Watch


def solve(instance: KnapsackInstance, **limits: float) -> Answer:
    given_limits = Limits(**limits)
    return exact.solve(instance, given_limits, Watch(given_limits))


def check(instance: KnapsackInstance) -> None:
    """The answer is the brute-force optimum, its plan is feasible, its bound is safe and tight."""
    expected, answer = optimum(instance), solve(instance)
    assert answer.stop is Stop.PROVED
    assert answer.infeasible is (expected is None)
    if expected is None:
        assert answer.plan is None
        return
    assert violations(instance, answer.plan) == ()
    assert evaluate(instance, answer.plan) == pytest.approx(expected, rel=1e-12, abs=0.0)
    assert expected * (1 - 1e-9) <= answer.bound <= expected


@given(knapsacks())
def test_agrees_with_brute_force_on_awkward_numbers(instance: KnapsackInstance) -> None:
    check(instance)


@pytest.mark.parametrize(
    ("capacity", "expected"), [(4.999, None), (5, 12.0), (5.999, 12.0), (6, 9.0), (9, 6.0), (13.999, 6.0), (14, 3.0)]
)
def test_capacity_below_at_and_above_every_step(capacity: float, expected: float | None) -> None:
    instance = make(capacity, [(1, 8), (4, 5), (7, 4)], [(2, 6), (5, 1)])
    assert optimum(instance) == expected
    check(instance)


def test_capacity_zero() -> None:
    check(make(0, [(1, 1), (2, 0)], [(1, 0)]))
    check(make(0, [(1, 1)]))
    check(make(0))


def test_what_the_definition_forgives_fits() -> None:
    check(make(1e13, [(1, 1e13 + 5), (2, 0)], [(1, 0.0)]))
    check(make(1e13, [(1, 1e13 + 50), (2, 0)], [(1, 0.0)]))


def test_a_choice_at_the_very_limit_is_found_whatever_its_sums_round_to(cases: int) -> None:
    tight = 0
    for case in range(5 * cases):
        rng = random.Random(case)
        rows = [[(rng.random(), rng.random()) for _ in range(3)] for _ in range(5)]
        total = math.fsum(rng.choice(row)[1] for row in rows)
        capacity = total / (1 + 1e-12)
        if capacity * (1 + 1e-12) == total:
            tight += 1
            check(make(capacity, *rows))
    assert tight > cases


def test_an_option_no_slower_and_smaller_wins() -> None:
    check(make(5, [(3, 9), (2, 4), (2, 3), (2, 3)], [(1, 2), (4, 1)]))


def test_rounding_of_mixed_magnitudes_does_not_hide_the_optimum() -> None:
    check(make(1e13 + 0.5, [(1, 1e13), (1e6, 1e13 - 1)], [(1e-9, 0.5), (2e-9, 0.25)], [(1, 0.5), (3, 0.0)]))


def test_steep_prices_stay_numbers() -> None:
    check(make(1.0, [(0, 1.0), (1e30, 1.0 - 2**-53)], [(0, 5e-324), (1e-9, 0.0)], [(1, 3e-17), (1e30, 0.0)]))


def test_many_equal_layers_are_no_harder_than_one_of_each_kind() -> None:
    kinds = [[(1.0, 7.0), (1.3, 2.0)], [(2.0, 11.0), (2.7, 4.0)]]
    rows = [kinds[v % 2] for v in range(200)]
    instance = make(1201, *rows)  # i layers of the first kind and j of the second swapped: 5 i + 7 j >= 599
    expected = min(300 + 0.3 * i + 0.7 * j for i in range(101) for j in range(101) if 5 * i + 7 * j >= 599)
    answer = solve(instance)
    assert evaluate(instance, answer.plan) == pytest.approx(expected, rel=1e-12)
    assert answer.stop is Stop.PROVED
    assert answer.stats["search_nodes"] < 10**6


def table_over_bytes(rows: list[list[tuple[float, float]]], capacity: int) -> float:
    """The optimum for whole bytes, by dynamic programming over the capacity."""
    best = np.zeros(capacity + 1)
    for row in rows:
        longer = np.full(capacity + 1, np.inf)
        for option_time, size in row:
            if size <= capacity:
                held = int(size)
                longer[held:] = np.minimum(longer[held:], best[: capacity + 1 - held] + option_time)
        best = longer
    return float(best[capacity])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(8, marks=pytest.mark.slow)])
def test_lists_too_long_to_hold_are_split_and_searched_to_the_end(seed: int) -> None:
    """Time saved is bytes plus a constant; a thousand nodes share the memory for lists, so these are split."""
    rng = random.Random(seed)
    rows = []
    for _ in range(1000):
        large, small = rng.randint(200, 400), rng.randint(1, 200)
        rows.append([(1.0, float(large)), (1.0 + large - small + 280.0, float(small))])
    answer = solve(make(200_000, *rows))
    assert answer.stop is Stop.PROVED
    assert answer.stats["search_nodes"] > 10**6
    assert answer.bound == pytest.approx(table_over_bytes(rows, 200_000), rel=1e-9)


def test_hundreds_of_options_per_node() -> None:
    rng = random.Random(3)
    rows = [[(rng.random(), float(rng.randint(0, 60))) for _ in range(300)] for _ in range(12)]
    for capacity in (5, 20, 60, 120, 250):
        expected = table_over_bytes(rows, capacity)
        answer = solve(make(capacity, *rows))
        assert answer.infeasible is math.isinf(expected)
        assert answer.infeasible or answer.bound == pytest.approx(expected, rel=1e-9)


def test_negative_times_are_allowed_on_arrays() -> None:
    rng = random.Random(5)
    for _ in range(200):
        rows = [[(rng.uniform(-5, 5), float(rng.randint(0, 9))) for _ in range(3)] for _ in range(4)]
        instance = make(rng.randint(0, 36), *rows)
        table, expected = arrays(instance), optimum(instance)
        found = search.solve_arrays(*table, np.zeros(4, np.int64), np.zeros(1, np.uint8))
        assert found == (math.inf if expected is None else pytest.approx(expected, abs=1e-12))


def test_a_node_without_options_has_no_choice() -> None:
    start, none = np.array([0, 0], np.int64), np.empty(0)
    assert search.solve_arrays(start, none, none, 1.0, np.zeros(1, np.int64), np.zeros(1, np.uint8)) == math.inf


def test_it_runs_without_the_interpreter_lock() -> None:
    instance = generate(200, 3, kind="subset-sum", seed=0)
    watch = Watch(Limits(time_s=20))
    done: list[Answer] = []
    worker = threading.Thread(target=lambda: done.append(exact.solve(instance, Limits(time_s=20), watch)), daemon=True)
    worker.start()
    time.sleep(0.1)
    watch.stop(Stop.INTERRUPTED)
    worker.join(2.0)
    assert done and done[0].stop is Stop.INTERRUPTED


def test_a_wider_gap_is_a_safe_bound_too() -> None:
    for seed in range(20):
        instance = generate(30, 3, kind="uncorrelated", tightness=0.3, seed=seed)
        best, loose = solve(instance), solve(instance, gap=0.05)
        objective = evaluate(instance, loose.plan)
        assert loose.stop is Stop.COMPLETED
        assert loose.bound <= evaluate(instance, best.plan) <= objective
        assert loose.bound >= objective * 0.89


def ask(nodes, capacity: float, budget: float) -> tuple[int, list[int]]:
    """The verdict on nodes given as lists of (cost, memory), and the choice."""
    start = np.cumsum([0, *map(len, nodes)])
    cost = np.array([float(x) for options in nodes for x, _ in options])
    memory = np.array([float(x) for options in nodes for _, x in options])
    choice = np.zeros(len(nodes), np.int64)
    verdict = decide(len(nodes), start, cost, memory, capacity, budget, choice, np.zeros(1, np.uint8))
    return verdict, choice.tolist()


def test_nodes_of_equal_memory_against_brute_force(cases: int) -> None:
    """Two patterns of memory and small costs: nodes follow each other, or miss it by one step."""
    for seed in range(5 * cases):
        rng = random.Random(seed)
        patterns = [sorted(rng.sample(range(12), rng.choice([2, 2, 3])), reverse=True) for _ in range(2)]
        nodes = []
        for _ in range(rng.randint(2, 6)):
            pattern, cost = rng.choice(patterns), rng.randint(0, 3)
            options = []
            for size in pattern:
                options.append((cost, size))
                cost += rng.randint(0, 4)
            nodes.append(rng.sample(options, len(options)))
        capacity = rng.randint(0, sum(max(x for _, x in options) for options in nodes))
        totals = [(sum(c for c, _ in chosen), sum(x for _, x in chosen)) for chosen in itertools.product(*nodes)]
        least = min((c for c, x in totals if x <= capacity), default=None)
        if least is None:
            assert ask(nodes, capacity, 1e9)[0] == NONE, seed
            continue
        verdict, choice = ask(nodes, capacity, least)
        assert verdict == FOUND, seed
        assert sum(options[x][0] for options, x in zip(nodes, choice, strict=True)) <= least
        assert sum(options[x][1] for options, x in zip(nodes, choice, strict=True)) <= capacity
        assert ask(nodes, capacity, least - 0.5)[0] == NONE, seed


def test_equal_layers_of_several_kinds_against_how_many_of_each_choose_what(cases: int) -> None:
    """Runs of equal increments are summed at once (`_runs`), and what is behind a node counts the rest of its run."""
    for seed in range(cases):
        rng = random.Random(seed)
        kinds = [
            list(zip(sorted(rng.sample(range(40), 3)), sorted(rng.sample(range(30), 3), reverse=True), strict=True))
            for _ in range(2)
        ]
        sizes = [rng.randint(1, 12), rng.randint(1, 12)]
        nodes = rng.sample([kind for kind, size in zip(kinds, sizes, strict=True) for _ in range(size)], sum(sizes))
        of_kind = [
            [
                (sum(n * c for n, (c, _) in zip(taken, kind, strict=True)), sum(map(_bytes, taken, kind)))
                for a in range(size + 1)
                for b in range(size + 1 - a)
                for taken in [(a, b, size - a - b)]
            ]
            for kind, size in zip(kinds, sizes, strict=True)
        ]
        lightest = sum(min(x for _, x in totals) for totals in of_kind)
        capacity = lightest + rng.randint(0, 60)
        least = min(c + d for c, x in of_kind[0] for d, y in of_kind[1] if x + y <= capacity)
        assert ask(nodes, capacity, least)[0] == FOUND, seed
        assert ask(nodes, capacity, least - 0.5)[0] == NONE, seed


def _bytes(count: int, option: tuple[int, int]) -> int:
    return count * option[1]


def test_layers_of_a_transformer_are_no_search() -> None:
    """Forty nodes that save the same bytes: how many must save is known, and the cheapest of them do."""
    rng = random.Random(1)
    rises = [rng.randint(1000, 1100) for _ in range(40)]
    nodes = [[(1000, 10), (1000 + rise, 3)] for rise in rises]
    capacity = 40 * 10 - 7 * 20 - 3  # 21 of them must save, the relaxation says 20.4
    least = 40 * 1000 + sum(sorted(rises)[:21])
    before = time.process_time()
    assert ask(nodes, capacity, least)[0] == FOUND
    assert ask(nodes, capacity, least - 1)[0] == NONE
    assert time.process_time() - before < 5
