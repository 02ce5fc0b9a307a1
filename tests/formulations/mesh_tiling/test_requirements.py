"""Requirements that fix the order of the stages: what they send to each other is then no choice."""

import random
from dataclasses import replace
from itertools import permutations

import pytest
from oracles.mesh_tiling import covers, step_seconds

import planner
from instances.problems.mesh_tiling import MeshInstance
from solvers.outcome import Status

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
