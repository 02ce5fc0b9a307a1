"""Instances as `networkx.DiGraph`, and back: a graph holds what the problem's own JSON holds (docs/interface.md).

The nodes' and edges' attributes are the keys of the JSON's nodes and edges, the graph's attributes all other keys; a
node of the graph is the node's ``id``, or its number where the JSON has none. networkx is imported when it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from instances.errors import InstanceError
from planner.errors import UsageError

if TYPE_CHECKING:
    import networkx

    from formulations.family import Family


@dataclass(frozen=True)
class _Shape:
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
    "stage_partitioning": _Shape("layers", "edges", named=True, aliases=_FLAT),
    "flushed_partitioning": _Shape("layers", "edges", "flat", named=True, aliases=_FLAT),
    "hierarchical_partitioning": _Shape("layers", "edges", "flat", named=True, aliases=_FLAT),
    "operator_partitioning": _Shape("operators", "tensors", named=True),
    "pipeline_placement": _Shape("operators", "tensors", "operators", named=True),
    "stage_graph": _Shape("operators", "edges", named=True, aliases=_STAGE_GRAPH),
    "device_mapping": _Shape("stages", "edges"),
    "microbatch_schedule": _Shape("stages", "edges"),
}
_INNER = {"flat": "stage_partitioning", "operators": "operator_partitioning"}
#: What a node of a hand-made graph has in place of ``tmpcs``: one way to execute the layer, on one device.
_TMPC = ("time", "weight_bytes", "activation_bytes", "static_bytes")
#: An edge's place among the edges of the instance, where the graph has them in another order.
_POSITION = "position"


def to_networkx(instance: Any, *, text: bool = False) -> networkx.DiGraph:
    """An instance as a directed graph with the instance's own declared numbers.

    Parameters
    ----------
    instance
        Of a problem that has a graph.
    text
        Lists, mappings and ``None`` among the attributes become JSON text, and nodes keep their ``id`` as an attribute,
        so that `networkx.write_graphml` takes the graph. `from_networkx` reads both.

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

    from planner.inputs.loading import admitted, family_of

    instance = admitted(instance)
    family = family_of(instance)
    shape = _shape(family.name)
    content = family.to_json(instance)
    if "options" not in content and _remembers(instance) and instance.options:
        content["options"] = dict(instance.options)
    inner = content[shape.inside] if shape.inside else content
    nodes, edges = inner.pop(shape.nodes), inner.pop(shape.edges, [])
    code = _as_text if text else lambda attributes: attributes
    graph: networkx.DiGraph = networkx.DiGraph(**code(content))
    for number, node in enumerate(nodes):
        key = node["id"] if shape.named else number
        graph.add_node(key, **code({name: value for name, value in node.items() if text or name != "id"}))
    pairs = list(_edges(edges, shape))
    for source, target, attributes in pairs:
        if graph.has_edge(source, target):
            raise UsageError.at(
                "the instance", f"two tensors from {source!r} to {target!r}", "one: a DiGraph has one edge"
            )
        graph.add_edge(source, target, **code(attributes))
    if shape.edges != "tensors" and list(graph.edges) != [pair[:2] for pair in pairs]:
        for position, (source, target, _) in enumerate(pairs):
            graph.edges[source, target][_POSITION] = position
    return graph


def from_networkx(graph: networkx.DiGraph, problem: str | None = None, **settings: Any) -> Any:
    """The instance that a directed graph declares.

    Parameters
    ----------
    graph
        As `to_networkx` makes it, or hand-made with the keys of the problem's JSON as attributes.
        In a graph of ``stage_partitioning`` a node may have ``time``, ``weight_bytes``, ``activation_bytes`` and
        ``static_bytes`` (the latter three 0 if absent) in place of ``tmpcs``: the layer on one device.
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

    from planner.inputs.loading import read_declared

    if not isinstance(graph, networkx.DiGraph) or graph.is_multigraph():
        raise UsageError.at("the graph", type(graph).__name__, "a networkx.DiGraph")
    own = graph.graph.get("problem", "stage_partitioning")
    if problem is not None and _shape(problem).inside and own == _INNER[_shape(problem).inside]:
        return read_declared(declared(graph, "graph", own, settings), "graph", problem, settings)
    content = declared(graph, "graph", problem or own, settings)
    instance = read_declared({**content, "problem": problem or own}, "graph", None, settings)
    options = None if settings else _as_values(graph.graph).get("options")
    return replace(instance, options=options) if options and _remembers(instance) else instance


def is_graph(content: Any) -> bool:
    """Whether the content of a file (JSON value, or text) is a graph: node-link JSON, or GraphML."""
    if isinstance(content, str):
        return content.lstrip()[:1] == "<" and "<graphml" in content[:4096]
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), list):
        return False
    return "problem" not in content and bool({"directed", "multigraph"} & set(content))


def read_graph(content: Any, where: str) -> networkx.DiGraph:
    """The directed graph in a file of node-link JSON or GraphML; `InstanceError` if there is none."""
    import networkx

    try:
        if isinstance(content, str):
            graph = networkx.parse_graphml(content)
        else:
            graph = networkx.node_link_graph(
                content, directed=True, multigraph=False, edges="links" if "links" in content else "edges"
            )
    # Each of the readers raises what its own libraries do.
    except (networkx.NetworkXException, AttributeError, LookupError, SyntaxError, TypeError, ValueError) as error:
        raise InstanceError.at(
            where, "the graph", f"{type(error).__name__}: {error}", "node-link JSON or GraphML"
        ) from None
    if not isinstance(graph.graph, dict):
        raise InstanceError.at(where, "graph", graph.graph, "an object")
    if not graph.is_directed() or graph.is_multigraph():
        kind = "a multigraph" if graph.is_multigraph() else "undirected"
        raise InstanceError.at(where, "the graph", kind, "a directed graph with one edge between two nodes")
    return graph


def declared(graph: networkx.DiGraph, where: str, problem: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The problem's own JSON of a graph; what it lacks is taken from the settings where they have it."""
    shape = _shape(problem)
    content = {"problem": problem, "schema_version": 1, **_as_values(graph.graph)}
    for automatic in ("node_default", "edge_default"):  # networkx's GraphML reader leaves them here
        content.pop(automatic, None)
    if problem != "stage_partitioning":  # in the JSON of the others no options are declared
        content.pop("options", None)
    if shape.inside:
        inner = content.setdefault(shape.inside, {})
        if not isinstance(inner, dict):
            raise InstanceError.at(where, shape.inside, inner, "an object")
        inner = content[shape.inside] = {"problem": _INNER[shape.inside], "schema_version": 1, **inner}
    else:
        inner = content
    nodes = {key: _as_values(attributes) for key, attributes in graph.nodes(data=True)}
    names = {key: node.get("id", key) if shape.named else place for place, (key, node) in enumerate(nodes.items())}
    inner[shape.nodes] = [
        {**({"id": names[key]} if shape.named else {}), **_with_tmpcs(node, shape, where, place)}
        for place, (key, node) in enumerate(nodes.items())
    ]
    ends = [(names[source], names[target], _as_values(found)) for source, target, found in graph.edges(data=True)]
    inner[shape.edges] = _tensors(ends) if shape.edges == "tensors" else _listed(ends)
    for setting, field in (shape.aliases or {}).items():
        if field not in inner and settings.get(setting) is not None:
            inner[field] = _parsed(problem, setting, settings)
    return content


def _shape(problem: str) -> _Shape:
    if problem not in _SHAPES:
        raise UsageError.at("the problem", problem, f"one that has a graph: {', '.join(_SHAPES)}")
    return _SHAPES[problem]


def _remembers(instance: Any) -> bool:
    """Whether the instance has a field for how it was made."""
    return "options" in {each.name for each in fields(instance)}


def _edges(edges: list[dict[str, Any]], shape: _Shape) -> Any:
    """Source, target and attributes of every edge; those of a tensor one for each target."""
    for number, edge in enumerate(edges):
        rest = {name: value for name, value in edge.items() if name not in ("source", "target", "targets")}
        if shape.edges == "tensors":
            yield from ((edge["source"], target, {"tensor": number, **rest}) for target in edge["targets"])
        else:
            yield edge["source"], edge["target"], rest


def _listed(ends: list[tuple[Any, Any, dict[str, Any]]]) -> list[dict[str, Any]]:
    if all(isinstance(found.get(_POSITION), int) for _, _, found in ends):
        ends = sorted(ends, key=lambda end: end[2][_POSITION])
    return [
        {"source": source, "target": target, **{name: value for name, value in found.items() if name != _POSITION}}
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


def _with_tmpcs(node: dict[str, Any], shape: _Shape, where: str, place: int) -> dict[str, Any]:
    """A node of stage partitioning with ``tmpcs``, made of the numbers of its one TMPC if it has these."""
    if shape.nodes != "layers" or "tmpcs" in node:
        return node
    if "time" not in node:
        raise InstanceError.missing(where, f"layers[{place}].tmpcs", "TMPCs, or the time of the layer's one TMPC")
    only = {"id": "only", **{name: node.get(name, 0.0) for name in _TMPC}}
    return {**{name: value for name, value in node.items() if name not in _TMPC}, "tmpcs": {"1": [only]}}


def _parsed(problem: str, setting: str, settings: Mapping[str, Any]) -> Any:
    from planner.inputs.loading import family_named
    from planner.inputs.settings import parse

    family: Family[Any, Any] = family_named(problem)
    return parse(family.overrides, {setting: settings[setting]}, problem)[setting]


def _as_text(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as GraphML takes them: what is no text, number or truth value is JSON text."""
    return {
        name: value if isinstance(value, str | int | float) else json.dumps(value) for name, value in attributes.items()
    }


def _as_values(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes before `_as_text`; names stay as they are, whatever they look like."""
    return {
        str(name): json.loads(value)
        if isinstance(value, str) and name not in ("id", "name") and _is_json(value)
        else value
        for name, value in attributes.items()
    }


def _is_json(value: str) -> bool:
    if value != "null" and value[:1] not in ("[", "{"):
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True
