"""A placed pipeline in figures: its mapping's, and a simulated step of the slowest replica."""

from __future__ import annotations

from dataclasses import replace

from formulations.breakdown import Breakdown, Passes, Task, stages_of
from formulations.device_mapping.breakdown import breakdown as of_mapping
from formulations.pipeline_placement.problem import PlacementPlan, second_phase
from formulations.pipeline_placement.simulate import simulate_plan
from instances.pipeline_placement import PlacementInstance


def breakdown(instance: PlacementInstance, plan: PlacementPlan) -> Breakdown:
    """The mapping's stages; the bubble is the part of the pipeline's time in which a stage of that replica waits."""
    mapped = of_mapping(second_phase(instance, plan.partition), plan.mapping)
    step = simulate_plan(instance, plan)
    tasks = [Task(p.stage, "F" if p.is_forward else "B", p.index, p.start_s, p.end_s) for p in step.passes]
    busy = [0.0] * instance.num_stages
    for task in tasks:
        busy[task.stage] += task.end - task.start
    whole = step.pipeline_s * instance.num_stages
    bubble = 1 - sum(busy) / whole if whole > 0 else 0.0
    return replace(
        mapped,
        figures={**mapped.figures, "simulated_step_s": step.seconds, "bubble_share": bubble},
        pictures=(*mapped.pictures, Passes("A step, simulated (1F1B)", tasks, stages_of(busy), bubble)),
    )
