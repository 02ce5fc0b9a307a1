"""What to draw of a plan: a few panels for each family that has pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.inputs.loading import family_of
from planner.show.plots import partitions
from planner.show.plots.charts import bars
from planner.show.plots.networks import tiling
from planner.show.plots.panel import Panel
from planner.show.plots.schedules import gantt

_GIB = 2.0**30


def panels(instance: Any, plan: Any) -> list[Panel]:
    """The pictures of a plan (a family's plan object); empty for families that have none."""
    draw = _FAMILIES.get(family_of(instance).name)
    return [] if draw is None else draw(instance, plan)


def drawn_families() -> list[str]:
    """The names of the families that have pictures."""
    return sorted(_FAMILIES)


def _stage_partitioning(instance: Any, plan: Any) -> list[Panel]:
    from formulations.stage_partitioning.problem import stage_memory, stage_time, suffix_sums

    labels = [f"{index}\n{stage.dp_degree}x{stage.tp_degree}" for index, stage in enumerate(plan.stages)]
    times = [stage_time(instance, stage) for stage in plan.stages]
    memory = [stage_memory(instance, stage, s) / _GIB for stage, s in zip(plan.stages, suffix_sums(plan), strict=True)]
    limit = instance.memory_bytes / _GIB
    return [
        Panel("Time per sample (data x tensor parallel)", lambda axes: bars(axes, labels, times, _time(instance))),
        Panel("Memory of a device", lambda axes: bars(axes, labels, memory, "memory, GiB", limit)),
    ]


def _mesh_tiling(instance: Any, plan: Any) -> list[Panel]:
    tiles = [vars(tile) for tile in plan.tiles]
    return [Panel("Tiling", lambda axes: tiling(axes, instance.rows, instance.columns, tiles))]


def _microbatch_schedule(instance: Any, plan: Any) -> list[Panel]:
    from formulations.microbatch_schedule.plans import plan_to_json

    tasks = plan_to_json(instance, plan)["tasks"]
    return [Panel("Schedule", lambda axes: gantt(axes, tasks, len(instance.stages)))]


def _time(instance: Any) -> str:
    return f"time per sample, {family_of(instance).unit(instance)}"


_FAMILIES: dict[str, Callable[[Any, Any], list[Panel]]] = {
    "stage_partitioning": _stage_partitioning,
    "tmpc_knapsack": partitions.tmpc_knapsack,
    "hierarchical_partitioning": partitions.hierarchical_partitioning,
    "flushed_partitioning": partitions.flushed_partitioning,
    "layer_assignment": partitions.layer_assignment,
    "amp_strategy": partitions.amp_strategy,
    "operator_partitioning": partitions.operator_partitioning,
    "stage_graph": partitions.stage_graph,
    "device_mapping": partitions.device_mapping,
    "pipeline_placement": partitions.pipeline_placement,
    "mesh_tiling": _mesh_tiling,
    "microbatch_schedule": _microbatch_schedule,
}
