"""Stage partitioning for pipelines that are flushed after every batch: a flat instance and a schedule.

Nouns only; the objective is in the family's ``problem.py``. Source: Piper, section 6 (future work).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from instances import stage_partitioning
from instances.errors import expect
from instances.requirements import declared, expect_none
from instances.rules import Requirements, member_of
from instances.stage_partitioning import StageInstance
from instances.stage_partitioning import to_json as flat_to_json


class Schedule(StrEnum):
    """Backward passes as soon as they can (1F1B), or after all forward passes (GPipe)."""

    ONE_F_ONE_B = "1f1b"
    GPIPE = "gpipe"


@dataclass(frozen=True)
class FlushedInstance:
    """A flat instance whose N micro-batches (m) are one batch, after which the pipeline is flushed."""

    flat: StageInstance
    schedule: Annotated[Schedule, member_of(Schedule)] = Schedule.ONE_F_ONE_B
    requirements: Requirements = ()

    @property
    def name(self) -> str:
        """The name of the flat instance."""
        return self.flat.name

    @property
    def options(self) -> Mapping[str, str | int | float | bool]:
        """How the flat instance was made, and the schedule."""
        return {**self.flat.options, "schedule": str(self.schedule)}

    @cached_property
    def weightless(self) -> StageInstance:
        """The flat instance without weights: its stages are never synchronised."""
        layers = tuple(
            replace(
                layer,
                tmpcs={t: tuple(replace(x, weight_bytes=0.0) for x in found) for t, found in layer.tmpcs.items()},
            )
            for layer in self.flat.layers
        )
        return replace(self.flat, layers=layers)


def flushed(flat: StageInstance, schedule: Schedule = Schedule.ONE_F_ONE_B, where: str = "instance") -> FlushedInstance:
    """The flushed instance of a flat one; `InstanceError` if that requires degrees that sum to exactly N."""
    expect_none(flat, where, "flat")
    expect(not flat.exactly, where, "exactly", True, "false: a batch has N micro-batches whatever the degrees")
    return FlushedInstance(flat, schedule)


def check(instance: FlushedInstance, where: str) -> None:
    """The rules of the flat instance, and those of `flushed`; `InstanceError` if one is broken."""
    stage_partitioning.check(instance.flat, f"{where}: flat")
    flushed(instance.flat, instance.schedule, where)


def to_json(instance: FlushedInstance) -> dict[str, Any]:
    """The instance in the project's own JSON; reading it back gives an equal instance."""
    return {
        "problem": "flushed_partitioning",
        "schema_version": 1,
        **declared(instance),
        "schedule": str(instance.schedule),
        "flat": flat_to_json(instance.flat),
    }
