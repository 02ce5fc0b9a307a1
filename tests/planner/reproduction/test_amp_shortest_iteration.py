"""The strategy with the shortest iteration: against every plan, simulated by an oracle, and its bound."""

import random
from itertools import pairwise

import pytest
from oracles.amp_strategy import plans, random_instance
from oracles.iteration import iteration_s

from formulations.amp_strategy.definition.plan import StrategyPlan, plan_from_json
from formulations.amp_strategy.definition.problem import layer_assignment, terms
from instances.problems.amp_strategy import AmpInstance
from planner.reproduction.amp.shortest_iteration import shortest_iteration
from solvers.outcome import Limits, Stop, Watch


def simulated(instance: AmpInstance, plan: StrategyPlan) -> float:
    """A step under 1F1B's fixed order, a third of a stage forward, half of a cut's seconds each way."""
    layers = layer_assignment(instance, plan.degrees, plan.placement)
    ends = [sum(plan.lengths[:stage]) for stage in range(len(plan.lengths) + 1)]
    times = [sum(layers.times(stage)[start:end]) for stage, (start, end) in enumerate(pairwise(ends))]
    p, m = len(times), layers.num_microbatches
    orders = []
    for stage in range(p):
        early = min(p - 1 - stage, m)
        order = [("F", stage, j) for j in range(early)]
        for j in range(m):
            order += [("F", stage, j + early)] * (j + early < m) + [("B", stage, j)]
        orders.append(order)
    edges = [(stage, stage + 1) for stage in range(p - 1)]
    delays = {(stage, after): layers.cut_cost(ends[after] - 1, stage) / 2 for stage, after in edges}
    seconds = {"F": [time / 3 for time in times], "B": [time * 2 / 3 for time in times]}
    found = iteration_s(orders, seconds, edges, delays)
    assert found is not None
    return found + terms(instance, plan).all_reduce


def test_no_plan_of_any_strategy_is_shorter(cases: int) -> None:
    seen = 0
    for case in range(2 * cases):
        instance = random_instance(random.Random(f"shortest {case}"))
        every = [plan_from_json(instance, plan) for plan in plans(instance)]
        found = shortest_iteration(instance, Watch(Limits()))
        least = min(simulated(instance, plan) for plan in every)
        assert found.iteration_s == pytest.approx(least, rel=1e-9), case
        assert found.bound_s <= least * (1 + 1e-12) and found.bound_s >= found.iteration_s * (1 - 1e-9), case
        assert found.plan in every, case
        seen += found.simulated < len(every)
    assert seen > 0


def test_a_stopped_search_has_a_bound() -> None:
    instance = random_instance(random.Random("stopped"))
    least = shortest_iteration(instance, Watch(Limits())).iteration_s
    watch = Watch(Limits())
    watch.stop(Stop.INTERRUPTED)
    found = shortest_iteration(instance, watch)
    assert found.plan is None and found.simulated == 0 and 0 < found.bound_s <= least
