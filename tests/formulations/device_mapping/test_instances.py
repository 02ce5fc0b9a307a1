"""What comes from outside: own JSON, matrices in CSV, networks and stage graphs that are made."""

import math
from pathlib import Path
from typing import Any

import pytest

import planner
from formulations.device_mapping import FAMILY
from instances.errors import InstanceError
from instances.generators.stage_graphs import stage_graph
from instances.generators.topologies import ARGUMENTS, DOUBLE_LINKS, KINDS, SINGLE_LINKS, squarest, topology

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
        ("two-level", 6, {}),
        ("torus2d", 12, {"sides": (2, 2)}),
        ("torus2d", 8, {"sides": (2, 2, 2)}),
        ("dgx1", 8, {"sides": (2, 4)}),
        ("fig2", 5, {}),
        ("ring", 4, {}),
    ],
)
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
