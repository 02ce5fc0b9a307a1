"""The project's own JSON of operator partitioning, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from instances.errors import InstanceError, closest, expect, expect_unique
from instances.problems.operator_partitioning import (
    DEFAULT_BANDWIDTH,
    DEFAULT_STAGES,
    Operator,
    OperatorInstance,
    Tensor,
    TrainingMemory,
    check,
    ordered,
)
from instances.rules import Amount, Bandwidth, Count, Facts, Flag, Identifier, NodeId, Requirements, Version, one_of
from instances.validation import validated


class _TensorRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    source: NodeId
    targets: list[NodeId]
    volume_bytes: Amount


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, one_of("operator_partitioning")]
    schema_version: Version = 1
    name: Identifier = "operators"
    num_stages: Count | None = DEFAULT_STAGES
    replicas: Count = 1
    bandwidth_bytes_per_s: Bandwidth = DEFAULT_BANDWIDTH
    num_devices: Count | None = None
    memory_bytes: Amount | None = None
    pooled_memory: Flag = False
    at_most: Flag = False
    step_microbatches: Count | None = None
    training: TrainingMemory | None = None
    operators: list[Operator]
    tensors: list[_TensorRecord] = Field(default_factory=list)
    requirements: Requirements = ()
    origin: Facts = Field(default_factory=dict)


_FIELDS = (
    "name",
    "num_stages",
    "replicas",
    "bandwidth_bytes_per_s",
    "num_devices",
    "memory_bytes",
    "pooled_memory",
    "at_most",
    "step_microbatches",
    "requirements",
    "origin",
)


def read(content: Any, where: str) -> OperatorInstance:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        If a field breaks a rule, an id is used twice, a tensor names an unknown operator, or there is a cycle.
    """
    record = validated(_InstanceRecord, content, where)
    expect(bool(record.operators), where, "operators", [], "at least one operator")
    expect_unique([operator.id for operator in record.operators], where, "operators")
    index = {str(operator.id): number for number, operator in enumerate(record.operators)}
    tensors = [_tensor(tensor, number, index, where) for number, tensor in enumerate(record.tensors)]
    operators, tensors_ordered = ordered(record.operators, tensors, where)
    fields = {name: getattr(record, name) for name in _FIELDS}
    if record.num_stages is None and record.step_microbatches is None:
        each = (record.training or TrainingMemory()).microbatches
        fields["step_microbatches"] = each * (record.num_devices or 1)
    instance = OperatorInstance(operators=operators, tensors=tensors_ordered, training=record.training, **fields)
    check(instance, where)
    return instance


def _tensor(record: _TensorRecord, number: int, index: dict[str, int], where: str) -> Tensor:
    place = f"tensors[{number}]"

    def find(field: str, identity: int | str) -> int:
        if str(identity) not in index:
            raise InstanceError.at(where, f"{place}.{field}", identity, f"an operator{closest(identity, index)}")
        return index[str(identity)]

    source = find("source", record.source)
    targets = [find(f"targets[{each}]", identity) for each, identity in enumerate(record.targets)]
    if not targets or len(set(targets)) < len(targets) or source in targets:
        rule = "other operators than the source, each once, at least one"
        raise InstanceError.at(where, f"{place}.targets", record.targets, rule)
    return Tensor(source, tuple(targets), record.volume_bytes)
