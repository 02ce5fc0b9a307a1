"""Searches by targets: a model with a number T for its slowest stage's time is easier, and is run for many T.

`search_intervals` is for models whose answer at a target is (nearly) a relaxation: it halves the interval of targets.
`search_below_best` is for models that are hard at every target: it refutes one just below the best plan, which proves
that plan. Both return a `Run`, as a model's own ``run`` does: the problem's model calls them from there, and its
``build(data, target)`` makes what they ask.

Source: reconstructed. AMP, section 6.4, tries every cap; here the bounds say which are worth a try.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.modelling.solve_model import Stopped
from solvers.outcome import OPTIMAL_GAP, Limits, Run, Stop, Watch, relative_gap

#: A gap that rounding alone explains.
_NOISE = 1e-9

#: `search_below_best` looks for no plan that is faster by less than this part; and it gives up this part of a refuted
#: target, as solvers' tolerances may have refuted a plan that just meets it.
CLOSE, GIVEN_UP = 5e-7, 3e-7


class Cheapest(NamedTuple):
    """What is proved of plans within a target: all of them cost ``bound`` beside the target's own part of the cost.

    ``bound`` is 0 where the target is all that a plan costs, and ``None`` where nothing was proved. ``values`` is
    a plan that costs no more and whose slowest stage takes ``slowest``; ``None`` if the solver has found none.
    """

    bound: float | None
    slowest: float | None
    values: Any


class _Interval(NamedTuple):
    """Targets number ``first`` to ``last``; a plan whose slowest stage takes one of them costs ``bound`` at least."""

    bound: float
    first: int
    last: int


def search_intervals(
    targets: NDArray[Any],
    cheapest: Callable[[Any], Cheapest | None],
    known: float,
    limits: Limits,
    watch: Watch,
    on_solution: Callable[[Any], None],
    on_bound: Callable[[float], None],
) -> Run:
    """Search the intervals of targets, the one with the least bound first, until none can hold a better plan.

    What is cheapest within an interval's upper end, and its lower end, bound all plans whose slowest stage lies in it.
    Where the slowest stage of the cheapest plan takes t, the interval is settled from t on, and the rest is halved.

    ``targets``: what the slowest stage of a plan better than the known one may cost, ascending, in the model's units.
    ``cheapest``: what the model proves with a target in place of its slowest stage; ``None`` if there is no plan within
    it.
    ``known``: the objective of a known plan in the model's units (infinite: none is known).
    ``limits``, ``watch``, ``on_solution``, ``on_bound``: as for `solvers.milp.backend.run`.
    Returns: ``infeasible`` where no plan was known and no target has one; ``stats`` counts the ``targets``.
    """
    queue = [_Interval(float(targets[0]), 0, len(targets) - 1)] if len(targets) else []
    best, values, tried = known, None, 0
    close = limits.gap if limits.gap > OPTIMAL_GAP else _NOISE
    while queue and not _is_closed(best, queue[0].bound, close) and not watch.stopped():
        on_bound(min(best, queue[0].bound))
        _, first, last = interval = heapq.heappop(queue)
        found = cheapest(targets[last])
        tried += 1
        if found is None:
            continue
        if found.bound is None:
            heapq.heappush(queue, interval)
            break
        if found.slowest is None and first == last:  # the relaxation is no plan, and nothing is left to halve
            heapq.heappush(queue, _Interval(float(targets[first]) + found.bound, first, last))
            break
        if found.slowest is not None:
            last = int(np.searchsorted(targets, found.slowest)) - 1
            if found.slowest + found.bound < best:  # what is settled costs no less
                best, values = found.slowest + found.bound, found.values
                on_solution(values)
        for part in _halves(targets, first, last):
            heapq.heappush(queue, _Interval(float(targets[part[0]]) + found.bound, *part))
    bound = min([best, *(interval.bound for interval in queue[:1])])
    if math.isinf(bound):
        return Run(stop=Stop.PROVED, infeasible=True, stats={"targets": tried})
    on_bound(bound)
    return Run(
        stop=Stop.PROVED if _is_closed(best, bound, close) else watch.why(),
        values=values,
        objective=best if math.isfinite(best) else None,
        bound=bound,
        stats={"targets": tried},
    )


def _is_closed(best: float, bound: float, close: float) -> bool:
    gap = relative_gap(best, bound) if np.isfinite(best) else None
    return gap is not None and gap <= close


def _halves(targets: NDArray[Any], first: int, last: int) -> list[tuple[int, int]]:
    """Two parts of targets number ``first`` to ``last``, cut in the middle of their time; fewer where they are few."""
    if first >= last:
        return [(first, last)] if first == last else []
    middle = int(np.searchsorted(targets, (targets[first] + targets[last]) / 2)) - 1
    middle = min(max(middle, first), last - 1)
    return [(first, middle), (middle + 1, last)]


def search_below_best(
    decide: Callable[[float], Run],
    least: float,
    proved: float,
    limits: Limits,
    watch: Watch,
    on_solution: Callable[[Any], None],
    on_bound: Callable[[float], None],
) -> Run:
    """Refute ever larger targets, the last of them just below the watch's best plan; or find a plan that meets one.

    ``decide``: looks for a plan within a target, in the instance's own unit: ``infeasible`` is a proof that there is
    none, ``values`` a plan that is faster than the best one; a run with neither was stopped, and ends the search.
    ``least``: no plan is faster; it proves nothing here, but says where halfway is.
    ``proved``: what is proved already by the same model's relaxation; 0: nothing.
    ``limits``, ``watch``, ``on_solution``, ``on_bound``: as for `solvers.milp.backend.run`; ``on_solution`` reports a
    plan to the watch, which knows one from the start.
    """
    close = max(CLOSE, 0.999 * limits.gap if limits.gap > OPTIMAL_GAP else 0.0)
    low, last, decided = proved, Run(stop=Stop.COMPLETED), 0
    try:
        while not watch.stopped() and low < _best(watch) * (1 - close - GIVEN_UP) * (1 - 1e-12):
            target = _best(watch) * (1 - close)
            if low == 0.0:  # a bound halfway is soon proved, and something to hold where the proof takes too long
                target = min(target, (least + _best(watch)) / 2)
            last = decide(target)
            decided += 1
            if last.values is not None:
                on_solution(last.values)
            elif not last.infeasible:
                break
            else:
                low = max(low, target * (1 - GIVEN_UP))
                on_bound(low)
    except Stopped:
        pass
    is_proved = low >= _best(watch) * (1 - close - 2 * GIVEN_UP)
    ended = last.stop if last.stop is not Stop.PROVED else Stop.COMPLETED  # a solver's clock may be ahead of the watch
    return replace(
        last,
        stop=Stop.PROVED if is_proved else watch.why() if watch.stopped() else ended,
        values=None,
        objective=watch.best_objective,
        bound=low or None,
        infeasible=False,
        stats={**last.stats, "targets": decided},
    )


def _best(watch: Watch) -> float:
    found = watch.best_objective
    return math.inf if found is None else found
