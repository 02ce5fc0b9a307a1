"""A plan of a stage graph in figures: passes, all-reduce and memory of every stage, and the simulated iteration."""

from __future__ import annotations

from formulations.breakdown import Bars, Breakdown, Stages, slowest
from formulations.stage_graph.problem import (
    StagePlan,
    all_reduce_s,
    depth,
    iteration_s,
    memory_bytes,
    pass_times,
    tps,
)
from instances.stage_graph import StageGraph


def breakdown(instance: StageGraph, plan: StagePlan) -> Breakdown:
    """Every stage's passes and memory; the bubble is the part of a simulated iteration in which a device waits."""
    rows, times = [], [tps(instance, plan, stage) for stage in range(len(plan.stages))]
    for index, stage in enumerate(plan.stages):
        forward, backward = pass_times(instance, plan, index)
        held = memory_bytes(instance, stage)
        # A stage may use its least device only to that device's memory.
        graph = instance.device_graph
        limit = min(graph.memory_bytes[d] for d in stage.device_ids) if graph else instance.memory_bytes
        rows.append(
            {
                "s_per_sample": times[index],
                "forward_s": forward,
                "backward_s": backward,
                "all_reduce_s": all_reduce_s(instance, stage),
                "memory_bytes": held,
                "slack_bytes": limit - held,
            }
        )
    iteration = iteration_s(instance, plan)
    busy = sum(time * stage.devices for time, stage in zip(times, plan.stages, strict=True)) * instance.minibatch
    names = {i: f"{i}: {len(stage.nodes)} ops\n{stage.devices} dev" for i, stage in enumerate(plan.stages)}
    labels = [f"{index}\n{stage.devices}" for index, stage in enumerate(plan.stages)]
    return Breakdown(
        tuple(rows),
        {
            "bottleneck": f"stage {slowest(times)}",
            "depth": depth(plan),
            "iteration_s": iteration,
            "samples_per_s": instance.minibatch / iteration if iteration > 0 else None,
            "bubble_share": 1 - busy / (iteration * sum(stage.devices for stage in plan.stages))
            if iteration > 0
            else 0.0,
        },
        (
            Stages("Stages", plan.edges, names),
            Bars("Time per sample", labels, times, "time per sample, s", "stage, devices"),
        ),
    )
