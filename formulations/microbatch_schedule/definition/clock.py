"""The objective is the iteration itself, or the memory of one."""

from __future__ import annotations

from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.simulation.clock import Clock
from instances.problems.microbatch_schedule import ScheduleInstance


def clock(_: ScheduleInstance, plan: SchedulePlan) -> Clock:
    """The plan's own passes."""
    return Clock("iteration", None, None, lambda: plan.iteration_s)
