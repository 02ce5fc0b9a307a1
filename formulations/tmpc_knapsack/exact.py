"""Exact knapsack: the compiled search of `kernels.search`, with limits, incumbents and bounds."""

import math

import numpy as np

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.tmpc_knapsack.costs import arrays, infeasible_answer, plan_of
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.problem import evaluate
from formulations.tmpc_knapsack.kernels import search
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.outcome import OPTIMAL_GAP, Limits, Stop, Watch


def solve(instance: KnapsackInstance, limits: Limits, watch: Watch) -> Answer[KnapsackPlan]:
    """The best choice, with a bound within about 1e-12 of it; with a limit or a stop, the best so far and its bound.

    ``limits``: a ``gap`` above 1e-6 lets the search end early.
    """
    table = arrays(instance)
    choice = np.zeros(len(instance.nodes), np.int64)
    report = np.zeros(3)
    gap = limits.gap if limits.gap > OPTIMAL_GAP else search.EXACT_GAP
    with alarm(watch):
        objective = search.search(*table, gap, choice, np.frombuffer(watch.flag, np.uint8), report)
    if math.isinf(objective):
        return infeasible_answer(instance)
    plan, (bound, states, complete) = plan_of(instance, choice), report.tolist()
    watch.plan(plan, evaluate(instance, plan))
    watch.bound(bound)
    proved = complete and gap == search.EXACT_GAP
    return Answer(
        plan=plan,
        bound=bound,
        stop=Stop.PROVED if proved else Stop.COMPLETED if complete else watch.why(),
        stats={"search_nodes": int(states)},
    )
