"""A plan of a stage graph in figures: passes, all-reduce and memory of every stage, and the simulated iteration."""

import math
from collections.abc import Sequence
from dataclasses import replace

from formulations.contract.figures.gantt import of_passes
from formulations.contract.figures.graph_condensation import model_graph, stage_graph
from formulations.contract.figures.plan_figures import Breakdown, Picture, Stack, slowest, stages_of, states
from formulations.contract.figures.plan_figures import Stage as Shown
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import (
    all_reduce_s,
    bottleneck_s,
    depth,
    iteration_s,
    memory_bytes,
    pass_times,
    replica_samples,
    room_bytes,
    shards_of,
    simulate,
    tps,
)
from instances.problems.stage_graph import StageGraph


def breakdown(instance: StageGraph, plan: StagePlan) -> Breakdown:
    """Every stage's passes and memory; the bubble is the part of a simulated iteration in which a device waits."""
    rows, times = [], [tps(instance, plan, stage) for stage in range(len(plan.stages))]
    for index, stage in enumerate(plan.stages):
        forward, backward = pass_times(instance, plan, index)
        held = memory_bytes(instance, stage)
        rows.append(
            {
                "nodes": [instance.id_of(node) for node in stage.nodes],
                "after": ", ".join(str(source) for source, target in plan.edges if target == index),
                "microbatch": stage.microbatch,
                "k": stage.k,
                "in_flight": stage.in_flight,
                **({"tp_degree": stage.tp_degree} if len(instance.tp_degrees) > 1 else {}),
                "s_per_sample": times[index],
                "memory_bytes": held,
                "slack_bytes": room_bytes(instance, stage) - held,
                "forward_s": forward,
                "backward_s": backward,
                "all_reduce_s": all_reduce_s(instance, stage),
            }
        )
    iteration = iteration_s(instance, plan)
    busy = sum(time * stage.devices for time, stage in zip(times, plan.stages, strict=True)) * instance.minibatch
    devices = sum(stage.devices for stage in plan.stages)
    return Breakdown(
        tuple(rows),
        {
            "bottleneck": f"stage {slowest(times)}",
            "depth": depth(plan),
            "iteration_s": iteration,
            "samples_per_s": instance.minibatch / iteration if iteration > 0 else None,
            "bubble_share": 1 - busy / (iteration * devices) if iteration > 0 else 0.0,
        },
        lambda: _pictures(instance, plan, times),
        degrees=[(stage.replicas, stage.tp_degree) for stage in plan.stages],
        devices=(devices, instance.num_devices),
    )


def _pictures(instance: StageGraph, plan: StagePlan, times: Sequence[float]) -> tuple[Picture, ...]:
    degrees = [f"dp {own.replicas}" + f" tp {own.tp_degree}" * (own.tp_degree > 1) for own in plan.stages]
    stages = stages_of(times, degrees, [stage.devices for stage in plan.stages])
    figures = [{"weight_bytes": o.weight_bytes, "activation_bytes": o.activation_bytes} for o in instance.operators]
    names = [each.name for each in instance.operators]
    ids = [instance.id_of(node) for node in range(len(names))]
    edges = [(edge.source, edge.target, edge.bytes_per_sample) for edge in instance.edges]
    home = {node: index for index, stage in enumerate(plan.stages) for node in stage.nodes}
    crossing = dict.fromkeys(plan.edges, 0.0)
    for source, target, size in edges:
        pair = home[source], home[target]
        if pair in crossing:
            crossing[pair] += size
    texts = [
        f"{len(stage.nodes)} operators, {stage.in_flight} samples in flight"
        if stage.in_flight > 1
        else f"{len(stage.nodes)} operators, 1 sample in flight"
        for stage in plan.stages
    ]
    tensors = [(source, (target,), size) for source, target, size in edges]
    graph = model_graph("Operators by stage", names, ids, figures, tensors, home, stages)
    return (
        *([graph] if len(graph.nodes) > len(stages) else []),
        stage_graph(
            "Stages",
            texts,
            [[ids[node] for node in stage.nodes] for stage in plan.stages],
            [(a, b, size) for (a, b), size in crossing.items()],
            stages,
        ),
        _time(instance, plan, stages),
        _memory(instance, plan, stages),
        _passes(instance, plan, stages),
    )


def _time(instance: StageGraph, plan: StagePlan, stages: Sequence[Shown]) -> Stack:
    compute, transfer, rings = [], [], []
    for index, stage in enumerate(plan.stages):
        samples = replica_samples(stage.microbatch, stage.replicas)
        own = shards_of(instance, stage)
        computed = math.fsum(t for each in own for t in (each.forward.at(samples), each.backward.at(samples)))
        compute.append(computed / stage.microbatch)
        transfer.append(max(0.0, sum(pass_times(instance, plan, index)) - computed) / stage.microbatch)
        rings.append(all_reduce_s(instance, stage) / instance.minibatch)
    parts = {"compute": compute, "transfer": transfer, "synchronisation": rings}
    counted = {name: values for name, values in parts.items() if name == "compute" or any(values)}
    return Stack("Time per sample of each stage", stages, counted, "time per sample", "s")


def _memory(instance: StageGraph, plan: StagePlan, stages: Sequence[Shown]) -> Stack:
    weights = [math.fsum(shard.weight_bytes for shard in shards_of(instance, stage)) for stage in plan.stages]
    copies = instance.weight_copies
    held = [memory_bytes(instance, stage) for stage in plan.stages]
    kept = [max(0.0, total - copies * weight) for total, weight in zip(held, weights, strict=True)]
    parts = {**states(weights, copies), "activations in flight": kept}
    limits = [room_bytes(instance, stage) for stage in plan.stages]
    return Stack("Memory of a device of each stage", stages, parts, "memory of a device", "bytes", limits)


def _passes(instance: StageGraph, plan: StagePlan, stages: Sequence[Shown]) -> Picture:
    passes = of_passes("An iteration, simulated", simulate(instance, plan).passes, stages)
    iteration, ring = iteration_s(instance, plan), max(all_reduce_s(instance, stage) for stage in plan.stages)
    reduced = " with the all-reduce after it, {}, which is not drawn" if ring else ""
    if instance.objective == "iteration":
        note = f"The objective is this iteration{reduced}: {{}}."
        return replace(passes, note=note, amounts=(*([ring] if ring else []), iteration))
    note = (
        "The objective, {} per sample, is the slowest stage's alone, as if it never waited; this iteration of "
        f"{instance.minibatch} samples fills and drains the pipeline, too: it takes {{}} per sample{reduced}."
    )
    return replace(passes, note=note, amounts=(bottleneck_s(instance, plan), iteration / instance.minibatch, ring))
