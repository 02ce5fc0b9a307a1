"""The project's own JSON of operator partitioning, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from instances.errors import InstanceError, closest
from instances.operator_partitioning import (
    DEFAULT_BANDWIDTH,
    DEFAULT_STAGES,
    SCHEDULES,
    Operator,
    OperatorInstance,
    Tensor,
    TrainingMemory,
    ordered,
)
from instances.parameters import one_of
from instances.readers.fields import Amount, Bandwidth, Count, Flag, Identifier, NodeId, Text, Version, validated


class _OperatorRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: NodeId
    name: Text = ""
    compute_s: Amount
    parameter_bytes: Amount = 0.0
    activation_bytes: Amount = 0.0
    memory_bytes: Amount = 0.0


class _TensorRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    source: NodeId
    targets: list[NodeId]
    volume_bytes: Amount


class _TrainingRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    weight_copies: Amount = 4.0
    microbatches: Count = 4
    schedule: Annotated[str, PlainValidator(one_of(*SCHEDULES))] = "1f1b"
    recompute: Flag = True


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, PlainValidator(one_of("operator_partitioning"))]
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
    training: _TrainingRecord | None = None
    operators: list[_OperatorRecord]
    tensors: list[_TensorRecord] = Field(default_factory=list)


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
)


def read(content: Any, where: str) -> OperatorInstance:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        If a field breaks a rule, an id is used twice, a tensor names an unknown operator, or there is a cycle.
    """
    record = validated(_InstanceRecord, content, where)
    index = _index(record.operators, where)
    tensors = [_tensor(tensor, number, index, where) for number, tensor in enumerate(record.tensors)]
    try:
        operators, tensors_ordered = ordered((Operator(**dict(each)) for each in record.operators), tensors)
    except ValueError as error:
        raise InstanceError.at(where, "tensors", "a cycle", str(error)) from None
    if record.num_stages is None and record.num_devices is None:
        raise InstanceError.missing(where, "num_devices", "a number where num_stages is null")
    training = None if record.training is None else TrainingMemory(**dict(record.training))
    fields = {name: getattr(record, name) for name in _FIELDS}
    if record.num_stages is None and record.step_microbatches is None:
        fields["step_microbatches"] = (training or TrainingMemory()).microbatches * (record.num_devices or 1)
    return OperatorInstance(operators=operators, tensors=tensors_ordered, training=training, **fields)


def _index(operators: list[_OperatorRecord], where: str) -> dict[str, int]:
    if not operators:
        raise InstanceError.at(where, "operators", [], "at least one operator")
    index: dict[str, int] = {}
    for number, operator in enumerate(operators):
        if index.setdefault(str(operator.id), number) != number:
            raise InstanceError.at(where, f"operators[{number}].id", operator.id, "an id that no other operator has")
    return index


def _tensor(record: _TensorRecord, number: int, index: dict[str, int], where: str) -> Tensor:
    place = f"tensors[{number}]"

    def find(field: str, identity: int | str) -> int:
        if str(identity) not in index:
            raise InstanceError.at(where, f"{place}.{field}", identity, f"an operator{closest(identity, index)}")
        return index[str(identity)]

    source = find("source", record.source)
    targets = [find(f"targets[{each}]", identity) for each, identity in enumerate(record.targets)]
    if not targets:
        raise InstanceError.at(where, f"{place}.targets", [], "at least one operator")
    if len(set(targets)) < len(targets) or source in targets:
        raise InstanceError.at(where, f"{place}.targets", record.targets, "other operators than the source, each once")
    return Tensor(source, tuple(targets), record.volume_bytes)
