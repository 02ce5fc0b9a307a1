"""The objective is a formula of a batch; an iteration is the batch in the fixed order of its schedule."""

from __future__ import annotations

from formulations.flushed_partitioning.definition.problem import synchronisation_times
from formulations.simulation.clock import Clock
from formulations.stage_partitioning.definition.batch import iteration
from formulations.stage_partitioning.definition.plan import StagePlan
from instances.problems.flushed_partitioning import FlushedInstance


def clock(instance: FlushedInstance, plan: StagePlan) -> Clock:
    """The formula beside the simulated batch."""
    m = instance.flat.num_microbatches

    def simulate() -> float | None:
        longest = max(synchronisation_times(instance, plan))
        return iteration(instance.flat, plan, instance.schedule, longest * m)

    return Clock("formula", str(instance.schedule), m, simulate)
