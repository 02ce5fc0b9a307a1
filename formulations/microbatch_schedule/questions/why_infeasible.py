"""What would make an infeasible instance feasible: room at every stage, or a later deadline.

Without a deadline a schedule exists exactly if precedences and rooms form no cycle, so the least room is bisected. A
deadline that would suffice is that of a schedule that starts what it can.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from formulations.contract.rounding import amount_text, round_up
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.problem import violations
from formulations.microbatch_schedule.feasibility import least_in_flight
from formulations.microbatch_schedule.heuristics.memory import sizes
from formulations.simulation.simulate_graph import PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance, with_in_flight, with_memory
from solvers.outcome import Limits, Watch

Number = TypeVar("Number", int, float)


def why_infeasible(instance: ScheduleInstance, _limits: Limits, watch: Watch) -> tuple[str, Mapping[str, Any]]:
    """A sentence, and the samples in flight (of each stage) without which no schedule exists."""
    least = [count * stage.microbatch for count, stage in zip(least_in_flight(instance), instance.stages, strict=True)]
    ways = [] if watch.stopped() else [_and_a_deadline(*way) for way in _ways(instance)]
    sentence = f"infeasible: the stages need at least {least} samples in flight"
    if any(ways):
        sentence += "; feasible with " + ", or with ".join(ways)
    return sentence, {"least_in_flight": least}


def _ways(instance: ScheduleInstance) -> list[tuple[ScheduleInstance, str]]:
    """The instance with room, and the least settings that make it: of each kind alone, or of both together."""
    if _has_room(instance):
        return [(instance, "")]
    found = []
    samples = _least(range(1, instance.minibatch + 1), lambda each: _has_room(with_in_flight(instance, each)))
    if samples is not None:
        found.append((with_in_flight(instance, samples), f"--in-flight {samples}"))
    memory = _least(_amounts(instance), lambda each: _has_room(with_memory(instance, each)))
    if memory is not None:
        found.append((with_memory(instance, memory), f"--memory {amount_text(memory)}"))
    if found:
        return found
    roomy = with_in_flight(instance, instance.minibatch)
    memory = _least(_amounts(roomy), lambda each: _has_room(with_memory(roomy, each)))
    if memory is None:  # unless the weights are beyond any memory
        return []
    roomy = with_memory(instance, memory)
    samples = _least(range(1, instance.minibatch + 1), lambda each: _has_room(with_in_flight(roomy, each)))
    assert samples is not None, "with all samples in flight the memory was enough"
    return [(with_in_flight(roomy, samples), f"--in-flight {samples} --memory {amount_text(memory)}")]


def _has_room(instance: ScheduleInstance) -> bool:
    """Whether there is a schedule without a deadline."""
    return PassGraph(instance).is_possible()


def _amounts(instance: ScheduleInstance) -> list[float]:
    """The rounded bytes that make a difference, ascending."""
    free = replace(instance, stages=tuple(replace(stage, memory_bytes=None) for stage in instance.stages))
    return sorted({round_up(size) for size in sizes(free, Watch())[0]})


def _least(numbers: Sequence[Number], is_enough: Callable[[Number], bool]) -> Number | None:
    """The least of ascending numbers that is enough, as all above it are; ``None`` if none is."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(numbers[middle]) else (middle + 1, high)
    return numbers[low] if low < len(numbers) else None


def _and_a_deadline(instance: ScheduleInstance, settings: str) -> str:
    """The settings, with a later deadline where a schedule that starts what it can needs one."""
    if instance.deadline_s is None:
        return settings
    plan = SchedulePlan(run(PassGraph(instance)).passes)
    if not violations(instance, plan):
        return settings
    return f"{settings} --deadline {amount_text(round_up(plan.iteration_s))}".strip()
