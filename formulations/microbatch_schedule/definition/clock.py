"""The objective is the iteration itself, unless it is the memory of one."""

from formulations.contract.clock import Clock
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from instances.problems.microbatch_schedule import ScheduleInstance


def clock(instance: ScheduleInstance, plan: SchedulePlan) -> Clock | None:
    """The plan's own passes; ``None`` where the objective is memory."""
    return None if instance.objective == "memory" else Clock("iteration", None, None, lambda: plan.iteration_s)
