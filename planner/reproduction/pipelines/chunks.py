"""Pipelines of equal chunks on the devices of a schedule, in seconds of a chunk's passes."""

from collections.abc import Sequence
from typing import Any

from formulations.simulation.orders import SCHEDULES
from instances.problems.microbatch_schedule import ScheduleInstance, pipeline
from planner.process.errors import UsageError
from planner.reproduction.claim import Optima
from solvers.outcome import Limits

#: Devices and micro-batches.
SIZES = ((2, 4), (4, 8), (4, 16), (8, 16), (8, 32))


def of_schedule(name: str, p: int, m: int, chunks: int, times: Sequence[float], room: float) -> ScheduleInstance:
    """Chunks whose F, B and, if split, W take ``times``; devices have room for the activations of so many of them."""
    f, b, *w = times
    return pipeline(SCHEDULES[name].devices(p, chunks), m, f, b, w[0] if w else None, room)


def proved(optima: Optima, instance: ScheduleInstance, what: str, limits: Limits) -> dict[str, Any]:
    """The best seconds that are known, and the bound, which they meet where they are proved; else a `UsageError`."""
    found = optima.result(instance, what, limits=limits)
    if found.objective is None or found.bound is None:
        raise UsageError.at(
            "--limit", limits.time_s, f"more seconds: {what} has no plan or no bound after so many here"
        )
    return {"best_s": found.objective, "bound_s": found.bound, "gap": found.gap}
