"""Hierarchical stage partitioning: the definition, naively and without any solver.

A plan is a sequence of superstages. A superstage runs on d_2 machines, every one of which holds all of its nodes, and
is split inside the machine into stages with degrees d_1 and t; so a stage has d_1 d_2 replicas in all. Where there are
levels above machines, groups of superstages run on d_3 devices of level 3, and so on: d_1 d_2 ... d_L replicas.

With the objective iteration the N micro-batches are one batch, after which the pipeline is flushed. Stages are those of
the flattened plan, under 1F1B in fixed orders; a replica's time for a micro-batch is `replica_times`. Gradients are
summed after the last pass, level by level (`gradient_time`).

Source: Piper, Appendix E. The iteration: reconstructed (docs/the-clock.md), the appendix has no flush.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from formulations.contract.violation import Violation
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, Span, Superstage, spans
from formulations.stage_partitioning.definition import problem as flat_problem
from formulations.stage_partitioning.definition.batch import gradient_bytes, simulated, step_time
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import stage_time
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel, Objective
from instances.problems.stage_partitioning import Layer
from instances.rules import NodeId
from instances.units import of_room


def whole_weight(layer: Layer) -> float:
    """w_v: bytes of one copy of a node's weights, the least t * w over its TMPCs.

    The appendix introduces w_v without tensor parallelism. Shards of one copy together are one copy, so what a machine
    synchronises with others does not depend on the degree t inside; parts that every shard repeats are counted once.
    """
    return min((t * x.weight_bytes for t, tmpcs in layer.tmpcs.items() for x in tmpcs), default=0.0)


def most_in_flight(instance: HierarchicalInstance) -> int:
    """The largest s: degrees sum to at most N, and to no more than there are devices."""
    return min(instance.flat.num_microbatches, instance.flat.num_devices)


def flatten(plan: HierarchicalPlan) -> StagePlan:
    """All stages of all superstages, each with its replicas on all machines: d = d_1 d_2 ... d_L."""
    return StagePlan(
        tuple(
            replace(stage, dp_degree=stage.dp_degree * span.replicas)
            for superstage, span in zip(plan.stages, spans(plan)[0], strict=True)
            for stage in superstage.inner
        )
    )


def link_time(instance: HierarchicalInstance, superstage: Superstage) -> float:
    """Time per sample of a machine's link: weights among d_2 machines, and what crosses the superstage's boundary."""
    return _link_time(instance, (superstage,), superstage.dp_degree, instance.outer_bandwidth)


def _link_time(instance: HierarchicalInstance, held: Sequence[Superstage], degree: int, bandwidth: float) -> float:
    """Time per sample of the link of one of ``degree`` devices of any level, each of which holds these superstages.

    Source: Appendix E, the recursion's middle term.
    """
    flat, inside = instance.flat, _nodes(held)
    volume = [2 * edge.bytes for edge in flat.edges if (edge.source in inside) != (edge.target in inside)]
    return math.fsum(_gradients(instance, inside, degree) + volume) / degree / bandwidth


def _nodes(held: Sequence[Superstage]) -> set[NodeId]:
    return {node for superstage in held for stage in superstage.inner for node in stage.nodes}


def _gradients(instance: HierarchicalInstance, inside: set[NodeId], degree: int) -> list[float]:
    """Bytes over the link of each of ``degree`` devices of a level to sum the gradients of these nodes once."""
    return [4 * (degree - 1) / degree * whole_weight(layer) for layer in instance.flat.layers if layer.id in inside]


def link_times(instance: HierarchicalInstance, plan: HierarchicalPlan) -> list[list[float]]:
    """Time per sample of the links that every superstage shares, on each level from 2 to L."""
    found: list[list[float]] = [[] for _ in plan.stages]
    for level, own in zip(instance.levels, spans(plan), strict=True):
        for span in own:
            held = plan.stages[span.first : span.last]
            time = _link_time(instance, held, span.dp_degree, level.bandwidth) / span.above
            for links in found[span.first : span.last]:
                links.append(time)
    return found


def superstage_time(instance: HierarchicalInstance, superstage: Superstage) -> float:
    """Time per sample of a superstage of level 2 alone: its link, or its slowest stage, shared by d_2 machines.

    A stage inside pays for all that crosses its own boundary at the inner bandwidth, also for what comes from
    or goes to other machines: an edge is paid for at every level's boundary that it crosses.
    """
    slowest = max(stage_time(instance.inner, stage) for stage in superstage.inner)
    return max(link_time(instance, superstage), slowest / superstage.dp_degree)


def superstage_times(instance: HierarchicalInstance, plan: HierarchicalPlan) -> list[float]:
    """Time per sample of every superstage, with the links that it shares on the levels above machines."""
    own, links = spans(plan)[0], link_times(instance, plan)
    return [
        max(superstage_time(instance, superstage) / span.above, *shared)
        for superstage, span, shared in zip(plan.stages, own, links, strict=True)
    ]


def sample_times(instance: HierarchicalInstance, plan: HierarchicalPlan) -> list[float]:
    """Time per sample of every superstage: where a batch is flushed its slowest stage's share, without gradients."""
    if instance.objective is not Objective.ITERATION:
        return superstage_times(instance, plan)
    own = zip(replica_times(instance, plan), flatten(plan).stages, strict=True)
    shares = (time / stage.dp_degree for time, stage in own)
    return [max(itertools.islice(shares, len(superstage.inner))) for superstage in plan.stages]


def replica_times(instance: HierarchicalInstance, plan: HierarchicalPlan) -> list[float]:
    """t of every stage, from the input side on: time of a micro-batch on one of its replicas, of all its terms."""
    return [math.fsum(terms) for terms in replica_terms(instance, plan)]


def replica_terms(instance: HierarchicalInstance, plan: HierarchicalPlan) -> list[list[float]]:
    """What a micro-batch takes on a replica of every stage: inside a machine, and on the link of each level.

    It computes, and sends what crosses its boundary over the network inside. Of that it sends what leaves the machine
    (on higher levels the device of that level) over its link, too, of which each of the replicas there has a part.
    """
    own = [stage for superstage in plan.stages for stage in superstage.inner]
    times = [[step_time(instance.inner, stage) * stage.dp_degree] for stage in own]
    degrees = [stage.dp_degree for stage in flatten(plan).stages]
    starts = [0, *itertools.accumulate(len(superstage.inner) for superstage in plan.stages)]
    for level, found in zip(instance.levels, spans(plan), strict=True):
        for span in found:
            inside = _nodes(plan.stages[span.first : span.last])
            crossing = [edge for edge in instance.flat.edges if (edge.source in inside) != (edge.target in inside)]
            for k in range(starts[span.first], starts[span.last]):
                nodes, sharing = set(own[k].nodes), degrees[k] // span.replicas
                leaving = [2 * edge.bytes for edge in crossing if nodes & {edge.source, edge.target}]
                times[k].append(math.fsum(leaving) * sharing / level.bandwidth)
    return times


def gradient_time(instance: HierarchicalInstance, plan: HierarchicalPlan) -> float:
    """Time to sum the gradients of a batch: inside machines, then between them, level by level; the slowest superstage.

    Inside it is the longest of its stages' sums; the link of a machine sends what all of them hold.
    """
    found = [
        [max(gradient_bytes(instance.flat, stage) for stage in superstage.inner) / instance.inner_bandwidth]
        for superstage in plan.stages
    ]
    for level, own in zip(instance.levels, spans(plan), strict=True):
        for span in own:
            inside = _nodes(plan.stages[span.first : span.last])
            time = math.fsum(_gradients(instance, inside, span.dp_degree)) / level.bandwidth
            for terms in found[span.first : span.last]:
                terms.append(time)
    return max(map(math.fsum, found))


def iteration_time(instance: HierarchicalInstance, plan: HierarchicalPlan) -> float:
    """Time of one batch under 1F1B, with the sums of its gradients after it, whatever the objective."""
    m, steps = instance.flat.num_microbatches, replica_times(instance, plan)
    run = simulated(instance.flat, flatten(plan), "1f1b", m, all_replicas=False, steps=steps)
    return run.makespan_s + gradient_time(instance, plan)


def evaluate(instance: HierarchicalInstance, plan: HierarchicalPlan) -> float:
    """Time per sample of a plan, in the instance's time unit: the slowest superstage, or a part of an iteration.

    `ValueError` if the plan names a node or TMPC that the instance does not have, or has no stage.
    Source: Piper, Appendix E. Deviation: none; weights under tensor parallelism as `whole_weight` says.
    """
    if not plan.stages or not all(superstage.inner for superstage in plan.stages):
        raise ValueError("the plan has no stage, or a superstage without stages")
    if instance.objective is Objective.ITERATION:
        return iteration_time(instance, plan) / instance.flat.num_microbatches
    return max(superstage_times(instance, plan))


def violations(instance: HierarchicalInstance, plan: HierarchicalPlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks; empty if it is feasible.

    Rules of the flat problem, on the flattened plan: ``cover``, ``tmpc``, ``order``, ``dp_degree``, ``microbatches``
    and (precise model) ``memory`` with ceil(s / (d_1 d_2)) micro-batches in flight. Rules of the levels:
    ``superstage`` (at least one stage on at least one machine), ``levels`` (groups for levels 3 to L, which hold those
    of the level below), ``machines`` (sum of d_2 <= K_2, in each device of level 3), ``machine`` (sum of d_1 t <= K_1
    in each), ``group`` (sum of d_l <= K_l on higher levels), and (crude model) ``memory`` with ceil(S / d_1) in flight,
    S the largest s there is.
    """
    broken = [
        Violation("superstage", f"superstage {i} has {len(found.inner)} stages on {found.dp_degree} machines")
        for i, found in enumerate(plan.stages)
        if not found.inner or found.dp_degree < 1
    ]
    broken += [
        Violation("levels", f"group {i} of level {number} holds {found.size} on {found.dp_degree} devices")
        for number, groups in enumerate(plan.groups, 3)
        for i, found in enumerate(groups)
        if found.size < 1 or found.dp_degree < 1
    ]
    if broken:
        return tuple(broken)
    if len(plan.groups) != len(instance.upper_levels):
        text = f"the plan has groups of {len(plan.groups)} levels above machines; there are"
        return (Violation("levels", f"{text} {len(instance.upper_levels)}"),)
    try:
        levels = spans(plan)
    except ValueError as error:
        return (Violation("levels", str(error)),)
    precise = instance.memory_model is MemoryModel.PRECISE
    # The devices are counted machine by machine below.
    flat = replace(instance.flat, num_devices=10**9, memory_bytes=instance.flat.memory_bytes if precise else math.inf)
    broken = list(flat_problem.violations(flat, flatten(plan)))
    whole = [Span(0, len(plan.stages), 1)]
    for number, (level, own, above) in enumerate(zip(instance.levels, levels, [*levels[1:], whole], strict=True), 2):
        rule, what = ("machines", "machines") if number == 2 else ("group", f"devices of level {number}")
        for parent in above:
            taken = sum(span.dp_degree for span in own if parent.first <= span.first < parent.last)
            if taken > level.count:
                broken.append(Violation(rule, f"the superstages take {taken} {what} of {level.count}"))
    broken += [
        Violation("machine", f"superstage {i} takes {found.num_devices} devices of {instance.devices_per_machine}")
        for i, found in enumerate(plan.stages)
        if found.num_devices > instance.devices_per_machine
    ]
    if any(found.rule in ("cover", "tmpc") for found in broken):
        return tuple(broken)
    if instance.memory_model is MemoryModel.CRUDE:
        broken += _crude_memory(instance, plan)
    return tuple(broken)


def _crude_memory(instance: HierarchicalInstance, plan: HierarchicalPlan) -> list[Violation]:
    limit, S = instance.flat.memory_bytes * flat_problem.MEMORY_SLACK, most_in_flight(instance)
    found = []
    for i, superstage in enumerate(plan.stages):
        for j, stage in enumerate(superstage.inner):
            if stage.dp_degree < 1:  # a rule of its own
                continue
            memory = flat_problem.stage_memory(instance.flat, stage, S)
            if memory > limit:
                needs = f"stage {j} of superstage {i} needs {of_room(memory, instance.flat.memory_bytes)}"
                found.append(Violation("memory", f"{needs} with {S} micro-batches in all"))
    return found


def most_memory(instance: HierarchicalInstance, plan: HierarchicalPlan) -> float:
    """Bytes of the device that holds most in a feasible plan, as the memory model counts them; 0 where it does not."""
    if instance.memory_model is MemoryModel.NONE:
        return 0.0
    if instance.memory_model is MemoryModel.CRUDE:
        S, inner = most_in_flight(instance), [stage for found in plan.stages for stage in found.inner]
        return max(flat_problem.stage_memory(instance.flat, stage, S) for stage in inner)
    flat = flatten(plan)
    sums = flat_problem.suffix_sums(flat)
    return max(flat_problem.stage_memory(instance.flat, stage, s) for stage, s in zip(flat.stages, sums, strict=True))
