"""Graphs of the dnn-partitioning release (device placement, NeurIPS 2020): ``maxFPGAs``, ``nodes``, ``edges``.

Latencies are milliseconds. An edge's ``cost`` is its time in the same unit; where edges have a ``size`` too, their
ratio is the bandwidth behind the costs, and the costs become bytes at that bandwidth.
"""

from __future__ import annotations

import statistics
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from instances.errors import InstanceError, closest
from instances.problems.operator_partitioning import Operator, OperatorInstance, in_topological_order, merge_edges
from instances.rules import Amount, NodeId, Rule, Text
from instances.validation import read_record

#: Bytes per millisecond behind the costs where no edge gives it: 2 GiB/s, as in the release's operator graphs.
_BYTES_PER_MS = 2**31 / 1000


_Marker = Annotated[bool, Rule("0, 1, true or false", lambda core, _: core.literal_schema([0, 1, True, False]))]


class _Node(BaseModel):
    model_config = ConfigDict(extra="ignore")
    id: NodeId
    name: Text = ""
    fpgaLatency: Amount  # noqa: N815
    isBackwardNode: _Marker = False  # noqa: N815
    colorClass: NodeId | None = None  # noqa: N815
    size: Amount = 0.0


class _Edge(BaseModel):
    model_config = ConfigDict(extra="ignore")
    sourceId: NodeId  # noqa: N815
    destId: NodeId  # noqa: N815
    cost: Amount
    size: Amount | None = None


class _Graph(BaseModel):
    model_config = ConfigDict(extra="ignore")
    nodes: list[_Node]
    edges: list[_Edge]


def read(content: Any, where: str, part: str = "forward") -> OperatorInstance:
    """The operator graph of a file; without backward nodes the parts are the same.

    ``part`` is ``whole`` (backward nodes are operators like others), or ``forward``: the forward nodes, each with the
    time and size of the backward nodes of its colour class, and on its edges what goes back along them.

    Raises
    ------
    InstanceError
        If a field breaks a rule, an id is used twice, an edge names a node that is not there, or there is a cycle.
    """
    graph = read_record(_Graph, content, where)
    nodes = {str(node.id): node for node in graph.nodes}
    if len(nodes) < len(graph.nodes) or not nodes:
        raise InstanceError.at(where, "nodes", f"{len(graph.nodes)} nodes", "at least one, with ids that differ")
    for number, edge in enumerate(graph.edges):
        for field, end in (("sourceId", edge.sourceId), ("destId", edge.destId)):
            if str(end) not in nodes:
                raise InstanceError.at(where, f"edges[{number}].{field}", end, f"a node{closest(end, nodes)}")
        if str(edge.sourceId) == str(edge.destId):
            raise InstanceError.at(where, f"edges[{number}].destId", edge.destId, "another node than its source")
    host = _hosts(graph, where) if part == "forward" else {identity: identity for identity in nodes}
    per_ms = _bytes_per_ms(graph.edges)
    place = {identity: index for index, identity in enumerate(dict.fromkeys(host.values()))}
    volumes = _volumes(graph.edges, nodes, host, per_ms, merges=part == "forward")
    members: dict[str, list[_Node]] = {}
    for each, node in nodes.items():
        members.setdefault(host[each], []).append(node)
    operators = [_operator(nodes[identity], members[identity]) for identity in place]
    tensors = merge_edges((place[a], place[b], volume) for (a, b), volume in volumes.items())
    ordered_operators, tensors = in_topological_order(operators, tensors, where, "edges")
    name = PurePath(where).name.removesuffix(".json") or "graph"
    return OperatorInstance(name, ordered_operators, tensors, bandwidth_bytes_per_s=per_ms * 1e3)


def _hosts(graph: _Graph, where: str) -> dict[str, str]:
    """The forward node that stands for each node: itself, or the first of a backward node's colour class."""
    first: dict[int | str, str] = {}
    for node in graph.nodes:
        if not node.isBackwardNode and node.colorClass is not None:
            first.setdefault(node.colorClass, str(node.id))
    hosts = {}
    for number, node in enumerate(graph.nodes):
        if not node.isBackwardNode:
            hosts[str(node.id)] = str(node.id)
        elif node.colorClass in first:
            hosts[str(node.id)] = first[node.colorClass]
        else:
            rule = "the class of a forward node (or --part whole)"
            raise InstanceError.at(where, f"nodes[{number}].colorClass", node.colorClass, rule)
    return hosts


def _volumes(
    edges: list[_Edge], nodes: dict[str, _Node], host: dict[str, str], per_ms: float, *, merges: bool
) -> dict[tuple[str, str], float]:
    """Bytes along each pair of operators, in the direction of the forward pass; gradients add to activations."""
    volumes: dict[tuple[str, str], float] = {}
    gradients: dict[tuple[str, str], float] = {}
    for edge in edges:
        source, target = str(edge.sourceId), str(edge.destId)
        pair, volume = (host[source], host[target]), edge.cost * per_ms
        if merges and nodes[source].isBackwardNode and nodes[target].isBackwardNode:
            gradients[pair[::-1]] = gradients.get(pair[::-1], 0.0) + volume
        elif pair[0] != pair[1] and not (merges and nodes[target].isBackwardNode):
            volumes[pair] = volumes.get(pair, 0.0) + volume
    for pair in gradients.keys() & volumes.keys():
        volumes[pair] += gradients[pair]
    return volumes


def _operator(node: _Node, members: list[_Node]) -> Operator:
    """Sizes of a class are of the same weights, so the largest counts."""
    seconds = sum(member.fpgaLatency for member in members) / 1e3
    return Operator(node.id, seconds, memory_bytes=max(member.size for member in members), name=node.name)


def _bytes_per_ms(edges: list[_Edge]) -> float:
    ratios = [edge.size / edge.cost for edge in edges if edge.size and edge.cost]
    return statistics.median_low(ratios) if ratios else _BYTES_PER_MS
