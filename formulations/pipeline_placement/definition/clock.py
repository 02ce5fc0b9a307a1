"""The objective is that of a pipeline that never runs empty; an iteration is a step under 1F1B."""

from __future__ import annotations

from formulations.contract.clock import MOST_ACTIONS, Clock
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.simulate import simulate_plan
from instances.problems.pipeline_placement import PlacementInstance


def clock(instance: PlacementInstance, plan: PlacementPlan) -> Clock:
    """The slowest stage beside the simulated step of the slowest replica, with its all-reduce."""
    passes = 2 * instance.microbatches * sum(map(len, plan.mapping.devices))
    return Clock(
        "steady",
        "1f1b",
        instance.microbatches,
        lambda: None if passes > MOST_ACTIONS else simulate_plan(instance, plan).seconds,
    )
