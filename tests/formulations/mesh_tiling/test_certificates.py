"""Certificates of mesh tiling: accepted where brute force in fractions confirms them, and mutants nowhere else."""

import random
from fractions import Fraction
from itertools import count

import pytest
from certificate_cases import Spoiling, claimed, exact_optimum, parsed
from oracles import mesh_tiling
from oracles.mesh_tiling import covers
from small_instances import random_case

import planner
from formulations.contract.checker.frame import RejectedError
from formulations.mesh_tiling.certificate import checker
from instances.problems.mesh_tiling import MeshInstance, generate


def optimum(instance: MeshInstance) -> Fraction | float:
    """The least objective of all plans, exactly; infinite if there is none."""
    return exact_optimum(mesh_tiling.optimum, instance)


def small(number: int) -> MeshInstance:
    """Of up to five tiles, most often of three at most; one of six cannot be covered."""

    def fits(each: MeshInstance) -> bool:
        cover = next(covers(each), None)
        if cover is None or number % 6 == 0:
            return cover is None and number % 6 == 0
        return len(cover) < 4 or number % 10 == 0

    return next(filter(fits, (random_case("mesh_tiling", 16, 1000 * number + k) for k in count())))


@pytest.mark.parametrize(
    ("shape", "seed"),
    [
        *[((4, 12, 2, 4), seed) for seed in (7, 8, 10, 14)],
        *[((6, 12, 2, 3), seed) for seed in (0, 24, 39)],
        *[((4, 5, 2, 1), seed) for seed in (0, 37, 72, 106)],
        pytest.param((4, 8, 2, 1), 6, marks=pytest.mark.slow),
    ],
)
def test_fronts_where_no_cover_is_best_in_everything(shape: tuple[int, int, int, int], seed: int) -> None:
    """Without order: some covers have the faster slowest stage, some the lesser sum, some the faster all-reduce."""
    rng, (rows, columns, t, d) = random.Random(f"fronts {seed}"), shape
    intra, inter = (tuple(float(rng.choice([1, 2, 3, 5, 8])) for _ in range(columns)) for _ in range(2))
    instance = MeshInstance("fronts", rows, intra, inter, t, d, rng.choice([2, 4]), tp_bytes=8.0, dp_bytes=40.0)
    best = exact_optimum(mesh_tiling.optimum, instance)
    for part, accepted in ((Fraction(10**12 - 1, 10**12), True), (1, False)):
        assert checker.verify(parsed(instance), claimed(instance, best * part))["accepted"] is accepted


SPOILING = Spoiling(small, optimum)


@pytest.mark.parametrize(
    ("tiles", "reason"),
    [
        (((0, 0, 0, 2, 1), (2, 0, 1, 2, 1)), "numbered from 0 on"),
        (((0, 0, 0, 2, 2), (1, 0, 1, 2, 1)), "tiles of tp x dp devices"),
        (((0, 0, 0, 2, 1), (1, 1, 1, 2, 1)), "tiles inside the mesh"),
        (((0, 0, 1, 2, 1), (1, 0, 1, 2, 1)), "every device in one tile"),
        (((0, 0, 0, 2, 1), (1, 0, 1, 2, 1), (2, 0, 1, 2, 1)), "every device in one tile"),
    ],
)
def test_plans_that_break_one_rule_alone_are_rejected(tiles: tuple[tuple[int, ...], ...], reason: str) -> None:
    instance = checker.Instance(parsed(MeshInstance("hand", 2, (2.0, 1.0), (0.5, 0.5), 2, 1, 3, tp_bytes=2.0)))
    keys = ("stage", "row", "column", "rows", "columns")
    good, bad = (
        [dict(zip(keys, each, strict=True)) for each in own] for own in (((0, 0, 0, 2, 1), (1, 0, 1, 2, 1)), tiles)
    )
    assert checker.plan_time(instance, {"tiles": good}) == 7
    with pytest.raises(RejectedError, match=reason):
        checker.plan_time(instance, {"tiles": bad})


def test_what_is_not_certified_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "MAX_STEPS", 2)
    found = planner.certify(generate())
    assert found.content is None and "size: over 2 tiles laid behind labels" in found.result.reason
    monkeypatch.setattr(checker, "MAX_STEPS", 10**6)
    monkeypatch.setattr(checker, "MAX_STATES", 2)
    found = planner.certify(generate(ordered=True))
    assert found.content is None and "size: over 2 states of the orders" in found.result.reason
