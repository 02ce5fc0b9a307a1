"""Stage partitioning with TMPC choice: the instance (nouns only; the objective is in the family's ``problem.py``).

Source: Piper, section 3.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

NodeId = int | str


class CostModel(StrEnum):
    """Which of Piper's two cost models an instance declares (formulations/stage_partitioning/README.md)."""

    PAPER = "paper"
    RELEASED = "released"


@dataclass(frozen=True)
class Tmpc:
    """A tensor-model-parallelism configuration of one layer at one degree t.

    ``time`` is X.p (per sample, in the instance's time unit); ``weight_bytes`` is X.w; a device holds
    ``activation_bytes`` (X.a) per micro-batch in flight and ``static_bytes`` (X.b) besides;
    ``sync_forward_bytes[u]`` is X.c^fw(u, v) for a predecessor u, ``sync_backward_bytes[w]`` is X.c^bw(v, w) for a
    successor w; absent entries are 0.
    """

    id: str
    time: float
    weight_bytes: float
    activation_bytes: float
    static_bytes: float
    sync_forward_bytes: Mapping[NodeId, float] = field(default_factory=dict)
    sync_backward_bytes: Mapping[NodeId, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Layer:
    """A node v of the layer graph; ``tmpcs[t]`` is T(v, t), ids unique within each list."""

    id: NodeId
    tmpcs: Mapping[int, tuple[Tmpc, ...]]
    name: str = ""


@dataclass(frozen=True)
class Edge:
    """A data transfer (u, v) of ``bytes`` bytes: c(u, v)."""

    source: NodeId
    target: NodeId
    bytes: float


@dataclass(frozen=True)
class StageInstance:
    """A layer graph with its TMPCs, and the cluster and budgets it is planned for.

    ``num_devices`` is K, ``memory_bytes`` is M, ``bandwidth`` is B in bytes per ``time_unit``, ``num_microbatches`` is
    N. ``exactly`` asks for a sum of data-parallel degrees of exactly N instead of at most N; ``max_dp_degree`` bounds
    every stage's data-parallel degree (``None``: no bound). ``options`` records how the instance was made
    (overrides, unit fixes) for the result.
    """

    name: str
    layers: tuple[Layer, ...]
    edges: tuple[Edge, ...]
    num_devices: int
    memory_bytes: float
    bandwidth: float
    num_microbatches: int
    cost_model: CostModel = CostModel.PAPER
    time_unit: str = "s"
    exactly: bool = False
    max_dp_degree: int | None = None
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @cached_property
    def index(self) -> dict[NodeId, int]:
        """Position of every layer in ``layers``."""
        return {layer.id: position for position, layer in enumerate(self.layers)}

    @cached_property
    def edge_indices(self) -> tuple[tuple[int, int], ...]:
        """The edges as pairs of positions in ``layers``."""
        return tuple((self.index[edge.source], self.index[edge.target]) for edge in self.edges)

    @cached_property
    def tp_degrees(self) -> tuple[int, ...]:
        """All t <= K for which some layer has a TMPC, ascending."""
        return tuple(
            sorted({t for layer in self.layers for t, found in layer.tmpcs.items() if found and t <= self.num_devices})
        )


def to_json(instance: StageInstance) -> dict[str, Any]:
    """The instance in the project's own JSON; reading it back gives an equal instance."""
    content: dict[str, Any] = {
        "problem": "stage_partitioning",
        "schema_version": 1,
        "name": instance.name,
        "num_devices": instance.num_devices,
        "memory_bytes": instance.memory_bytes,
        "bandwidth": instance.bandwidth,
        "num_microbatches": instance.num_microbatches,
        "time_unit": instance.time_unit,
        "cost_model": str(instance.cost_model),
        "exactly": instance.exactly,
        "max_dp_degree": instance.max_dp_degree,
        "layers": [
            {
                "id": layer.id,
                "name": layer.name,
                "tmpcs": {str(t): [_tmpc_to_json(x) for x in tmpcs] for t, tmpcs in layer.tmpcs.items()},
            }
            for layer in instance.layers
        ],
        "edges": [{"source": edge.source, "target": edge.target, "bytes": edge.bytes} for edge in instance.edges],
    }
    if instance.options:
        content["options"] = dict(instance.options)
    if instance.warnings:
        content["warnings"] = list(instance.warnings)
    return content


def _tmpc_to_json(x: Tmpc) -> dict[str, Any]:
    return {
        "id": x.id,
        "time": x.time,
        "weight_bytes": x.weight_bytes,
        "activation_bytes": x.activation_bytes,
        "static_bytes": x.static_bytes,
        "sync_forward_bytes": {str(node): size for node, size in x.sync_forward_bytes.items()},
        "sync_backward_bytes": {str(node): size for node, size in x.sync_backward_bytes.items()},
    }
