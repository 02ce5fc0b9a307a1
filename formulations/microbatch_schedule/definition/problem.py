"""Micro-batch schedules: the definition, naively and without any solver.

Source: GraphPipe, sections 3 (C4) and 6. Starts are part of a plan; the paper's schedules are orders of passes. Split
backward passes: Qi et al. 2024, section 2; several stages on a device: Narayanan et al. 2021, section 2.2.
"""

from collections.abc import Iterator
from itertools import pairwise

from formulations.contract.violation import Violation
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.simulation.simulate_graph import Pass, in_order
from instances.problems.microbatch_schedule import Kind, ScheduleInstance
from instances.units import of_room

#: Times are compared up to this part of the iteration.
TOLERANCE = 1e-9


def _held(instance: ScheduleInstance, plan: SchedulePlan, device: int) -> Iterator[list[int]]:
    """Micro-batches of every stage in flight on a device: before its first pass, then as of each pass."""
    held = [0] * len(instance.stages)
    yield held
    for task in _on_device(instance, plan, device):
        held[task.stage] += (task.kind == "F") - (task.kind == instance.stages[task.stage].releases)
        yield held


def peak_bytes(instance: ScheduleInstance, plan: SchedulePlan, device: int) -> float:
    """Most bytes that a device holds, with all of its stages, at any moment."""
    return max(instance.bytes_held(device, held) for held in _held(instance, plan, device))


def peak_in_flight(instance: ScheduleInstance, plan: SchedulePlan, device: int) -> int:
    """Most micro-batches in flight on a device at any moment, those of each of its stages counted apart."""
    return max(sum(held) for held in _held(instance, plan, device))


def _on_device(instance: ScheduleInstance, plan: SchedulePlan, device: int) -> list[Pass]:
    """The passes of a device by start."""
    return in_order(task for stage in instance.stages_on[device] for task in plan.by_stage.get(stage, []))


def evaluate(instance: ScheduleInstance, plan: SchedulePlan) -> float:
    """Seconds of the iteration, or bytes of the device that holds most, as the instance's objective says.

    `ValueError` if the plan breaks a rule.
    """
    broken = _passes(instance, plan) or _rules(instance, plan)
    if broken:
        raise ValueError("; ".join(map(str, broken[:5])))
    if instance.objective == "memory":
        return max(peak_bytes(instance, plan, device) for device in range(len(instance.stages_on)))
    return plan.iteration_s


def violations(instance: ScheduleInstance, plan: SchedulePlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks.

    ``passes`` (each once), ``start`` (not before 0), ``duration``, ``overlap`` (one at a time on a device), ``order``
    (passes of a kind of a stage in turn), ``precedence`` (F before B before W, and between stages), ``in-flight`` (of a
    stage, from the start of F to the end of B, or of W where there is one), ``memory`` (of a device), ``deadline``.
    """
    missing = _passes(instance, plan)
    return tuple(missing or _rules(instance, plan))


def _rules(instance: ScheduleInstance, plan: SchedulePlan) -> list[Violation]:
    """The rules of time and room that the passes break, each of which is there once."""
    slack = TOLERANCE * plan.iteration_s
    found = _times(instance, plan, slack)
    for device in range(len(instance.stages_on)):
        found += _one_at_a_time(instance, plan, device, slack)
    for stage in range(len(instance.stages)):
        found += _in_turn(plan, stage) + _in_flight(instance, plan, stage)
    for device in range(len(instance.stages_on)):
        found += _memory(instance, plan, device)
    found += _precedence(instance, plan, slack)
    if instance.deadline_s is not None and plan.iteration_s > instance.deadline_s + slack:
        found.append(
            Violation("deadline", f"the iteration takes {plan.iteration_s:.17g} s of {instance.deadline_s:.17g}")
        )
    return found


def _name(task: Pass) -> str:
    return f"{task.kind}{task.index} of stage {task.stage}"


def _passes(instance: ScheduleInstance, plan: SchedulePlan) -> list[Violation]:
    wanted = {
        (stage, kind, index)
        for stage, own in enumerate(instance.stages)
        for kind in own.seconds
        for index in range(instance.num_microbatches(stage))
    }
    found, seen = [], set()
    for task in plan.passes:
        key = (task.stage, task.kind, task.index)
        if key not in wanted or key in seen:
            found.append(Violation("passes", f"{_name(task)} {'is there twice' if key in seen else 'does not exist'}"))
        seen.add(key)
    lacking = sorted(wanted - seen)
    if lacking:
        first = _name(Pass(*lacking[0], 0.0, 0.0))
        found.append(Violation("passes", f"{len(lacking)} passes are missing, such as {first}"))
    return found


def _times(instance: ScheduleInstance, plan: SchedulePlan, slack: float) -> list[Violation]:
    found = []
    for task in plan.passes:
        seconds = instance.stages[task.stage].seconds[task.kind]
        if task.start_s < -slack:
            found.append(Violation("start", f"{_name(task)} starts at {task.start_s:.17g}"))
        if abs(task.end_s - task.start_s - seconds) > slack:
            took = task.end_s - task.start_s
            found.append(Violation("duration", f"{_name(task)} takes {took:.17g} s; expected {seconds:.17g}"))
    return found


def _one_at_a_time(instance: ScheduleInstance, plan: SchedulePlan, device: int, slack: float) -> list[Violation]:
    return [
        Violation("overlap", f"{_name(after)} starts before {_name(task)} ends")
        for task, after in pairwise(_on_device(instance, plan, device))
        if after.start_s < task.end_s - slack
    ]


def _in_turn(plan: SchedulePlan, stage: int) -> list[Violation]:
    found = []
    for kind, name in (("F", "forward"), ("B", "backward"), ("W", "weight-gradient")):
        indices = [task.index for task in plan.by_stage.get(stage, []) if task.kind == kind]
        if indices != sorted(indices):
            found.append(Violation("order", f"the {name} passes of stage {stage} are not in turn"))
    return found


def _in_flight(instance: ScheduleInstance, plan: SchedulePlan, stage: int) -> list[Violation]:
    own = instance.stages[stage]
    samples = plan.peak_in_flight(stage) * own.microbatch
    if own.in_flight is None or samples <= own.in_flight:
        return []
    return [Violation("in-flight", f"stage {stage} has {samples} samples in flight of {own.in_flight}")]


def _memory(instance: ScheduleInstance, plan: SchedulePlan, device: int) -> list[Violation]:
    memory, stages = instance.memory(device), instance.stages_on[device]
    if memory is None or (held := peak_bytes(instance, plan, device)) <= memory:
        return []
    who = f"stage {stages[0]} holds" if len(stages) == 1 else f"stages {', '.join(map(str, stages))} of a device hold"
    return [Violation("memory", f"{who} {of_room(held, memory)}")]


def _precedence(instance: ScheduleInstance, plan: SchedulePlan, slack: float) -> list[Violation]:
    at = {(task.stage, task.kind, task.index): task for task in plan.passes}
    waits = [
        (at[stage, first, index], at[stage, then, index], 0.0)
        for stage, own in enumerate(instance.stages)
        for first, then in pairwise(own.seconds)
        for index in range(instance.num_microbatches(stage))
    ]
    for edge in instance.edges:
        ends: tuple[tuple[int, int, Kind], ...] = ((edge.source, edge.target, "F"), (edge.target, edge.source, "B"))
        for giver, taker, kind in ends:
            size, given = instance.stages[taker].microbatch, instance.stages[giver].microbatch
            for index in range(instance.num_microbatches(taker)):
                last_sample = (index + 1) * size - 1
                first = at[giver, kind, last_sample // given]
                waits.append((first, at[taker, kind, index], instance.delay(edge, giver)))
    return [
        Violation("precedence", f"{_name(after)} starts before {_name(first)} has ended and come")
        for first, after, delay in waits
        if after.start_s < first.end_s + delay - slack
    ]
