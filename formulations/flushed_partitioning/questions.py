"""What may be in conflict in an instance of flushed partitioning, and what may repair it: as without flushes.

Under GPipe all micro-batches are in flight, so that more of them need more memory: their number stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from formulations.flushed_partitioning.problem import step_time
from formulations.questions import Change, Member, More, Questions, one_requirement_less, required, unrequired
from formulations.stage_partitioning import questions as flat_questions
from formulations.stage_partitioning.problem import StagePlan, stage_memory, suffix_sums
from instances.flushed_partitioning import FlushedInstance, Schedule
from instances.rules import NodeId

_SCHEDULE, _MICROBATCHES = "schedule", "microbatches"


def questions() -> Questions[FlushedInstance]:
    """What the room knows."""
    return Questions(members, relaxed, repairs, resources, rows)


def _is_gpipe(instance: FlushedInstance) -> bool:
    return instance.schedule is Schedule.GPIPE


def members(instance: FlushedInstance) -> tuple[Member, ...]:
    """Those of the flat instance, with the schedule."""
    flat = flat_questions.members(instance.flat)
    if not _is_gpipe(instance):
        return (*required(instance), *flat)
    N = instance.flat.num_microbatches
    text = f"replicas of a stage hold their shares of all {N} micro-batches at once (GPipe)"
    schedule = Member("rule", _SCHEDULE, text)
    return (schedule, *required(instance), *(each for each in flat if each.name != _MICROBATCHES))


def relaxed(instance: FlushedInstance, dropped: frozenset[Member]) -> list[FlushedInstance]:
    """The flat instance without them; 1F1B without GPipe."""
    kept = unrequired(instance, dropped)
    if any(each.kind == "rule" and each.name == _SCHEDULE for each in dropped):
        kept = replace(kept, schedule=Schedule.ONE_F_ONE_B)
    [flat] = flat_questions.relaxed(instance.flat, dropped)
    return [replace(kept, flat=flat)]


def repairs(instance: FlushedInstance, layers: Sequence[NodeId]) -> list[list[Change[FlushedInstance]]]:
    """Those of the flat instance, another schedule, a requirement less."""
    found = [[_lifted(instance, each) for each in group] for group in flat_questions.repairs(instance.flat, layers)]
    if _is_gpipe(instance):
        found = [group for group in found if group and group[0].name != _MICROBATCHES]
        other = replace(instance, schedule=Schedule.ONE_F_ONE_B)
        found.append([Change(_SCHEDULE, lambda _: "the schedule 1F1B", lambda _: other, (1.0,))])
    return [*found, *([each] for each in one_requirement_less(instance))]


def _lifted(instance: FlushedInstance, change: Change[Any]) -> Change[FlushedInstance]:
    """A change of the flat instance."""
    needed = change.needed
    if needed is not None and _is_gpipe(instance):
        needed = lambda plan: max(_held(instance, plan))  # noqa: E731
    return replace(change, changed=lambda amount: replace(instance, flat=change.changed(amount)), needed=needed)


def _held(instance: FlushedInstance, plan: StagePlan) -> list[float]:
    """Bytes that a device of each stage needs."""
    m = instance.flat.num_microbatches
    sums = [m] * len(plan.stages) if _is_gpipe(instance) else suffix_sums(plan)
    return [stage_memory(instance.flat, stage, s) for stage, s in zip(plan.stages, sums, strict=True)]


def resources(instance: FlushedInstance) -> list[More[FlushedInstance]]:
    """One more GiB on each device, one more device, one more GB/s."""
    every = flat_questions.resources(instance.flat)
    return [More(_lifted(instance, more.change), more.unit, more.amount) for more in every]


def rows(instance: FlushedInstance, plan: StagePlan) -> list[dict[str, Any]]:
    """Time of a step and memory of every stage."""
    times, held = [step_time(instance, stage) for stage in plan.stages], _held(instance, plan)
    slowest, room = max(times), instance.flat.memory_bytes
    return [
        {
            "stage": number,
            "nodes": list(stage.nodes),
            "dp_degree": stage.dp_degree,
            "tp_degree": stage.tp_degree,
            "time_per_sample": times[number],
            "time_share": times[number] / slowest if slowest else 1.0,
            "memory_bytes": held[number],
            "memory_share": held[number] / room if room else 1.0,
        }
        for number, stage in enumerate(plan.stages)
    ]
