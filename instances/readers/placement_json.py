"""Graphs of the dnn-partitioning release (device placement, NeurIPS 2020): ``maxFPGAs``, ``nodes``, ``edges``.

Latencies are milliseconds. An edge's ``cost`` is its time in the same unit; where edges have a ``size`` too, their
ratio is the bandwidth behind the costs, and the costs become bytes at that bandwidth.

Source: msr-fiddle/dnn-partitioning (commit b207b6a), README.md, section "Input format", read by
throughput-dp/dp.cpp.
"""

import statistics
from dataclasses import replace
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from instances.errors import InstanceError, closest
from instances.problems.operator_partitioning import Operator, OperatorInstance, in_topological_order, merge_edges
from instances.readers.written import expect_same
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

    ``part`` is ``whole`` (every node is an operator, whatever its class), or ``forward``: each colour class of forward
    nodes, which are declared to lie on one device, is one operator, with the time and size of the class's backward
    nodes, and on its edges what goes back along them. So are classes between which there is a cycle.

    `InstanceError` if a field breaks a rule, an id is used twice, an edge names a node that is not there, or there is a
    cycle.
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
    host = _on_one_device(graph, _hosts(graph, where)) if part == "forward" else {each: each for each in nodes}
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
    """The forward node that stands for each node: the first of its colour class, or itself if it has none."""
    first: dict[int | str, str] = {}
    for node in graph.nodes:
        if not node.isBackwardNode and node.colorClass is not None:
            first.setdefault(node.colorClass, str(node.id))
    hosts = {}
    for number, node in enumerate(graph.nodes):
        if node.colorClass in first:
            hosts[str(node.id)] = first[node.colorClass]
        elif not node.isBackwardNode:
            hosts[str(node.id)] = str(node.id)
        else:
            rule = "the class of a forward node (or --part whole)"
            raise InstanceError.at(where, f"nodes[{number}].colorClass", node.colorClass, rule)
    return hosts


def _on_one_device(graph: _Graph, host: dict[str, str]) -> dict[str, str]:
    """The same, where classes between which there is a cycle are one: no stage can come between them."""
    import networkx as nx

    backward = {str(node.id) for node in graph.nodes if node.isBackwardNode}
    pairs = [(str(edge.sourceId), str(edge.destId)) for edge in graph.edges]
    forward = [(source, target) for source, target in pairs if not {source, target} & backward]
    if not nx.is_directed_acyclic_graph(nx.DiGraph(forward)):  # a cycle of the file's own is an error
        return host
    place = {identity: number for number, identity in enumerate(host)}
    between = nx.DiGraph((host[source], host[target]) for source, target in forward)
    first = {each: min(together, key=place.__getitem__)
             for together in nx.strongly_connected_components(between) for each in together}  # fmt: skip
    return {each: first.get(own, own) for each, own in host.items()}


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
    """Sizes of a class's forward and backward nodes are of the same weights, so the larger ones count."""
    seconds = sum(member.fpgaLatency for member in members) / 1e3
    forward = sum(member.size for member in members if not member.isBackwardNode)
    size = max([forward, *(member.size for member in members if member.isBackwardNode)])
    return Operator(node.id, seconds, memory_bytes=size, name=node.name)


def _bytes_per_ms(edges: list[_Edge]) -> float:
    ratios = [edge.size / edge.cost for edge in edges if edge.size and edge.cost]
    return statistics.median_low(ratios) if ratios else _BYTES_PER_MS


def write(instance: OperatorInstance) -> dict[str, Any]:
    """The content of a file that reads back as the instance, to rounding: each operator is a forward node.

    An edge has a cost at the instance's bandwidth, and its bytes. What the release's programs need beside is left to be
    edited: as many devices as stages and replicas, no CPU, and the instance's memory.

    `InstanceError` if the format cannot say something: parameters and activations apart, a schedule, settings such as
    ``--stages``.
    """
    per_ms = instance.bandwidth_bytes_per_s / 1e3
    ids = [each.id for each in instance.operators]
    nodes = [
        {
            "id": each.id,
            "name": each.name,
            "supportedOnFpga": True,
            "cpuLatency": 0,
            "fpgaLatency": each.compute_s * 1e3,
            "isBackwardNode": False,
            "colorClass": None,
            "size": each.memory_bytes,
        }
        for each in instance.operators
    ]
    edges = [
        {"sourceId": ids[sent.source], "destId": ids[target], "cost": sent.volume_bytes / per_ms,
         "size": sent.volume_bytes}
        for sent in instance.tensors
        for target in sent.targets
    ]  # fmt: skip
    content = {"maxFPGAs": (instance.num_stages or 1) * instance.replicas, "maxCPUs": 0, "nodes": nodes, "edges": edges}
    expect_same(instance, replace(read(content, instance.name), name=instance.name), "dnn-partitioning")
    return content
