"""The objective is the iteration itself."""

from __future__ import annotations

from formulations.simulation.clock import Clock
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import evaluate
from instances.problems.training_strategy import StrategyInstance


def clock(instance: StrategyInstance, plan: StrategyPlan) -> Clock:
    """A batch under the plan's schedule, in seconds."""
    unit_s = 1e-3 if instance.flat.time_unit == "ms" else 1.0
    m = instance.flat.num_microbatches
    return Clock("iteration", str(plan.schedule), m, lambda: evaluate(instance, plan) * unit_s)
