"""The objective is the iteration itself; beside it the formula that people use for it."""

import math

from formulations.contract.clock import MOST_ACTIONS, Clock
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import chunk_times, evaluate, gradient_sum, host_time
from instances.problems.training_strategy import StrategyInstance


def clock(instance: StrategyInstance, plan: StrategyPlan) -> Clock:
    """A batch under the plan's schedule, in seconds."""
    unit_s = 1e-3 if instance.flat.time_unit == "ms" else 1.0
    m = instance.flat.num_microbatches
    is_large = 2 * len(plan.chunks) * m / plan.dp_degree > MOST_ACTIONS
    by_formula = None if plan.virtual_stages > 1 else unit_s * _formula(instance, plan)
    return Clock(
        *("iteration", str(plan.schedule), m),
        lambda: None if is_large else evaluate(instance, plan) * unit_s,
        by_formula,
        "--method formula",
    )


def _formula(instance: StrategyInstance, plan: StrategyPlan) -> float:
    """S + (m - 1) C + R, of one chunk on each device (`heuristics.formula`)."""
    m = instance.flat.num_microbatches // plan.dp_degree
    passes = [chunk_times(instance, plan, chunk) for chunk in plan.chunks]
    times = [each.forward + each.backward + each.weight for each in passes]
    after = max(gradient_sum(instance, plan, own) + host_time(instance, plan, own) for own in plan.chunks)
    return math.fsum(times) + (m - 1) * max(times) + after
