"""Files of other tools: what is written reads back as the same instance, and what they cannot say is refused."""

import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import planner
from instances.errors import InstanceError
from instances.problems.operator_partitioning import (
    Operator,
    OperatorInstance,
    Tensor,
    TrainingMemory,
    in_topological_order,
    merge_edges,
)
from instances.readers import pipedream_profile, placement_json
from instances.readers.written import expect_same
from planner.cli.app import main

_LINE = "{} -- {} -- forward_compute_time={}, backward_compute_time={}, activation_size={}, parameter_size={}\n"
#: Written by hand after the format: numbers with three digits, a list of outputs, an operator with commas.
PROFILE = "".join((
    _LINE.format("node1", "Input0", "0.000", "0.000", "0.0", "0.000"),
    _LINE.format("node2", "Conv2d(3, 64, kernel_size=(7, 7))", "1.306", "2.847", "205520896.000", "37632.000"),
    _LINE.format("node3", "ReLU(inplace)", "0.713", "0.717", "[10.0; 6.0]", "0.000"),
    _LINE.format("node4", "Add", "0.1", "0.3", "7.000", "0.000"),
    "\tnode1 -- node2\n\tnode2 -- node3\n\tnode2 -- node4\n\tnode3 -- node4\n",
))  # fmt: skip
RELEASED = {
    "maxSizePerFPGA": 17185374208.0,
    "maxFPGAs": 6,
    "maxCPUs": 1,
    "nodes": [
        {"id": 7, "name": "node7", "supportedOnFpga": 1, "cpuLatency": 12.36, "fpgaLatency": 1.236, "size": 205.0},
        {"id": 8, "name": "node8", "supportedOnFpga": 1, "cpuLatency": 3.3, "fpgaLatency": 0.33, "size": 0.0},
        {"id": 9, "name": "", "supportedOnFpga": 1, "cpuLatency": 0.7, "fpgaLatency": 0.07, "size": 11.5},
    ],
    "edges": [
        {"sourceId": 7, "destId": 8, "cost": 0.095703125, "size": 205520896.0},
        {"sourceId": 7, "destId": 9, "cost": 0.095703125, "size": 205520896.0},
        {"sourceId": 8, "destId": 9, "cost": 0.001, "size": 2147483.648},
    ],
}


def random_graph(rng: random.Random, *, outputs: bool) -> OperatorInstance:
    """A random graph whose numbers are no round ones; with ``outputs`` tensors are outputs there and back."""
    count = rng.randint(1, 9)
    sizes = [rng.choice([0.0, rng.uniform(0, 1e9), float(rng.randint(1, 10**9))]) for _ in range(count)]
    operators = [
        Operator(
            f"n{v}", rng.uniform(0, 1) * 10.0 ** -rng.randint(0, 9), rng.random() * 1e6, sizes[v], name=f"Op({v}, 2)"
        )
        if outputs
        else Operator(rng.choice([v, f"n{v}"]), rng.uniform(0, 1), memory_bytes=sizes[v], name=rng.choice(["", "x y"]))
        for v in range(count)
    ]
    pairs = [(u, v) for u in range(count) for v in range(u + 1, count) if rng.random() < 0.4]
    volumes = merge_edges((u, v, 2 * sizes[u] if outputs else rng.uniform(1, 1e8)) for u, v in pairs)
    ordered, tensors = in_topological_order(operators, volumes)
    training, rate = (TrainingMemory(), {}) if outputs else (None, {"bandwidth_bytes_per_s": rng.uniform(1e8, 1e11)})
    found = OperatorInstance("graph", ordered, tensors, training=training, **(rate if tensors else {}))
    return found if outputs or tensors else replace(found, bandwidth_bytes_per_s=2**31 / 1000 * 1e3)


def test_pipedreams_profiles() -> None:
    instance = pipedream_profile.read(PROFILE, "small.graph.txt")
    again = pipedream_profile.read(pipedream_profile.write(instance), "small.graph.txt")
    expect_same(instance, again, "PipeDream")
    assert [each.compute_s for each in again.operators] == pytest.approx([0, 4.153e-3, 1.43e-3, 0.4e-3], rel=1e-12)
    assert again.operators[2].activation_bytes == 16 and again.operators[1].name == "Conv2d(3, 64, kernel_size=(7, 7))"
    rng = random.Random(4)
    for _ in range(100):
        graph = random_graph(rng, outputs=True)
        expect_same(graph, pipedream_profile.read(pipedream_profile.write(graph), "graph"), "PipeDream")


def test_graphs_of_dnn_partitioning() -> None:
    instance = placement_json.read(RELEASED, "small.json")
    again = placement_json.read(json.loads(json.dumps(placement_json.write(instance))), "small.json")
    expect_same(instance, again, "dnn-partitioning")
    assert [each.compute_s for each in again.operators] == pytest.approx([1.236e-3, 0.33e-3, 0.07e-3], rel=1e-12)
    assert again.bandwidth_bytes_per_s == pytest.approx(2**31 * 1e3, rel=1e-12)
    rng = random.Random(5)
    for _ in range(100):
        graph = random_graph(rng, outputs=False)
        expect_same(graph, placement_json.read(placement_json.write(graph), "graph"), "dnn-partitioning")


@pytest.mark.skipif("PLANNER_PUBLISHED" not in os.environ, reason="needs the published files")
@pytest.mark.parametrize("name", ["pipedream/vgg16.graph.txt", "dnn_partitioning/resnet50_inference.json"])
def test_published_files(name: str) -> None:
    path = Path(os.environ["PLANNER_PUBLISHED"]) / name
    if not path.exists():
        pytest.skip("the published file is not there")
    instance = planner.load(str(path))
    if name.startswith("pipedream"):
        again = pipedream_profile.read(pipedream_profile.write(instance), instance.name)
    else:
        again = placement_json.read(placement_json.write(instance), instance.name)
    expect_same(instance, again, "others")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"num_stages": 3}, "num_stages is 3"),
        ({"memory_bytes": 9.0}, "memory_bytes is 9.0"),
        ({"training": None}, "training is None"),
        ({"tensors": (Tensor(0, (1,), 3.0),)}, "tensors"),
        ({"bandwidth_bytes_per_s": 5.0}, "bandwidth_bytes_per_s is 5.0"),
    ],
)
def test_what_a_profile_cannot_say_is_refused(change: dict[str, Any], place: str) -> None:
    instance = pipedream_profile.read(PROFILE, "small.graph.txt")
    with pytest.raises(InstanceError, match="all that files of PipeDream say") as refused:
        pipedream_profile.write(replace(instance, **change))
    assert place in str(refused.value)


def test_what_a_graph_cannot_say_is_refused() -> None:
    graph = placement_json.read(RELEASED, "small.json")
    operators = (replace(graph.operators[0], parameter_bytes=2.0), *graph.operators[1:])
    with pytest.raises(InstanceError, match=r"operators\[0\]\.parameter_bytes is 2\.0; expected 0\.0, which is all"):
        placement_json.write(replace(graph, operators=operators))
    odd = replace(pipedream_profile.read(PROFILE, "small"), operators=(Operator("a -- b", 1.0, name="x"),), tensors=())
    with pytest.raises(InstanceError, match="operators"):
        pipedream_profile.write(odd)


def test_the_command_writes_files_and_refuses_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.graph.txt").write_text(PROFILE)
    (tmp_path / "small.json").write_text(json.dumps(RELEASED))
    for name, to, out in (("small.graph.txt", "pipedream", "p.txt"), ("small.json", "dnn-partitioning", "d.json")):
        assert main(["convert", str(tmp_path / name), "--to", to, "--out", str(tmp_path / out)]) == 0
        expect_same(
            replace(planner.load(str(tmp_path / name)), name="x"),
            replace(planner.load(str(tmp_path / out)), name="x"),
            to,
        )
    capsys.readouterr()
    for words, said in (
        (["strategies", "--to", "pipedream"], "INSTANCE is 'operator_strategies'; expected an instance of"),
        (["strategies", "--to", "xml"], "--to is 'xml'; expected one of amp, iopddl"),
        ([str(tmp_path / "small.json"), "--to", "iopddl"], "expected an instance of operator_strategies"),
        (["galvatron"], "FILE is missing"),
    ):
        assert main(["convert", *words]) == 2
        assert said in capsys.readouterr().err
