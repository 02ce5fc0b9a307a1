"""Mesh tiling: definition, files, and all methods against brute force."""

import random
import time
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from load import allowed_s
from oracles.mesh_tiling import covers, optimum, random_magnitudes, step_seconds
from small_instances import few_tiles

import planner
from formulations.mesh_tiling import FAMILY, paper
from formulations.mesh_tiling.definition.plan import Tile, TilingPlan
from formulations.mesh_tiling.definition.problem import evaluate, violations
from formulations.mesh_tiling.models import cpsat, milp
from formulations.mesh_tiling.placements import Placements, regular_tiling
from instances.errors import InstanceError
from instances.exchange import to_json
from instances.problems.mesh_tiling import MeshInstance, generate
from solvers.milp.backend import NATURAL
from solvers.milp.translation import translate
from solvers.outcome import Limits, Status, Stop, Watch, relative_gap

SECONDS = Limits(time_s=30)

#: Two nodes of two devices; tensor parallelism of 2, the second node and the way between nodes slow.
BY_HAND = MeshInstance(
    "by hand", 2, (4.0, 2.0), (1.0, 1.0), 2, 1, num_microbatches=3, compute_s=1.0, tp_bytes=8.0, stage_bytes=5.0
)
UPRIGHT = TilingPlan((Tile(0, 0, 0, 2, 1), Tile(1, 0, 1, 2, 1)))
LYING = TilingPlan((Tile(0, 0, 0, 1, 2), Tile(1, 1, 0, 1, 2)))


def solve(room: Any, instance: MeshInstance) -> Any:
    return room.solve(instance, SECONDS, Watch(SECONDS))


def test_prices_by_hand() -> None:
    # A ring of two sends 2 * 1/2 * 8 = 8 bytes: 2 s on the first node, 4 s on the second, 8 s between nodes.
    assert evaluate(BY_HAND, UPRIGHT) == 2 * 5 + (3 + 5)
    assert evaluate(BY_HAND, LYING) == 2 * 9 + (9 + 9)
    # Upright stages send between nodes; lying ones inside each of both nodes, the slower decides.
    ordered = replace(BY_HAND, ordered=True)
    assert evaluate(ordered, UPRIGHT) == 18 + 5
    assert evaluate(ordered, LYING) == 36 + 2.5
    across = replace(BY_HAND, tp_degree=1, dp_degree=2, dp_bytes=6.0)
    assert evaluate(across, LYING) == 3 * 1 + 1 + 6
    assert evaluate(across, UPRIGHT) == 3 * 1 + 1 + 3


@pytest.mark.parametrize(
    ("tiles", "rules"),
    [
        (UPRIGHT.tiles, set()),
        ((Tile(0, 0, 0, 2, 1), Tile(2, 0, 1, 2, 1)), {"stages"}),
        ((Tile(0, 0, 0, 2, 1), Tile(0, 0, 1, 2, 1)), {"stages"}),
        ((Tile(0, 0, 0, 2, 1),), {"cover"}),
        ((Tile(0, 0, 0, 2, 1), Tile(1, 0, 1, 2, 1), Tile(2, 0, 0, 2, 1)), {"overlap"}),
        ((Tile(0, 0, 0, 2, 2),), {"shape"}),
        ((Tile(0, 0, 0, 2, 1), Tile(1, 1, 1, 2, 1)), {"mesh", "cover"}),
        ((Tile(0, 0, 0, 2, 1), Tile(1, 0, -1, 2, 1)), {"mesh", "cover"}),
    ],
)
def test_every_rule_is_named(tiles: tuple[Tile, ...], rules: set[str]) -> None:
    assert {found.rule for found in violations(BY_HAND, TilingPlan(tiles))} == rules
    if rules:
        with pytest.raises(ValueError, match=":"):
            evaluate(BY_HAND, TilingPlan(tiles))


def test_the_oracle_and_the_definition_agree(cases: int) -> None:
    for case in range(cases):
        instance = few_tiles(random.Random(case))
        for cover in list(covers(instance))[:3]:
            plan = TilingPlan(tuple(Tile(stage, *tile) for stage, tile in enumerate(cover)))
            assert evaluate(instance, plan) == pytest.approx(step_seconds(instance, cover), rel=1e-12)


@pytest.mark.parametrize("seed", [0, 6])
def test_no_false_optimum_of_orbital_fixing(seed: int) -> None:
    """HiGHS 1.12, let look for symmetries, proves 462.3125 here."""
    instance = MeshInstance(
        "false optimum",
        2,
        (0.007, 0.004, 0.002, 0.008, 0.001),
        (1e-05, 0.015, 0.002, 0.003, 0.001),
        1,
        2,
        num_microbatches=2,
        dp_bytes=0.001,
        stage_bytes=0.007,
        ordered=True,
    )
    answer = milp.solve(instance, Limits(seed=seed), Watch())
    assert evaluate(instance, answer.plan) == pytest.approx(optimum(instance), rel=1e-6)
    assert evaluate(instance, answer.plan) == pytest.approx(461.7292, abs=1e-4)
    assert answer.stop is Stop.PROVED


@pytest.mark.parametrize("seed", [307, 401, 741])
def test_the_milp_proves_optima_far_below_the_longest_time(seed: int) -> None:
    """With that as its unit, HiGHS's tolerances were larger than a millionth of the optimum."""
    rng = random.Random(f"wide {seed}")
    instance = random_magnitudes(rng)
    tp, dp, sent = (10.0 ** rng.randint(-6, 6) for _ in range(3))
    instance = replace(
        instance,
        tp_bytes=instance.tp_bytes * tp,
        dp_bytes=instance.dp_bytes * dp,
        stage_bytes=instance.stage_bytes * sent,
    )
    watch = Watch(SECONDS)
    answer = milp.solve(instance, SECONDS, watch)
    assert answer.stop is Stop.PROVED
    assert answer.bound == pytest.approx(optimum(instance), rel=1e-6)
    lp = translate(milp.model_of(instance, watch).model)[0].getLp()
    assert max(lp.a_matrix_.value_) <= 2 * NATURAL * (1 + 1e-12)


def test_annealing_finds_plans_and_nothing_where_there_is_none(cases: int) -> None:
    for case in range(cases // 2):
        instance = few_tiles(random.Random(f"sa {case}"))
        expected = optimum(instance)
        answer = paper.solve(instance, SECONDS, Watch(SECONDS), iterations=30)
        if expected is None:
            assert answer.plan is None
        else:
            assert violations(instance, answer.plan) == ()
            assert evaluate(instance, answer.plan) >= expected * (1 - 1e-12)


def test_annealing_repeats_with_its_seed() -> None:
    instance = generate(4, 4, 2, 1, ordered=True)
    first, again = (paper.solve(instance, Limits(seed=3), Watch(), iterations=40) for _ in range(2))
    assert first.plan == again.plan


@pytest.mark.parametrize(
    ("size", "ordered", "limit_s"),
    [
        pytest.param((32, 64, 4, 8), False, 5, marks=pytest.mark.slow),
        ((8, 8, 2, 2), True, 60),
        *(pytest.param((8, 8, *degrees), True, 120, marks=pytest.mark.slow) for degrees in ((1, 2), (2, 1))),
    ],
)
def test_large_meshes_are_proved_in_time(size: tuple[int, int, int, int], ordered: bool, limit_s: float) -> None:
    instance = generate(*size, ordered=ordered, seed=1)
    began = time.perf_counter()
    answer = cpsat.solve(instance, Limits(time_s=limit_s), Watch(Limits(time_s=limit_s)))
    assert time.perf_counter() - began < allowed_s(limit_s)
    assert relative_gap(evaluate(instance, answer.plan), answer.bound) <= 1e-6


@pytest.mark.parametrize("few", [0, 24])
def test_every_kind_is_reached_by_ways_and_by_depths(few: int, cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat, "_FEW_KINDS", few)
    for case in range(cases):
        instance = replace(few_tiles(random.Random(f"kinds {case}")), ordered=True)
        best, answer = optimum(instance), solve(cpsat, instance)
        assert answer.infeasible is (best is None)
        assert best is None or evaluate(instance, answer.plan) == pytest.approx(best, rel=1e-7)
        assert best is None or answer.bound <= best * (1 + 1e-12)


@pytest.mark.slow
def test_the_milp_proves_sixteen_ordered_stages_at_its_root() -> None:
    """The way to each kind has no big-M: 8 x 8 devices took a minute and more with positions of single tiles."""
    instance = generate(8, 8, 4, 1, ordered=True, seed=1)
    watch = Watch(SECONDS)
    answer = milp.solve(instance, SECONDS, watch)
    assert relative_gap(evaluate(instance, answer.plan), answer.bound) <= 1e-6
    root = milp.model_of(instance).relaxation(SECONDS).bound
    assert root is not None and milp.model_of(instance).lower_bound(root) >= 0.95 * answer.bound


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 0}, "rows is 0"),
        ({"intra_bytes_per_s": []}, "intra_bytes_per_s is []"),
        ({"inter_bytes_per_s": [1.0]}, "len(inter_bytes_per_s) is 1; expected 2"),
        ({"inter_bytes_per_s": [1.0, 0.0]}, "inter_bytes_per_s[1] is 0"),
        ({"tp_degree": 1.5}, "tp_degree is 1.5"),
        ({"ordered": 1}, "ordered is 1"),
    ],
)
def test_bad_files_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InstanceError) as error:
        FAMILY.read({**to_json(BY_HAND), **change}, "file.json", {})
    assert str(error.value).startswith("file.json: ") and message in str(error.value)


def test_the_family() -> None:
    assert FAMILY.read(BY_HAND, "m", {"tp-degree": 1, "ordered": True}).tp_degree == 1
    assert FAMILY.choose(generate(), Limits(), False)[0] == "cpsat"
    assert FAMILY.choose(generate(100, 100, ordered=True), Limits(), False)[0] == "sa"
    assert "pairs" in str(FAMILY.method("milp").supports(generate(8, 64, ordered=True)))
    assert FAMILY.describe(generate())["stages"] == 8


def test_a_mesh_too_large_to_prove_has_a_regular_plan_and_a_bound() -> None:
    instance = generate(32, 48, 2, 4, ordered=True)
    limits = Limits(time_s=2.0)
    watch = Watch(limits)
    cpsat.solve(instance, limits, watch)
    assert violations(instance, watch.best_plan) == ()
    assert 0 < watch.best_bound <= watch.best_objective


@pytest.mark.parametrize(("size", "regular"), [((4, 6, 2, 3), 4), ((3, 4, 2, 3), 2), ((6, 5, 2, 3), None)])
def test_regular_tilings(size: tuple[int, int, int, int], regular: int | None) -> None:
    instance = generate(*size)
    found = regular_tiling(Placements(instance))
    assert (None if found is None else len(found)) == regular
    assert found is None or violations(instance, Placements(instance).plan(found)) == ()


#: Four nodes of two devices, of which neighbours in the middle are slow to reach; a tile takes a node.
MESH = MeshInstance(
    "mesh", 2, (9.0, 9.0, 9.0, 9.0), (9.0, 1.0, 9.0, 2.0), 2, 1, tp_bytes=3.0, stage_bytes=90.0, ordered=True
)


@pytest.mark.parametrize("method", ["cpsat", "milp"])
def test_an_order_that_is_required_is_what_is_paid(method: str) -> None:
    for order in list(permutations(range(4)))[::5]:
        required = tuple(f"column({stage}) == {column}" for stage, column in enumerate(order))
        instance = replace(MESH, requirements=required)
        paid = [
            step_seconds(MESH, list(laid))
            for cover in covers(MESH)
            for laid in permutations(cover)
            if [column for _, column, _, _ in laid] == list(order)
        ]
        found = planner.solve(instance, method=method)
        assert found.status is Status.OPTIMAL and found.objective == pytest.approx(min(paid), rel=1e-6)
        assert [tile["column"] for tile in found.plan["tiles"]] == list(order)


@pytest.mark.parametrize("method", ["cpsat", "milp"])
def test_the_place_of_some_stages_is_required(method: str) -> None:
    rng = random.Random(5)
    mesh = replace(MESH, rows=2, intra_bytes_per_s=(2.0, 9.0, 5.0), inter_bytes_per_s=(1.0, 5.0, 2.0))
    for _ in range(4):
        stage, row, column = rng.randrange(3), rng.randrange(2), rng.randrange(3)
        required = (f"stage_of({row}, {column}) == {stage}", f"columns({(stage + 1) % 3}) == 2")
        paid = [
            step_seconds(mesh, list(laid))
            for cover in covers(mesh)
            for laid in permutations(cover)
            if laid[(stage + 1) % 3][3] == 2
            and any(
                j == stage and top <= row < top + rows and left <= column < left + columns
                for j, (top, left, rows, columns) in enumerate(laid)
            )
        ]
        found = planner.solve(replace(mesh, requirements=required), method=method)
        assert found.status is (Status.OPTIMAL if paid else Status.INFEASIBLE)
        assert found.objective == (pytest.approx(min(paid), rel=1e-6) if paid else None)
