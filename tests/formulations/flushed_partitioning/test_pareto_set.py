"""The search of bottlenecks and synchronisations on made-up Pareto sets, against trying every point."""

import math
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from oracles.flushed_partitioning import random_flushed

from formulations.flushed_partitioning.exact.pareto_set import Found, search_pareto_set
from formulations.stage_partitioning.definition.plan import StagePlan
from instances.problems.flushed_partitioning import FlushedInstance
from solvers.outcome import Watch


@dataclass
class Points:
    """A search whose plans are given as (depth, bottleneck, synchronisation)."""

    flushed: FlushedInstance
    points: list[tuple[int, float, float]]
    work_bound: float
    passes: int = 0
    most: float = math.inf
    asked: list[float] = field(default_factory=list)

    def objective(self, point: tuple[int, float, float]) -> float:
        depth, bottleneck, sync = point
        return (1 + (depth - 1) / self.flushed.flat.num_microbatches) * bottleneck + sync

    def found(self, point: tuple[int, float, float]) -> Found:
        return Found(StagePlan(()), self.objective(point), point[1], point[2])

    def least_bottleneck(self, T: float) -> Found | bool:
        self.passes += 1
        within = [point for point in self.points if point[1] <= T]
        return self.passes > self.most or (self.found(max(within)) if within else False)

    def least_synchronisation(self, T: float, most_sync: Any, _most_time: float) -> dict[int, Found] | None:
        self.passes += 1
        self.asked.append(T)
        if self.passes > self.most:
            return None
        within = [p for p in self.points if p[1] <= T and p[0] < len(most_sync) and p[2] <= most_sync[p[0]]]
        candidates: dict[int, Found] = {}
        for point in sorted(within, key=lambda p: (p[0], p[2], -p[1])):  # of those as fast, the slowest steps
            if all(point[2] < other.sync for other in candidates.values()):
                candidates[point[0]] = self.found(point)
        return candidates


def points(seed: int) -> Points:
    """Up to 30 random points, many of them within a few percent of each other."""
    rng = random.Random(seed)
    depths = rng.randint(1, 5)
    flushed = random_flushed(0, fill="stages")
    layer = flushed.flat.layers[0]
    layers = tuple(replace(layer, id=f"n{v}") for v in range(depths))
    m = rng.choice([depths, 8, 100])
    flat = replace(flushed.flat, layers=layers, edges=(), num_devices=depths, num_microbatches=max(depths, m))
    spread, low = rng.choice([0.01, 0.3, 3.0]), rng.choice([0.0, 1.0])
    found = [
        (rng.randint(1, depths), low + spread * rng.random() * rng.choice([1, 1, 1, 0]), spread * rng.random())
        for _ in range(rng.randint(1, 30))
    ]
    return Points(replace(flushed, flat=flat), found, low * rng.choice([0.5, 1.0]))


def test_the_scan_finds_the_best_point(cases: int) -> None:
    for seed in range(20 * cases):
        search, watch = points(seed), Watch()
        assert search_pareto_set(search, watch, 0.0) is False
        best = min(map(search.objective, search.points))
        assert watch.best_objective == pytest.approx(best, rel=1.1e-9, abs=1e-12), seed
        assert watch.best_bound <= best
        assert watch.best_bound >= best * (1 - 1e-8) - 1e-12, seed
        assert search.passes < 150, seed


def test_points_too_close_to_tell_apart_keep_the_bound_true(cases: int) -> None:
    """All points within 1e-7: the best one is found up to 1e-9, and the bound is below it."""
    for seed in range(5 * cases):
        rng, search, watch = random.Random(seed), points(seed), Watch()
        spread, m = rng.choice([1e-7, 1e-8, 1e-9, 3e-10]), search.flushed.flat.num_microbatches
        near = [(depth, bottleneck / 8) for depth, bottleneck, _ in search.points]
        search.points = [(L, C, 1 - spread * rng.random() - (1 + (L - 1) / m) * C) for L, C in near]
        search.points = [point for point in search.points if point[2] >= 0] or [(1, 0.5, 0.5)]
        search.work_bound *= 1 / 8
        assert search_pareto_set(search, watch, 0.0) is False
        best = min(map(search.objective, search.points))
        assert best <= watch.best_objective <= best * (1 + 1.1e-9), seed
        assert watch.best_bound <= best, seed


def test_a_scan_that_is_stopped_has_a_true_bound(cases: int) -> None:
    for seed in range(2 * cases):
        best = min(map(points(seed).objective, points(seed).points))
        for most in range(0, 40, 3):
            search, watch = points(seed), Watch()
            search.most = most
            assert search_pareto_set(search, watch, 0.0) is False
            assert watch.best_bound <= best * (1 + 1e-12)


def test_without_points_there_is_no_plan() -> None:
    search = points(1)
    search.points = []
    assert search_pareto_set(search, Watch(), 0.0) is True


def test_a_gap_ends_the_scan(cases: int) -> None:
    fewer = 0
    for seed in range(cases):
        exact, coarse, watch = points(seed), points(seed), Watch()
        search_pareto_set(exact, Watch(), 0.0)
        search_pareto_set(coarse, watch, 0.1)
        fewer += coarse.passes < exact.passes
        best = min(map(exact.objective, exact.points))
        assert best <= watch.best_objective * (1 + 1e-12)
        assert watch.best_objective * (1 - 0.1) <= watch.best_bound <= best * (1 + 1e-12)
    assert fewer > cases / 4
