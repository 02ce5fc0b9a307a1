"""Depth on graphs with branches: by hand, reached sets by definition, and two exact methods against each other."""

import random
from itertools import permutations

import numpy as np
import pytest
from load import allowed_s
from oracles.flushed_partitioning import random_flushed
from strategies import SHAPES, random_edges

from formulations.flushed_partitioning.definition.problem import depth, evaluate
from formulations.flushed_partitioning.exact import labels
from formulations.flushed_partitioning.exact.depth_labels import find_reached_sets
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.kernels.tables import pack
from instances.graph import downsets
from instances.problems.flushed_partitioning import FlushedInstance, Schedule, flush_pipeline
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Limits, Stop, Watch


def diamond(devices: int = 4, m: int = 4, heavy: float = 0.0) -> FlushedInstance:
    """a in front of b and c, both in front of d; no communication."""
    layers = tuple(Layer(v, {1: (Tmpc("x", 8.0, heavy, 1.0, 0.0),)}) for v in "abcd")
    edges = tuple(Edge(u, v, 0.0) for u, v in ("ab", "ac", "bd", "cd"))
    return flush_pipeline(StageInstance("diamond", layers, edges, devices, 100.0, 10.0, m))


def plan(*stages: str) -> StagePlan:
    return StagePlan(tuple(Stage(tuple(nodes), 1, 1, dict.fromkeys(nodes, "x")) for nodes in stages))


@pytest.mark.parametrize(
    ("stages", "longest"),
    [(("abcd",), 1), (("ab", "cd"), 2), (("a", "b", "c", "d"), 3), (("a", "bc", "d"), 3), (("ab", "c", "d"), 3)],
)
def test_depth_by_hand(stages: tuple[str, ...], longest: int) -> None:
    assert depth(diamond(), plan(*stages)) == longest
    slowest = 8.0 * max(map(len, stages))
    assert evaluate(diamond(), plan(*stages)) == pytest.approx((1 + (longest - 1) / 4) * slowest)


def test_edges_that_run_backwards_are_not_followed() -> None:
    """Such plans break the rule of order; their depth is that of the edges which do not."""
    assert depth(diamond(), plan("d", "abc")) == 1
    assert depth(diamond(), plan("cd", "ab")) == 1
    assert depth(diamond(), plan("b", "a", "cd")) == 2


def test_reached_sets_give_the_depth_of_every_stage(cases: int) -> None:
    """Stages one after the other in front of a downset: depths from reached sets are those of the longest path."""
    several = 0
    for seed in range(3 * cases):
        rng = random.Random(seed)
        n = rng.randint(1, 8)
        edges = random_edges(rng, rng.choice(SHAPES), n)
        masks = sorted(downsets(n, edges, 10**6), key=int.bit_count)
        found = find_reached_sets(n, edges, pack(masks, n))
        several += found.width.max() > 1
        at, level, known = 0, [0] * n, {}
        while masks[at] != masks[-1]:
            larger = [i for i, mask in enumerate(masks) if mask != masks[at] and not masks[at] & ~mask]
            after = larger[int(len(larger) * rng.random() ** 4)]  # small stages more often
            stage = [v for v in range(n) if (masks[after] & ~masks[at]) >> v & 1]

            def deepest(mask: int, known=known) -> int:
                return max((known[u] for u in known if mask >> u & 1), default=0)

            own = 1 + max(deepest(int(found.mask[at, v])) for v in stage)
            behind = [level[w] for v, w in edges if v in stage and w not in stage]
            assert own == 1 + max(behind, default=0)
            for v in stage:
                level[v] = own
            known = {
                u: max(
                    deepest(int(found.mask[at, node])),
                    own if any(int(found.reach[node, 0]) >> v & 1 for v in stage) else 0,
                )
                for u, node in enumerate(found.node[after, : found.width[after]])
            }
            at = after
        assert known == {0: max(level)}
    assert several > cases / 10


def test_unions_are_not_kept() -> None:
    """0 reaches what 1 and 2 reach together, whichever comes first."""
    found = find_reached_sets(5, [(0, 3), (0, 4), (1, 3), (2, 4)], pack([0b11000], 5))
    assert found.width.tolist() == [2] and found.node[0].tolist() == [1, 2]


def test_reached_sets_fill_a_word_at_most() -> None:
    """Pairs side by side: each target is a reached set of its own."""
    for pairs in (60, 61):
        edges = [(v, pairs + v) for v in range(pairs)]
        found = find_reached_sets(2 * pairs, edges, pack([(1 << pairs) - 1 << pairs], 2 * pairs))
        assert (found is None) is (pairs > 60)
        if found is not None:
            assert found.width.tolist() == [60] and int(found.mask[0, 2 * pairs]).bit_count() == 60


def test_reached_sets_follow_the_order_of_the_downsets() -> None:
    """A bottleneck that rules out a node's only TMPC changes the order of the downsets and of the reached sets."""
    layers = [Layer(v, {1: (Tmpc("x", time, 0.0, 1.0, 0.0),)}) for v, time in (("a", 10.0), ("b", 1000.0))]
    instance = flush_pipeline(StageInstance("two", tuple(layers), (), 4, 100.0, 10.0, 4))
    search = labels.Search(instance, labels.all_downsets(instance.flat, 10), Watch())
    before = search.lattice.bits.copy()
    for T, moved in ((1.0, True), (1000.0, False)):
        search.labels_at(T, np.empty(0), plain=True)
        assert np.array_equal(search.lattice.bits, before) is not moved
        expected = find_reached_sets(2, [], search.lattice.bits)
        assert all(np.array_equal(*pair) for pair in zip(search.sets, expected, strict=True))


def test_light_weights_count_beside_heavy_ones() -> None:
    """b and c side by side take one step; replicated as one stage also a synchronisation, which 1e17 bytes may hide."""
    for order in permutations("abc"):
        layers = tuple(Layer(v, {1: (Tmpc("x", 1.0, 1e17 if v == "a" else 1.0, 0.0, 0.0),)}) for v in order)
        instance = flush_pipeline(StageInstance("heavy", layers, (), 3, 1.0, 1.0, 4))
        answer = labels.solve(instance, Limits(), Watch())
        assert evaluate(instance, answer.plan) == pytest.approx(1.0)
        assert answer.bound <= 1.0


def test_a_label_is_as_deep_as_its_plan(cases: int) -> None:
    several = 0
    for seed in range(max(20, cases)):
        instance = random_flushed(
            seed, same_weights=True, fill="stages", max_nodes=6, max_devices=6, max_tmpcs=2, memory="ample"
        )
        search = labels.Search(instance, labels.all_downsets(instance.flat, 10**6), Watch())
        for factor in (1.0, 1.5, 3.0):
            results = search.least_synchronisation(search.work_bound * factor, np.full(9, np.inf))
            assert all(depth(instance, found.plan) == at for at, found in results.items()), seed
            several += sum(at > 1 for at in results)
    assert several > cases / 4


def test_the_pool_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = random_flushed(3, same_weights=True, memory="ample", shape="diamond")
    expected = labels.solve(instance, Limits(), Watch())
    monkeypatch.setattr(labels, "_POOL", 2)
    assert labels.solve(instance, Limits(), Watch()).plan == expected.plan
    sizes: list[int] = []

    def made(size: int, width: int, make=labels.make_pool) -> labels.Pool:
        pool = make(size, width)
        sizes.append(sum(part.nbytes for part in pool))
        return pool

    monkeypatch.setattr(labels, "make_pool", made)
    labels.solve(instance, Limits(), Watch())
    most = max(sizes)
    for limit, stop in ((most, Stop.COMPLETED), (most - 1, Stop.SIZE_LIMIT)):
        monkeypatch.setattr(labels, "_MAX_BYTES", limit)
        sizes.clear()
        assert labels.solve(instance, Limits(), Watch()).stop is stop
        assert max(sizes) <= limit
    monkeypatch.setattr(labels, "_MAX_BYTES", 100)
    answer = labels.solve(instance, Limits(), Watch())
    assert answer.stop is Stop.SIZE_LIMIT and "labels" in answer.reason and not answer.infeasible


def test_too_many_reached_sets_end_with_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("formulations.flushed_partitioning.exact.depth_labels.MAX_REACHED_SETS", 1)
    answer = labels.solve(diamond(), Limits(), Watch())
    assert answer.stop is Stop.SIZE_LIMIT and "entries" in answer.reason


def test_a_coarse_gap_stops_early() -> None:
    instance = diamond(devices=8, m=8, heavy=3.0)
    exact, coarse = (labels.solve(instance, Limits(gap=gap), Watch()) for gap in (1e-6, 0.5))
    assert coarse.stats["passes"] < exact.stats["passes"]
    assert coarse.bound <= evaluate(instance, exact.plan) <= evaluate(instance, coarse.plan)


@pytest.mark.paper
@pytest.mark.parametrize(("schedule", "time"), [("1f1b", 0.0247079473), ("gpipe", 0.0278320750)])
def test_bert_on_64_devices_is_proved(published, schedule: str, time: float) -> None:
    import planner

    flat = planner.load(published / "piper" / "bert32a100.json", devices=64, microbatches=64, memory="8GiB")
    found = planner.solve(flush_pipeline(flat, Schedule(schedule)), method="labels")
    assert found.objective == pytest.approx(time, rel=1e-8) and found.gap <= 1e-6 and found.seconds < allowed_s(10)
    assert np.isfinite(found.bound)
