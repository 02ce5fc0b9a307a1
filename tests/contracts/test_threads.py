"""More threads change seconds alone: the same objective, plan and bound; who has no use for them says so."""

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
from branching_cases import iteration_graph
from oracles.flushed_partitioning import random_flushed
from strategies import random_stage_instance
from thinned import thinned

import planner
from formulations.compiled import rows_in_threads
from formulations.compiled.downsets import chain_downsets
from formulations.compiled.rows_in_threads import Team
from formulations.contract.family import Answer
from formulations.flushed_partitioning.exact import labels
from formulations.stage_graph import downsets
from formulations.stage_graph.iteration import search
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.exact import threshold
from formulations.stage_partitioning.kernels.tables import build_lattice, build_profile
from formulations.stage_partitioning.paper import piper
from formulations.stage_partitioning.questions.studies import frontier
from instances.problems.flushed_partitioning import flush_pipeline
from instances.problems.stage_partitioning import StageInstance
from solvers.outcome import Limits, Stop, Watch


@pytest.fixture(autouse=True)
def _every_block_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_in_threads, "_WORTH", -1.0)


def answers(instance: StageInstance, threads: int, solve: Any = threshold.solve, **options: str) -> Answer[StagePlan]:
    found: Answer[StagePlan] = solve(instance, Limits(threads=threads), Watch(), **options)
    return found


@pytest.mark.parametrize(
    ("made", "solve", "options"),
    [
        (random_stage_instance, threshold.solve, {}),
        (random_stage_instance, piper.solve, {}),
        (random_stage_instance, piper.solve, {"cutoff": "exact"}),
        (random_stage_instance, piper.solve_exact_knapsack, {"cutoff": "exact"}),
        (partial(random_flushed, same_weights=True, max_nodes=7), labels.solve, {}),
        (lambda seed: iteration_graph(random.Random(f"threads {seed}")), downsets.solve_downsets, {}),
        pytest.param(
            lambda seed: iteration_graph(random.Random(f"threads {seed}")), search.solve, {}, marks=pytest.mark.slow
        ),
    ],
)
def test_the_same_is_found_with_any_threads(made: Any, solve: Any, options: dict[str, str], cases: int) -> None:
    found = 0
    for seed in range(max(8, cases // 4)):
        instance = made(seed)
        one = answers(instance, 1, solve, **options)
        for threads in (2, 3) if seed % 2 else (3,):
            more = answers(instance, threads, solve, **options)
            assert (more.plan, more.bound, more.infeasible) == (one.plan, one.bound, one.infeasible)
        found += one.plan is not None
    assert found > 2


def test_the_same_is_found_of_equal_layers() -> None:
    """Of many plans as good as the best one, on a chain of several blocks."""
    chain = planner.load("bert", layers=40, devices=64)
    for instance, solve in ((chain, threshold.solve), (flush_pipeline(chain), labels.solve)):
        assert answers(instance, 2, solve).plan == answers(instance, 1, solve).plan is not None


@thinned("entries_from", [2000, 0])
def test_a_table_of_all_optima_is_the_same(entries_from: int, monkeypatch: pytest.MonkeyPatch, cases: int) -> None:
    monkeypatch.setattr(frontier, "_ENTRIES_FROM", entries_from)
    for seed in range(max(6, cases // 10)):
        instance = random_stage_instance(seed, exactly=False, max_nodes=7)
        one, more = (frontier.frontier(instance, Watch(), threads) for threads in (1, 3))
        assert one is not None and more is not None and np.array_equal(one.times, more.times)
        assert one.stats == more.stats


@pytest.mark.parametrize("rows", [1, 3, 16])
def test_every_row_comes_of_those_before_it_in_their_order(rows: int) -> None:
    n = 150

    def filled(team: Team) -> list[list[int]]:
        table: list[list[int]] = [[] for _ in range(n)]

        def step(first: int, last: int, later: int, behind: int, part: int, parts: int) -> int:
            for j in range(later, behind):
                if j % parts == part:
                    table[j] += [i + len(table[i]) for i in range(first, min(last, j))]
            return 0

        assert team.fill(0, n, step, rows) == 0
        return table

    with Team(3) as three:
        assert filled(three) == filled(Team(1))


@pytest.mark.parametrize(("ends", "said"), [((-1, 0), -1), ((0, -1), -1), ((-1, 7), 7), ((7, -1), 7), ((0, 0), 0)])
def test_what_one_thread_has_found_outlasts_a_stop(ends: tuple[int, int], said: int) -> None:
    def step(first: int, last: int, later: int, behind: int, part: int, parts: int) -> int:
        return ends[part] if parts == 2 else 0

    with Team(2) as two:
        assert two.fill(0, 99, step) == said


def test_an_error_of_one_thread_is_raised() -> None:
    def step(first: int, last: int, later: int, behind: int, part: int, parts: int) -> int:
        return 0 // (1 - part)

    with pytest.raises(ZeroDivisionError), Team(2) as two:
        two.fill(0, 99, step)


@pytest.mark.parametrize("most", [1, 4, 8])
def test_a_run_that_is_stopped_proves_nothing_and_keeps_what_was_proved(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    chain, watch, tested = planner.load("bert", layers=40, devices=64), Watch(), list[float]()
    whole, test = answers(chain, 1), threshold.ThresholdSearch.test
    assert whole.plan is not None

    def stopping(search: threshold.ThresholdSearch, T: float, *, fewest: bool = False) -> int:
        tested.append(T)
        if len(tested) == most:
            watch.stop(Stop.INTERRUPTED)
        return test(search, T, fewest=fewest)

    monkeypatch.setattr(threshold.ThresholdSearch, "test", stopping)
    found, optimum = threshold.solve(chain, Limits(threads=2), watch), threshold.evaluate(chain, whole.plan)
    assert found.stop is Stop.INTERRUPTED and not found.infeasible and len(tested) >= most
    assert found.bound is not None and found.bound <= optimum
    assert found.plan is None or threshold.evaluate(chain, found.plan) >= optimum


def test_all_threads_forget_what_another_memory_saved() -> None:
    chain = planner.load("chain8")
    lattice = build_lattice(profile := build_profile(chain, prune=True), chain_downsets(list(range(8))))
    with Team(2) as two:
        search = threshold.ThresholdSearch(chain, profile, lattice, np.zeros(1, np.uint8), two)
        for scratch in search.scratches:
            scratch.slot_of[:] = scratch.next_slot[:] = 1
        search.limit_memory(1e6)
        assert all((each.slot_of == -1).all() and each.next_slot[0] == 0 for each in search.scratches)


def test_counts_of_threads_lie_apart() -> None:
    counts = rows_in_threads.counters(2, 3)
    assert counts.shape == (2, 3) and counts[1].flags.c_contiguous
    assert counts[1].ctypes.data - counts[0].ctypes.data >= 128
    assert np.count_nonzero(counts) == 0


def test_a_method_of_one_thread_says_so() -> None:
    chain = planner.load("chain8")
    said = {
        method: planner.solve(chain, method=method, limits=Limits(threads=2)).reason for method in ("equi", "exact")
    }
    assert "equi uses one thread: --threads 2 has no effect" in said["equi"]
    assert "no effect" not in said["exact"]
    assert "no effect" not in planner.solve(chain, method="equi").reason
