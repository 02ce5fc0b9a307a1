"""A plan of stage partitioning in figures: time per sample and memory of every stage."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from formulations.contract.figures import plan_figures as shown
from formulations.contract.figures.gantt import forward_and_backward, steady
from formulations.contract.figures.plan_figures import (
    Breakdown,
    Item,
    Picture,
    Stack,
    Strip,
    idle_share,
    slowest,
    stages_of,
)
from formulations.contract.figures.throughput import samples, throughput
from formulations.simulation.simulate_chain import PipelineStage
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import stage_memory, stage_time, suffix_sums, time_terms
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc

#: Why `memory_stack` has no parts of what is always stored: X.b is one number.
_ONE_SUM = (
    "Weights, gradients, the optimiser's states and what recomputation works on are always stored; layers declare one "
    "sum for them."
)


def breakdown(instance: StageInstance, plan: StagePlan) -> Breakdown:
    """Every stage's time per sample, and where its memory goes; the bottleneck and how much devices wait for it.

    Of imported models also what a batch takes, as one of many: filling and flushing the pipeline are not counted.
    """
    times = [stage_time(instance, stage) for stage in plan.stages]
    devices = [stage.dp_degree * stage.tp_degree for stage in plan.stages]
    rows = memory_rows(instance, plan)
    return Breakdown(
        tuple(
            {**contents(instance, stage), "time_per_sample": time, **row}
            for stage, time, row in zip(plan.stages, times, rows, strict=True)
        ),
        {
            "bottleneck": f"stage {slowest(times)}",
            "idle_share": idle_share(times, devices, instance.num_devices),
            "devices_used": sum(devices),
            **_batch_figures(instance, max(times)),
        },
        lambda: _pictures(instance, plan, times, rows),
        lambda: strip(instance, plan, stage_bars(plan, times)),
        degrees=[(stage.dp_degree, stage.tp_degree) for stage in plan.stages],
        devices=(sum(devices), instance.num_devices),
    )


def contents(instance: StageInstance, stage: Stage) -> dict[str, Any]:
    """The nodes of a stage, and the TMPCs that it chooses where some layer has a choice."""
    has_choice = any(len(tmpcs) > 1 for layer in instance.layers for tmpcs in layer.tmpcs.values())
    return {"nodes": list(stage.nodes), **({"tmpcs": stage.tmpcs} if has_choice else {})}


def _batch_figures(instance: StageInstance, time: float) -> dict[str, float | int]:
    """A batch and what is done in a second, of models that say so."""
    found = throughput(instance, time)
    return {"batch_time": instance.num_microbatches * time, **found} if found else samples(instance, time)


def _pictures(
    instance: StageInstance, plan: StagePlan, times: Sequence[float], rows: Sequence[Mapping[str, Any]]
) -> tuple[Picture, ...]:
    stages = stage_bars(plan, times)
    parts = time_parts(instance, plan)
    own = []
    for stage, time, s in zip(plan.stages, times, suffix_sums(plan), strict=True):
        forward, backward = forward_and_backward(time * stage.dp_degree)
        own.append(PipelineStage(stage.dp_degree, forward, backward, -(-s // stage.dp_degree)))
    return (
        strip(instance, plan, stages),
        Stack("Time per sample of each stage", stages, parts, "time per sample", instance.time_unit),
        memory_stack(rows, stages, instance.memory_bytes),
        steady(own, stages, max(times), instance.time_unit),
    )


def stage_bars(plan: StagePlan, times: Sequence[float]) -> tuple[shown.Stage, ...]:
    """The stages as pictures have them, with their degrees."""
    degrees = [f"dp {stage.dp_degree} x tp {stage.tp_degree}" for stage in plan.stages]
    return stages_of(times, degrees, [stage.dp_degree for stage in plan.stages])


def strip(instance: StageInstance, plan: StagePlan, stages: Sequence[shown.Stage]) -> Strip:
    """The layers, stage by stage: as wide as their replicas take for a sample, with the TMPCs chosen for them."""
    items = []
    for position, stage in enumerate(plan.stages):
        for node in stage.nodes:
            layer = instance.layers[instance.index[node]]
            x = tmpc_of(layer, stage)
            figures = {
                "id": layer.id,
                "time": x.time,
                "weight_bytes": x.weight_bytes,
                "activation_bytes": x.activation_bytes,
                "static_bytes": x.static_bytes,
            }
            has_choice = sum(len(tmpcs) for tmpcs in layer.tmpcs.values()) > 1
            name = layer.name or str(layer.id)
            items.append(Item(name, position, x.time / stage.dp_degree, x.id if has_choice else "", figures))
    return Strip("Layers by stage", items, stages, f"compute per sample, {instance.time_unit}")


def time_parts(instance: StageInstance, plan: StagePlan) -> dict[str, list[float]]:
    """By what time is spent on: its time per sample in each stage; what nothing is spent on is left out."""
    terms = [time_terms(instance, stage) for stage in plan.stages]
    parts = {name: [math.fsum(each[name]) for each in terms] for name in ("compute", "transfer", "synchronisation")}
    return {name: values for name, values in parts.items() if name == "compute" or any(values)}


def memory_stack(rows: Sequence[Mapping[str, Any]], stages: Sequence[shown.Stage], limit: float) -> Stack:
    """What a device of each stage holds, from `memory_rows`."""
    parts = {
        "always stored (one sum)": [row["static_bytes"] for row in rows],
        "activations in flight": [row["activation_bytes"] for row in rows],
    }
    title, measure = "Memory of a device of each stage", "memory of a device"
    return Stack(title, stages, parts, measure, "bytes", [limit] * len(rows), note=_ONE_SUM)


def memory_rows(instance: StageInstance, plan: StagePlan, sums: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """What a device of every stage holds: what is there always, activations of micro-batches in flight, and its room.

    Static bytes are weights, gradients and optimiser states, as far as the instance declares them. ``sums`` replace
    the plan's suffix sums s.
    """
    rows = []
    for stage, s in zip(plan.stages, suffix_sums(plan) if sums is None else sums, strict=True):
        layers = (instance.layers[instance.index[node]] for node in stage.nodes)
        static = math.fsum(tmpc_of(layer, stage).static_bytes for layer in layers)
        total = stage_memory(instance, stage, s)
        rows.append(
            {
                "memory_bytes": total,
                "slack_bytes": instance.memory_bytes - total,
                "in_flight": -(-s // stage.dp_degree),
                "static_bytes": static,
                "activation_bytes": max(0.0, total - static),
            }
        )
    return rows


def tmpc_of(layer: Layer, stage: Stage) -> Tmpc:
    """The TMPC that a stage chooses for a layer."""
    return next(x for x in layer.tmpcs[stage.tp_degree] if x.id == stage.tmpcs[layer.id])
