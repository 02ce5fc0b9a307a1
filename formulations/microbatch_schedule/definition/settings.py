"""What an instance of microbatch schedule is read from, and what a caller may change of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from instances.parameters import Setting, choice, parse_count
from instances.problems.microbatch_schedule import ScheduleInstance, with_in_flight, with_memory
from instances.units import parse_bytes, parse_time

#: What is minimised, by the objective of an instance.
MINIMISES = {"time": "time of an iteration", "memory": "memory of the fullest device"}
OVERRIDES = (
    choice("objective", ("time", "memory"), "minimise the time of the iteration, or the memory of the fullest device"),
    Setting("deadline", parse_time, "longest iteration that is allowed", metavar="TIME"),
    Setting("in-flight", parse_count, "largest number of samples in flight at every stage", metavar="N"),
    Setting("memory", parse_bytes, "memory per device", metavar="BYTES"),
)


def apply(instance: ScheduleInstance, overrides: Mapping[str, Any], _: str) -> ScheduleInstance:
    """The instance as the caller declares it."""
    if "in-flight" in overrides:
        instance = with_in_flight(instance, overrides["in-flight"])
    if "memory" in overrides:
        instance = with_memory(instance, overrides["memory"])
    changed = {field: overrides[name] for name, field in _FIELDS.items() if name in overrides}
    return replace(instance, **changed, options={**instance.options, **overrides})


_FIELDS = {"objective": "objective", "deadline": "deadline_s"}


def unit(instance: ScheduleInstance) -> str:
    """The objective's unit."""
    return "bytes" if instance.objective == "memory" else "s"


def describe(instance: ScheduleInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "stages": len(instance.stages),
        "edges": len(instance.edges),
        "minibatch": instance.minibatch,
        "passes": instance.num_passes,
        "objective": instance.objective,
    }
