"""Instances as networkx graphs: what goes out comes back, hand-made graphs, and files of graphs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import pytest

import planner
from instances.errors import InstanceError
from planner.cli.app import main
from planner.files.graph_records import is_graph
from planner.files.networkx_graphs import from_networkx, to_networkx
from planner.process.errors import UsageError

#: An instance of every problem that has a graph; among them edges in another order than the nodes'.
GRAPHS: list[tuple[str, dict[str, Any]]] = [
    ("diamond", {"memory": "40MB"}), ("chain8-flushed", {}), ("chain8-machines", {}), ("gnmt", {"stages": 3}),
    ("placement", {}), ("candle-uno", {"devices": 8}), ("topology", {}), ("schedule-figure-5", {}),
]  # fmt: skip
FLAT = {"devices": 2, "memory": "1MB", "bandwidth": "1GB/s", "microbatches": 4}
TRAINED = {**FLAT, "memory_scheme": "mixed"}


def by_hand() -> networkx.DiGraph:
    graph = networkx.DiGraph()
    graph.add_node("a", time=1.0, weight_bytes=10.0)
    graph.add_node("b", time=2.0)
    graph.add_edge("a", "b", bytes=5.0)
    return graph


@pytest.mark.parametrize(("name", "settings"), GRAPHS)
def test_a_graph_comes_back_as_the_same_instance(name: str, settings: dict[str, Any]) -> None:
    instance = planner.load(name, **settings)
    graph = to_networkx(instance)
    assert networkx.is_directed_acyclic_graph(graph)
    assert from_networkx(graph) == instance


@pytest.mark.parametrize("name", [name for name, _ in GRAPHS])
def test_files_of_graphs_are_read(name: str, tmp_path: Path) -> None:
    instance = planner.load(name)
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(networkx.node_link_data(to_networkx(instance), edges="edges")))
    found = planner.load(path)
    assert to_networkx(found).nodes(data=True) == to_networkx(instance).nodes(data=True)
    if name == "topology":  # its file does not say how its objective was chosen
        instance, found = replace(instance, options={}), replace(found, options={})
    assert found == instance


def test_attributes_are_the_declared_numbers() -> None:
    graph = to_networkx(planner.load("candle-uno", devices=8))
    assert graph.graph["num_devices"] == 8
    assert {"forward", "backward", "weight_bytes"} <= set(next(iter(graph.nodes(data=True)))[1])
    assert all(attributes["bytes_per_sample"] > 0 for _, _, attributes in graph.edges(data=True))


def test_edges_keep_their_order_among_themselves() -> None:
    """It is that of the instance, though a graph lists edges by their source."""
    graph = networkx.DiGraph()
    graph.add_nodes_from("abc", time=1.0)
    graph.add_edge("b", "c", bytes=1.0, position=0)
    graph.add_edge("a", "b", bytes=1.0, position=1)
    instance = from_networkx(graph, **FLAT)
    assert [edge.source for edge in instance.edges] == ["b", "a"]
    assert from_networkx(to_networkx(instance)).edges == instance.edges


def test_a_graph_made_by_hand() -> None:
    instance = from_networkx(by_hand(), **TRAINED)
    (tmpc,) = instance.layers[0].tmpcs[1]
    assert (tmpc.time, tmpc.weight_bytes, tmpc.static_bytes) == (1.0, 10.0, 80.0)
    assert planner.solve(instance, exact=True).objective == pytest.approx(1.5)
    assert from_networkx(by_hand(), "flushed_partitioning", **TRAINED).flat == instance
    operators = networkx.DiGraph(bandwidth_bytes_per_s=1e9)
    operators.add_node("a", compute_s=1.0)
    operators.add_node("b", compute_s=2.0)
    operators.add_node("c", compute_s=2.0)
    operators.add_edge("a", "b", volume_bytes=5.0, tensor=0)
    operators.add_edge("a", "c", volume_bytes=5.0, tensor=0)
    (tensor,) = from_networkx(operators, "operator_partitioning", stages=2).tensors
    assert (tensor.source, tensor.targets) == (0, (1, 2))


@pytest.mark.parametrize(
    ("change", "settings", "error"),
    [
        (lambda graph: graph, {}, "graph: num_devices is missing"),
        (lambda graph: graph.nodes["b"].pop("time"), FLAT, "graph: layers[1].tmpcs is missing"),
        (lambda graph: graph.nodes["b"].update(time=-1), FLAT, "graph: layers[1].tmpcs.1[0].time is -1; expected 0"),
        (lambda graph: graph.nodes["b"].update(colour="red"), FLAT, "graph: layers[1].colour is 'red'"),
        (lambda graph: graph.edges["a", "b"].clear(), FLAT, "graph: edges[0].bytes is missing"),
        (lambda graph: graph.add_edge("b", "a", bytes=1.0), TRAINED, "cycle b -> a -> b"),
        (
            lambda graph: graph.nodes["a"].update(weight_bytes=20.0),
            FLAT,
            "graph: layers[0].tmpcs.1[0].static_bytes is missing; expected a size, or --memory-sch",
        ),
        (lambda graph: graph.add_node((1, 2), time=1.0), FLAT, "graph: layers[2].id"),
    ],
)
def test_what_a_graph_lacks_is_one_line(change: Any, settings: dict[str, Any], error: str) -> None:
    graph = by_hand()
    change(graph)
    with pytest.raises(InstanceError) as raised:
        from_networkx(graph, **settings)
    assert error in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("graph", "problem", "settings", "error"),
    [
        (networkx.Graph(), None, {}, "a networkx.DiGraph"),
        (networkx.MultiDiGraph(), None, {}, "a networkx.DiGraph"),
        ({"nodes": []}, None, {}, "a networkx.DiGraph"),
        (by_hand(), "mesh_tiling", {}, "one that has a graph: stage_partitioning"),
        (by_hand(), None, {"memry": 1}, "--memry"),
    ],
)
def test_wrong_use_is_reported(graph: Any, problem: str | None, settings: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        from_networkx(graph, problem, **settings)


def test_problems_without_a_graph_are_refused() -> None:
    with pytest.raises(UsageError, match="one that has a graph"):
        to_networkx(planner.load("knapsack"))


def test_two_tensors_between_two_operators_are_refused() -> None:
    graph = networkx.DiGraph(bandwidth_bytes_per_s=1e9)
    graph.add_nodes_from("ab", compute_s=1.0)
    graph.add_edge("a", "b", volume_bytes=5.0)
    instance = from_networkx(graph, "operator_partitioning", stages=2)
    twice = replace(instance, tensors=instance.tensors * 2)
    with pytest.raises(UsageError, match="two tensors from 'a' to 'b'"):
        to_networkx(twice)


def test_the_command_line_takes_files_of_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hand.json"
    path.write_text(json.dumps(networkx.node_link_data(by_hand(), edges="edges")))
    given = ["--devices", "2", "--memory", "1MB", "--bandwidth", "1GB/s", "--microbatches", "4", "--quiet"]
    given += ["--memory-scheme", "mixed"]
    assert main(["solve", str(path), "--exact", "--json", *given]) == 0
    assert json.loads(capsys.readouterr().out)["objective"] == pytest.approx(1.5)
    assert main(["solve", str(path), "--problem", "flushed_partitioning", "--json", *given]) == 0
    assert json.loads(capsys.readouterr().out)["problem"] == "flushed_partitioning"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"directed": true, "nodes": [{}], "links": []}', "layers[0].tmpcs is missing"),
        ('{"directed": true, "nodes": [3], "links": []}', "node-link JSON"),
        ('{"directed": false, "nodes": [], "links": []}', "undirected"),
        ('{"directed": true, "multigraph": true, "nodes": [], "links": []}', "a multigraph"),
        ('{"directed": true, "nodes": [{"id": 1}], "graph": 7, "links": []}', "graph is 7; expected an object"),
        (
            '{"directed": true, "nodes": [{"id": 1}], "graph": {"problem": "no such"}, "links": []}',
            "one that has a graph",
        ),
    ],
)
def test_files_that_are_no_directed_graph_are_one_line(text: str, error: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.txt"
    path.write_text(text)
    with pytest.raises((InstanceError, UsageError)) as raised:
        planner.load(path)
    assert error in str(raised.value) and "\n" not in str(raised.value)


def test_our_own_json_is_no_graph() -> None:
    assert not is_graph({"problem": "tmpc_knapsack", "nodes": [], "directed": True})
    assert not is_graph({"nodes": [], "edges": []}) and not is_graph("<graphml>") and not is_graph([1])


def test_graphml_is_told_what_is_read_instead(tmp_path: Path) -> None:
    (tmp_path / "graph.xml").write_text('<?xml version="1.0"?>\n<graphml></graphml>')
    with pytest.raises(InstanceError, match="content is 'GraphML'; expected node-link JSON"):
        planner.load(tmp_path / "graph.xml")
