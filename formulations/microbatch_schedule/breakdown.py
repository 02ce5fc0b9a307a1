"""A schedule in figures: how busy every stage is and how much it holds."""

from __future__ import annotations

import math

from formulations.breakdown import Breakdown, Passes, Task, stages_of
from formulations.microbatch_schedule.problem import SchedulePlan, peak_bytes
from instances.microbatch_schedule import ScheduleInstance


def breakdown(instance: ScheduleInstance, plan: SchedulePlan) -> Breakdown:
    """Every stage's busy share of the iteration and its peak of micro-batches in flight."""
    stages = range(len(instance.stages))
    busy = [math.fsum(task.end_s - task.start_s for task in plan.by_stage.get(stage, [])) for stage in stages]
    whole = plan.iteration_s
    rows = tuple(
        {
            "busy_share": busy[stage] / whole if whole > 0 else 0.0,
            "peak_in_flight": plan.peak_in_flight(stage),
            "memory_bytes": peak_bytes(instance, plan, stage),
        }
        for stage in stages
    )
    bubble = 1 - math.fsum(busy) / (whole * len(stages)) if whole > 0 else 0.0
    tasks = [Task(p.stage, "F" if p.is_forward else "B", p.index, p.start_s, p.end_s) for p in plan.passes]
    return Breakdown(
        rows,
        {
            "iteration_s": whole,
            "bottleneck": f"stage {max(stages, key=lambda stage: busy[stage])}",
            "bubble_share": bubble,
        },
        (Passes("Schedule", sorted(tasks), stages_of(busy), bubble),),
    )
