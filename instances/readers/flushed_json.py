"""The project's own JSON of flushed stage partitioning, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from instances.flushed_partitioning import FlushedInstance, Schedule, flushed
from instances.rules import Requirements, Version, member_of, one_of
from instances.stage_partitioning import StageInstance
from instances.validation import validated


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, one_of("flushed_partitioning")]
    schema_version: Version
    schedule: Annotated[Schedule, member_of(Schedule)] = Schedule.ONE_F_ONE_B
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
    instance = flushed(read_flat(record.flat, f"{where}: flat"), record.schedule, where)
    return replace(instance, requirements=record.requirements)
