"""Instances as `networkx.DiGraph`, and back: a graph has what the problem's own JSON has (docs/interface/instances.md).

The nodes' and edges' attributes are the keys of the JSON's nodes and edges, the graph's attributes all other keys; a
node of the graph is the node's ``id``, or its number where the JSON has none. networkx is imported when it is used.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from planner.files.graph_records import INNER, POSITION, Shape, attributes_by_name, content_of_graph, shape_of
from planner.files.load import family_of, read_declared, validate
from planner.process.errors import UsageError
from planner.types import Instance

if TYPE_CHECKING:
    import networkx


def to_networkx(instance: Instance) -> networkx.DiGraph:
    """An instance as a directed graph with the instance's own declared numbers.

    Parameters
    ----------
    instance
        Of a problem that has a graph.

    Returns
    -------
    networkx.DiGraph
        A tensor of ``operator_partitioning`` is an edge to each of its targets; ``tensor`` says which one it is.

    Raises
    ------
    UsageError
        If the problem has no graph, or two tensors join the same two operators.
    InstanceError
        If the instance breaks a rule.
    """
    import networkx

    instance = validate(instance)
    family = family_of(instance)
    shape = shape_of(family.name)
    content = family.to_json(instance)
    options = _options_of(instance)
    if "options" not in content and options:
        content["options"] = options
    inner = content[shape.inside] if shape.inside else content
    nodes, edges = inner.pop(shape.nodes), inner.pop(shape.edges, [])
    graph: networkx.DiGraph = networkx.DiGraph(**content)
    for number, node in enumerate(nodes):
        key = node["id"] if shape.named else number
        graph.add_node(key, **{name: value for name, value in node.items() if name != "id"})
    pairs = list(_edges(edges, shape))
    for source, target, attributes in pairs:
        if graph.has_edge(source, target):
            raise UsageError.at(
                "the instance", f"two tensors from {source!r} to {target!r}", "one: a DiGraph has one edge"
            )
        graph.add_edge(source, target, **attributes)
    if shape.edges != "tensors" and list(graph.edges) != [pair[:2] for pair in pairs]:
        for position, (source, target, _) in enumerate(pairs):
            graph.edges[source, target][POSITION] = position
    return graph


def from_networkx(graph: networkx.DiGraph, problem: str | None = None, **settings: Any) -> Instance:
    """The instance that a directed graph declares.

    Parameters
    ----------
    graph
        As `to_networkx` makes it, or hand-made with the keys of the problem's JSON as attributes.
        In a graph of ``stage_partitioning`` a node may have ``time``, ``weight_bytes``, ``activation_bytes`` (both 0 if
        absent) and ``static_bytes`` (or the setting ``memory_scheme``) in place of ``tmpcs``: the layer on one device.
    problem
        Default: the graph's own attribute ``problem``, or ``stage_partitioning``.
    **settings
        The problem's settings (`planner.load`), such as ``devices=8``; they also stand for attributes that the graph
        does not have.

    Raises
    ------
    InstanceError
        If an attribute is missing or breaks a rule: one line with the field, the value and the rule.
    UsageError
        If this is no `networkx.DiGraph`, the problem has no graph, or a setting is unknown or breaks its rule.
    """
    import networkx

    if not isinstance(graph, networkx.DiGraph) or graph.is_multigraph():
        raise UsageError.at("the graph", type(graph).__name__, "a networkx.DiGraph")
    own = graph.graph.get("problem", "stage_partitioning")
    if problem is not None and shape_of(problem).inside and own == INNER[shape_of(problem).inside]:
        flat: Instance = read_declared(content_of_graph(graph, "graph", own, settings), "graph", problem, settings)
        return flat
    content = content_of_graph(graph, "graph", problem or own, settings)
    made = read_declared({**content, "problem": problem or own}, "graph", None, settings)
    options = None if settings else attributes_by_name(graph.graph).get("options")
    instance: Instance = replace(made, options=options) if options and _options_of(made) is not None else made
    return instance


def _options_of(instance: Any) -> dict[str, Any] | None:
    """How the instance was made; ``None`` if it has no field for that."""
    return dict(instance.options) if "options" in {each.name for each in fields(instance)} else None


def _edges(edges: list[dict[str, Any]], shape: Shape) -> Any:
    """Source, target and attributes of every edge; those of a tensor one for each target."""
    for number, edge in enumerate(edges):
        rest = {name: value for name, value in edge.items() if name not in ("source", "target", "targets")}
        if shape.edges == "tensors":
            yield from ((edge["source"], target, {"tensor": number, **rest}) for target in edge["targets"])
        else:
            yield edge["source"], edge["target"], rest
