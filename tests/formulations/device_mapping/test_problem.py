"""The definition: hand-computed cases, one broken rule at a time, free rings against all orders."""

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracles.device_mapping import random_mapping, seconds_of

import planner
from formulations.device_mapping import FAMILY
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import evaluate, violations
from instances.errors import InstanceError
from instances.generators.stage_graphs import stage_graph
from instances.generators.topologies import ARGUMENTS, DOUBLE_LINKS, KINDS, SINGLE_LINKS, squarest, topology
from instances.problems.device_mapping import DeviceMapping, MappingEdge, MappingStage, allreduce_ratio, with_objective

#: Two stages of two replicas; devices 0-1 and 2-3 are near, all else is far.
NEAR, FAR = 4.0, 1.0
MATRIX = tuple(tuple(0.0 if a == b else NEAR if a // 2 == b // 2 else FAR for b in range(4)) for a in range(4))
PAIR = DeviceMapping(
    "pair", (MappingStage(1.0, 8.0), MappingStage(2.0, 4.0)), (MappingEdge(0, 1, 12.0),), 2, MATRIX, "full"
)
TOGETHER = Mapping(((0, 1), (2, 3)))  # replicas near, stages far
APART = Mapping(((0, 2), (1, 3)))  # replicas far, stages near


@pytest.mark.parametrize(
    ("objective", "plan", "seconds"),
    [
        ("p2p", TOGETHER, 2 + 12),
        ("p2p", APART, 2 + 3),
        ("allreduce", TOGETHER, max(1 + 8 / 4, 2 + 4 / 4)),  # 2 (R - 1) / R is 1 for two replicas
        ("allreduce", APART, max(1 + 8, 2 + 4)),
        ("full", TOGETHER, max(1 + 2 + 12, 2 + 1 + 12)),
        ("full", APART, max(1 + 8 + 3, 2 + 4 + 3)),
    ],
)
def test_objectives_by_hand(objective: str, plan: Mapping, seconds: float) -> None:
    assert evaluate(replace(PAIR, objective=objective), plan) == pytest.approx(seconds, rel=1e-15)


def test_one_replica_has_no_all_reduce() -> None:
    alone = DeviceMapping("alone", (MappingStage(1.0, 8.0),), (), 1, ((0.0,),), "full")
    assert evaluate(alone, Mapping(((0,),))) == 1.0


def test_rings_of_four_in_any_order() -> None:
    """Links 0-2, 2-1, 1-3, 3-0 are fast: the index ring is slow, the free one is not, a stated one is as stated."""
    fast = {(0, 2), (1, 2), (1, 3), (0, 3)}
    matrix = tuple(
        tuple(0.0 if a == b else 6.0 if (min(a, b), max(a, b)) in fast else 1.0 for b in range(4)) for a in range(4)
    )
    index = DeviceMapping("ring", (MappingStage(0.0, 4.0),), (), 4, matrix, "allreduce")
    free = replace(index, ring="free")
    plan = Mapping(((0, 1, 2, 3),))
    assert evaluate(index, plan) == pytest.approx(6.0)
    assert evaluate(free, plan) == pytest.approx(1.0)
    assert evaluate(free, replace(plan, rings=((0, 1, 2, 3),))) == pytest.approx(6.0)
    assert evaluate(free, replace(plan, rings=((0, 2, 1, 3),))) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("plan", "rule"),
    [
        (Mapping(((0, 1),)), "stages"), (Mapping(((0, 1), (2,))), "replicas"), (Mapping(((0, 1), (2, 4))), "device"),
        (Mapping(((0, 1), (2, -1))), "device"), (Mapping(((0, 1), (2, 0))), "once"),
        (Mapping(((0, 1), (2, 3)), ((0, 1),)), "rings"), (Mapping(((0, 1), (2, 3)), ((0, 1), (0, 0))), "rings"),
    ],
)  # fmt: skip
def test_each_rule_alone(plan: Mapping, rule: str) -> None:
    assert {found.rule for found in violations(PAIR, plan)} == {rule}
    with pytest.raises(ValueError, match=r"\w"):
        evaluate(PAIR, plan)


def test_evaluate_agrees_with_the_oracle(cases: int) -> None:
    rng = random.Random(5)
    for _ in range(cases):
        instance = random_mapping(rng, max_devices=8)
        devices = list(range(instance.num_devices))
        rng.shuffle(devices)
        R = instance.replicas
        plan = Mapping(tuple(tuple(devices[s * R : s * R + R]) for s in range(instance.num_stages)))
        device = {(s, r): plan.devices[s][r] for s in range(instance.num_stages) for r in range(R)}
        assert evaluate(instance, plan) == pytest.approx(seconds_of(instance, device), rel=1e-12)


def test_the_ratio_rule() -> None:
    assert allreduce_ratio(PAIR) == pytest.approx((8 + 4) / (12 * 4))
    assert with_objective(PAIR, "auto").objective == "p2p"
    heavy = replace(PAIR, microbatches=1, edges=(MappingEdge(0, 1, 11.0),))
    assert with_objective(heavy, "auto").objective == "allreduce"
    assert with_objective(replace(PAIR, edges=()), "auto").objective == "allreduce"
    read = FAMILY.read(with_objective(PAIR, "auto"), "pair", {"microbatches": 1})
    assert read.objective == "p2p" and "send 1 times" in read.options["chosen"]  # exactly 1 is not above 1
    assert FAMILY.read(PAIR, "pair", {"objective": "p2p", "ring": "free"}).options["objective"] == "p2p"


GOOD: dict[str, Any] = {
    "problem": "device_mapping",
    "name": "good",
    "replicas": 1,
    "num_devices": 3,
    "stages": [{"compute_s": 0.5, "parameter_bytes": 2}] * 3,
    "edges": [{"source": 0, "target": 1, "volume_bytes": 5}, {"source": 1, "target": 2, "volume_bytes": 5}],
    "bandwidth_bytes_per_s": [[0, 1, 2], [1, 0, 3], [2, 3, 0]],
}


def edge(source: int, target: int, volume: float = 1.0) -> dict[str, float]:
    return {"source": source, "target": target, "volume_bytes": volume}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("num_devices", 4, "num_devices is 4; expected 3, as follows from the other fields"),
        ("replicas", 2, "expected 6: stages x replicas"),
        ("replicas", 0, "replicas is 0"),
        ("stages", [], "stages is []"),
        ("stages", [{"compute_s": -1, "parameter_bytes": 0}] * 3, "stages[0].compute_s is -1"),
        ("edges", [edge(0, 3)], "edges[0].target is 3; expected a stage from 0 to 2"),
        ("edges", [edge(1, 1)], "expected another stage"),
        ("edges", [edge(0, 1), edge(1, 0)], "one edge between two stages"),
        ("edges", [edge(0, 1), edge(1, 2), edge(2, 0)], "cycle 1 -> 2 -> 0 -> 1"),
        ("edges", [edge(0, 1, math.inf)], "edges[0].volume_bytes is inf"),
        ("bandwidth_bytes_per_s", [[0, 1], [1, 0]], "expected 3: stages x replicas"),
        ("bandwidth_bytes_per_s", [[0, 1, 2], [1, 0, 3], [2, 3]], "the matrix is square"),
        ("bandwidth_bytes_per_s", [[0, 1, 2], [1, 0, 3], [2, 4, 0]], "expected 3, as"),
        ("bandwidth_bytes_per_s", [[0, 1, 0], [1, 0, 3], [0, 3, 0]], "expected a positive number"),
        ("objective", "both", "objective is 'both'"),
        ("ring", "any", "ring is 'any'"),
    ],
)
def test_bad_input_is_one_line_that_names_the_field(field: str, value: Any, words: str) -> None:
    with pytest.raises(InstanceError) as caught:
        FAMILY.read({**GOOD, field: value}, "bad.json", {})
    assert words in str(caught.value) and str(caught.value).startswith("bad.json: ") and "\n" not in str(caught.value)


def test_a_matrix_in_csv(tmp_path: Path) -> None:
    file = tmp_path / "matrix.csv"
    file.write_text(",2GB/s,8e9\n2e9,,1\n8GB/s,1,0\n")
    instance = planner.load("topology", matrix=str(file), stages=3, replicas=1)
    assert instance.bandwidth_bytes_per_s == ((0, 2e9, 8e9), (2e9, 0, 1), (8e9, 1, 0))
    for text in ("0,1\n2,0\n", "0,1\n", "0,x\n1,0\n", "0,-1\n-1,0\n", "", "0,0\n0,0\n"):
        file.write_text(text)
        with pytest.raises(InstanceError):
            planner.load("topology", matrix=str(file), stages=2, replicas=1)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"fig2"}))
def test_networks_are_symmetric_positive_and_repeatable(kind: str) -> None:
    matrix = topology(kind, 64, seed=3)
    assert matrix == topology(kind, 64, seed=3)
    assert all(matrix[a][b] == matrix[b][a] and (matrix[a][b] > 0) == (a != b) for a in range(64) for b in range(64))
    if "seed" in ARGUMENTS.get(kind, ()):
        assert matrix != topology(kind, 64, seed=4)


def test_grids_count_links() -> None:
    torus, mesh = topology("torus2d", 12), topology("mesh2d", 12)  # 3 x 4, the last side fastest
    assert torus[0][3] == torus[0][1] == torus[0][8] == 10e9 and torus[0][2] == 5e9 and torus[0][6] == 10e9 / 3
    assert mesh[0][3] == 10e9 / 3 and mesh[0][11] == 10e9 / 5
    assert topology("mesh3d", 8, sides=(2, 2, 2))[0][7] == 10e9 / 3
    assert squarest(7, 2) == (1, 7) and squarest(512, 3) == (8, 8, 8)


def test_a_dgx1_has_six_links_a_device() -> None:
    ends = [device for pair in DOUBLE_LINKS * 2 + SINGLE_LINKS for device in pair]
    assert [ends.count(device) for device in range(8)] == [6] * 8
    matrix = topology("dgx1", 16)
    assert {matrix[0][b] for b in range(8, 16)} == {2.5e9} and matrix[8][11] == matrix[0][3] == 48e9


@pytest.mark.parametrize(
    ("kind", "devices", "given"),
    [
        ("two-level", 6, {}), ("torus2d", 12, {"sides": (2, 2)}), ("torus2d", 8, {"sides": (2, 2, 2)}),
        ("dgx1", 8, {"sides": (2, 4)}), ("fig2", 5, {}), ("ring", 4, {}),
    ],
)  # fmt: skip
def test_networks_that_do_not_exist(kind: str, devices: int, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        topology(kind, devices, **given)


def test_skip_connections_join_stages_that_are_no_neighbours() -> None:
    for stages in range(1, 20):
        chain, skip = stage_graph("chain", stages)[1], stage_graph("skip", stages)[1]
        assert skip[: len(chain)] == chain and len(chain) == stages - 1
        pairs = [(edge.source, edge.target) for edge in skip]
        assert len(set(pairs)) == len(pairs)
        assert all(target - source >= 2 for source, target in pairs[len(chain) :])
    assert [(edge.source, edge.target) for edge in stage_graph("skip", 8)[1][7:]] == [(2, 7), (4, 7), (3, 6)]


@pytest.mark.paper
def test_published_files_have_the_matrices_that_are_made_here(published: Path) -> None:
    kinds = {"hier16": "two-level", "dgx": "dgx1", "torus2d": "torus2d", "torus3d": "torus3d", "fig2": "fig2"}
    compared = 0
    for file in sorted((published / "device_mapping").glob("*.json")):
        kind = next((kind for start, kind in kinds.items() if file.name.startswith(start)), None)
        if kind is None or file.stat().st_size > 100_000:
            continue
        instance = planner.load(file)
        for here, there in zip(topology(kind, instance.num_devices), instance.bandwidth_bytes_per_s, strict=True):
            assert here == pytest.approx(there, rel=1e-6)
        compared += 1
    assert compared >= 20
