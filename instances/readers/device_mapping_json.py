"""The project's own JSON of device mappings, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from instances.device_mapping import (
    AUTO,
    MICROBATCHES,
    OBJECTIVES,
    RINGS,
    DeviceMapping,
    MappingEdge,
    MappingStage,
    with_objective,
)
from instances.errors import InstanceError
from instances.parameters import one_of
from instances.readers.fields import MIN_BANDWIDTH, Amount, Count, Identifier, Version, validated

#: Devices of the largest instance.
MAX_DEVICES = 2048


def _index(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("an integer from 0 on")
    return value


class _StageRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    compute_s: Amount
    parameter_bytes: Amount


class _EdgeRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    source: Annotated[int, PlainValidator(_index)]
    target: Annotated[int, PlainValidator(_index)]
    volume_bytes: Amount


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, PlainValidator(one_of("device_mapping"))]
    schema_version: Version = 1
    name: Identifier = "mapping"
    objective: Annotated[str, PlainValidator(one_of(*OBJECTIVES, AUTO))] = AUTO
    ring: Annotated[str, PlainValidator(one_of(*RINGS))] = RINGS[0]
    microbatches: Count = MICROBATCHES
    replicas: Count
    num_devices: Count | None = None
    stages: list[_StageRecord]
    edges: list[_EdgeRecord] = Field(default_factory=list)
    bandwidth_bytes_per_s: list[list[Amount]]


def read(content: Any, where: str) -> DeviceMapping:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule: wrong types or numbers, a matrix that is not square,
        symmetric or positive, edges to nowhere, twice or in a cycle, more or fewer devices than stages x replicas.
    """
    record = validated(_InstanceRecord, content, where)
    matrix = tuple(tuple(row) for row in record.bandwidth_bytes_per_s)
    if not record.stages:
        raise InstanceError.at(where, "stages", [], "at least one stage")
    needed = len(record.stages) * record.replicas
    check_matrix(matrix, where, "bandwidth_bytes_per_s")
    for field, value in (("num_devices", record.num_devices or needed), ("len(bandwidth_bytes_per_s)", len(matrix))):
        if value != needed:
            raise InstanceError.at(where, field, value, f"{needed}: stages x replicas")
    edges = tuple(MappingEdge(edge.source, edge.target, edge.volume_bytes) for edge in record.edges)
    _check_edges(edges, len(record.stages), where)
    instance = DeviceMapping(
        name=record.name,
        stages=tuple(MappingStage(stage.compute_s, stage.parameter_bytes) for stage in record.stages),
        edges=edges,
        replicas=record.replicas,
        bandwidth_bytes_per_s=matrix,
        ring=record.ring,
        microbatches=record.microbatches,
    )
    return with_objective(instance, record.objective)


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
            if row[b] < MIN_BANDWIDTH:
                raise InstanceError.at(where, f"{field}[{a}][{b}]", row[b], "a positive number")


def _check_edges(edges: tuple[MappingEdge, ...], num_stages: int, where: str) -> None:
    """Edges must form a simple acyclic graph on the stages; `InstanceError` if they do not."""
    joined = set()
    for position, edge in enumerate(edges):
        for field, stage in (("source", edge.source), ("target", edge.target)):
            if stage >= num_stages:
                raise InstanceError.at(where, f"edges[{position}].{field}", stage, f"0 to {num_stages - 1}")
        if edge.source == edge.target:
            raise InstanceError.at(where, f"edges[{position}].target", edge.target, "another stage than the source")
        ends = (min(edge.source, edge.target), max(edge.source, edge.target))
        if ends in joined:
            raise InstanceError.at(where, f"edges[{position}]", ends, "one edge between two stages; add up the volumes")
        joined.add(ends)
    _check_acyclic(edges, num_stages, where)


def _check_acyclic(edges: tuple[MappingEdge, ...], num_stages: int, where: str) -> None:
    waiting = [sum(edge.target == stage for edge in edges) for stage in range(num_stages)]
    ready = [stage for stage in range(num_stages) if not waiting[stage]]
    after: list[list[int]] = [[] for _ in range(num_stages)]
    for edge in edges:
        after[edge.source].append(edge.target)
    done = 0
    while ready:
        done += 1
        for target in after[ready.pop()]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    if done < num_stages:
        stuck = next(stage for stage in range(num_stages) if waiting[stage])
        raise InstanceError.at(where, "edges", f"a cycle before stage {stuck}", "an acyclic stage graph")
