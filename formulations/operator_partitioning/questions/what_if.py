"""What may be in conflict in an operator graph and its pipeline, what may repair it, and which numbers may be off."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from formulations.contract.rounding import bytes_text
from formulations.contract.what_if import (
    Change,
    Factor,
    Member,
    More,
    layers_among,
    more_bandwidth,
    more_memory,
    named,
    once,
    one_requirement_less,
    other_memory,
    requirement_members,
    rules_among,
    smaller_microbatches,
    stage_rows,
    without_requirements,
)
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import (
    MEMORY_SLACK,
    capacity_bytes,
    memory_bytes,
    most_memory,
    stage_seconds,
)
from instances.parameters import MAX_COUNT
from instances.problems.operator_partitioning import Operator, OperatorInstance, TrainingMemory
from instances.requirements import requirements_of

_REPLICAS = "replicas_of"


def members(instance: OperatorInstance) -> tuple[Member, ...]:
    """Rules, requirements, and the operators, those that need little first, where memory is limited."""
    S, K, R = instance.num_stages, instance.num_devices, instance.replicas
    found = []
    if S is None:
        text = f"stages times replicas are {K} devices, and replicas divide {instance.step_microbatches} micro-batches"
        found.append(Member("rule", "shape", text))
    else:
        most = "at most " if instance.at_most else ""
        found.append(Member("rule", "stages", f"there are {most}{S} stages, each with an operator"))
        text = f"every stage has {R} replicas" if K is None else f"all replicas together are at most {K}"
        found.append(Member("rule", "devices", text))
    found += requirement_members(instance)
    if instance.memory_bytes is None:
        return tuple(found)
    pooled = ", which replicas of a stage share" if instance.pooled_memory else ""
    found.append(Member("rule", "memory", f"a device has {bytes_text(instance.memory_bytes)}{pooled}"))
    needs = {each.id: _least(instance, each) for each in instance.operators}
    ids = sorted(needs, key=lambda node: needs[node])
    return (*found, *(Member("layer", node, _need_text(instance, node, needs[node])) for node in ids))


def _least(instance: OperatorInstance, operator: Operator) -> float:
    """Bytes that any stage needs for an operator."""
    training = instance.training
    if training is None:
        return operator.memory_bytes
    kept = 1 if training.recompute else training.microbatches
    return operator.memory_bytes + training.weight_copies * operator.parameter_bytes + kept * operator.activation_bytes


def _need_text(instance: OperatorInstance, node: int | str, needed: float) -> str:
    [name] = [each.name for each in instance.operators if each.id == node]
    return f"operator {named(node, name)} needs at least {bytes_text(needed)} in its stage"


def relax(instance: OperatorInstance, dropped: frozenset[Member]) -> list[OperatorInstance]:
    """The instance with any number of stages, or of replicas for each, and with operators that need nothing.

    Convex stages in the order of their tensors stay, and that each has an operator.
    """
    names, free = rules_among(dropped), layers_among(dropped)
    kept = without_requirements(instance, dropped)
    if free:
        kept = replace(
            kept, operators=tuple(_without_memory(each) if each.id in free else each for each in kept.operators)
        )
    if "memory" in names:
        kept = replace(kept, memory_bytes=None)
    count = len(kept.operators)
    if names & {"stages", "shape"}:
        kept = replace(kept, num_stages=count, at_most=True, step_microbatches=None, flushed=False)  # whatever it takes
    if names & {"devices", "shape"}:
        assert kept.num_stages is not None
        each = max(_replicas_at_most(kept), instance.replicas)
        most = max(each * min(kept.num_stages, count), instance.num_devices or 0)
        kept = replace(kept, num_devices=min(most, MAX_COUNT))
    return [kept]


def _without_memory(operator: Operator) -> Operator:
    return replace(operator, parameter_bytes=0.0, activation_bytes=0.0, memory_bytes=0.0)


def repairs(instance: OperatorInstance, _: Sequence[int | str]) -> list[list[Change[OperatorInstance]]]:
    """More memory, stages or devices, a rule less, another way to train."""
    found = [_memory(instance)] if instance.memory_bytes is not None else []
    if instance.num_stages is not None:
        found += [_stages(instance), _devices(instance)]
    found += one_requirement_less(instance)
    if instance.memory_bytes is not None and instance.training is not None:
        found += _training(instance, instance.training)
    return [[each] for each in found]


def _memory(instance: OperatorInstance) -> Change[OperatorInstance]:
    assert instance.memory_bytes is not None
    return other_memory(
        instance.memory_bytes,
        lambda amount: replace(instance, memory_bytes=amount),
        lambda plan: most_memory(instance, plan),
        MEMORY_SLACK,
    )


def _stages(instance: OperatorInstance) -> Change[OperatorInstance]:
    """At most so many; the first step is the declared number, where that had to be met exactly."""
    S = instance.num_stages
    assert S is not None
    first = S + 1 if instance.at_most else S
    return Change(
        "stages",
        lambda amount: f"at most {amount:.0f} stages",
        lambda amount: replace(instance, num_stages=int(amount), at_most=True),
        range(first, max(S, len(instance.operators)) + 1),
    )


def _devices(instance: OperatorInstance) -> Change[OperatorInstance]:
    """More replicas of every stage, or devices for all of them; as many as `_replicas_at_most` says."""
    assert instance.num_stages is not None
    stages, most = min(instance.num_stages, len(instance.operators)), _replicas_at_most(instance)
    if instance.num_devices is None:
        limits = [each for each in requirements_of(instance) if each.quantity == _REPLICAS]
        first = max([instance.replicas + 1, *(each.amount for each in limits if each.relation != "<=")])
        last = min([max(first, most), *(each.amount for each in limits if each.relation != ">=")])
        name, text = "replicas", "{:.0f} replicas of every stage"
    else:
        first, last, name, text = instance.num_devices + 1, most * stages, "devices", "{:.0f} devices"
    field = "replicas" if instance.num_devices is None else "num_devices"
    return Change(
        name,
        text.format,
        lambda amount: replace(instance, **{field: int(amount)}),  # type: ignore[arg-type]
        range(first, min(last, MAX_COUNT) + 1),
        untried=f"more than {MAX_COUNT} {name}" if last > MAX_COUNT else "",
    )


def _replicas_at_most(instance: OperatorInstance) -> int:
    """Replicas of a stage beyond which more of them allow no other plan.

    Replicas only share memory, where it is pooled; where any stage fits into what so many share, more are no use but to
    a requirement. A stage holds its operators, copies of their weights, and of each operator in it or before it at most
    twice the activations of every micro-batch.
    """
    needed = [each.amount for each in requirements_of(instance) if each.quantity == _REPLICAS]
    most, room, training = max([1, *needed]), instance.memory_bytes, instance.training
    if room and instance.pooled_memory:
        held = [each.memory_bytes for each in instance.operators]
        if training is not None:
            held += [training.weight_copies * each.parameter_bytes for each in instance.operators]
            held += [3 * training.microbatches * each.activation_bytes for each in instance.operators]
        most = max(most, math.ceil(min(math.fsum(held) / room, 2.0 * MAX_COUNT)))
    return most


def _training(instance: OperatorInstance, training: TrainingMemory) -> list[Change[OperatorInstance]]:
    """Recomputation, 1F1B, smaller micro-batches."""
    found = []
    if not training.recompute:
        kept_less = replace(instance, training=replace(training, recompute=True))
        text = "activations that are computed again, not kept"
        found.append(once("recompute", text, kept_less, same_times=False))
    if training.schedule == "gpipe":
        sooner = replace(instance, training=replace(training, schedule="1f1b"))
        found.append(once("schedule", "the schedule 1F1B", sooner))

    def with_factor(times: float) -> OperatorInstance:
        operators = tuple(replace(each, activation_bytes=each.activation_bytes / times) for each in instance.operators)
        more = replace(training, microbatches=training.microbatches * int(times))
        return replace(instance, operators=operators, training=more)

    return [*found, smaller_microbatches(training.microbatches, with_factor)]


def resources(instance: OperatorInstance) -> list[More[OperatorInstance]]:
    """One more GiB on each device, one more stage, one more replica or device, one more GB/s."""
    found = []
    if instance.memory_bytes is not None:
        found.append(more_memory(_memory(instance)))
    if instance.num_stages is not None:
        unit = "one more replica of every stage" if instance.num_devices is None else "one more device"
        more = (instance.replicas if instance.num_devices is None else instance.num_devices) + 1
        if more <= MAX_COUNT:
            found.append(More(replace(_devices(instance), steps=()), unit, more))
        stages = instance.num_stages + 1
        found.append(More(replace(_stages(instance), steps=()), f"at most {stages} stages", stages))
    return [*found, more_bandwidth(instance.bandwidth_bytes_per_s, partial(_at, instance))]


def _at(instance: OperatorInstance, bandwidth: float) -> OperatorInstance:
    return replace(instance, bandwidth_bytes_per_s=bandwidth)


def rows(instance: OperatorInstance, plan: OperatorPlan) -> list[dict[str, Any]]:
    """Time, shared by replicas, and memory of every stage."""
    times = [time / R for time, R in zip(stage_seconds(instance, plan), plan.replicas, strict=True)]
    S = len(plan.stages)
    held = [memory_bytes(instance, operators, S - stage) for stage, operators in enumerate(plan.stages)]
    own = (
        {"operators": [instance.operators[each].id for each in operators], "replicas": R}
        for operators, R in zip(plan.stages, plan.replicas, strict=True)
    )
    return stage_rows(own, "time_s", times, held, [capacity_bytes(instance, R) for R in plan.replicas])


def factors(instance: OperatorInstance) -> list[Factor[OperatorInstance]]:
    """Bandwidth, and the time of every operator: where all stages have equally many replicas, lines rise equally."""
    equal = instance.num_stages is not None and instance.num_devices is None
    found = [Factor("bandwidth", "bandwidth", lambda times: _at(instance, instance.bandwidth_bytes_per_s * times))]
    for position, operator in enumerate(instance.operators):
        name = f"time of operator {operator.id}"
        found.append(Factor(name, name, partial(_scale, instance, position), connected=equal))
    return found


def _scale(instance: OperatorInstance, position: int, factor: float) -> OperatorInstance:
    operators = list(instance.operators)
    operators[position] = replace(operators[position], compute_s=operators[position].compute_s * factor)
    return replace(instance, operators=tuple(operators))


def noisy(instance: OperatorInstance, draw: Callable[[], float]) -> OperatorInstance:
    """A factor on the bandwidth, and one on the time of every operator."""
    operators = tuple(replace(each, compute_s=each.compute_s * draw()) for each in instance.operators)
    return replace(_at(instance, instance.bandwidth_bytes_per_s * draw()), operators=operators)
