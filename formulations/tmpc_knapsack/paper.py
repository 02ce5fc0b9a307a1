"""Piper's bang-per-buck heuristic, in the paper's form and in the two forms of the released program.

| Paper                      | Here                                                            |
|----------------------------|-----------------------------------------------------------------|
| v in S                     | a node of the instance                                          |
| X in T(v, t)               | an option of the node                                           |
| TPS of X in the stage      | ``Choice.time`` (p/d, communication and resync together)        |
| memory of X in the stage   | ``Choice.memory_bytes`` (a * ceil(s/d) + b)                     |
| M                          | ``capacity_bytes``                                              |

Source: Piper, section 4, "The knapsack subproblem".
"""

import math

import numpy as np

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.tmpc_knapsack.costs import arrays, infeasible_answer, least_memory, plan_of
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.problem import MEMORY_SLACK, evaluate
from formulations.tmpc_knapsack.kernels import published, search
from instances.errors import expect
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.outcome import Limits, Prover, Stop, Watch

_VARIANTS = {"rerank": published.rerank, "sort-once": published.sort_once, "truncating": published.truncating}


def solve(instance: KnapsackInstance, _limits: Limits, watch: Watch, knapsack: str = "rerank") -> Answer[KnapsackPlan]:
    """Start with the fastest options; while too large, swap where most bytes are saved per time added.

    ``knapsack``: ``rerank``: as published, all options compete anew after every swap. ``sort-once``: as released, with
    at most two options per node. ``truncating``: ``rerank``, but bytes beyond what is still needed do not count.
    Returns: with the linear relaxation's bound; nothing if the watch stopped the swaps. Infeasible only if the smallest
    options do not fit, which is a proof.
    `InstanceError`: ``sort-once`` on a node with more than two options.
    """
    if knapsack == "sort-once":
        rule = "at most 2 for --knapsack sort-once (rerank and truncating take any number)"
        for position, node in enumerate(instance.nodes):
            count = len(node.options)
            expect(count <= 2, instance.name, f"len(nodes[{position}].options)", count, rule)
    table = arrays(instance)
    choice = np.zeros(len(instance.nodes), np.int64)
    with alarm(watch):
        time = _VARIANTS[knapsack](*table, choice, np.frombuffer(watch.flag, np.uint8))
    options = {"knapsack": knapsack}
    if math.isinf(time):
        is_proof = least_memory(instance) > instance.capacity_bytes * MEMORY_SLACK
        return infeasible_answer(instance) if is_proof else Answer(stop=watch.why(), options=options)
    plan = plan_of(instance, choice)
    watch.plan(plan, evaluate(instance, plan))
    bound = _relaxation(instance)
    watch.bound(bound, Prover.BOUNDS)
    return Answer(plan=plan, bound=bound, stop=Stop.COMPLETED, options=options)


def _relaxation(instance: KnapsackInstance) -> float:
    """Lower bound from the linear relaxation: the exact search, stopped before it begins."""
    report = np.zeros(3)
    stopped = np.ones(1, np.uint8)
    search.search(*arrays(instance), search.EXACT_GAP, np.zeros(len(instance.nodes), np.int64), stopped, report)
    return float(report[0])
