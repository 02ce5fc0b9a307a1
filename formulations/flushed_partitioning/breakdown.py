"""A plan of flushed stage partitioning in figures: bottleneck, depth, synchronisation, and the bubble they make."""

from __future__ import annotations

from formulations.breakdown import Bars, Breakdown, slowest
from formulations.flushed_partitioning.problem import depth, evaluate, step_time, synchronisation_time
from formulations.stage_partitioning.breakdown import memory_rows
from formulations.stage_partitioning.problem import StagePlan
from instances.flushed_partitioning import FlushedInstance, Schedule


def breakdown(instance: FlushedInstance, plan: StagePlan) -> Breakdown:
    """Every stage's time, synchronisation and memory; the bubble is the part of a batch in which the bottleneck waits.

    Memory is shown for 1F1B alone: a GPipe stage holds the whole batch, which the flat rows do not count.
    """
    steps = [step_time(instance, stage) for stage in plan.stages]
    rings = [synchronisation_time(instance, stage) for stage in plan.stages]
    total, bottleneck = evaluate(instance, plan), slowest(steps)
    memory = memory_rows(instance.flat, plan) if instance.schedule is Schedule.ONE_F_ONE_B else [{} for _ in steps]
    labels = [f"{index}\n{stage.dp_degree}x{stage.tp_degree}" for index, stage in enumerate(plan.stages)]
    unit, xlabel = f"time per sample, {instance.flat.time_unit}", "stage, data x tensor parallel"
    return Breakdown(
        tuple(
            {"time_per_sample": step, "synchronisation_per_sample": ring, **row}
            for step, ring, row in zip(steps, rings, memory, strict=True)
        ),
        {
            "bottleneck": f"stage {bottleneck}",
            "depth": depth(instance, plan),
            "batch_time": total * instance.flat.num_microbatches,
            "bubble_share": 1 - steps[bottleneck] / total if total > 0 else 0.0,
        },
        (
            Bars("Computing and sending", labels, steps, unit, xlabel),
            Bars("Synchronisation", labels, rings, unit, xlabel),
        ),
    )
