"""A plan of hierarchical stage partitioning in figures: superstages, their links, and the memory inside."""

from __future__ import annotations

from formulations.breakdown import Bars, Breakdown, slowest
from formulations.hierarchical_partitioning.problem import HierarchicalPlan, link_time, most_memory, superstage_time
from instances.hierarchical_partitioning import HierarchicalInstance, MemoryModel


def breakdown(instance: HierarchicalInstance, plan: HierarchicalPlan) -> Breakdown:
    """Every superstage's time per sample and that of its links between machines."""
    times = [superstage_time(instance, stage) for stage in plan.stages]
    links = [link_time(instance, stage) for stage in plan.stages]
    labels = [f"{index}\n{stage.dp_degree} x {stage.num_devices}" for index, stage in enumerate(plan.stages)]
    counted = instance.memory_model is not MemoryModel.NONE
    fullest = {"fullest_device_bytes": most_memory(instance, plan)} if counted else {}
    xlabel = "superstage, machines x devices"
    unit = instance.flat.time_unit
    return Breakdown(
        tuple(
            {"machines": stage.dp_degree, "time_per_sample": time, "link_time_per_sample": link}
            for stage, time, link in zip(plan.stages, times, links, strict=True)
        ),
        {"bottleneck": f"superstage {slowest(times)}", **fullest},
        (
            Bars("Time per sample", labels, times, f"time per sample, {unit}", xlabel),
            Bars("Links between machines", labels, links, f"time, {unit}", xlabel),
        ),
    )
