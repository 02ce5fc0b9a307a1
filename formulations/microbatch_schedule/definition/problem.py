"""Micro-batch schedules: the definition, naively and without any solver.

Source: GraphPipe, sections 3 (C4) and 6. Starts are part of a plan; the paper's schedules are orders of passes.
"""

from __future__ import annotations

from itertools import pairwise

from formulations.contract.violation import Violation
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.simulation.simulate_graph import Pass
from instances.problems.microbatch_schedule import ScheduleInstance
from instances.units import of_room

#: Times are compared up to this part of the iteration.
TOLERANCE = 1e-9


def peak_bytes(instance: ScheduleInstance, plan: SchedulePlan, stage: int) -> float:
    """Most bytes that a stage holds."""
    return instance.stages[stage].bytes_held(plan.peak_in_flight(stage))


def evaluate(instance: ScheduleInstance, plan: SchedulePlan) -> float:
    """Seconds of the iteration, or bytes of the stage that holds most, as the instance's objective says.

    Raises
    ------
    ValueError
        If the plan breaks a rule.
    """
    broken = _passes(instance, plan) or _rules(instance, plan)
    if broken:
        raise ValueError("; ".join(map(str, broken[:5])))
    if instance.objective == "memory":
        return max(peak_bytes(instance, plan, stage) for stage in range(len(instance.stages)))
    return plan.iteration_s


def violations(instance: ScheduleInstance, plan: SchedulePlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks.

    ``passes`` (each once), ``start`` (not before 0), ``duration``, ``overlap`` (one at a time), ``order`` (forward
    passes in turn, and backward passes), ``precedence`` (forward before backward, and between stages), ``in-flight``,
    ``memory``, ``deadline``.
    """
    missing = _passes(instance, plan)
    return tuple(missing or _rules(instance, plan))


def _rules(instance: ScheduleInstance, plan: SchedulePlan) -> list[Violation]:
    """The rules of time and room that the passes break, each of which is there once."""
    slack = TOLERANCE * plan.iteration_s
    found = _times(instance, plan, slack)
    for stage in range(len(instance.stages)):
        found += _one_at_a_time(plan, stage, slack) + _memory_violations(instance, plan, stage)
    found += _precedence(instance, plan, slack)
    if instance.deadline_s is not None and plan.iteration_s > instance.deadline_s + slack:
        found.append(
            Violation("deadline", f"the iteration takes {plan.iteration_s:.17g} s of {instance.deadline_s:.17g}")
        )
    return found


def _name(task: Pass) -> str:
    return f"{'F' if task.is_forward else 'B'}{task.index} of stage {task.stage}"


def _passes(instance: ScheduleInstance, plan: SchedulePlan) -> list[Violation]:
    wanted = {
        (stage, is_forward, index)
        for stage in range(len(instance.stages))
        for is_forward in (True, False)
        for index in range(instance.num_microbatches(stage))
    }
    found, seen = [], set()
    for task in plan.passes:
        key = (task.stage, task.is_forward, task.index)
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
        stage = instance.stages[task.stage]
        seconds = stage.forward_s if task.is_forward else stage.backward_s
        if task.start_s < -slack:
            found.append(Violation("start", f"{_name(task)} starts at {task.start_s:.17g}"))
        if abs(task.end_s - task.start_s - seconds) > slack:
            took = task.end_s - task.start_s
            found.append(Violation("duration", f"{_name(task)} takes {took:.17g} s; expected {seconds:.17g}"))
    return found


def _one_at_a_time(plan: SchedulePlan, stage: int, slack: float) -> list[Violation]:
    found, passes = [], plan.by_stage.get(stage, [])
    for task, after in pairwise(passes):
        if after.start_s < task.end_s - slack:
            found.append(Violation("overlap", f"{_name(after)} starts before {_name(task)} ends"))
    for is_forward in (True, False):
        indices = [task.index for task in passes if task.is_forward == is_forward]
        if indices != sorted(indices):
            kind = "forward" if is_forward else "backward"
            found.append(Violation("order", f"the {kind} passes of stage {stage} are not in turn"))
    return found


def _memory_violations(instance: ScheduleInstance, plan: SchedulePlan, stage: int) -> list[Violation]:
    found, own, peak = [], instance.stages[stage], plan.peak_in_flight(stage)
    if own.in_flight is not None and peak * own.microbatch > own.in_flight:
        found.append(
            Violation("in-flight", f"stage {stage} has {peak * own.microbatch} samples in flight of {own.in_flight}")
        )
    if own.memory_bytes is not None and own.bytes_held(peak) > own.memory_bytes:
        found.append(Violation("memory", f"stage {stage} holds {of_room(own.bytes_held(peak), own.memory_bytes)}"))
    return found


def _precedence(instance: ScheduleInstance, plan: SchedulePlan, slack: float) -> list[Violation]:
    at = {(task.stage, task.is_forward, task.index): task for task in plan.passes}
    waits = [
        (at[stage, True, index], at[stage, False, index], 0.0)
        for stage in range(len(instance.stages))
        for index in range(instance.num_microbatches(stage))
    ]
    for edge in instance.edges:
        for giver, taker, is_forward in ((edge.source, edge.target, True), (edge.target, edge.source, False)):
            size, given = instance.stages[taker].microbatch, instance.stages[giver].microbatch
            for index in range(instance.num_microbatches(taker)):
                last_sample = (index + 1) * size - 1
                first = at[giver, is_forward, last_sample // given]
                waits.append((first, at[taker, is_forward, index], instance.delay(edge, giver)))
    return [
        Violation("precedence", f"{_name(after)} starts before {_name(first)} has ended and come")
        for first, after, delay in waits
        if after.start_s < first.end_s + delay - slack
    ]
