"""The project's own JSON of micro-batch schedules, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from instances.problems.microbatch_schedule import ScheduleInstance, check
from instances.validation import read_instance


def read(content: Any, where: str) -> ScheduleInstance:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule.
    """
    return read_instance(ScheduleInstance, content, where, check, "options", name="schedule")
