"""Stage partitioning for flushed pipelines: the definition, naively and without any solver.

With m micro-batches in a batch and L stages on the longest path from stage to stage, a batch takes m + L - 1 steps of
the bottleneck, and weights are synchronised once, after it::

    (1 + (L - 1) / m) * max (compute + communication) + max 4 (d-1)/d * W / (B m)

That is the fill by stages, in which d replicas are one stage d times as fast. By replicas a stage takes t for a
micro-batch on one of its d replicas, which runs ceil(m/d) of them; S is the largest sum of t on a path of stages::

    (S + max (ceil(m/d) - 1) t) / m + max 4 (d-1)/d * W / (B m)

On machines of K_1 devices B is the bandwidth inside where all replicas of a stage lie in one machine, else the one
between machines; tensors between stages always count at the latter.

Source: reconstructed; Piper leaves flushes to future work (section 6). By replicas: what p equal stages take for m
micro-batches under 1F1B or GPipe, (m + p - 1) t (Narayanan et al. 2021, section 2.2), for stages that differ. Two
stages without a path between them run side by side and count once in L; the memory of a stage still goes by s, the
degrees of it and of all stages behind it in the plan, as in Piper.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from formulations.contract.violation import Violation
from formulations.stage_partitioning.definition import problem as flat_problem
from formulations.stage_partitioning.definition.batch import gradient_bytes, simulated, stage_edges
from formulations.stage_partitioning.definition.batch import step_time as flat_step_time
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, stage_memory
from instances.problems.flushed_partitioning import Fill, FlushedInstance, Objective, Schedule


def step_time(instance: FlushedInstance, stage: Stage) -> float:
    """Compute and communication of a stage per micro-batch, shared by its d replicas."""
    return flat_step_time(instance.flat, stage)


def replica_time(instance: FlushedInstance, stage: Stage) -> float:
    """t: compute and communication of a micro-batch on one replica of a stage."""
    return stage.dp_degree * step_time(instance, stage)


def synchronisation_time(instance: FlushedInstance, stage: Stage, *, inside: bool = False) -> float:
    """Exchange of a stage's gradients after the batch, per micro-batch of it; ``inside``: in one machine."""
    flat = instance.flat
    bandwidth = instance.inner_bandwidth if inside and instance.inner_bandwidth is not None else flat.bandwidth
    return gradient_bytes(flat, stage) / bandwidth / flat.num_microbatches


@dataclass(frozen=True)
class Place:
    """The devices of a stage: from ``first`` to before ``end``; idle ones may lie among them at ends of machines."""

    first: int
    end: int


def places(instance: FlushedInstance, plan: StagePlan) -> tuple[Place, ...] | None:
    """Where the stages lie so that the longest synchronisation is as short as it can be.

    Stages follow each other from the output side on. The t devices of a replica lie in one machine; devices at the end
    of a machine stay idle where a replica, or a stage that is to lie in one machine, does not fit behind the others.
    ``None`` if they do not fit, or there are no machines.
    """
    if instance.devices_per_machine is None:
        return None
    times = {synchronisation_time(instance, stage, inside=way) for stage in plan.stages for way in (False, True)}
    for longest in sorted(times):
        found = _places_within(instance, plan, longest, instance.devices_per_machine)
        if found is not None:
            return found
    return None


def _places_within(instance: FlushedInstance, plan: StagePlan, longest: float, K1: int) -> tuple[Place, ...] | None:
    """Every stage as near to device 0 as it can be, if none synchronises for longer."""
    found, end = [], 0
    for stage in reversed(plan.stages):
        d, t = stage.dp_degree, stage.tp_degree
        if t > K1:
            return None
        first = _from(end, t, K1)
        if synchronisation_time(instance, stage) > longest:
            if d * t > K1 or synchronisation_time(instance, stage, inside=True) > longest:
                return None
            first = _from(end, d * t, K1)
        end = first
        for _ in range(d):
            end = _from(end, t, K1) + t
        found.append(Place(first, end))
    return tuple(reversed(found)) if end <= instance.flat.num_devices else None


def _from(first: int, size: int, K1: int) -> int:
    """The first device from which so many lie in one machine."""
    return first if first % K1 + size <= K1 else -(-first // K1) * K1


def synchronisation_times(instance: FlushedInstance, plan: StagePlan) -> tuple[float, ...]:
    """Synchronisation of every stage, with all of them where `places` has them."""
    K1, found = instance.devices_per_machine, places(instance, plan)
    inside = [False] * len(plan.stages)
    if K1 is not None and found is not None:
        inside = [place.first // K1 == (place.end - 1) // K1 for place in found]
    return tuple(
        synchronisation_time(instance, stage, inside=way) for stage, way in zip(plan.stages, inside, strict=True)
    )


def depth(instance: FlushedInstance, plan: StagePlan) -> int:
    """L: the number of stages on the longest path of the stage graph, which has an edge where a layer edge crosses."""
    return len(longest_path(instance, plan, [1.0] * len(plan.stages)))


def longest_path(instance: FlushedInstance, plan: StagePlan, lengths: Sequence[float]) -> list[int]:
    """The stages of a path of the stage graph on which their ``lengths`` sum to the most."""
    longest, after = list(lengths), dict[int, int]()
    for source, target in sorted(stage_edges(instance.flat, plan), reverse=True):
        if lengths[source] + longest[target] > longest[source]:
            longest[source], after[source] = lengths[source] + longest[target], target
    path = [max(range(len(longest)), key=longest.__getitem__)] if longest else []
    while path and path[-1] in after:
        path.append(after[path[-1]])
    return path


def evaluate(instance: FlushedInstance, plan: StagePlan) -> float:
    """Time per sample of a plan, in the instance's time unit: by the formula, or simulated (`simulate_batch`).

    `ValueError` if the plan names a node or TMPC that the instance does not have, or has no stage.
    """
    if not plan.stages:
        raise ValueError("the plan has no stage")
    if instance.objective is Objective.ITERATION:
        return simulate_batch(instance, plan)
    return formula_time(instance, plan)


def formula_time(instance: FlushedInstance, plan: StagePlan) -> float:
    """Time per sample of a plan by the formula of the instance's fill, whatever its objective."""
    m, longest = instance.flat.num_microbatches, max(synchronisation_times(instance, plan))
    if instance.fill is Fill.STAGES:
        slowest = max(step_time(instance, stage) for stage in plan.stages)
        return (1 + (depth(instance, plan) - 1) / m) * slowest + longest
    return (fill_time(instance, plan) + max(later_rounds(instance, plan))) / m + longest


def fill_time(instance: FlushedInstance, plan: StagePlan) -> float:
    """S: the largest sum of the stages' t on a path of the stage graph."""
    times = [replica_time(instance, stage) for stage in plan.stages]
    return math.fsum(times[position] for position in longest_path(instance, plan, times))


def later_rounds(instance: FlushedInstance, plan: StagePlan) -> list[float]:
    """(ceil(m/d) - 1) t of every stage: what its busiest replica runs behind its first micro-batch."""
    m = instance.flat.num_microbatches
    return [(-(-m // stage.dp_degree) - 1) * replica_time(instance, stage) for stage in plan.stages]


def violations(instance: FlushedInstance, plan: StagePlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks: those of the flat problem, with the schedule's micro-batches in flight.

    Under 1F1B min(ceil(s/d), ceil(m/d)): ceil(s/d) as without flushes, as degrees sum to at most m. GPipe: ceil(m/d).
    On machines ``machines``: the stages' devices, with those that stay idle at ends of machines, are at most K. And
    """
    is_gpipe = instance.schedule is Schedule.GPIPE
    flat = replace(instance.flat, memory_bytes=math.inf) if is_gpipe else instance.flat
    found = flat_problem.violations(flat, plan)
    if any(broken.rule in ("cover", "tmpc") for broken in found):
        return found
    return (*found, *(_gpipe_memory(instance, plan) if is_gpipe else ()), *_machines(instance, plan))


def _machines(instance: FlushedInstance, plan: StagePlan) -> Iterator[Violation]:
    K, K1 = instance.flat.num_devices, instance.devices_per_machine
    if K1 is None or any(stage.dp_degree < 1 for stage in plan.stages):
        return
    for position, stage in enumerate(plan.stages):
        if stage.tp_degree > K1:
            yield Violation("machines", f"stage {position} is split over {stage.tp_degree} devices, a machine has {K1}")
    if all(stage.tp_degree <= K1 for stage in plan.stages) and places(instance, plan) is None:
        yield Violation("machines", f"the stages do not fit on {K // K1} machines of {K1} devices")


def _gpipe_memory(instance: FlushedInstance, plan: StagePlan) -> Iterator[Violation]:
    """The stages that are too large with all micro-batches in flight."""
    m, limit = instance.flat.num_microbatches, instance.flat.memory_bytes
    for position, stage in enumerate(plan.stages):
        memory = stage_memory(instance.flat, stage, m) if stage.dp_degree >= 1 else 0.0
        if memory > limit * MEMORY_SLACK:
            yield Violation(
                "memory", f"stage {position} needs {memory:.17g} bytes of {limit:.17g} with {m} micro-batches"
            )


def simulate_batch(instance: FlushedInstance, plan: StagePlan) -> float:
    """Time per sample of one simulated batch, with the longest synchronisation after it.

    The fill by stages takes every stage for the slowest one while the pipeline fills and drains, and d replicas for one
    stage that is d times as fast; the simulation gives each replica its own micro-batches.
    """
    m = instance.flat.num_microbatches
    end = simulated(instance.flat, plan, instance.schedule, m, all_replicas=False).makespan_s
    return end / m + max(synchronisation_times(instance, plan))
