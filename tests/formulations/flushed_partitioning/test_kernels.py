"""The compiled loops one by one against naive ones: which labels are kept, least degrees, depths, stops."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from oracles.flushed_partitioning import random_flushed

from formulations.compiled.downsets import all_downsets
from formulations.flushed_partitioning.exact import labels
from formulations.flushed_partitioning.exact.pareto_set import Found
from formulations.flushed_partitioning.kernels import depth
from instances.problems.flushed_partitioning import FlushedInstance, flush_pipeline
from instances.problems.stage_edits import change_tmpcs
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc
from solvers.outcome import Watch


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
