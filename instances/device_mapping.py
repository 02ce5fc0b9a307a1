"""Device mapping: stages of a pipeline, several replicas of each, and the devices that run them (nouns only).

Source: Parmesan, section 5; the ratio rule is its section 5.2 with volumes counted as specified (README of the room).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

#: Objectives an instance can have. ``auto`` (``AUTO``) is resolved to one of the first two before it is built.
OBJECTIVES = ("p2p", "allreduce", "full")
AUTO = "auto"

#: ``index``: replica i sends to replica i + 1. ``free``: each stage may pass its replicas in any cyclic order.
RINGS = ("index", "free")

#: Micro-batches of a step where nothing is said (Parmesan, section 7).
MICROBATCHES = 4


@dataclass(frozen=True)
class MappingStage:
    """A pipeline stage: seconds of forward and backward of one micro-batch, and bytes of its parameters."""

    compute_s: float
    parameter_bytes: float


@dataclass(frozen=True)
class MappingEdge:
    """What two stages exchange for one micro-batch, both directions together, in bytes."""

    source: int
    target: int
    volume_bytes: float


@dataclass(frozen=True)
class DeviceMapping:
    """S stages with R replicas each, to be placed on S x R devices, one on each.

    Parameters
    ----------
    stages, edges
        The stage graph, acyclic; at most one edge between two stages.
    replicas
        R, the same for all stages.
    bandwidth_bytes_per_s
        Symmetric, shape (S R, S R), positive but on the diagonal, which nothing reads.
    objective
        ``p2p``, ``allreduce`` or ``full``: what of a stage's time counts beside its computing.
    ring
        ``index`` or ``free``: the order in which a stage's replicas pass their gradients on.
    options
        How the instance was declared; with ``auto`` the choice of the objective and its ratio.
    """

    name: str
    stages: tuple[MappingStage, ...]
    edges: tuple[MappingEdge, ...]
    replicas: int
    bandwidth_bytes_per_s: tuple[tuple[float, ...], ...]
    objective: str = "full"
    ring: str = "index"
    microbatches: int = MICROBATCHES
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_stages(self) -> int:
        """S."""
        return len(self.stages)

    @property
    def num_devices(self) -> int:
        """Devices, S x R of them."""
        return len(self.bandwidth_bytes_per_s)

    def neighbours(self, stage: int) -> tuple[tuple[int, float], ...]:
        """The stages that ``stage`` exchanges tensors with, and the bytes of a micro-batch; in the order of edges."""
        found = []
        for edge in self.edges:
            if stage == edge.source:
                found.append((edge.target, edge.volume_bytes))
            elif stage == edge.target:
                found.append((edge.source, edge.volume_bytes))
        return tuple(found)

    def ring_bytes(self, stage: int) -> float:
        """Bytes that a stage's all-reduce sends over each link of its ring in a step: 2 (R - 1) P / R."""
        return 2 * (self.replicas - 1) * self.stages[stage].parameter_bytes / self.replicas


def allreduce_ratio(instance: DeviceMapping) -> float:
    """Bytes of a step's all-reduces over bytes between stages in a step's micro-batches; ``inf`` without the latter.

    Source: Parmesan, section 5.2. Deviation: which volumes enter is not published; here each counts as often as it is
    sent in a step, so those between stages once for each micro-batch.
    """
    reduced = math.fsum(instance.ring_bytes(stage) for stage in range(instance.num_stages))
    sent = math.fsum(edge.volume_bytes for edge in instance.edges) * instance.microbatches
    if sent:
        return reduced / sent
    return math.inf if reduced else 0.0


def with_objective(instance: DeviceMapping, asked: str) -> DeviceMapping:
    """The instance under one of ``OBJECTIVES``, or under the one that the ratio rule chooses (``AUTO``).

    ``options`` then tell the objective, and with ``AUTO`` the rule's ratio.
    """
    kept = {name: value for name, value in instance.options.items() if name != "chosen"}
    if asked != AUTO:
        return replace(instance, objective=asked, options={**kept, "objective": asked})
    ratio = allreduce_ratio(instance)
    chosen = "allreduce" if ratio > 1 else "p2p"
    told = {"objective": chosen, "chosen": f"by the ratio rule: {ratio:.4g}, allreduce above 1"}
    return replace(instance, objective=chosen, options={**kept, **told})


def to_json(instance: DeviceMapping) -> dict[str, Any]:
    """The instance in the project's own JSON; reading it back gives an equal instance."""
    return {
        "problem": "device_mapping",
        "schema_version": 1,
        "name": instance.name,
        "objective": instance.objective,
        "ring": instance.ring,
        "microbatches": instance.microbatches,
        "replicas": instance.replicas,
        "num_devices": instance.num_devices,
        "stages": [vars(stage) for stage in instance.stages],
        "edges": [vars(edge) for edge in instance.edges],
        "bandwidth_bytes_per_s": [list(row) for row in instance.bandwidth_bytes_per_s],
    }
