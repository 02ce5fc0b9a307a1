"""The objective is that of a pipeline that never runs empty, or a formula of a step; an iteration is one under 1F1B."""

from formulations.contract.clock import MOST_ACTIONS, Clock
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.simulate import simulate_plan
from instances.problems.pipeline_placement import PlacementInstance


def clock(instance: PlacementInstance, plan: PlacementPlan) -> Clock:
    """The slowest stage, or a step by its formula, beside the slowest replica's simulated step, with its all-reduce."""
    passes = 2 * instance.microbatches * sum(map(len, plan.mapping.devices))
    return Clock(
        "formula" if instance.objective == "step" else "steady",
        "1f1b",
        instance.microbatches,
        lambda: None if passes > MOST_ACTIONS else simulate_plan(instance, plan).seconds,
    )
