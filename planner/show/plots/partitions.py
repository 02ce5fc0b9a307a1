"""Panels of the plans that are partitions: stage times, memory, strategies, graphs of stages, mappings."""

from __future__ import annotations

from typing import Any

from planner.show.plots.charts import bars
from planner.show.plots.networks import graph, mapping
from planner.show.plots.panel import Panel

_GIB = 2.0**30


def tmpc_knapsack(instance: Any, plan: Any) -> list[Panel]:
    """Time and memory of the chosen options, node by node."""
    chosen = [next(o for o in node.options if o.id == plan.choice[node.id]) for node in instance.nodes]
    labels = [f"{node.id}\n{plan.choice[node.id]}" for node in instance.nodes]
    times = [option.time for option in chosen]
    memory = [option.memory_bytes for option in chosen]
    title = f"Memory of each node; the capacity of {instance.capacity_bytes:.6g} bytes is for all together"
    return [
        Panel("Time of each node", lambda axes: bars(axes, labels, times, "time", xlabel="node, option")),
        Panel(title, lambda axes: bars(axes, labels, memory, "memory, bytes", xlabel="node, option")),
    ]


def hierarchical_partitioning(instance: Any, plan: Any) -> list[Panel]:
    """Time of each superstage: the slowest stage inside, or its links between machines."""
    from formulations.hierarchical_partitioning.problem import link_time, superstage_time

    labels = [f"{index}\n{stage.dp_degree} x {stage.num_devices}" for index, stage in enumerate(plan.stages)]
    times = [superstage_time(instance, stage) for stage in plan.stages]
    links = [link_time(instance, stage) for stage in plan.stages]
    unit = instance.flat.time_unit
    xlabel = "superstage, machines x devices"
    return [
        Panel("Time per sample", lambda axes: bars(axes, labels, times, f"time per sample, {unit}", xlabel=xlabel)),
        Panel("Links between machines", lambda axes: bars(axes, labels, links, f"time, {unit}", xlabel=xlabel)),
    ]


def flushed_partitioning(instance: Any, plan: Any) -> list[Panel]:
    """What the bottleneck takes per sample, and what the synchronisation after the flush adds."""
    from formulations.flushed_partitioning.problem import step_time, synchronisation_time

    labels = [f"{index}\n{stage.dp_degree}x{stage.tp_degree}" for index, stage in enumerate(plan.stages)]
    steps = [step_time(instance, stage) for stage in plan.stages]
    rings = [synchronisation_time(instance, stage) for stage in plan.stages]
    unit = instance.flat.time_unit
    xlabel = "stage, data x tensor parallel"
    return [
        Panel(
            "Computing and sending", lambda axes: bars(axes, labels, steps, f"time per sample, {unit}", xlabel=xlabel)
        ),
        Panel("Synchronisation", lambda axes: bars(axes, labels, rings, f"time per sample, {unit}", xlabel=xlabel)),
    ]


def layer_assignment(instance: Any, plan: Any) -> list[Panel]:
    """Time of each stage for a micro-batch."""
    ends = [sum(plan.lengths[: stage + 1]) for stage in range(len(plan.lengths))]
    times = [sum(instance.layer_time_s[end - length : end]) for length, end in zip(plan.lengths, ends, strict=True)]
    labels = [f"{stage}\n{length}" for stage, length in enumerate(plan.lengths)]
    return [Panel("Time of a micro-batch", lambda axes: bars(axes, labels, times, "time, s", xlabel="stage, layers"))]


def amp_strategy(instance: Any, plan: Any) -> list[Panel]:
    """Time of each stage of the strategy's pipeline for a micro-batch."""
    from formulations.amp_strategy.problem import layer_assignment as assignment

    return layer_assignment(assignment(instance, plan.degrees, plan.placement), plan)


def operator_partitioning(instance: Any, plan: Any) -> list[Panel]:
    """Load of each stage: computing and what crosses its boundary."""
    from formulations.operator_partitioning.problem import stage_seconds

    times = stage_seconds(instance, plan)
    labels = [f"{index}\n{len(members)}" for index, members in enumerate(plan.stages)]
    return [Panel("Load of a stage", lambda axes: bars(axes, labels, times, "time, s", xlabel="stage, operators"))]


def stage_graph(instance: Any, plan: Any) -> list[Panel]:
    """The graph of stages, and the time per sample of each."""
    from formulations.stage_graph.problem import tps

    names = {i: f"{i}: {len(stage.nodes)} ops\n{stage.devices} dev" for i, stage in enumerate(plan.stages)}
    times = [tps(instance, plan, stage) for stage in range(len(plan.stages))]
    labels = [f"{index}\n{stage.devices}" for index, stage in enumerate(plan.stages)]
    return [
        Panel("Stages", lambda axes: graph(axes, plan.edges, names)),
        Panel("Time per sample", lambda axes: bars(axes, labels, times, "time per sample, s", xlabel="stage, devices")),
    ]


def device_mapping(instance: Any, plan: Any) -> list[Panel]:
    """Who talks to whom at which bandwidth, and the time of each stage's slowest replica."""
    from formulations.device_mapping.problem import ring_seconds, stage_times

    matrix = instance.bandwidth_bytes_per_s
    times = [
        max(stage_times(instance, plan, stage, ring_seconds(instance, plan, stage)))
        for stage in range(instance.num_stages)
    ]
    labels = [str(stage) for stage in range(instance.num_stages)]
    return [
        Panel("Devices in the order of stages", lambda axes: mapping(axes, plan.devices, matrix)),
        Panel("Slowest replica of each stage", lambda axes: bars(axes, labels, times, "time, s")),
    ]


def pipeline_placement(instance: Any, plan: Any) -> list[Panel]:
    """The mapping of the stages, and a simulated step of the slowest replica."""
    from formulations.pipeline_placement.problem import second_phase
    from formulations.pipeline_placement.simulate import simulate_plan
    from planner.show.plots.schedules import gantt

    passes = simulate_plan(instance, plan).passes
    tasks = [[p.stage, "F" if p.is_forward else "B", p.index, p.start_s, p.end_s] for p in passes]
    return [
        *device_mapping(second_phase(instance, plan.partition), plan.mapping),
        Panel("A step, simulated (1F1B)", lambda axes: gantt(axes, tasks, instance.num_stages)),
    ]
