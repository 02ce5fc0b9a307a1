"""Device mapping: stages of a pipeline, several replicas of each, and the devices that run them (nouns only).

Source: Parmesan, section 5; the ratio rule is its section 5.2 with volumes counted as specified (its README).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from instances.errors import InstanceError, expect
from instances.exchange import in_files
from instances.graph import expect_simple
from instances.rules import Amount, Count, Identifier, Index, Recorded, one_of

#: Objectives an instance can have. ``auto`` (``AUTO``) is resolved to one of the first two before it is built.
OBJECTIVES = ("p2p", "allreduce", "full")
AUTO = "auto"

#: ``index``: replica i sends to replica i + 1. ``free``: each stage may pass its replicas in any cyclic order.
RINGS = ("index", "free")

#: Devices of the largest instance.
MAX_DEVICES = 2048

#: Micro-batches of a step where nothing is said (Parmesan, section 7).
MICROBATCHES = 4


@dataclass(frozen=True)
class MappingStage:
    """A pipeline stage: seconds of forward and backward of one micro-batch, and bytes of its parameters."""

    compute_s: Amount
    parameter_bytes: Amount


@dataclass(frozen=True)
class MappingEdge:
    """What two stages exchange for one micro-batch, both directions together, in bytes."""

    source: Index
    target: Index
    volume_bytes: Amount


@in_files(
    *("name", "objective", "ring", "microbatches", "replicas", "num_devices", "stages", "edges"),
    "bandwidth_bytes_per_s",
    problem="device_mapping",
    absent={"name": "mapping", "objective": AUTO, "edges": ()},
    types={"objective": Annotated[str, one_of(*OBJECTIVES, AUTO)], "num_devices": Count | None},
    built=lambda instance: with_objective(instance, instance.objective),
)
@dataclass(frozen=True)
class DeviceMapping(Recorded):
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

    name: Identifier
    stages: tuple[MappingStage, ...]
    edges: tuple[MappingEdge, ...]
    replicas: Count
    bandwidth_bytes_per_s: tuple[tuple[Amount, ...], ...]
    objective: Annotated[str, one_of(*OBJECTIVES)] = "full"
    ring: Annotated[str, one_of(*RINGS)] = "index"
    microbatches: Count = MICROBATCHES

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


def check(instance: DeviceMapping, where: str) -> None:
    """Rules between fields.

    Raises
    ------
    InstanceError
        No stage, a matrix that is not square, symmetric and positive, more or fewer devices than stages x replicas,
        edges to nowhere, twice or in a cycle.
    """
    expect(bool(instance.stages), where, "stages", [], "at least one stage")
    check_matrix(instance.bandwidth_bytes_per_s, where, "bandwidth_bytes_per_s")
    needed = instance.num_stages * instance.replicas
    found = instance.num_devices
    expect(found == needed, where, "len(bandwidth_bytes_per_s)", found, f"{needed}: stages x replicas")
    pairs = [(edge.source, edge.target) for edge in instance.edges]
    expect_simple(instance.num_stages, pairs, where, "stage", undirected=True)


def check_matrix(matrix: Sequence[Sequence[float]], where: str, field: str) -> None:
    """Bandwidths must be a symmetric square, positive but on the diagonal; `InstanceError` if they are not."""
    size = len(matrix)
    if not 1 <= size <= MAX_DEVICES:
        raise InstanceError.at(where, f"len({field})", size, f"from 1 to {MAX_DEVICES} devices")
    for a, row in enumerate(matrix):
        if len(row) != size:
            raise InstanceError.at(where, f"len({field}[{a}])", len(row), f"{size}: the matrix is square")
        for b in range(a + 1, size):
            if len(matrix[b]) > a and matrix[b][a] != row[b]:
                rule = f"{row[b]:g}, as {field}[{a}][{b}]: the matrix is symmetric"
                raise InstanceError.at(where, f"{field}[{b}][{a}]", matrix[b][a], rule)
            if not row[b]:
                raise InstanceError.at(where, f"{field}[{a}][{b}]", row[b], "a positive number")


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


def with_objective(instance: DeviceMapping, requested: str) -> DeviceMapping:
    """The instance under one of ``OBJECTIVES``, or under the one that the ratio rule chooses (``AUTO``).

    ``options`` then record the objective, and with ``AUTO`` the rule's ratio.
    """
    kept = {name: value for name, value in instance.options.items() if name != "chosen"}
    if requested != AUTO:
        return replace(instance, objective=requested, options={**kept, "objective": requested})
    ratio = allreduce_ratio(instance)
    chosen = "allreduce" if ratio > 1 else "p2p"
    rule = f"by the ratio rule: a step's all-reduces send {ratio:.4g} times what stages do, allreduce above 1"
    return replace(instance, objective=chosen, options={**kept, "objective": chosen, "chosen": rule})
