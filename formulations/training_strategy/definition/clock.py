"""The objective is the iteration itself."""

from formulations.contract.clock import MOST_ACTIONS, Clock
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import evaluate
from instances.problems.training_strategy import StrategyInstance


def clock(instance: StrategyInstance, plan: StrategyPlan) -> Clock:
    """A batch under the plan's schedule, in seconds."""
    unit_s = 1e-3 if instance.flat.time_unit == "ms" else 1.0
    m = instance.flat.num_microbatches
    is_large = 2 * len(plan.chunks) * m / plan.dp_degree > MOST_ACTIONS
    return Clock("iteration", str(plan.schedule), m, lambda: None if is_large else evaluate(instance, plan) * unit_s)
