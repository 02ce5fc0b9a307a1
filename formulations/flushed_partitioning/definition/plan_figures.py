"""A plan of flushed stage partitioning in figures: bottleneck, depth, synchronisation, and the bubble they make."""

from collections.abc import Mapping, Sequence
from typing import Any

from formulations.contract.figures.gantt import batch, beside_objective
from formulations.contract.figures.objective_parts import flush_parts
from formulations.contract.figures.plan_figures import Breakdown, Passes, Picture, Stack, Stage, slowest
from formulations.contract.figures.throughput import samples, throughput
from formulations.flushed_partitioning.definition.problem import (
    depth,
    evaluate,
    later_rounds,
    longest_path,
    places,
    replica_time,
    step_time,
    synchronisation_times,
)
from formulations.stage_partitioning.definition.batch import simulated
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.plan_figures import (
    contents,
    memory_rows,
    memory_stack,
    stage_bars,
    strip,
    time_parts,
)
from instances.problems.flushed_partitioning import Fill, FlushedInstance, Objective, Schedule


def breakdown(instance: FlushedInstance, plan: StagePlan) -> Breakdown:
    """Every stage's time, synchronisation and memory; the bubble is the part of a batch in which the bottleneck waits.

    A GPipe stage holds the whole batch, which the figures leave out and the picture of its memory shows.
    """
    steps = [step_time(instance, stage) for stage in plan.stages]
    rings = list(synchronisation_times(instance, plan))
    lying = [
        {} if place is None else {"devices": list(range(place.first, place.end))}
        for place in places(instance, plan) or [None] * len(steps)
    ]
    total, (rounds, filling) = evaluate(instance, plan), _rounds(instance, plan, steps)
    bottleneck = slowest(rounds)
    busy = rounds[bottleneck]
    if instance.objective is Objective.FORMULA and instance.fill is Fill.REPLICAS:
        busy += replica_time(instance, plan.stages[bottleneck]) / instance.flat.num_microbatches
    memory = memory_rows(instance.flat, plan) if instance.schedule is Schedule.ONE_F_ONE_B else [{} for _ in steps]
    return Breakdown(
        tuple(
            {
                **contents(instance.flat, stage),
                "time_per_sample": step,
                "synchronisation_per_sample": ring,
                **row,
                **lies,
            }
            for stage, step, ring, row, lies in zip(plan.stages, steps, rings, memory, lying, strict=True)
        ),
        {
            "bottleneck": f"stage {bottleneck}",
            "depth": depth(instance, plan),
            "batch_time": total * instance.flat.num_microbatches,
            "bubble_share": 1 - busy / total if total > 0 else 0.0,
            **(throughput(instance.flat, total) or samples(instance.flat, total)),
        },
        lambda: _pictures(instance, plan, steps, rings, (rounds, filling)),
        lambda: strip(instance.flat, plan, stage_bars(plan, steps)),
        degrees=[(stage.dp_degree, stage.tp_degree) for stage in plan.stages],
        devices=(sum(stage.dp_degree * stage.tp_degree for stage in plan.stages), instance.flat.num_devices),
    )


def _rounds(instance: FlushedInstance, plan: StagePlan, steps: Sequence[float]) -> tuple[list[float], list[float]]:
    """Per sample and stage, of which only the largest counts, and what is added while the pipeline fills and drains.

    By stages those are the steps, and (L-1)/m of the largest; by replicas all micro-batches of a replica but one, and
    one on every stage of the heaviest path. Of a simulated batch only what a replica runs is known.
    """
    m = instance.flat.num_microbatches
    if instance.objective is Objective.ITERATION:
        times = [replica_time(instance, stage) / m for stage in plan.stages]
        rounds = [later / m + time for later, time in zip(later_rounds(instance, plan), times, strict=True)]
        return rounds, [0.0] * len(times)
    if instance.fill is Fill.REPLICAS:
        times = [replica_time(instance, stage) / m for stage in plan.stages]
        path = longest_path(instance, plan, times)
        return (
            [rounds / m for rounds in later_rounds(instance, plan)],
            [time if k in path else 0.0 for k, time in enumerate(times)],
        )
    bottleneck, more = slowest(steps), (depth(instance, plan) - 1) / m
    return list(steps), [more * step if k == bottleneck else 0.0 for k, step in enumerate(steps)]


def _pictures(
    instance: FlushedInstance,
    plan: StagePlan,
    steps: Sequence[float],
    rings: Sequence[float],
    counted: tuple[Sequence[float], Sequence[float]],
) -> tuple[Picture, ...]:
    flat, stages, (rounds, filling) = instance.flat, stage_bars(plan, steps), counted
    together = None
    if instance.objective is Objective.FORMULA:
        together = flush_parts(rounds, 1, filling, rings, stages, "sample's time", flat.time_unit)
    return (
        strip(flat, plan, stages),
        Stack(
            "Time per sample of each stage",
            stages,
            time_parts(instance.weightless, plan),
            "time per sample",
            flat.time_unit,
        ),
        *([] if together is None else [together]),
        memory_stack(_memory(instance, plan), stages, flat.memory_bytes),
        _passes(instance, plan, rings, stages),
    )


def _passes(instance: FlushedInstance, plan: StagePlan, rings: Sequence[float], stages: Sequence[Stage]) -> Passes:
    """A batch as it runs; a formula counts in another way."""
    flat = instance.flat
    passes = batch(
        lambda count: simulated(flat, plan, instance.schedule, count), stages, flat.num_microbatches, flat.time_unit
    )
    filling = depth(instance, plan) - 1
    sooner = "faster stages fill and drain the pipeline sooner, and " if filling else ""
    says = (
        f" for a batch, counts {flat.num_microbatches} + {filling} rounds of the slowest stage; "
        f"here {sooner}replicas wait for micro-batches of their own"
    )
    if instance.fill is Fill.REPLICAS:
        says = (
            " for a batch, counts a micro-batch on every stage of the heaviest path, and all others of the busiest "
            "replica; here stages wait for each other, too"
        )
    if instance.objective is Objective.ITERATION:
        says = " for a batch, is the time of the passes and of the synchronisation after them"
    total, undrawn = evaluate(instance, plan) * flat.num_microbatches, max(rings) * flat.num_microbatches
    return beside_objective(passes, total, says, undrawn, "synchronisation")


def _memory(instance: FlushedInstance, plan: StagePlan) -> list[Mapping[str, Any]]:
    """What stages hold: with GPipe all micro-batches of the batch."""
    whole = [instance.flat.num_microbatches] * len(plan.stages)
    return [*memory_rows(instance.flat, plan, whole if instance.schedule is Schedule.GPIPE else None)]
