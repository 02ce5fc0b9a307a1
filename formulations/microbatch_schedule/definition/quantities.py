"""The quantities of a schedule that requirements may speak of: both follow from the order of a stage's passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formulations.contract.quantities import Domain, Quantity
from instances.problems.microbatch_schedule import ScheduleInstance

if TYPE_CHECKING:
    from formulations.microbatch_schedule.definition.plan import SchedulePlan

_STAGE = Domain("stage", lambda instance: range(len(instance.stages)))


def warm_up(_: ScheduleInstance, plan: SchedulePlan, stage: int) -> int:
    """Forward passes of a stage before its first backward pass."""
    kinds = [task.is_forward for task in plan.by_stage[stage]]
    return kinds.index(False)


def in_flight(_: ScheduleInstance, plan: SchedulePlan, stage: int) -> int:
    """Most micro-batches of a stage between the start of their forward and the end of their backward pass."""
    return plan.peak_in_flight(stage)


VOCABULARY = (
    Quantity("warm_up", "forward passes of a stage before its first backward pass", warm_up, (_STAGE,)),
    Quantity("in_flight", "most micro-batches that a stage has in flight at once", in_flight, (_STAGE,)),
)
