"""The project's own JSON of stage graphs, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from instances.errors import InstanceError, closest, expect, expect_unique
from instances.graph import expect_acyclic, topological_order
from instances.problems.stage_graph import (
    OBJECTIVES,
    SCHEDULES,
    AffineTime,
    DeviceGraph,
    Objective,
    Operator,
    OperatorEdge,
    Schedule,
    StageGraph,
    TableTime,
    Time,
    check,
    check_time,
)
from instances.rules import Amount, Bandwidth, Count, Facts, Identifier, NodeId, Requirements, Text, Version, one_of
from instances.validation import read_fields, validated


class _OperatorRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: NodeId
    name: Text = ""
    forward: dict[str, Any]
    backward: dict[str, Any]
    weight_bytes: Amount = 0.0
    activation_bytes: Amount = 0.0


class _EdgeRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    source: NodeId
    target: NodeId
    bytes_per_sample: Amount = 0.0


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, one_of("stage_graph")]
    schema_version: Version = 1
    name: Identifier = "stage graph"
    num_devices: Count
    memory_bytes: Amount = 0.0
    bandwidth_bytes_per_s: Bandwidth = 1e30
    latency_s: Amount = 0.0
    minibatch: Count
    inner_bandwidth_bytes_per_s: Bandwidth | None = None
    devices_per_node: Count | None = None
    device_graph: DeviceGraph | None = None
    schedule: Annotated[Schedule, one_of(*SCHEDULES)] = "uniform"
    microbatches: list[Count] = Field(default_factory=list)
    pass_ratio: tuple[Count, Count] = (1, 2)
    weight_copies: Amount = 4.0
    objective: Annotated[Objective, one_of(*OBJECTIVES)] = "tps"
    operators: list[_OperatorRecord]
    edges: list[_EdgeRecord] = Field(default_factory=list)
    requirements: Requirements = ()
    origin: Facts = Field(default_factory=dict)


_PLAIN = (
    "name",
    "num_devices",
    "memory_bytes",
    "bandwidth_bytes_per_s",
    "latency_s",
    "minibatch",
    "inner_bandwidth_bytes_per_s",
    "devices_per_node",
    "schedule",
    "pass_ratio",
    "weight_copies",
    "objective",
    "device_graph",
    "requirements",
    "origin",
)


def read(content: Any, where: str) -> StageGraph:
    """The instance that parsed JSON declares; operators may come in any order.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule: wrong types, numbers that are negative, not finite or
        beyond 1e30, duplicate ids or edges, edges to nowhere, cycles, times that fall, micro-batch sizes that do not
        divide the mini-batch, a device graph of the wrong shape.
    """
    record = validated(_InstanceRecord, content, where)
    if record.device_graph is None and "memory_bytes" not in record.model_fields_set:
        raise InstanceError.missing(where, "memory_bytes", "a number of bytes, or a device_graph")
    order, edges = _graph(record, where)
    position = {index: rank for rank, index in enumerate(order)}
    ids = tuple(record.operators[index].id for index in order)
    instance = StageGraph(
        ids=() if ids == tuple(range(len(ids))) else ids,
        operators=tuple(_operator(record.operators[index], f"operators[{index}]", where) for index in order),
        edges=tuple(
            OperatorEdge(position[source], position[target], each.bytes_per_sample)
            for (source, target), each in zip(edges, record.edges, strict=True)
        ),
        microbatches=tuple(sorted(set(record.microbatches))),
        **{name: getattr(record, name) for name in _PLAIN},
    )
    check(instance, where)
    return instance


def _graph(record: _InstanceRecord, where: str) -> tuple[list[int], list[tuple[int, int]]]:
    """A topological order of the operators (declared order among the ready), and the edges as pairs of indices."""
    ids = [operator.id for operator in record.operators]
    expect(bool(ids), where, "operators", [], "at least one operator")
    expect_unique(ids, where, "operators")
    index = {name: number for number, name in enumerate(ids)}
    edges: dict[tuple[int, int], None] = {}
    for number, edge in enumerate(record.edges):
        for end, node in (("source", edge.source), ("target", edge.target)):
            if node not in index:
                rule = f"the id of an operator{closest(node, index)}"
                raise InstanceError.at(where, f"edges[{number}].{end}", node, rule)
        pair = index[edge.source], index[edge.target]
        if pair in edges or pair[0] == pair[1]:
            rule = "an edge that is declared once, between two operators"
            raise InstanceError.at(where, f"edges[{number}]", [edge.source, edge.target], rule)
        edges[pair] = None
    expect_acyclic(len(ids), list(edges), where, [str(name) for name in ids])
    return topological_order(len(ids), list(edges)), list(edges)


def _operator(record: _OperatorRecord, field: str, where: str) -> Operator:
    return Operator(
        record.name or str(record.id),
        _time(record.forward, f"{field}.forward", where),
        _time(record.backward, f"{field}.backward", where),
        record.weight_bytes,
        record.activation_bytes,
    )


def _time(content: dict[str, Any], field: str, where: str) -> Time:
    """An affine time, or a table in which time does not fall and time per sample does not rise."""
    if "samples" not in content and "seconds" not in content:
        return read_fields(AffineTime, {"fixed_s": 0.0, **content}, f"{where}: {field}")
    table = read_fields(TableTime, content, f"{where}: {field}")
    check_time(table, where, field)
    return table
