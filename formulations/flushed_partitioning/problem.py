"""Stage partitioning for flushed pipelines: the definition, naively and without any solver.

With m micro-batches in a batch and L stages on the longest path from stage to stage, a batch takes m + L - 1 steps of
the bottleneck, and weights are synchronised once, after it::

    (1 + (L - 1) / m) * max (compute + communication) + max 4 (d-1)/d * W / (B m)

Source: reconstructed; Piper leaves flushes to future work (section 6). Two stages without a path between them run side
by side and count once in L; the memory of a stage still goes by s, the degrees of it and of all stages behind it in the
plan, as in Piper.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from formulations.flushed_partitioning.vocabulary import VOCABULARY
from formulations.simulate import PipelineStage, simulate
from formulations.stage_partitioning import problem as flat_problem
from formulations.stage_partitioning.problem import MEMORY_SLACK, Stage, StagePlan, stage_memory, stage_time
from formulations.violation import Violation
from formulations.vocabulary import unmet
from instances.flushed_partitioning import FlushedInstance, Schedule


def step_time(instance: FlushedInstance, stage: Stage) -> float:
    """Compute and communication of a stage per micro-batch, shared by its d replicas."""
    return stage_time(instance.weightless, stage)


def synchronisation_time(instance: FlushedInstance, stage: Stage) -> float:
    """Exchange of a stage's gradients after the batch, per micro-batch of it."""
    flat, d = instance.flat, stage.dp_degree
    weights = [
        x.weight_bytes
        for node in stage.nodes
        for x in flat.layers[flat.index[node]].tmpcs[stage.tp_degree]
        if x.id == stage.tmpcs[node]
    ]
    return 4 * (d - 1) / d * math.fsum(weights) / flat.bandwidth / flat.num_microbatches


def depth(instance: FlushedInstance, plan: StagePlan) -> int:
    """L: the number of stages on the longest path of the stage graph, which has an edge where a layer edge crosses.

    Edges that run backwards or leave the plan (which break other rules) are not followed.
    """
    stage_of = {node: position for position, stage in enumerate(plan.stages) for node in stage.nodes}
    behind: list[set[int]] = [set() for _ in plan.stages]
    for edge in instance.flat.edges:
        source, target = stage_of.get(edge.source), stage_of.get(edge.target)
        if source is not None and target is not None and source < target:
            behind[source].add(target)
    longest = [1] * len(plan.stages)
    for position in reversed(range(len(plan.stages))):
        longest[position] += max((longest[after] for after in behind[position]), default=0)
    return max(longest, default=0)


def objective(instance: FlushedInstance, depth: int, bottleneck: float, synchronisation: float) -> float:
    """Time per sample of a pipeline whose longest path has ``depth`` stages."""
    return (1 + (depth - 1) / instance.flat.num_microbatches) * bottleneck + synchronisation


def evaluate(instance: FlushedInstance, plan: StagePlan) -> float:
    """Time per sample of a plan, in the instance's time unit.

    Raises
    ------
    ValueError
        If the plan names a node or TMPC that the instance does not have, or has no stage.
    """
    if not plan.stages:
        raise ValueError("the plan has no stage")
    return objective(
        instance,
        depth(instance, plan),
        max(step_time(instance, stage) for stage in plan.stages),
        max(synchronisation_time(instance, stage) for stage in plan.stages),
    )


def violations(instance: FlushedInstance, plan: StagePlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks: those of the flat problem, with the schedule's micro-batches in flight.

    Under 1F1B min(ceil(s/d), ceil(m/d)): ceil(s/d) as without flushes, as degrees sum to at most m. GPipe: ceil(m/d).
    And ``required``: what the instance requires beyond.
    """
    is_gpipe = instance.schedule is Schedule.GPIPE
    flat = replace(instance.flat, memory_bytes=math.inf) if is_gpipe else instance.flat
    found = flat_problem.violations(flat, plan)
    if any(broken.rule in ("cover", "tmpc") for broken in found):
        return found
    return (*found, *(_gpipe_memory(instance, plan) if is_gpipe else ()), *unmet(VOCABULARY, instance, plan))


def _gpipe_memory(instance: FlushedInstance, plan: StagePlan) -> Iterator[Violation]:
    """The stages that are too large with all micro-batches in flight."""
    m, limit = instance.flat.num_microbatches, instance.flat.memory_bytes
    for position, stage in enumerate(plan.stages):
        memory = stage_memory(instance.flat, stage, m) if stage.dp_degree >= 1 else 0.0
        if memory > limit * MEMORY_SLACK:
            yield Violation(
                "memory", f"stage {position} needs {memory:.17g} bytes of {limit:.17g} with {m} micro-batches"
            )


def simulated_stages(instance: FlushedInstance, plan: StagePlan) -> list[PipelineStage]:
    """The stages for the event simulation; a backward pass takes twice a forward pass."""
    m, gpipe = instance.flat.num_microbatches, instance.schedule is Schedule.GPIPE
    stages = []
    for stage, s in zip(plan.stages, flat_problem.suffix_sums(plan), strict=True):
        own = step_time(instance, stage) * stage.dp_degree
        stages.append(PipelineStage(stage.dp_degree, own / 3, own * 2 / 3, m if gpipe else -(-s // stage.dp_degree)))
    return stages


def simulated(instance: FlushedInstance, plan: StagePlan) -> float:
    """Time per sample of one batch in the event simulation.

    The formula takes every stage for the slowest one while the pipeline fills and drains; the simulation does not, but
    makes replicas wait for their own micro-batches, and lets a stage hold ceil(s/d) of them (1F1B) or all (GPipe).
    """
    m, gpipe = instance.flat.num_microbatches, instance.schedule is Schedule.GPIPE
    batch = simulate(simulated_stages(instance, plan), m, backward_first=not gpipe).makespan / m
    return batch + max(synchronisation_time(instance, stage) for stage in plan.stages)
