"""The table of optima over devices and micro-batches, entry by entry against brute force and the exact method."""

import math
import random
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from oracles.stage_partitioning import brute_force
from strategies import random_stage_instance, with_wide_weights

from formulations.stage_partitioning.exact import threshold
from formulations.stage_partitioning.kernels import frontier_table
from formulations.stage_partitioning.questions.studies import frontier
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Stop, Watch


def tiny() -> StageInstance:
    """A chain of three nodes, two TMPCs each."""
    layers = tuple(
        Layer(v, {1: (Tmpc("fast", 1.0, 1.0, 2.0, 1.0), Tmpc("light", 2.0, 1.0, 1.0, 1.0 + v))}) for v in range(3)
    )
    return StageInstance("tiny", layers, (Edge(0, 1, 1.0), Edge(1, 2, 1.0)), 3, 8.0, 1.0, 4)


def entries_agree(instance: StageInstance) -> Counter[str]:
    """Every entry of the table against a run of its own (the paper's cost does not depend on N)."""
    found = frontier.frontier(instance, Watch())
    assert found is not None
    seen: Counter[str] = Counter()
    for k in range(1, instance.num_devices + 1):
        for s in range(1, min(k, instance.num_microbatches) + 1):
            best = brute_force(replace(instance, num_devices=k, num_microbatches=s))
            expected = math.inf if best is None else best.time
            assert found.times[k, s] == pytest.approx(expected, rel=1e-9), (k, s)
            seen["infeasible" if best is None else "feasible"] += 1
    return seen


def test_every_entry_is_the_optimum_of_its_own_instance(cases: int, many: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(50_000 if many else 0, 52_000 if many else cases):
        seen += entries_agree(random_stage_instance(seed, cost_model="paper", exactly=False, max_devices=4))
    assert min(seen["feasible"], seen["infeasible"]) > cases


def test_entry_by_entry_is_the_same_table(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of large lattices, on small ones: against brute force, and with the released cost against the table."""
    instances = [random_stage_instance(seed, exactly=False, max_devices=4) for seed in range(cases // 2)]
    tables = [frontier.frontier(instance, Watch()) for instance in instances]
    monkeypatch.setattr(frontier, "_ENTRIES_FROM", 0)
    for instance, table in zip(instances, tables, strict=True):
        found = frontier.frontier(instance, Watch())
        assert found is not None and table is not None and "tests" in found.stats
        assert found.times == pytest.approx(table.times, rel=1e-9)
    for seed in range(cases // 4):
        entries_agree(random_stage_instance(seed, cost_model="paper", exactly=False, max_devices=4))


def test_weights_too_different_for_running_sums(cases: int) -> None:
    for seed in (37, *range(cases // 4)):
        flat = random_stage_instance(seed, cost_model="paper", exactly=False, max_devices=4)
        entries_agree(with_wide_weights(flat, random.Random(seed), 12))
    huge = (Layer(v, {1: (Tmpc("only", 1.0, weight, 1.0, 1.0),)}) for v, weight in enumerate((1e18, 1.0)))
    with pytest.raises(SizeError, match="weights differ too much"):
        frontier.frontier(StageInstance("uneven", tuple(huge), (), 512, 1000.0, 1.0, 512), Watch())


def test_entries_are_counted_before_they_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [frontier.num_entries(K, S, t) for K, S, t in ((4, 4, 1), (4, 2, 1), (4, 4, 4), (4, 4, 2))] == [4, 2, 10, 8]
    monkeypatch.setattr(frontier, "_ENTRIES_FROM", 0)
    monkeypatch.setattr(frontier, "MAX_PROOFS", 3)
    with pytest.raises(SizeError, match="too much for a table"):
        frontier.frontier(replace(tiny(), num_devices=4), Watch())


def test_the_corner_is_the_optimum_of_the_instance(cases: int) -> None:
    """Released cost: N stays the instance's own, so only the entry at (K, N) has a counterpart."""
    for seed in range(cases):
        instance = random_stage_instance(seed, cost_model="released", exactly=False)
        found, best = frontier.frontier(instance, Watch()), brute_force(instance)
        assert found is not None
        assert found.times[-1, -1] == pytest.approx(math.inf if best is None else best.time, rel=1e-9)


def chain(length: int, devices: int, microbatches: int) -> StageInstance:
    """Layers with two configurations each at two degrees, identical but for their times."""

    def tmpcs(t: int, v: int) -> tuple[Tmpc, ...]:
        time = (8.0 + v) / t
        return Tmpc("fast", time, 2.0, 6.0 / t, 2.0 / t), Tmpc("lean", 1.4 * time, 2.0, 1.0, 2.0 / t)

    layers = tuple(Layer(v, {1: tmpcs(1, v), 2: tmpcs(2, v)}) for v in range(length))
    return StageInstance("chain", layers, (), devices, 24.0, 10.0, microbatches, CostModel.PAPER)


def test_larger_tables_against_the_exact_method() -> None:
    instance = chain(6, 24, 16)
    found = frontier.frontier(instance, Watch())
    assert found is not None
    for k, s in [(1, 1), (3, 3), (7, 2), (12, 12), (16, 5), (24, 9), (24, 16), (23, 16)]:
        answer = threshold.solve(replace(instance, num_devices=k, num_microbatches=s), Limits(), Watch())
        expected = math.inf if answer.bound is None else answer.bound
        assert found.times[k, s] == pytest.approx(expected, rel=2e-9), (k, s)


def test_work_that_divides_evenly() -> None:
    """One layer without weights: replicas share it without loss, down to the work bound itself."""
    layer = Layer(0, {1: (Tmpc("only", 12.0, 0.0, 1.0, 1.0),)})
    found = frontier.frontier(StageInstance("one", (layer,), (), 10, 100.0, 1.0, 10), Watch())
    assert found is not None
    for k in range(1, 11):
        for s in range(1, 11):
            assert found.times[k, s] == pytest.approx(12.0 / min(k, s))
    many = frontier.frontier(StageInstance("one", (layer,), (), 2000, 100.0, 1.0, 2000), Watch())
    assert many is not None  # the last replicas save a two-thousandth each
    assert np.diag(many.times)[1:] == pytest.approx(12.0 / np.arange(1, 2001))


def test_corners_say_all_the_table_says() -> None:
    found = frontier.frontier(chain(5, 12, 8), Watch())
    assert found is not None
    rebuilt = np.full_like(found.times, np.inf)
    found_corners = frontier.corners(found.times)
    for k, s, time in found_corners:
        rebuilt[k:, s:] = np.minimum(rebuilt[k:, s:], time)
    assert (rebuilt == found.times).all()
    for corner, other in product(found_corners, repeat=2):  # and none is implied by another
        assert corner == other or any(x < y for x, y in zip(corner, other, strict=True))


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(SizeError, match="--linearize"):
        frontier.frontier(chain(20, 12, 8), Watch())
    with pytest.raises(SizeError, match="--devices"):
        frontier.frontier(chain(4, 100_000, 50_000), Watch())
    with pytest.raises(ValueError, match="--exactly"):
        frontier.frontier(replace(chain(3, 4, 4), exactly=True), Watch())


def test_each_size_has_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four downsets, K = 3, N = 4 of which 3 can be used: 4 * 4 * 4 entries, 8 * 3 * 3 steps."""
    for name, most in (("MAX_ENTRIES", 64), ("MAX_STEPS", 72)):
        with monkeypatch.context() as patched:
            patched.setattr(frontier, name, most)
            assert frontier.frontier(tiny(), Watch()) is not None
            patched.setattr(frontier, name, most - 1)
            with pytest.raises(SizeError, match="too much for a table"):
                frontier.frontier(tiny(), Watch())


@pytest.mark.parametrize("entries_from", [2000, 0])
def test_a_stopped_run_has_no_table(entries_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "_ENTRIES_FROM", entries_from)
    watch = Watch()
    watch.stop(Stop.INTERRUPTED)
    assert frontier.frontier(chain(3, 4, 4), watch) is None


def test_a_run_that_is_stopped_at_the_last_pair_has_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag is the lowest byte of the count of pairs: it rises with the first one, which is the last as well."""
    fill = frontier_table.fill
    layer = Layer(0, {1: (Tmpc("only", 12.0, 0.0, 1.0, 1.0),)})
    instance = StageInstance("one", (layer,), (), 2, 100.0, 1.0, 2)
    assert frontier.frontier(instance, Watch()) is not None
    monkeypatch.setattr(frontier_table, "fill", lambda *given: fill(*given[:-1], given[-2].view(np.uint8)[:1]))
    assert frontier.frontier(instance, Watch()) is None
