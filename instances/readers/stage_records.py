"""A layer graph with TMPCs as it comes from outside: what both JSON formats share, and the nouns it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from instances.memory_schemes import Bookkeeping
from instances.problems.stage_partitioning import Edge, Layer, Tmpc
from instances.rules import Amount, Degree, Identifier, NodeId, Text


class TmpcRecord(BaseModel):
    """One TMPC; sync volumes are keyed by the text of a node id. What it holds may be left to a rule."""

    model_config = ConfigDict(extra="forbid")
    id: Identifier
    time: Amount
    weight_bytes: Amount
    activation_bytes: Amount
    static_bytes: Amount | None = None
    sync_forward_bytes: dict[str, Amount] = Field(default_factory=dict)
    sync_backward_bytes: dict[str, Amount] = Field(default_factory=dict)


class LayerRecord(BaseModel):
    """One node; TMPC lists are keyed by the text of a tensor-parallel degree."""

    model_config = ConfigDict(extra="forbid")
    id: NodeId
    name: Text = ""
    module: Text = ""
    role: Text = ""
    tmpcs: Mapping[Degree, Sequence[TmpcRecord]]


class EdgeRecord(BaseModel):
    """One edge between node ids."""

    model_config = ConfigDict(extra="forbid")
    source: NodeId
    target: NodeId
    bytes: Amount


def built(
    layers: Sequence[LayerRecord], edges: Sequence[EdgeRecord], books: Bookkeeping | None = None
) -> tuple[tuple[Layer, ...], tuple[Edge, ...]]:
    """Layers and edges in the order given; ends of edges are ids as texts, and become those of the layers.

    ``books``: what TMPCs without ``static_bytes`` hold of their weights (``None``: all have them, or no weights).
    """
    ids: dict[str, int | str] = {str(layer.id): layer.id for layer in layers}

    def volumes(given: Mapping[str, float]) -> dict[int | str, float]:
        return {ids.get(node, node): volume for node, volume in given.items()}

    def tmpc(x: TmpcRecord) -> Tmpc:
        held = x.activation_bytes, x.static_bytes or 0.0
        if x.static_bytes is None and books is not None:
            static, in_flight = books.of_weights(x.weight_bytes)
            held = x.activation_bytes + in_flight, static
        return Tmpc(x.id, x.time, x.weight_bytes, *held, volumes(x.sync_forward_bytes), volumes(x.sync_backward_bytes))

    return (
        tuple(
            Layer(
                layer.id,
                {t: tuple(tmpc(x) for x in found) for t, found in layer.tmpcs.items()},
                layer.name,
                layer.module,
                layer.role,
            )
            for layer in layers
        ),
        tuple(
            Edge(ids.get(str(edge.source), edge.source), ids.get(str(edge.target), edge.target), edge.bytes)
            for edge in edges
        ),
    )
