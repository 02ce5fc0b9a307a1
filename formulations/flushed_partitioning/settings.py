"""What an instance of flushed partitioning is read from, and what a caller may change of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from formulations.family import lazy
from formulations.stage_partitioning import settings as flat_overrides
from formulations.stage_partitioning.settings import describe as describe_flat
from formulations.stage_partitioning.settings import read as read_flat
from formulations.stage_partitioning.settings import recognise as recognise_flat
from instances.errors import InstanceError
from instances.flushed_partitioning import FlushedInstance, Schedule, flushed
from instances.parameters import Setting, one_of
from instances.stage_partitioning import StageInstance

SCHEDULE = Setting(
    "schedule",
    one_of(*Schedule),
    "1f1b: ceil(s/d) micro-batches in flight; gpipe: the whole batch",
    metavar="1f1b|gpipe",
)

_NOT_SHARED = {"exactly", "realizable"}
#: The flat family's settings, but a batch has N micro-batches whatever the degrees.
OVERRIDES = (*(setting for setting in flat_overrides.OVERRIDES if setting.name not in _NOT_SHARED), SCHEDULE)


def recognise(content: Any) -> bool:
    """Whether this is an instance of the family: built already, or own JSON."""
    return isinstance(content, FlushedInstance) or (
        isinstance(content, dict) and content.get("problem") == "flushed_partitioning"
    )


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> FlushedInstance:
    """The instance that ``content`` and the overrides declare; `InstanceError` if it is bad.

    The ``flat`` part of the JSON is any content that stage partitioning reads, also a file of Piper's release; such
    content alone is an instance with the default schedule.
    """
    shared = {name: value for name, value in overrides.items() if name != "schedule"}
    if recognise_flat(content):
        made = flushed(read_flat(content, where, shared), where=where)
    elif isinstance(content, FlushedInstance):
        made = flushed(flat_overrides.apply(content.flat, shared, where), content.schedule, where)
        made = replace(made, requirements=content.requirements)
    else:

        def flat(part: Any, place: str) -> StageInstance:
            return read_flat(part, place, shared)

        made = lazy("instances.readers.flushed_json:read")(content, where, flat)
    schedule = overrides.get("schedule")
    if schedule is None:
        return made
    try:
        return replace(made, schedule=Schedule(SCHEDULE.parse(schedule)))
    except ValueError as error:
        raise InstanceError.at(where, "--schedule", schedule, str(error)) from None


def describe(instance: FlushedInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    return {**describe_flat(instance.flat), "schedule": str(instance.schedule)}


def memory_pressure(instance: FlushedInstance) -> float | None:
    """That of the flat instance."""
    return flat_overrides.memory_pressure(instance.flat)
