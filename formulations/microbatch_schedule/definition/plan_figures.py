"""A schedule in figures: how busy every stage is and how much it holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from formulations.figures.gantt import of_passes
from formulations.figures.plan_figures import Breakdown, Stack, Stage, stages_of
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.problem import peak_bytes
from instances.problems.microbatch_schedule import ScheduleInstance


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
    shown = stages_of(busy, [f"{row['peak_in_flight']} in flight" for row in rows])
    return Breakdown(
        rows,
        {
            "iteration_s": whole,
            "bottleneck": f"stage {max(stages, key=lambda stage: busy[stage])}",
            "bubble_share": 1 - math.fsum(busy) / (whole * len(stages)) if whole > 0 else 0.0,
        },
        lambda: (
            of_passes("Schedule", plan.passes, shown),
            *([_memory(instance, rows, shown)] if any(row["memory_bytes"] for row in rows) else []),
        ),
    )


def _memory(instance: ScheduleInstance, rows: Sequence[Mapping[str, Any]], stages: Sequence[Stage]) -> Stack:
    """The peak of each stage: what is always there, and what the micro-batches in flight keep."""
    weights = [stage.weight_bytes for stage in instance.stages]
    kept = [max(0.0, row["memory_bytes"] - weight) for row, weight in zip(rows, weights, strict=True)]
    declared = [stage.memory_bytes for stage in instance.stages if stage.memory_bytes is not None]
    limits = declared if len(declared) == len(stages) else None
    parts = {"always stored (one sum)": weights, "activations in flight": kept}
    note = "Weights, gradients and the optimiser's states are always stored; stages declare one sum for them."
    return Stack("Peak memory of each stage", stages, parts, "peak memory", "bytes", limits, note=note)
