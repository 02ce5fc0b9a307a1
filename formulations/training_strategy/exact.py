"""The best training strategy: degrees in the order of a lower bound, and in each of them layouts in that order.

Most degrees are closed by a bound that takes no time, most of the others by that of `layouts.Layouts`; what is left is
searched by turns, so that a hard layout does not keep the others from being looked at. Where devices may have several
chunks, the search begins with the plan of Megatron's even split.

Source: this project.
"""

from __future__ import annotations

import heapq
import math
from itertools import count

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.training_strategy.costs import NO_PLAN, Chain, Degrees, TooManyWaysError, all_degrees, chain_of
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import evaluate
from formulations.training_strategy.heuristics import even
from formulations.training_strategy.layouts import NOISE, Best, Layouts, Search, quick_bound
from instances.problems.training_strategy import StrategyInstance
from solvers.outcome import OPTIMAL_GAP, Limits, Stop, Watch

#: Seconds, and the share of a time limit, for the plan that the search begins with.
_FIRST_S, _FIRST_SHARE = 10.0, 0.2


def solve(instance: StrategyInstance, limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The best plan, proved, or the best so far and a bound for all plans."""
    try:
        return _search(instance, limits, watch)
    except TooManyWaysError as error:
        return Answer(watch.best_plan, watch.best_bound, stop=Stop.SIZE_LIMIT, reason=str(error))


def _search(instance: StrategyInstance, limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    chains: dict[int, Chain] = {}
    best, serial = Best(watch), count()
    if instance.virtual_stages > 1:
        # Bounds of several chunks on a device are so far from their plans that a search for these needs a better one.
        time_s = _FIRST_S if limits.time_s is None else min(_FIRST_S, _FIRST_SHARE * limits.time_s)
        first = even(instance, limits, watch.part(time_s, bounds=False))
        if first.plan is not None:
            best.improve(evaluate(instance, first.plan), first.plan)
    queue: list[tuple[float, int, Degrees, Search | None]] = []
    for degrees in all_degrees(instance):
        queue.append((quick_bound(chain_of(chains, instance, degrees), degrees), next(serial), degrees, None))
    if not queue:
        return infeasible_by_counting(NO_PLAN)
    stats: dict[str, float] = {"degrees": len(queue), "degrees_bounded": 0, "degrees_searched": 0}
    if best.plan is not None:
        stats["first_plan"] = best.time
    heapq.heapify(queue)
    bound, given_up = 0.0, math.inf
    reason = "layouts were given up, as there were too many to keep"
    while queue and not watch.stopped():
        low, number, degrees, search = queue[0]
        bound = max(bound, min(low, best.time, given_up) * (1 - NOISE))
        watch.bound(bound)
        if best.time - bound <= max(limits.gap, 2 * NOISE) * best.time < math.inf:
            break  # the queue holds what is not searched: the bound stays that of the next degrees
        heapq.heappop(queue)
        if search is None:
            layouts = Layouts(chains[degrees.t], degrees)
            stats["degrees_bounded"] += 1
            low = max(low, layouts.bound)
            if best.plan is None and low < math.inf:
                Search(layouts, best).begin()  # a plan to show, whatever becomes of the proof
            # The tables of degrees that are not next are dropped, and made again when they are.
            if low < best.time * (1 - NOISE) and (not queue or low <= queue[0][0]):
                search = Search(layouts, best)
                search.begin()
                stats["degrees_searched"] += 1
        if search is not None:
            search.turn()
            given_up = min(given_up, search.given_up)
            low = math.inf if search.is_done else max(low, search.bound)
        if low < best.time * (1 - NOISE):
            heapq.heappush(queue, (low, number, degrees, search))
    stats["simulated"] = best.simulated
    bound = bound if queue else min(best.time, given_up) * (1 - NOISE)
    if best.plan is None and not queue and given_up == math.inf:
        return Answer(infeasible=True, stop=Stop.PROVED, reason=NO_PLAN, stats=stats)
    if best.time - bound <= OPTIMAL_GAP * best.time < math.inf:
        return Answer(best.plan, bound, stop=Stop.PROVED, stats=stats)
    if queue:
        return Answer(best.plan, bound, stop=watch.why(Stop.COMPLETED), stats=stats)
    return Answer(best.plan, bound, stop=Stop.SIZE_LIMIT, reason=reason, stats=stats)
