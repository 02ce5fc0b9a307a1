"""Operator partitioning: the definition, naively and without any solver.

A step of a flushed pipeline by a formula (docs/the-clock.md): t(s) is a stage's time for a micro-batch on one of its r
replicas, which runs m(s) = ceil(G / r) of the G of a step; Q is the largest sum of t on a path of stages::

    Q + max (m(s) - 1) t(s) + max 2 (r - 1) / (r B) * parameters(s)

Source: Parmesan, Equations 1 to 3; memory and the free choice of stages: Source: reconstructed (appendices E and F). A
flushed step: what p equal stages take under 1F1B or GPipe (Narayanan et al. 2021, section 2.2), for stages that differ.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from formulations.contract.violation import Violation
from formulations.operator_partitioning.definition.plan import OperatorPlan
from instances.problems.operator_partitioning import OperatorInstance
from instances.units import of_room

#: A stage fits if its memory is at most that of its devices times this: float noise, far below one byte.
MEMORY_SLACK = 1 + 1e-12


def stage_of(plan: OperatorPlan) -> dict[int, int]:
    """The stage of every operator."""
    return {operator: stage for stage, members in enumerate(plan.stages) for operator in members}


def crossing_bytes(instance: OperatorInstance, plan: OperatorPlan) -> dict[tuple[int, int], float]:
    """M(s, s'): bytes of a micro-batch from stage s to stage s', forward and backward; a tensor counts once."""
    home = stage_of(plan)
    volumes: dict[tuple[int, int], list[float]] = {}
    for tensor in instance.tensors:
        source = home[tensor.source]
        for target in {home[each] for each in tensor.targets} - {source}:
            volumes.setdefault((source, target), []).append(tensor.volume_bytes)
    return {pair: math.fsum(found) for pair, found in volumes.items()}


def stage_seconds(instance: OperatorInstance, plan: OperatorPlan) -> tuple[float, ...]:
    """Computation and communication of a micro-batch on one device, stage by stage (Equation 3 before its division)."""
    volumes = crossing_bytes(instance, plan)
    return tuple(
        math.fsum(
            [instance.operators[operator].compute_s for operator in members]
            + [volume / instance.bandwidth_bytes_per_s for pair, volume in volumes.items() if stage in pair]
        )
        for stage, members in enumerate(plan.stages)
    )


class Step(NamedTuple):
    """Seconds of a flushed step: the first micro-batch, all others where they take longest, the longest all-reduce."""

    path_s: float
    others_s: float
    all_reduce_s: float


def step_parts(instance: OperatorInstance, plan: OperatorPlan) -> Step:
    """What a step of a flushed pipeline adds up."""
    seconds = stage_seconds(instance, plan)
    rounds = [microbatches_each(instance, count) - 1 for count in plan.replicas]
    sums = [all_reduce_seconds(instance, *of) for of in zip(plan.stages, plan.replicas, strict=True)]
    path = heaviest_path(seconds, crossing_bytes(instance, plan))
    return Step(
        math.fsum(seconds[stage] for stage in path),
        max(count * time for count, time in zip(rounds, seconds, strict=True)),
        max(sums),
    )


def heaviest_path(seconds: Sequence[float], edges: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """The stages of the path, from stage to stage that it feeds, on which ``seconds`` add up to most."""
    paths: list[tuple[float, tuple[int, ...]]] = []
    into: dict[int, list[int]] = {}
    for source, target in edges:
        into.setdefault(target, []).append(source)
    for stage, time in enumerate(seconds):
        before = max((paths[source] for source in into.get(stage, ()) if source < stage), default=(0.0, ()))
        paths.append((before[0] + time, (*before[1], stage)))
    return max(paths)[1]


def evaluate(instance: OperatorInstance, plan: OperatorPlan) -> float:
    """Seconds of the slowest stage over its replicas; of a training step where stages are free or flushed.

    `ValueError` if the plan misses an operator, or has another number of replicas than of stages.
    Source: Parmesan, Equations 1 and 3. A step: (MB + S - 1) times the slowest stage plus the slowest all-reduce of
    parameters. Source: reconstructed (Appendix E is not published). A flushed step: `step_parts`.
    """
    if len(plan.replicas) != len(plan.stages) or sorted(stage_of(plan)) != list(range(len(instance.operators))):
        raise ValueError("the stages do not hold every operator, or some stage has no replicas")
    if instance.flushed:
        return math.fsum(step_parts(instance, plan))
    seconds = stage_seconds(instance, plan)
    if instance.num_stages is not None:
        return max(time / count for time, count in zip(seconds, plan.replicas, strict=True))
    replicas = plan.replicas[0]
    rounds = microbatches_each(instance, replicas) + len(plan.stages) - 1
    return rounds * max(seconds) + max(all_reduce_seconds(instance, members, replicas) for members in plan.stages)


def microbatches_each(instance: OperatorInstance, replicas: int) -> int:
    """Micro-batches of a step for the replica with most of them."""
    assert instance.step_microbatches is not None
    return -(-instance.step_microbatches // replicas)


def all_reduce_seconds(instance: OperatorInstance, members: tuple[int, ...], replicas: int) -> float:
    """A ring all-reduce of a stage's gradients over the flat network (Equation 7)."""
    size = math.fsum(instance.operators[operator].parameter_bytes for operator in members)
    return 2 * (replicas - 1) * size / (replicas * instance.bandwidth_bytes_per_s)


def shapes(instance: OperatorInstance) -> tuple[tuple[int, int], ...]:
    """The (S, R) that a plan may have where the number of stages is free: S R devices, R divides the micro-batches."""
    devices, step = instance.num_devices or 1, instance.step_microbatches or 1
    return tuple(
        (devices // replicas, replicas)
        for replicas in range(1, devices + 1)
        if devices % replicas == 0 and step % replicas == 0
    )


def memory_bytes(instance: OperatorInstance, members: tuple[int, ...], from_end: int) -> float:
    """Bytes that a stage needs; ``from_end`` counts the stages from it to the last, itself included.

    Source: Reconstructed. Copies of the weights, the stage's inputs for every micro-batch in flight, and its
    activations: with recomputation the peak over one micro-batch, without all of them for all micro-batches.
    """
    return math.fsum(chain.from_iterable(memory_terms(instance, members, from_end).values()))


def memory_terms(instance: OperatorInstance, members: tuple[int, ...], from_end: int) -> dict[str, list[float]]:
    """What `memory_bytes` adds up, by what it is for; ``states`` are all copies of the weights."""
    own = [instance.operators[operator].memory_bytes for operator in members]
    training = instance.training
    if training is None:
        return {"declared": own}
    inside = set(members)
    weights = [training.weight_copies * instance.operators[operator].parameter_bytes for operator in members]
    in_flight = training.microbatches if training.schedule == "gpipe" else min(training.microbatches, from_end)
    feeding = {t.source for t in instance.tensors if t.source not in inside and not inside.isdisjoint(t.targets)}
    inputs = [in_flight * instance.operators[operator].activation_bytes for operator in sorted(feeding)]
    if training.recompute:
        working = _peak_bytes(instance, members)
    else:
        kept = math.fsum(instance.operators[operator].activation_bytes for operator in members)
        working = training.microbatches * kept
    return {"declared": own, "states": weights, "inputs": inputs, "activations": [working]}


def _peak_bytes(instance: OperatorInstance, members: tuple[int, ...]) -> float:
    """Most bytes of live outputs while the stage runs in the declared order.

    An output lives until its last consumer in the stage has run; one without a consumer there leaves at once.
    """
    inside = set(members)
    last = {operator: operator for operator in members}
    for source, target in instance.edges:
        if source in inside and target in inside:
            last[source] = max(last[source], target)
    live = {
        now: [instance.operators[each].activation_bytes for each in members if each <= now <= last[each]]
        for now in members
    }
    return max((math.fsum(sizes) for sizes in live.values()), default=0.0)


def capacity_bytes(instance: OperatorInstance, replicas: int) -> float:
    """The memory that a stage may fill."""
    if instance.memory_bytes is None:
        return math.inf
    return instance.memory_bytes * (replicas if instance.pooled_memory else 1)


def most_memory(instance: OperatorInstance, plan: OperatorPlan) -> float:
    """Bytes that a device of the plan's fullest stage needs."""
    shares = plan.replicas if instance.pooled_memory else (1,) * len(plan.stages)
    return max(
        memory_bytes(instance, members, len(plan.stages) - stage) / shares[stage]
        for stage, members in enumerate(plan.stages)
    )


def violations(instance: OperatorInstance, plan: OperatorPlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks.

    ``operators`` (each in one stage), ``empty``, ``stages`` (their number), ``replicas``, ``convex`` (no path leaves a
    stage and comes back), ``acyclic`` (stages do not wait for each other), ``order`` (a stage comes after those that
    feed it), ``memory``.
    """
    found = _membership(instance, plan)
    if found:
        return tuple(found)
    broken = [*_shape(instance, plan), *_order(instance, plan), *_memory(instance, plan)]
    return tuple(broken)


def _membership(instance: OperatorInstance, plan: OperatorPlan) -> list[Violation]:
    held = [operator for members in plan.stages for operator in members]
    missing = sorted(set(range(len(instance.operators))) - set(held))
    found = [Violation("operators", f"operator {instance.operators[each].id} is in no stage") for each in missing[:5]]
    twice = sorted({operator for operator in held if held.count(operator) > 1}) if len(set(held)) < len(held) else []
    found += [Violation("operators", f"operator {instance.operators[each].id} is in two stages") for each in twice[:5]]
    found += [
        Violation("empty", f"stage {stage} has no operator") for stage, held in enumerate(plan.stages) if not held
    ]
    if len(plan.replicas) != len(plan.stages):
        found.append(Violation("replicas", f"{len(plan.replicas)} numbers for {len(plan.stages)} stages"))
    return found


def _shape(instance: OperatorInstance, plan: OperatorPlan) -> list[Violation]:
    count, replicas = len(plan.stages), plan.replicas
    if instance.num_stages is None:
        allowed = shapes(instance)
        if set(replicas) != {replicas[0]} or (count, replicas[0]) not in allowed:
            pairs = " ".join(map(str, allowed))
            return [Violation("replicas", f"{count} stages with replicas {replicas}; expected (S, R) of {pairs}")]
        return []
    found = []
    if count > instance.num_stages or (count < instance.num_stages and not instance.at_most):
        most = "at most " if instance.at_most else ""
        found.append(Violation("stages", f"{count} stages; expected {most}{instance.num_stages}"))
    if instance.num_devices is None:
        wrong = any(each != instance.replicas for each in replicas)
        rule = f"{instance.replicas} of every stage"
    else:
        wrong = min(replicas) < 1 or sum(replicas) > instance.num_devices
        rule = f"at least 1 of every stage and {instance.num_devices} together"
    if wrong:
        found.append(Violation("replicas", f"replicas {', '.join(map(str, replicas))}; expected {rule}"))
    return found


def _order(instance: OperatorInstance, plan: OperatorPlan) -> list[Violation]:
    home = stage_of(plan)
    arcs = {(home[a], home[b]) for a, b in instance.edges if home[a] != home[b]}
    backward = sorted((a, b) for a, b in arcs if a > b)
    if not backward:
        return []
    found = []
    for stage in range(len(plan.stages)):
        outside = _successors_in_stage(instance.edges, home, stage)
        if outside:
            back = instance.operators[min(outside)].id
            found.append(Violation("convex", f"a path leaves stage {stage} and comes back at operator {back}"))
    if found:
        return found
    for stage in range(len(plan.stages)):
        if stage in _closure(arcs, {b for a, b in arcs if a == stage}):
            return [Violation("acyclic", f"stage {stage} waits for what it feeds")]
    return [Violation("order", f"stage {a} feeds stage {b} and comes after it") for a, b in backward]


def _successors_in_stage(edges: tuple[tuple[int, int], ...], home: dict[int, int], stage: int) -> set[int]:
    """Operators of the stage behind operators outside of it that are behind operators of it."""
    start = {b for a, b in edges if home[a] == stage and home[b] != stage}
    return {operator for operator in _closure(set(edges), start) if home[operator] == stage}


def _closure(arcs: set[tuple[int, int]], start: set[int]) -> set[int]:
    """All that can be reached; networkx's descendants take as long, after a tenth of a second for its import."""
    after: dict[int, list[int]] = {}
    for a, b in arcs:
        after.setdefault(a, []).append(b)
    seen, waiting = set(start), list(start)
    while waiting:
        for each in after.get(waiting.pop(), ()):
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return seen


def _memory(instance: OperatorInstance, plan: OperatorPlan) -> list[Violation]:
    if instance.memory_bytes is None:
        return []
    found = []
    for stage, members in enumerate(plan.stages):
        needed = memory_bytes(instance, members, len(plan.stages) - stage)
        room = capacity_bytes(instance, plan.replicas[stage])
        if needed > room * MEMORY_SLACK:
            found.append(Violation("memory", f"stage {stage} needs {of_room(needed, room)}"))
    return found
