"""A plan of hierarchical stage partitioning in figures: superstages, their links, and the memory inside."""

from __future__ import annotations

import math
from dataclasses import replace

from formulations.breakdown import Breakdown, Picture, Stack, slowest
from formulations.hierarchical_partitioning.problem import (
    HierarchicalPlan,
    flattened,
    link_time,
    most_in_flight,
    most_memory,
    superstage_time,
)
from formulations.passes import forward_and_backward, steady
from formulations.simulate import PipelineStage
from formulations.stage_partitioning.breakdown import memory_rows, memory_stack, shown_stages, strip
from formulations.stage_partitioning.problem import suffix_sums, time_terms
from instances.hierarchical_partitioning import HierarchicalInstance, MemoryModel


def breakdown(instance: HierarchicalInstance, plan: HierarchicalPlan) -> Breakdown:
    """Every superstage's time per sample and that of its links between machines."""
    times = [superstage_time(instance, stage) for stage in plan.stages]
    links = [link_time(instance, stage) for stage in plan.stages]
    counted = instance.memory_model is not MemoryModel.NONE
    fullest = {"fullest_device_bytes": most_memory(instance, plan)} if counted else {}
    return Breakdown(
        tuple(
            {"machines": stage.dp_degree, "time_per_sample": time, "link_time_per_sample": link}
            for stage, time, link in zip(plan.stages, times, links, strict=True)
        ),
        {"bottleneck": f"superstage {slowest(times)}", **fullest},
        lambda: _pictures(instance, plan),
    )


def _pictures(instance: HierarchicalInstance, plan: HierarchicalPlan) -> tuple[Picture, ...]:
    """The stages inside the superstages, each with the link of its machines beside its own time."""
    flat, unit = flattened(plan), instance.flat.time_unit
    inside = [(i, j, outer, stage) for i, outer in enumerate(plan.stages) for j, stage in enumerate(outer.inner)]
    terms = [time_terms(instance.inner, stage) for _, _, _, stage in inside]
    parts = {
        name: [math.fsum(each[name]) / outer.dp_degree for each, (_, _, outer, _) in zip(terms, inside, strict=True)]
        for name in ("compute", "transfer", "synchronisation")
    }
    parts = {name: values for name, values in parts.items() if name == "compute" or any(values)}
    links = {"link between machines": [link_time(instance, outer) for _, _, outer, _ in inside]}
    bare = Stack("", (), parts, "", unit, beside=links)
    times = [bare.total(stage) for stage in range(len(inside))]
    stages = [
        replace(
            stage,
            label=f"{i}.{j}",
            degrees=f"{outer.dp_degree} machines x dp {own.dp_degree} x tp {own.tp_degree}",
        )
        for stage, (i, j, outer, own) in zip(shown_stages(flat, times), inside, strict=True)
    ]
    pipeline = []
    for stage, time, s in zip(flat.stages, times, suffix_sums(flat), strict=True):
        forward, backward = forward_and_backward(time * stage.dp_degree)
        pipeline.append(PipelineStage(stage.dp_degree, forward, backward, -(-s // stage.dp_degree)))
    sums = [most_in_flight(instance)] * len(inside) if instance.memory_model is MemoryModel.CRUDE else None
    inner = replace(flat, stages=tuple(stage for *_, stage in inside)) if sums else flat
    memory = memory_stack(memory_rows(instance.flat, inner, sums), stages, instance.flat.memory_bytes)
    return (
        strip(instance.flat, flat, stages),
        replace(bare, title="Time per sample of each stage", stages=stages, measure="time per sample"),
        *(() if instance.memory_model is MemoryModel.NONE else (memory,)),
        steady(pipeline, stages, max(times), unit),
    )
