"""A layer graph with TMPCs as it comes from outside: fields that both JSON formats share, checks across fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from instances.errors import InstanceError
from instances.graph import find_cycle
from instances.parameters import MAX_COUNT
from instances.readers.fields import Amount, Identifier, NodeId, Text, path
from instances.stage_partitioning import Edge, Layer, Tmpc
from instances.stage_partitioning import NodeId as Id

_DEGREE = re.compile(r"[1-9][0-9]{0,6}")


class TmpcRecord(BaseModel):
    """One TMPC; sync volumes are keyed by the text of a node id."""

    model_config = ConfigDict(extra="forbid")
    id: Identifier
    time: Amount
    weight_bytes: Amount
    activation_bytes: Amount
    static_bytes: Amount
    sync_forward_bytes: dict[str, Amount] = Field(default_factory=dict)
    sync_backward_bytes: dict[str, Amount] = Field(default_factory=dict)


class LayerRecord(BaseModel):
    """One node; TMPC lists are keyed by the text of a tensor-parallel degree."""

    model_config = ConfigDict(extra="forbid")
    id: NodeId
    name: Text = ""
    tmpcs: Mapping[str, Sequence[TmpcRecord]]


class EdgeRecord(BaseModel):
    """One edge between node ids."""

    model_config = ConfigDict(extra="forbid")
    source: NodeId
    target: NodeId
    bytes: Amount


class GraphBuilder:
    """Turns records into layers and edges, or says which field breaks which rule.

    Parameters
    ----------
    where
        The file, for errors.
    names
        The format's own name of every field that it calls otherwise.
    """

    def __init__(self, where: str, names: Mapping[str, str]) -> None:
        self.where = where
        self.names = names

    def build(
        self, layers: Sequence[LayerRecord], edges: Sequence[EdgeRecord]
    ) -> tuple[tuple[Layer, ...], tuple[Edge, ...]]:
        """Layers and edges in the order given.

        Raises
        ------
        InstanceError
            No node, duplicate ids or edges, edges to nowhere, self-loops, cycles, nodes without any TMPC, degrees that
            are no positive integers, sync volumes for edges that do not exist.
        """
        self.ids = self._ids(layers)
        built_edges = self._edges(edges)
        self.predecessors: dict[Id, set[str]] = {node: set() for node in self.ids.values()}
        self.successors: dict[Id, set[str]] = {node: set() for node in self.ids.values()}
        for edge in built_edges:
            self.predecessors[edge.target].add(str(edge.source))
            self.successors[edge.source].add(str(edge.target))
        built_layers = tuple(self._layer(position, layer) for position, layer in enumerate(layers))
        self._check_acyclic(built_edges)
        return built_layers, built_edges

    def _error(self, location: tuple[int | str, ...], value: Any, rule: str) -> InstanceError:
        own = tuple(self.names.get(part, part) if isinstance(part, str) else part for part in location)
        return InstanceError.at(self.where, path(own), value, rule)

    def _ids(self, layers: Sequence[LayerRecord]) -> dict[str, Id]:
        if not layers:
            raise self._error(("layers",), [], "at least one node")
        ids: dict[str, Id] = {}
        for position, layer in enumerate(layers):
            if str(layer.id) in ids:
                raise self._error(("layers", position, "id"), layer.id, "an id that no earlier node has")
            ids[str(layer.id)] = layer.id
        return ids

    def _edges(self, edges: Sequence[EdgeRecord]) -> tuple[Edge, ...]:
        built, seen = [], set()
        for position, edge in enumerate(edges):
            for end, node in (("source", edge.source), ("target", edge.target)):
                if str(node) not in self.ids:
                    raise self._error(("edges", position, end), node, "the id of a node")
            pair = str(edge.source), str(edge.target)
            if pair[0] == pair[1]:
                raise self._error(("edges", position, "target"), edge.target, "a node other than the edge's source")
            if pair in seen:
                raise self._error(("edges", position), " -> ".join(pair), "an edge that is not listed before")
            seen.add(pair)
            built.append(Edge(self.ids[pair[0]], self.ids[pair[1]], edge.bytes))
        return tuple(built)

    def _layer(self, position: int, layer: LayerRecord) -> Layer:
        place = ("layers", position, "tmpcs")
        for degree in layer.tmpcs:
            if not _DEGREE.fullmatch(degree) or int(degree) > MAX_COUNT:
                raise self._error(place, degree, "a positive integer as the degree of tensor parallelism")
        if not any(layer.tmpcs.values()):
            raise self._error(place, "empty", f"at least one TMPC for node {layer.id}, at some degree")
        tmpcs = {
            int(degree): self._tmpcs(layer.id, (*place, degree), records) for degree, records in layer.tmpcs.items()
        }
        return Layer(layer.id, tmpcs, layer.name)

    def _tmpcs(self, node: Id, place: tuple[int | str, ...], records: Sequence[TmpcRecord]) -> tuple[Tmpc, ...]:
        built: dict[str, Tmpc] = {}
        for position, record in enumerate(records):
            at = (*place, position)
            if record.id in built:
                raise self._error((*at, "id"), record.id, "an id that no earlier TMPC of the list has")
            built[record.id] = Tmpc(
                record.id,
                record.time,
                record.weight_bytes,
                record.activation_bytes,
                record.static_bytes,
                self._volumes((*at, "sync_forward_bytes"), record.sync_forward_bytes, self.predecessors[node]),
                self._volumes((*at, "sync_backward_bytes"), record.sync_backward_bytes, self.successors[node]),
            )
        return tuple(built.values())

    def _volumes(
        self, place: tuple[int | str, ...], volumes: Mapping[str, float], neighbours: set[str]
    ) -> dict[Id, float]:
        kind = "predecessor" if place[-1] == "sync_forward_bytes" else "successor"
        for node in volumes:
            if node not in neighbours:
                raise self._error(place, node, f"the id of a {kind} (there is no such edge)")
        return {self.ids[node]: volume for node, volume in volumes.items()}

    def _check_acyclic(self, edges: tuple[Edge, ...]) -> None:
        index = {node: position for position, node in enumerate(self.ids.values())}
        cycle = find_cycle(len(index), [(index[edge.source], index[edge.target]) for edge in edges])
        if cycle:
            nodes = list(self.ids)
            walk = " -> ".join(nodes[position] for position in [*cycle, cycle[0]])
            raise self._error(("edges",), f"cycle {walk}", "a graph without cycles")
