"""The heuristics that XLA's automatic sharding has beside its MILP, on the contest's problem.

| XLA                              | Here                                                                     |
|----------------------------------|--------------------------------------------------------------------------|
| ``SolveGreedy``                  | `greedy`                                                                 |
| ``SolveRandomPathGreedy``        | `random_path`, paths of one node or of one edge                          |
| ``OptimizeOverPath``             | the least of all pairs of strategies, the first where several are least  |
| ``memory_mode`` "active"         | a path keeps its strategies if the new ones need too much                |
| ``num_trials``                   | 2 E ln E for E edges, at least 20                                        |

Source: openxla/xla, xla/hlo/experimental/auto_sharding/auto_sharding_solver.cc. Deviations: paths of two edges, between
which and one XLA chooses by trying both, are left out; edges of the same two nodes are one.
"""

import math
import random

import numpy as np

from formulations.contract.family import Answer
from formulations.operator_strategies.choice import Choice, infeasible_answer
from formulations.operator_strategies.definition.plan import StrategyPlan
from formulations.operator_strategies.definition.problem import evaluate, violations
from instances.problems.operator_strategies import OperatorStrategies
from solvers.outcome import Limits, Stop, Watch


def greedy(
    instance: OperatorStrategies, _limits: Limits, watch: Watch, by: str = "node-memory"
) -> Answer[StrategyPlan]:
    """Each node for itself: its strategy of least usage or of least cost, the first of several; edges do not count."""
    choice = Choice(instance)
    impossible = infeasible_answer(instance, choice)
    if impossible is not None:
        return impossible
    if by == "node-cost":
        for v, costs in enumerate(choice.node_cost):
            choice.move(v, int(costs.argmin()))
    plan, options = choice.plan, {"by": by}
    broken = violations(instance, plan)
    if broken:
        return Answer(stop=Stop.COMPLETED, reason=f"the cheapest strategies do not fit: {broken[0]}", options=options)
    watch.plan(plan, evaluate(instance, plan))
    return Answer(plan, stop=Stop.COMPLETED, options=options)


def random_path(instance: OperatorStrategies, limits: Limits, watch: Watch, path: str = "edge") -> Answer[StrategyPlan]:
    """From the least usages on, a random edge (or node: ``path``) takes its best strategies, if they fit."""
    choice = Choice(instance)
    impossible = infeasible_answer(instance, choice)
    if impossible is not None:
        return impossible
    rng, pairs = random.Random(limits.seed), list(choice.pair_cost)
    edges = len(instance.edges)
    trials = max(20, round(2 * edges * math.log(edges))) if edges else 20
    watch.plan(choice.plan, evaluate(instance, choice.plan))
    done = 0
    while done < trials and not watch.stopped():
        done += 1
        if path == "edge" and pairs:
            _best_edge(choice, rng.choice(pairs))
        elif choice.of:
            _best_node(choice, rng.randrange(len(choice.of)))
    watch.plan(choice.plan, evaluate(instance, choice.plan))
    stats, options = {"trials": done}, {"path": path}
    return Answer(watch.best_plan, stop=watch.why(Stop.COMPLETED), stats=stats, options=options)


def _best_node(choice: Choice, v: int) -> None:
    costs = choice.costs(v)
    best = int(costs.argmin())
    if costs[best] < costs[choice.of[v]] and choice.fits(v)[best]:
        choice.move(v, best)


def _best_edge(choice: Choice, pair: tuple[int, int]) -> None:
    """Both strategies at once; they go back where the limit is broken."""
    u, v = pair
    costs = choice.costs(u, beside=v)[:, None] + choice.costs(v, beside=u) + choice.pair_cost[pair]
    i, j = (int(each) for each in np.unravel_index(costs.argmin(), costs.shape))
    before = choice.of[u], choice.of[v]
    if costs[i, j] >= costs[before]:
        return
    choice.move(u, i)
    choice.move(v, j)
    if choice.peak > choice.limit:
        choice.move(u, before[0])
        choice.move(v, before[1])
