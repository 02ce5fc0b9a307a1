"""The project's own JSON of hierarchical stage partitioning, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel, on_machines
from instances.problems.stage_partitioning import StageInstance
from instances.rules import Bandwidth, Count, Requirements, Version, member_of, one_of
from instances.validation import validated


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, one_of("hierarchical_partitioning")]
    schema_version: Version
    devices_per_machine: Count
    num_machines: Count
    inner_bandwidth: Bandwidth
    outer_bandwidth: Bandwidth
    memory_model: Annotated[MemoryModel, member_of(MemoryModel)] = MemoryModel.PRECISE
    flat: dict[str, Any]
    requirements: Requirements = ()


def read(content: Any, where: str, read_flat: Callable[[Any, str], StageInstance]) -> HierarchicalInstance:
    """The instance that parsed JSON declares; ``read_flat`` reads its ``flat`` part.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule.
    """
    record = validated(_InstanceRecord, content, where)
    instance = on_machines(
        read_flat(record.flat, f"{where}: flat"),
        record.devices_per_machine,
        record.num_machines,
        record.inner_bandwidth,
        record.outer_bandwidth,
        record.memory_model,
        where,
    )
    return replace(instance, requirements=record.requirements)
