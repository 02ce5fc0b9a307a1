"""The best training strategy: degrees in the order of a lower bound, and in each of them layouts in that order.

Most degrees are closed by a bound that takes no time, most of the others by that of `layouts.Layouts`; what is left is
searched by turns, so that a hard layout does not keep the others from being looked at. Where devices may have several
chunks, the search begins with the plans of Megatron's and torchtitan's even splits.

What devices share belongs to the degrees: each set of them is searched in an instance of its own (`of_shared`), where
static bytes and times are what one device has. All bounds are of one set of degrees, so they need no order among
instances, whether static bytes fall with d or with the level of sharding.

With the requirement ``realizable(TRAINER)`` the chain is that of the trainer's pieces (`trainer_chain`). Where a number
of recomputed layers decides what a chunk holds, degrees that a free choice of them does not close are searched for each
number.

Source: this project.
"""

import heapq
import math
from collections.abc import Sequence
from itertools import count

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.training_strategy.costs import NO_PLAN, Chain, TooManyWaysError
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import chunk_counts, evaluate
from formulations.training_strategy.definition.sharing import Shared, of_shared, shared_in
from formulations.training_strategy.degrees import Degrees, all_degrees
from formulations.training_strategy.device_search import DeviceSearch
from formulations.training_strategy.heuristics import even, torchtitan
from formulations.training_strategy.layouts import NOISE, Best, Layouts, Search, quick_bound
from formulations.training_strategy.trainer_chain import space_of
from instances.problems.training_strategy import StrategyInstance
from solvers.outcome import OPTIMAL_GAP, Limits, Stop, Watch

#: Seconds, and the share of a time limit, for the plan that the search begins with.
_FIRST_S, _FIRST_SHARE = 10.0, 0.2
#: Layouts of several chunks on a device that are not searched after so many turns are searched by ways to fill devices.
_EASY_TURNS = 1


def solve(
    instance: StrategyInstance, limits: Limits, watch: Watch, besides: StrategyPlan | None = None
) -> Answer[StrategyPlan]:
    """The best plan, proved, or the best so far and a bound for all: of other ``parallelism`` than ``besides`` has."""
    try:
        return _search(instance, limits, watch, besides)
    except TooManyWaysError as error:
        return Answer(watch.best_plan, watch.best_bound, stop=Stop.SIZE_LIMIT, reason=str(error))


class _Chains:
    """The tables at each degree t, of plans that share something, and with each number of layers that recompute."""

    def __init__(self, instance: StrategyInstance) -> None:
        self.space = space_of(instance)
        self.instance = instance if self.space is None else self.space.instance
        self._made: dict[tuple[int, Shared, int | None], Chain | None] = {}

    def at(self, degrees: Degrees, number: int | None = None) -> Chain | None:
        """Those, made once; ``None`` where a layer cannot be run so. ``number`` is that of a trainer which has one."""
        t, by = degrees.t, shared_in(self.instance, degrees.plan())
        if (t, by, number) not in self._made:
            instance = of_shared(self.instance, by, t)
            own = Chain(instance, t, by=by) if self.space is None else self.space.chain(instance, t, number, by)
            self._made[t, by, number] = own
        return self._made[t, by, number]

    def numbers(self, degrees: Degrees) -> Sequence[int]:
        """Of recomputed layers; empty: any."""
        return () if self.space is None else self.space.numbers(degrees)


def _search(
    instance: StrategyInstance, limits: Limits, watch: Watch, besides: StrategyPlan | None = None
) -> Answer[StrategyPlan]:
    chains = _Chains(instance)
    fault = None if chains.space is None else chains.space.fault
    if fault is not None:
        return infeasible_by_counting(fault)
    best, serial = Best(watch), count()
    several = any(V > 1 for kind in instance.schedules for V in chunk_counts(kind, instance.virtual_stages))
    if several and chains.space is None and besides is None:
        # Bounds of several chunks on a device are so far from their plans that a search for these needs a better one.
        time_s = _FIRST_S if limits.time_s is None else min(_FIRST_S, _FIRST_SHARE * limits.time_s)
        for split in (even, torchtitan):
            first = split(instance, limits, watch.part(time_s, bounds=False))
            if first.plan is not None:
                best.improve(evaluate(instance, first.plan), first.plan)
    queue: list[tuple[float, int, Degrees, int | None, Search | DeviceSearch | None]] = []
    for degrees in all_degrees(chains.instance):
        if chains.space is not None and not chains.space.runs(degrees):
            continue
        if besides is not None and degrees.plan().parallelism == besides.parallelism:
            continue
        chain = chains.at(degrees)
        if chain is not None and degrees.num_chunks <= len(chain.ids):
            queue.append((quick_bound(chain, degrees), next(serial), degrees, None, None))
    if not queue:
        return infeasible_by_counting(NO_PLAN)
    stats: dict[str, float] = {"degrees": len(queue), "degrees_bounded": 0, "degrees_searched": 0}
    if best.plan is not None:
        stats["first_plan"] = best.time
    heapq.heapify(queue)
    bound, given_up = 0.0, math.inf
    reason = "layouts were given up, as there were too many to keep"
    while queue and not watch.stopped():
        low, place, degrees, number, search = queue[0]
        bound = max(bound, min(low, best.time, given_up) * (1 - NOISE))
        watch.bound(bound)
        if best.time - bound <= max(limits.gap, 2 * NOISE) * best.time < math.inf:
            break  # the queue holds what is not searched: the bound stays that of the next degrees
        heapq.heappop(queue)
        if search is None:
            chain = chains.at(degrees, number)
            layouts = None if chain is None else Layouts(chain, degrees)
            stats["degrees_bounded"] += 1
            low = math.inf if layouts is None else max(low, layouts.bound)
            if number is None and chains.numbers(degrees):  # what any layers may be recomputed for bounds each number
                for each in chains.numbers(degrees) if low < best.time * (1 - NOISE) else ():
                    heapq.heappush(queue, (low, next(serial), degrees, each, None))
                continue
            if layouts is not None and best.plan is None and low < math.inf:
                Search(layouts, best).begin()  # a plan to show, whatever becomes of the proof
            # The tables of degrees that are not next are dropped, and made again when they are.
            if layouts is not None and low < best.time * (1 - NOISE) and (not queue or low <= queue[0][0]):
                search = Search(layouts, best)
                search.begin()
                stats["degrees_searched"] += 1
        if search is not None:
            if isinstance(search, Search) and degrees.V > 1 and search.turns == _EASY_TURNS:
                search = DeviceSearch(search, limits)
            if isinstance(search, DeviceSearch) and not search.is_small:
                search = search.given
            search.turn()
            given_up = min(given_up, search.given_up)
            low = math.inf if search.is_done else max(low, search.bound)
        if low < best.time * (1 - NOISE):
            heapq.heappush(queue, (low, place, degrees, number, search))
    stats["simulated"] = best.simulated
    bound = bound if queue else min(best.time, given_up) * (1 - NOISE)
    if best.plan is None and not queue and given_up == math.inf:
        return Answer(infeasible=True, stop=Stop.PROVED, reason=NO_PLAN, stats=stats)
    if best.time - bound <= OPTIMAL_GAP * best.time < math.inf:
        return Answer(best.plan, bound, stop=Stop.PROVED, stats=stats)
    if queue:
        return Answer(best.plan, bound, stop=watch.why(Stop.COMPLETED), stats=stats)
    return Answer(best.plan, bound, stop=Stop.SIZE_LIMIT, reason=reason, stats=stats)
