"""Our heuristic: one node takes a strategy by force, its neighbours follow one after the other, and the best is kept.

Where strategies fit together in layouts, no node alone can leave its own; what a forced move sets off can.
"""

import random
from collections import deque

import numpy as np

from formulations.contract.family import Answer
from formulations.operator_strategies.choice import Choice, infeasible_answer
from formulations.operator_strategies.definition.plan import StrategyPlan
from formulations.operator_strategies.definition.problem import evaluate
from instances.problems.operator_strategies import OperatorStrategies
from solvers.outcome import Limits, Stop, Watch

#: Nodes that follow a forced move at most: more is another plan, which is found from elsewhere.
_FOLLOW = 100


def solve(instance: OperatorStrategies, limits: Limits, watch: Watch, rounds: int = 3) -> Answer[StrategyPlan]:
    """From the least usages downhill node by node; then ``rounds`` times each strategy of each node by force."""
    choice = Choice(instance)
    impossible = infeasible_answer(instance, choice)
    if impossible is not None:
        return impossible
    rng, nodes = random.Random(limits.seed), range(len(choice.of))
    watch.plan(choice.plan, evaluate(instance, choice.plan))
    _follow(choice, deque(nodes), None, len(nodes) * _FOLLOW, watch)
    watch.plan(choice.plan, evaluate(instance, choice.plan))
    done = 0
    for _ in range(rounds):
        moves, gained = [(v, k) for v in nodes for k in range(len(choice.usages[v]))], 0
        rng.shuffle(moves)
        for v, k in moves:
            if watch.stopped():
                break
            done += 1
            gained += _force(choice, v, k, watch)
        watch.plan(choice.plan, evaluate(instance, choice.plan))
        if not gained or watch.stopped():
            break
    stats, options = {"moves": done}, {"rounds": rounds}
    return Answer(watch.best_plan, stop=watch.why(Stop.COMPLETED), stats=stats, options=options)


def _force(choice: Choice, v: int, k: int, watch: Watch) -> int:
    """What is gained where node v takes strategy k and others follow; all goes back if nothing is."""
    if k == choice.of[v] or not choice.fits(v)[k]:
        return 0
    before = choice.of[v]
    costs = choice.costs(v)
    choice.move(v, k)
    changed, gained = _follow(choice, deque(u for u, _ in choice.neighbours[v]), v, _FOLLOW, watch)
    gained += int(costs[before] - costs[k])
    # Last, the forced node itself may do better still beside those that followed.
    if gained > 0:
        return gained + _follow(choice, deque([v]), None, _FOLLOW, watch)[1]
    for u, own in reversed(changed):
        choice.move(u, own)
    choice.move(v, before)
    return 0


def _follow(
    choice: Choice, queue: deque[int], fixed: int | None, most: int, watch: Watch
) -> tuple[list[tuple[int, int]], int]:
    """Nodes of the queue, and the neighbours of those that move, take their best strategy that fits.

    Returns: nodes that moved, with the strategies that they had, and what their moves gained together.
    """
    changed: list[tuple[int, int]] = []
    waiting, gained = set(queue), 0
    while queue and len(changed) < most and not watch.stopped():
        v = queue.popleft()
        waiting.discard(v)
        if v == fixed:
            continue
        costs = choice.costs(v)
        fitting = np.where(choice.fits(v), costs, np.iinfo(np.int64).max)
        best, own = int(fitting.argmin()), choice.of[v]
        if fitting[best] >= costs[own]:
            continue
        changed.append((v, own))
        gained += int(costs[own] - costs[best])
        choice.move(v, best)
        for u, _ in choice.neighbours[v]:
            if u not in waiting:
                queue.append(u)
                waiting.add(u)
    return changed, gained
