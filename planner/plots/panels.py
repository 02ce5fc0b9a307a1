"""What to draw of a plan: a few panels for each family that has pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from planner.loading import family_of
from planner.plots.charts import bars
from planner.plots.networks import tiling
from planner.plots.schedules import gantt

_GIB = 2.0**30


@dataclass(frozen=True)
class Panel:
    """A titled picture: ``draw(axes)`` fills it."""

    title: str
    draw: Callable[[Any], Any]


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


def _layer_assignment(instance: Any, plan: Any) -> list[Panel]:
    cuts = [0]
    for length in plan.lengths:
        cuts.append(cuts[-1] + length)
    pairs = list(pairwise(cuts))
    times = [sum(instance.layer_time_s[first:last]) for first, last in pairs]
    labels = [f"{index}\n{last - first}" for index, (first, last) in enumerate(pairs)]
    return [Panel("Stage times (layers of each stage below)", lambda axes: bars(axes, labels, times, "time, s"))]


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
    "layer_assignment": _layer_assignment,
    "mesh_tiling": _mesh_tiling,
    "microbatch_schedule": _microbatch_schedule,
}
