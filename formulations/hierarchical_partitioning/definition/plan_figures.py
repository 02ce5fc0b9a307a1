"""A plan of hierarchical stage partitioning in figures: superstages, their links, and the memory inside."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from formulations.contract.figures.device_layout import pack_machines
from formulations.contract.figures.gantt import batch, beside_objective, forward_and_backward, steady
from formulations.contract.figures.plan_figures import Breakdown, Network, Passes, Picture, Place, Stack, Stage, slowest
from formulations.contract.figures.throughput import samples
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, spans
from formulations.hierarchical_partitioning.definition.problem import (
    evaluate,
    flatten,
    gradient_time,
    link_times,
    most_in_flight,
    most_memory,
    replica_terms,
    replica_times,
    sample_times,
)
from formulations.simulation.simulate_chain import PipelineStage
from formulations.stage_partitioning.definition.batch import simulated
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.plan_figures import memory_rows, memory_stack, stage_bars, strip
from formulations.stage_partitioning.definition.problem import suffix_sums, time_terms
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel, Objective

#: More devices are not drawn.
_MOST_DEVICES = 4096


def breakdown(instance: HierarchicalInstance, plan: HierarchicalPlan) -> Breakdown:
    """Every superstage's time per sample and that of its links between machines."""
    times, links = sample_times(instance, plan), list(map(max, link_times(instance, plan)))
    machines = [span.replicas for span in spans(plan)[0]]
    degrees = [(count, stage.num_devices) for count, stage in zip(machines, plan.stages, strict=True)]
    counted = instance.memory_model is not MemoryModel.NONE
    held = most_memory(instance, plan) if counted else 0.0
    fullest = {"memory_bytes": held, "slack_bytes": instance.flat.memory_bytes - held} if counted else {}
    return Breakdown(
        tuple(
            {
                "nodes": [node for own in stage.inner for node in own.nodes],
                "inside": " | ".join(f"dp {own.dp_degree} x tp {own.tp_degree}" for own in stage.inner),
                "machines": count,
                "time_per_sample": time,
                **({} if instance.objective is Objective.ITERATION else {"link_time_per_sample": link}),
            }
            for stage, count, time, link in zip(plan.stages, machines, times, links, strict=True)
        ),
        {"bottleneck": f"superstage {slowest(times)}", **fullest, **samples(instance.flat, evaluate(instance, plan))},
        lambda: _pictures(instance, plan),
        lambda: strip(instance.flat, flatten(plan), _times(instance, plan).stages),
        "superstage",
        degrees,
        (sum(d * t for d, t in degrees), instance.flat.num_devices),
    )


def _times(instance: HierarchicalInstance, plan: HierarchicalPlan) -> Stack:
    """The stages inside the superstages, each with the link of its machines beside its own time, or in a batch in it.

    Stage 1.0 is the first one in the second superstage.
    """
    machines = [span.replicas for span in spans(plan)[0]]
    inside = [(i, j, machines[i], stage) for i, outer in enumerate(plan.stages) for j, stage in enumerate(outer.inner)]
    terms = [time_terms(instance.inner, stage) for _, _, _, stage in inside]
    is_batch = instance.objective is Objective.ITERATION
    parts = {
        name: [math.fsum(each[name]) / count for each, (_, _, count, _) in zip(terms, inside, strict=True)]
        for name in ("compute", "transfer", *(() if is_batch else ("synchronisation",)))
    }
    names = ["link between machines", *(f"link of level {number}" for number in range(3, 3 + len(plan.groups)))]
    if is_batch:  # a pass waits for its links, and gradients are summed once, after the passes
        own, degrees = replica_terms(instance, plan), [stage.dp_degree for stage in flatten(plan).stages]
        shares = [[term / d for term in found[1:]] for found, d in zip(own, degrees, strict=True)]
        links = {}
        parts |= {name: [share[level] for share in shares] for level, name in enumerate(names)}
    else:
        shared = link_times(instance, plan)
        links = {name: [shared[i][level] for i, *_ in inside] for level, name in enumerate(names)}
    parts = {name: values for name, values in parts.items() if name == "compute" or any(values)}
    title, unit = "Time per sample of each stage", instance.flat.time_unit
    bare = Stack(title, (), parts, "time per sample", unit, beside=links)
    stages = [
        replace(
            stage,
            label=f"{i}.{j}",
            degrees=f"{'1 machine' if count == 1 else f'{count} machines'} x dp {own.dp_degree} x tp {own.tp_degree}",
        )
        for stage, (i, j, count, own) in zip(
            stage_bars(flatten(plan), [bare.total(stage) for stage in range(len(inside))]), inside, strict=True
        )
    ]
    return replace(bare, stages=stages)


def _pictures(instance: HierarchicalInstance, plan: HierarchicalPlan) -> tuple[Picture, ...]:
    flat, stack = flatten(plan), _times(instance, plan)
    stages = stack.stages
    return (
        strip(instance.flat, flat, stages),
        stack,
        *_memory(instance, plan, stages),
        *_devices(instance, plan, stages),
        _passes(instance, plan, stack),
    )


def _passes(instance: HierarchicalInstance, plan: HierarchicalPlan, stack: Stack) -> Passes:
    """The steady state, or the batch that is the objective."""
    flat, stages, m = flatten(plan), stack.stages, instance.flat.num_microbatches
    if instance.objective is Objective.ITERATION:
        own = replica_times(instance, plan)
        passes = batch(lambda count: simulated(instance.flat, flat, "1f1b", count, steps=own), stages, m, stack.unit)
        says = " for a batch, is the time of the passes and of the sums of gradients after them"
        total = evaluate(instance, plan) * m
        return beside_objective(passes, total, says, gradient_time(instance, plan), "synchronisation")
    times, pipeline = [stack.total(stage) for stage in range(len(stages))], []
    for stage, time, s in zip(flat.stages, times, suffix_sums(flat), strict=True):
        forward, backward = forward_and_backward(time * stage.dp_degree)
        pipeline.append(PipelineStage(stage.dp_degree, forward, backward, -(-s // stage.dp_degree)))
    return steady(pipeline, stages, max(times), stack.unit)


def _devices(instance: HierarchicalInstance, plan: HierarchicalPlan, stages: Sequence[Stage]) -> Iterator[Network]:
    """Machines from the first superstage's on, and the stages inside them; machines are identical, as are devices.

    Nothing of very many devices.
    """
    count, each = instance.all_machines, instance.devices_per_machine
    if count * each > _MOST_DEVICES:
        return
    standing = pack_machines([machine for machine in range(count) for _ in range(each)])
    homes: dict[int, tuple[int, int]] = {}
    first = 0
    for outer, machines in zip(plan.stages, _machines(instance, plan), strict=True):
        for rank, machine in enumerate(machines):
            inside = (
                (stage, own)
                for stage, own in enumerate(outer.inner, first)
                for _ in range(own.dp_degree * own.tp_degree)
            )
            taken = [0] * len(outer.inner)
            for device, (stage, own) in enumerate(inside, machine * each):
                replica = rank * own.dp_degree + taken[stage - first] // own.tp_degree
                taken[stage - first] += 1
                homes[device] = stage, replica
        first += len(outer.inner)
    places = [
        Place(device, standing.x[device], standing.y[device], standing.machine[device], *homes.get(device, (None, 0)))
        for device in range(count * each)
    ]
    yield Network("Devices of each stage", places, (), stages, [f"machine {machine}" for machine in range(count)])


def _machines(instance: HierarchicalInstance, plan: HierarchicalPlan) -> list[list[int]]:
    """The machines of every superstage, from the first ones on inside of every device of a higher level."""
    # Of every superstage of level 2, the devices of the level above it that hold it; all is in one of level L + 1.
    above = [[0] for _ in plan.stages]
    for level, own in reversed(list(zip(instance.levels, spans(plan), strict=True))):
        taken, held = defaultdict[int, int](int), above
        above = [[] for _ in plan.stages]
        for span in own:
            parents, first = held[span.first], taken[held[span.first][0]]
            found = [parent * level.count + first + rank for parent in parents for rank in range(span.dp_degree)]
            above[span.first : span.last] = [found] * (span.last - span.first)
            taken.update(dict.fromkeys(parents, first + span.dp_degree))
    return above


def _memory(instance: HierarchicalInstance, plan: HierarchicalPlan, stages: Sequence[Stage]) -> Iterator[Stack]:
    """What devices hold as the memory model counts it; nothing where it does not."""
    flat, sums = flatten(plan), None
    if instance.memory_model is MemoryModel.CRUDE:
        flat = StagePlan(tuple(stage for outer in plan.stages for stage in outer.inner))
        sums = [most_in_flight(instance)] * len(stages)
    if instance.memory_model is not MemoryModel.NONE:
        yield memory_stack(memory_rows(instance.flat, flat, sums), stages, instance.flat.memory_bytes)
