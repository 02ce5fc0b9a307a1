"""A plan of stage partitioning in figures: time per sample and memory of every stage."""

from __future__ import annotations

import math
from typing import Any

from formulations.breakdown import Bars, Breakdown, idle_share, slowest
from formulations.stage_partitioning.problem import Stage, StagePlan, stage_memory, stage_time, suffix_sums
from instances.stage_partitioning import StageInstance

_GIB = 2.0**30


def breakdown(instance: StageInstance, plan: StagePlan) -> Breakdown:
    """Every stage's time per sample, and where its memory goes; the bottleneck and how much devices wait for it."""
    times = [stage_time(instance, stage) for stage in plan.stages]
    devices = [stage.dp_degree * stage.tp_degree for stage in plan.stages]
    rows = memory_rows(instance, plan)
    labels = [f"{index}\n{stage.dp_degree}x{stage.tp_degree}" for index, stage in enumerate(plan.stages)]
    memory, limit = [row["memory_bytes"] / _GIB for row in rows], instance.memory_bytes / _GIB
    unit = f"time per sample, {instance.time_unit}"
    return Breakdown(
        tuple({"time_per_sample": time, **row} for time, row in zip(times, rows, strict=True)),
        {
            "bottleneck": f"stage {slowest(times)}",
            "idle_share": idle_share(times, devices, instance.num_devices),
            "devices_used": sum(devices),
        },
        (
            Bars("Time per sample (data x tensor parallel)", labels, times, unit),
            Bars("Memory of a device", labels, memory, "memory, GiB", limit=limit),
        ),
    )


def memory_rows(instance: StageInstance, plan: StagePlan) -> list[dict[str, Any]]:
    """What a device of every stage holds: what is there always, activations of micro-batches in flight, and its room.

    Static bytes are weights, gradients and optimiser states, as far as the instance declares them.
    """
    rows = []
    for stage, s in zip(plan.stages, suffix_sums(plan), strict=True):
        static = _static_bytes(instance, stage)
        total = stage_memory(instance, stage, s)
        rows.append(
            {
                "in_flight": -(-s // stage.dp_degree),
                "static_bytes": static,
                "activation_bytes": max(0.0, total - static),
                "memory_bytes": total,
                "slack_bytes": instance.memory_bytes - total,
            }
        )
    return rows


def _static_bytes(instance: StageInstance, stage: Stage) -> float:
    return math.fsum(
        x.static_bytes
        for node in stage.nodes
        for x in instance.layers[instance.index[node]].tmpcs[stage.tp_degree]
        if x.id == stage.tmpcs[node]
    )
