"""A schedule in figures: how busy every stage is and how much it holds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from formulations.contract.figures.gantt import of_passes
from formulations.contract.figures.plan_figures import Breakdown, Stack, Stage, stages_of
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.problem import peak_bytes, peak_in_flight
from instances.problems.microbatch_schedule import ScheduleInstance


def breakdown(instance: ScheduleInstance, plan: SchedulePlan) -> Breakdown:
    """Every device's busy share of the iteration and its peak of micro-batches in flight, and of bytes."""
    stages = [[task for stage in own for task in plan.by_stage.get(stage, [])] for own in instance.stages_on]
    busy = [math.fsum(task.end_s - task.start_s for task in passes) for passes in stages]
    whole, is_shared = plan.iteration_s, bool(instance.devices)
    rows = tuple(
        {
            **({"stages": list(own)} if is_shared else {}),
            "busy_share": busy[device] / whole if whole > 0 else 0.0,
            "peak_in_flight": peak_in_flight(instance, plan, device),
            "memory_bytes": peak_bytes(instance, plan, device),
        }
        for device, own in enumerate(instance.stages_on)
    )
    shown = stages_of(busy, [f"{row['peak_in_flight']} in flight" for row in rows])
    lanes = [replace(task, stage=instance.device_of[task.stage]) for task in plan.passes]
    what = "device" if is_shared else "stage"
    return Breakdown(
        rows,
        {
            "iteration_s": whole,
            "bottleneck": f"{what} {max(range(len(busy)), key=busy.__getitem__)}",
            "bubble_share": 1 - math.fsum(busy) / (whole * len(busy)) if whole > 0 else 0.0,
        },
        lambda: (
            of_passes("Schedule", lanes, shown),
            *([_memory(instance, rows, shown)] if any(row["memory_bytes"] for row in rows) else []),
        ),
    )


def _memory(instance: ScheduleInstance, rows: Sequence[Mapping[str, Any]], stages: Sequence[Stage]) -> Stack:
    """The peak of each device: what is always there, and what the micro-batches in flight keep."""
    none = [0] * len(instance.stages)
    weights = [instance.bytes_held(device, none) for device in range(len(rows))]
    kept = [max(0.0, row["memory_bytes"] - weight) for row, weight in zip(rows, weights, strict=True)]
    rooms = [instance.memory(device) for device in range(len(rows))]
    declared = [room for room in rooms if room is not None]
    limits = declared if len(declared) == len(rooms) else None
    parts = {"always stored (one sum)": weights, "activations in flight": kept}
    note = "Weights, gradients and the optimiser's states are always stored; stages declare one sum for them."
    title = f"Peak memory of each {'device' if instance.devices else 'stage'}"
    return Stack(title, stages, parts, "peak memory", "bytes", limits, note=note)
