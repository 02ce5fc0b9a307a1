"""The project's own JSON of flushed stage partitioning, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from instances.problems.flushed_partitioning import FlushedInstance, Schedule, flushed
from instances.problems.stage_partitioning import StageInstance
from instances.rules import Bandwidth, Count, Requirements, Version, member_of, one_of
from instances.validation import validated


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, one_of("flushed_partitioning")]
    schema_version: Version
    schedule: Annotated[Schedule, member_of(Schedule)] = Schedule.ONE_F_ONE_B
    devices_per_machine: Count | None = None
    inner_bandwidth: Bandwidth | None = None
    flat: dict[str, Any]
    requirements: Requirements = ()


def read(content: Any, where: str, read_flat: Callable[[Any, str], StageInstance]) -> FlushedInstance:
    """The instance that parsed JSON declares; ``read_flat`` reads its ``flat`` part.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule.
    """
    record = validated(_InstanceRecord, content, where)
    flat = read_flat(record.flat, f"{where}: flat")
    instance = flushed(flat, record.schedule, where, record.devices_per_machine, record.inner_bandwidth)
    return replace(instance, requirements=record.requirements)
