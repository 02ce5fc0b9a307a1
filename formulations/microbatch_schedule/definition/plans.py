"""Plans of micro-batch schedules as JSON (docs/interface.md)."""

from __future__ import annotations

import math
from typing import Any

from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.simulation.simulate_graph import Pass
from instances.errors import InstanceError
from instances.problems.microbatch_schedule import ScheduleInstance


def plan_to_json(_: ScheduleInstance, plan: SchedulePlan) -> dict[str, Any]:
    """``{"tasks": [[stage, "F" or "B", index, start_s, end_s], ...]}``, by start."""
    passes = sorted(plan.passes, key=lambda task: (task.start_s, task.stage, task.end_s))
    return {"tasks": [[t.stage, "F" if t.is_forward else "B", t.index, t.start_s, t.end_s] for t in passes]}


def plan_from_json(_: ScheduleInstance | None, content: Any, where: str = "plan") -> SchedulePlan:
    """The plan that parsed JSON describes; passes that do not fit are left to ``violations``.

    Raises
    ------
    InstanceError
        If ``tasks`` is missing or not a list of such lists.
    """
    if not isinstance(content, dict):
        raise InstanceError.at(where, "content", content, "an object")
    if "tasks" not in content:
        raise InstanceError.missing(where, "tasks", "a list of passes")
    if not isinstance(content["tasks"], list):
        raise InstanceError.at(where, "tasks", content["tasks"], "a list of passes")
    return SchedulePlan(tuple(_pass(task, where, number) for number, task in enumerate(content["tasks"])))


def _pass(task: Any, where: str, number: int) -> Pass:
    if not isinstance(task, list) or len(task) != 5 or not _sound(*task):
        raise InstanceError.at(where, f"tasks[{number}]", task, '[stage, "F" or "B", index, start_s, end_s]')
    stage, kind, index, start, end = task
    return Pass(stage, kind == "F", index, float(start), float(end))


def _sound(stage: Any, kind: Any, index: Any, start: Any, end: Any) -> bool:
    whole = all(isinstance(each, int) and not isinstance(each, bool) and abs(each) < 2**63 for each in (stage, index))
    return whole and kind in ("F", "B") and _is_time(start) and _is_time(end)


def _is_time(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= 1e300 and math.isfinite(value)
