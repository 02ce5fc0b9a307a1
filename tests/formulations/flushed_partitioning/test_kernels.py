"""The compiled loops one by one against naive ones: which labels are kept, least degrees, depths, stops."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numba import njit
from oracles.flushed_partitioning import random_flushed

from formulations.compiled.downsets import all_downsets
from formulations.flushed_partitioning.exact import labels
from formulations.flushed_partitioning.exact.pareto_set import Found
from formulations.flushed_partitioning.kernels import depth
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK
from instances.problems.flushed_partitioning import FlushedInstance, flush_pipeline
from instances.problems.stage_edits import change_tmpcs
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc
from solvers.outcome import Watch


@njit  # a cache would not notice that the kernel has changed
def least_degrees(*arguments):
    """The kernel, which has no bridge from Python of its own."""
    return depth._least_degrees(*arguments)


def search_of(instance: FlushedInstance) -> labels.Search:
    downsets = all_downsets(instance.flat, 10**6)
    assert downsets is not None
    return labels.Search(instance, downsets, Watch())


def held(pool: labels.Pool, head: Sequence[int], count: int) -> list[tuple[float, ...]]:
    """The labels of the one downset: s, devices, synchronisation, depths."""
    found, label = [], int(head[0])
    while label != depth.NOTHING:
        found.append((pool.s[label], pool.devices[label], pool.sync[label], *pool.depth[label, :count]))
        label = int(pool.next[label])
    return found


@pytest.mark.parametrize("plain", [False, True])
def test_the_labels_kept_are_those_that_none_beats(plain: bool, cases: int) -> None:
    """Labels by the dozen: none is kept that another one beats, and none is lost that no other one beats."""
    dropped = 0
    for seed in range(cases):
        rng = random.Random(seed)
        count, most = rng.randint(1, 3), rng.randint(1, 4)
        pool, head = labels.make_pool(40, count), np.full(1, depth.NOTHING)
        front: list[tuple[float, ...]] = []
        for new in range(40):
            label = tuple(rng.randint(1, most) for _ in range(3 + count))
            counted = 2 if plain else 3 + count
            beaten = any(all(x <= y for x, y in zip(old[:counted], label, strict=False)) for old in front)
            inserted = depth._insert.py_func(
                pool, head, 0, new, label[0], label[1], float(label[2]), np.array(label[3:]), count, plain
            )
            assert inserted == (not beaten)
            if not beaten:
                front = [old for old in front if any(x < y for x, y in zip(old[:counted], label, strict=False))]
                front.insert(0, label)
            assert held(pool, head, count) == front, seed
            dropped += beaten
    assert dropped > cases


def test_sums_have_the_fewest_devices_of_any_label(cases: int) -> None:
    for seed in range(cases):
        rng = random.Random(seed)
        pool = labels.make_pool(9, 1)
        fewest: dict[int, int] = {}
        for label in range(9):
            s, devices = rng.randint(0, 5), rng.randint(0, 9)
            pool.s[label], pool.devices[label], pool.next[label] = s, devices, label - 1
            fewest[s] = min(devices, fewest.get(s, devices))
        sums, devices_at = np.empty(6, np.int64), np.empty(6, np.int64)
        count, least = depth._sums.py_func(pool, 8, sums, devices_at)
        assert sums[:count].tolist() == sorted(fewest) and least == min(fewest.values())
        assert {int(s): int(devices_at[s]) for s in sums[:count]} == fewest


def test_the_deepest_of_the_chosen_sets() -> None:
    depths = np.array([3, 1, 4, 2])
    for chosen, deepest in ((0b0000, 0), (0b0011, 3), (0b1010, 2), (0b1111, 4), (0b1100, 4)):
        assert depth._deepest.py_func(depths, np.uint64(chosen)) == deepest


def least_degree(instance: FlushedInstance, stage: list[int], t: int, s: int, most_d: int, limit: float) -> int | None:
    """The least d of at most ``most_d`` at which some TMPCs fit time and memory in front of stages of sum s."""
    flat, gpipe = instance.flat, instance.schedule == "gpipe"
    inside = {flat.layers[v].id for v in stage}
    lists = [flat.layers[v].tmpcs.get(t, ()) for v in stage]
    edges = [(e, e.source in inside, e.target in inside) for e in flat.edges]
    for d in range(1, most_d + 1):
        if (flat.cost_model == "released" and flat.num_microbatches % d) or d > (flat.max_dp_degree or d):
            continue
        y = math.ceil((flat.num_microbatches if gpipe else s + d) / d)
        for chosen in product(*lists):
            x_of = {flat.layers[v].id: x for v, x in zip(stage, chosen, strict=True)}
            entering = [
                e.bytes + x_of[e.target].sync_forward_bytes.get(e.source, 0) for e, u, w in edges if w and not u
            ]
            leaving = [
                e.bytes + x_of[e.source].sync_backward_bytes.get(e.target, 0) for e, u, w in edges if u and not w
            ]
            time = sum(x.time for x in chosen) + 2 * sum(entering + leaving) / flat.bandwidth
            memory = sum(x.activation_bytes * y + x.static_bytes for x in chosen)
            if time <= d * limit and memory <= flat.memory_bytes * MEMORY_SLACK:
                return d
    return None


@pytest.mark.slow  # it compiles a bridge to the kernel
def test_least_degrees_by_their_definition(cases: int) -> None:
    """Any stage, any labels behind it, any time per sample that some choice takes exactly."""
    seen = {"none": 0, "first": 0, "later": 0, "different": 0}
    for seed in range(max(5, cases // 2)):
        rng = random.Random(seed)
        instance = random_flushed(
            seed, same_weights=True, max_nodes=3, max_devices=16, memory=rng.choice(["planted", "tight"])
        )
        flat = replace(instance.flat, num_devices=16, num_microbatches=rng.choice([12, 16, 24]))
        instance = replace(instance, flat=flat)
        search = search_of(instance)
        bits = search.lattice.bits[:, 0]
        pairs = [(i, j) for j in range(len(bits)) for i in range(j) if not bits[i] & ~bits[j]]
        for _ in range(6):
            i, j = rng.choice(pairs)
            stage = [v for v in range(len(flat.layers)) if int(bits[j] & ~bits[i]) >> v & 1]
            q = rng.randrange(len(search.profile.tp_degrees))
            t = int(search.profile.tp_degrees[q])
            if search.lattice.missing[q, i] != search.lattice.missing[q, j]:
                continue  # never asked about
            time = sum(rng.choice(flat.layers[v].tmpcs[t]).time for v in stage) + rng.choice([0, 2, 8])
            limit = time / rng.randint(1, 12) * (1 + 1e-11)
            most_k = rng.randint(4, 16)
            sums = sorted(rng.sample(range(10), rng.randint(1, 8)))
            fewest = np.full(17, 1 << 30)
            fewest[sums] = [rng.randint(0, most_k // 2) for _ in sums]
            degree_at = np.empty(17, np.int64)
            degrees = search.profile.dp_degrees.tolist()
            found = least_degrees(
                search.profile, search.lattice, search.scratch, q, i, j, search.all_in_flight, most_k, limit, len(sums),
                np.array(sums + [0] * 9), fewest, degree_at, search.counts, search.flag,
            )  # fmt: skip
            results = [degrees[x] if found and x < len(degrees) else None for x in degree_at[sums]]
            expected = [least_degree(instance, stage, t, s, (most_k - int(fewest[s])) // t, limit) for s in sums]
            assert results == expected, seed
            assert found == any(d is not None for d in expected)
            seen["none"] += expected.count(None)
            seen["first"] += expected.count(1)
            seen["later"] += sum(d is not None and d > 1 for d in expected)
            seen["different"] += len({d for d in expected if d is not None}) > 1
    assert min(seen.values()) > cases / 8, seen


def one_node(**given: float) -> FlushedInstance:
    layer = Layer("a", {1: (Tmpc("x", 8.0, 6.0, 1.0, 0.0),)})
    return flush_pipeline(StageInstance("one", (layer,), (), 2, 100.0, 1.0, 4, **given))


def test_a_pass_that_is_stopped_says_so() -> None:
    search = search_of(one_node())
    # The flag is the lowest byte of the count of pairs: it rises with the first pair, which is also the last.
    search.flag = search.counts.view(np.uint8)[:1]
    assert search.labels_at(100.0, np.empty(0), plain=True) is None
    search.counts[0] = 7
    assert search.labels_at(100.0, np.empty(0), plain=True) is None
    assert search.counts[0] == 7  # and visits nothing once it is stopped


def test_a_bottleneck_finds_its_own_plan(cases: int) -> None:
    """Sums that floats round differently along the way do not hide a plan from a pass at its own bottleneck."""
    several = 0
    for seed in range(cases):
        instance = random_flushed(seed, same_weights=True, memory="ample")
        flat = change_tmpcs(instance.flat, lambda x: replace(x, time=x.time / 7))
        search = search_of(replace(instance, flat=flat))
        found = search.least_bottleneck(math.inf)
        if isinstance(found, Found):
            assert isinstance(search.least_bottleneck(found.bottleneck), Found), seed
            several += found.bottleneck > 0
    assert several > cases / 2


def test_plans_within_a_synchronisation() -> None:
    """Two replicas take 4 a step and 4 * 1/2 * 6 / 4 to synchronise: no more is allowed than that, or less."""
    search = search_of(one_node())
    for most, found in ((3.0, True), (2.999, False)):
        results = search.least_synchronisation(4.0, np.array([-1.0, most]))
        assert results is not None and (1 in results) is found
        assert not found or results[1].sync == 3.0
