"""Graphs in files of node-link JSON, as the JSON of a problem.

networkx is imported when there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import formulations
from instances.errors import InstanceError
from planner.files.settings import parse
from planner.process.errors import UsageError

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True)
class Shape:
    """Where the graph is in a problem's JSON: its lists of nodes and edges, in the object ``inside`` if there is one.

    ``named``: nodes have ids. ``aliases`` are the required fields that a setting of another name stands for.
    """

    nodes: str
    edges: str
    inside: str = ""
    named: bool = False
    aliases: Mapping[str, str] | None = None


_FLAT = {
    "devices": "num_devices",
    "memory": "memory_bytes",
    "bandwidth": "bandwidth",
    "microbatches": "num_microbatches",
}
_STAGE_GRAPH = {
    "devices": "num_devices",
    "memory": "memory_bytes",
    "bandwidth": "bandwidth_bytes_per_s",
    "latency": "latency_s",
    "minibatch": "minibatch",
}
_SHAPES = {
    "stage_partitioning": Shape("layers", "edges", named=True, aliases=_FLAT),
    "flushed_partitioning": Shape("layers", "edges", "flat", named=True, aliases=_FLAT),
    "training_strategy": Shape("layers", "edges", "flat", named=True, aliases=_FLAT),
    "hierarchical_partitioning": Shape("layers", "edges", "flat", named=True, aliases=_FLAT),
    "operator_partitioning": Shape("operators", "tensors", named=True),
    "pipeline_placement": Shape("operators", "tensors", "operators", named=True),
    "stage_graph": Shape("operators", "edges", named=True, aliases=_STAGE_GRAPH),
    "device_mapping": Shape("stages", "edges"),
    "microbatch_schedule": Shape("stages", "edges"),
}
INNER = {"flat": "stage_partitioning", "operators": "operator_partitioning"}
#: An edge's place among the edges of the instance, where the graph has them in another order.
POSITION = "position"


def is_graph(content: Any) -> bool:
    """Whether the content of a file is a graph: node-link JSON."""
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), list):
        return False
    return "problem" not in content and bool({"directed", "multigraph"} & set(content))


def read_graph(content: Any, where: str) -> networkx.DiGraph:
    """The directed graph in a file of node-link JSON; `InstanceError` if there is none."""
    import networkx

    try:
        edges = "links" if "links" in content else "edges"
        graph = networkx.node_link_graph(content, directed=True, multigraph=False, edges=edges)
    except (networkx.NetworkXException, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InstanceError.at(where, "the graph", f"{type(error).__name__}: {error}", "node-link JSON") from None
    if not isinstance(graph.graph, dict):
        raise InstanceError.at(where, "graph", graph.graph, "an object")
    if not graph.is_directed() or graph.is_multigraph():
        kind = "a multigraph" if graph.is_multigraph() else "undirected"
        raise InstanceError.at(where, "the graph", kind, "a directed graph with one edge between two nodes")
    return graph


def content_of_graph(graph: networkx.DiGraph, where: str, problem: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The problem's own JSON of a graph; what it lacks is taken from the settings where they have it."""
    shape = shape_of(problem)
    content = {"problem": problem, "schema_version": 1, **attributes_by_name(graph.graph)}
    if problem != "stage_partitioning":  # in the JSON of the others no options are declared
        content.pop("options", None)
    if shape.inside:
        inner = content.setdefault(shape.inside, {})
        if not isinstance(inner, dict):
            raise InstanceError.at(where, shape.inside, inner, "an object")
        inner = content[shape.inside] = {"problem": INNER[shape.inside], "schema_version": 1, **inner}
    else:
        inner = content
    nodes = {key: attributes_by_name(attributes) for key, attributes in graph.nodes(data=True)}
    names = {key: node.get("id", key) if shape.named else place for place, (key, node) in enumerate(nodes.items())}
    inner[shape.nodes] = [{**({"id": names[key]} if shape.named else {}), **node} for key, node in nodes.items()]
    ends = [
        (names[source], names[target], attributes_by_name(found)) for source, target, found in graph.edges(data=True)
    ]
    inner[shape.edges] = _tensors(ends) if shape.edges == "tensors" else _edge_list(ends)
    with_machine(inner, settings, problem)
    return content


def with_machine(
    content: dict[str, Any], settings: Mapping[str, Any], problem: str = "stage_partitioning"
) -> dict[str, Any]:
    """The content, with the sizes of the machine that it lacks and the settings have."""
    for setting, field in (shape_of(problem).aliases or {}).items():
        if field not in content and settings.get(setting) is not None:
            family = next(family for family in formulations.FAMILIES if family.name == problem)
            content[field] = parse(family.overrides, {setting: settings[setting]}, problem)[setting]
    return content


def has_machine(problem: str) -> bool:
    """Whether settings stand for fields that the problem's JSON has at its top."""
    return problem in _SHAPES and bool(_SHAPES[problem].aliases) and not _SHAPES[problem].inside


def shape_of(problem: str) -> Shape:
    """Where the graph is in a problem's JSON; `UsageError` if the problem has none."""
    if problem not in _SHAPES:
        raise UsageError.at("the problem", problem, f"one that has a graph: {', '.join(_SHAPES)}")
    return _SHAPES[problem]


def nodes_in(problem: str, content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The list of nodes in a problem's own JSON; empty if the problem has no graph."""
    shape = _SHAPES.get(problem)
    if shape is None:
        return []
    found: list[dict[str, Any]] = (content[shape.inside] if shape.inside else content)[shape.nodes]
    return found


def _edge_list(ends: list[tuple[Any, Any, dict[str, Any]]]) -> list[dict[str, Any]]:
    if all(isinstance(found.get(POSITION), int) for _, _, found in ends):
        ends = sorted(ends, key=lambda end: end[2][POSITION])
    return [
        {"source": source, "target": target, **{name: value for name, value in found.items() if name != POSITION}}
        for source, target, found in ends
    ]


def _tensors(ends: list[tuple[Any, Any, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Edges of one source with the same ``tensor`` are one tensor; an edge without is one of its own."""
    tensors: dict[Any, dict[str, Any]] = {}
    for number, (source, target, found) in enumerate(ends):
        which = found.pop("tensor", None)
        key = (0, which, source) if isinstance(which, int) else (1, number, source)
        tensor = tensors.setdefault(key, {"source": source, "targets": [], **found})
        tensor["targets"].append(target)
    return [tensors[key] for key in sorted(tensors, key=lambda key: key[:2])]


def attributes_by_name(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes by names that are texts."""
    return {str(name): value for name, value in attributes.items()}
