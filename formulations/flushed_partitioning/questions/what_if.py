"""What may be in conflict in an instance of flushed partitioning, and what may repair it: as without flushes.

Under GPipe all micro-batches are in flight, so that more of them need more memory: their number stays. On machines
devices come machine by machine, and a network between them that is faster than that inside takes the place of both.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from formulations.contract.rounding import plural
from formulations.contract.what_if import (
    Change,
    Member,
    More,
    once,
    one_requirement_less,
    requirement_members,
    rules_among,
    without_requirements,
)
from formulations.flushed_partitioning.definition.problem import step_time
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import stage_memory, suffix_sums
from formulations.stage_partitioning.questions import what_if as flat_questions
from instances.parameters import MAX_COUNT
from instances.problems.flushed_partitioning import FlushedInstance, Objective, Schedule
from instances.problems.stage_partitioning import StageInstance
from instances.rules import NodeId

_SCHEDULE, _MICROBATCHES, _MACHINES, _DEVICES = "schedule", "microbatches", "machines", "devices"


def _is_gpipe(instance: FlushedInstance) -> bool:
    return instance.schedule is Schedule.GPIPE


def members(instance: FlushedInstance) -> tuple[Member, ...]:
    """Those of the flat instance, with the machines and the schedule."""
    flat, K1 = flat_questions.members(instance.flat), instance.devices_per_machine
    if K1 is not None:
        text = f"each replica lies in one machine of {plural(K1, 'device')}"
        flat = (Member("rule", _MACHINES, text), *flat)
    if not _is_gpipe(instance):
        return (*requirement_members(instance), *flat)
    N = instance.flat.num_microbatches
    text = f"replicas of a stage hold their shares of all {N} micro-batches at once (GPipe)"
    schedule = Member("rule", _SCHEDULE, text)
    return (schedule, *requirement_members(instance), *(each for each in flat if each.name != _MICROBATCHES))


def relax(instance: FlushedInstance, dropped: frozenset[Member]) -> list[FlushedInstance]:
    """The flat instance without them, one network without machines, 1F1B without GPipe.

    Weights, on which no rule depends, are left out: the recursion takes layers whose TMPCs differ in theirs, too. So
    it does the formula, as the rules are the same.
    """
    kept, names = without_requirements(instance, dropped), rules_among(dropped)
    kept = replace(kept, objective=Objective.FORMULA)
    if _SCHEDULE in names:
        kept = replace(kept, schedule=Schedule.ONE_F_ONE_B)
    if _MACHINES in names:
        kept = replace(kept, devices_per_machine=None, inner_bandwidth=None)
    [flat] = flat_questions.relax(instance.flat, dropped)
    if kept.devices_per_machine is not None and _DEVICES in names:
        flat = replace(flat, num_devices=max(instance.flat.num_devices, _devices(instance, kept.devices_per_machine)))
    kept = replace(kept, flat=flat)
    return [replace(kept, flat=kept.weightless)]


def _devices(instance: FlushedInstance, K1: int) -> int:
    """As many devices as a machine for each replica has."""
    return K1 * min(instance.flat.num_microbatches, MAX_COUNT // K1)


def repairs(instance: FlushedInstance, layers: Sequence[NodeId]) -> list[list[Change[FlushedInstance]]]:
    """Those of the flat instance, another schedule, a requirement less."""
    found = [[_lift(instance, each) for each in group] for group in flat_questions.repairs(instance.flat, layers)]
    if _is_gpipe(instance):
        found = [group for group in found if group and group[0].name != _MICROBATCHES]
        other = replace(instance, schedule=Schedule.ONE_F_ONE_B)
        found.append([once(_SCHEDULE, "the schedule 1F1B", other)])
    return [*found, *([each] for each in one_requirement_less(instance))]


def _lift(instance: FlushedInstance, change: Change[Any]) -> Change[FlushedInstance]:
    """A change of the flat instance."""
    needed = change.needed
    if needed is not None and _is_gpipe(instance):
        needed = lambda plan: max(_stage_bytes(instance, plan))  # noqa: E731
    lifted = replace(change, changed=lambda amount: _with(instance, change.changed(amount)), needed=needed)
    K1, K = instance.devices_per_machine, instance.flat.num_devices
    if K1 is None or change.name != _DEVICES:
        return lifted
    most = _devices(instance, K1)
    untried = f"more than {most} devices" if most < K1 * instance.flat.num_microbatches else ""
    return replace(lifted, steps=range(K + K1, most + 1, K1), untried=untried)


def _with(instance: FlushedInstance, flat: StageInstance) -> FlushedInstance:
    inner = instance.inner_bandwidth
    return replace(instance, flat=flat, inner_bandwidth=None if inner is None else max(inner, flat.bandwidth))


def _stage_bytes(instance: FlushedInstance, plan: StagePlan) -> list[float]:
    """Bytes that a device of each stage needs."""
    m = instance.flat.num_microbatches
    sums = [m] * len(plan.stages) if _is_gpipe(instance) else suffix_sums(plan)
    return [stage_memory(instance.flat, stage, s) for stage, s in zip(plan.stages, sums, strict=True)]


def resources(instance: FlushedInstance) -> list[More[FlushedInstance]]:
    """One more GiB on each device, one more device or machine, one more GB/s."""
    found, K1 = [], instance.devices_per_machine
    for more in flat_questions.resources(instance.flat):
        unit, amount = more.unit, more.amount
        if K1 is not None and more.change.name == _DEVICES:
            unit, amount = f"one more machine of {plural(K1, 'device')}", instance.flat.num_devices + K1
        found.append(More(_lift(instance, more.change), unit, amount))
    return found


def rows(instance: FlushedInstance, plan: StagePlan) -> list[dict[str, Any]]:
    """Time of a step and memory of every stage."""
    times = [step_time(instance, stage) for stage in plan.stages]
    return flat_questions.rows_of(instance.flat, plan, times, _stage_bytes(instance, plan))
