"""The models' search over the time of the slowest stage: with a cap on it, both are easy.

For an interval of that time, the cheapest sending within its upper end plus the waiting for its lower end bounds all
assignments whose slowest stage lies in it. Where the slowest stage of the cheapest one is t, the interval is settled
from t on, and the rest is halved. Within a cap HiGHS has the relaxation of a path, which is exact, and its bound is
what the duals prove; CP-SAT's model is in `within_cap`.

Source: reconstructed. AMP, section 6.4, tries every cap; here the bounds say which are worth a try.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.modelling.layered_paths import is_path, on_paths
from solvers.milp.reusable_lp import Repeated
from solvers.outcome import OPTIMAL_GAP, Limits, Run, Stop, Watch, relative_gap

#: A gap that rounding alone explains.
_NOISE = 1e-9


class Cheapest(NamedTuple):
    """What is proved within a cap: sending costs ``bound`` at least (``None``: nothing is proved).

    ``values`` is an assignment that costs no more, and waiting for its slowest stage costs ``slowest``; ``None`` if
    the solver has found none.
    """

    bound: float | None
    slowest: float | None
    values: Any


class _Interval(NamedTuple):
    """Caps number ``first`` to ``last``; an assignment whose slowest stage is one of them costs ``bound`` at least."""

    bound: float
    first: int
    last: int


def search(
    caps: NDArray[Any],
    within: Callable[[float], Cheapest | None],
    known: float,
    limits: Limits,
    watch: Watch,
    on_solution: Callable[[Any], None],
    on_bound: Callable[[float], None],
) -> Run:
    """Search the intervals, the one with the least bound first, until none can hold a better assignment.

    Parameters
    ----------
    caps
        What waiting for the slowest stage may cost, ascending, in the model's units.
    within
        The cheapest sending of assignments whose slowest stage is within a cap; ``None`` if there are none.
    known
        The objective of a known plan in the model's units (infinite: none is known).
    limits, watch, on_solution, on_bound
        As for `solvers.milp.backend.run`.
    """
    queue = [_Interval(float(caps[0]), 0, len(caps) - 1)] if len(caps) else []
    best, values, tried = known, None, 0
    close = limits.gap if limits.gap > OPTIMAL_GAP else _NOISE
    while queue and not _is_closed(best, queue[0].bound, close) and not watch.stopped():
        on_bound(min(best, queue[0].bound))
        _, first, last = interval = heapq.heappop(queue)
        found = within(caps[last])
        if found is None:
            continue
        tried += 1
        if found.bound is None:
            heapq.heappush(queue, interval)
            break
        if found.slowest is None and first == last:  # the relaxation is no path, and nothing is left to halve
            heapq.heappush(queue, _Interval(float(caps[first]) + found.bound, first, last))
            break
        if found.slowest is not None:
            last = int(np.searchsorted(caps, found.slowest)) - 1
            if found.slowest + found.bound < best:  # what is settled costs no less
                best, values = found.slowest + found.bound, found.values
                on_solution(values)
        for part in _halves(caps, first, last):
            heapq.heappush(queue, _Interval(float(caps[part[0]]) + found.bound, *part))
    bound = min([best, *(interval.bound for interval in queue[:1])])
    on_bound(bound)
    return Run(
        stop=Stop.PROVED if _is_closed(best, bound, close) else watch.why(),
        values=values,
        objective=best,
        bound=bound,
        stats={"relaxations": tried},
    )


def run(
    model: Any,
    waits: Mapping[tuple[int, int, int], float],
    limits: Limits,
    watch: Watch,
    on_solution: Callable[[Any], None],
    on_bound: Callable[[float], None],
    known: float,
) -> Run:
    """The search with paths, for HiGHS.

    Parameters
    ----------
    model
        The Pyomo model, without requirements and without an all-reduce.
    waits
        What waiting for each arc costs, in the model's units.
    limits, watch, on_solution, on_bound, known
        As for `search`.
    """
    model.stage_time.deactivate()  # a cap stands for them
    relaxation = Repeated(model, limits, watch)
    model.stage_time.activate()
    arcs = _Arcs(model, waits)

    def within(cap: float) -> Cheapest | None:
        without = arcs.left_out(cap)
        if without is None:  # no path
            return None
        found = relaxation.run(without)
        if found.values is None:
            return Cheapest(None, None, None)
        return Cheapest(found.bound, arcs.slowest(found.values), found.values)

    caps = np.unique(list(waits.values()))
    found = search(caps, within, known, limits, watch, on_solution, on_bound)
    return replace(found, solver=relaxation.solver, stats={**relaxation.stats, **found.stats})


def _is_closed(best: float, bound: float, close: float) -> bool:
    gap = relative_gap(best, bound) if np.isfinite(best) else None
    return gap is not None and gap <= close


def _halves(caps: NDArray[np.float64], first: int, last: int) -> list[tuple[int, int]]:
    """Two parts of caps number ``first`` to ``last``, cut in the middle of their time; fewer where they are few."""
    if first >= last:
        return [(first, last)] if first == last else []
    middle = int(np.searchsorted(caps, (caps[first] + caps[last]) / 2)) - 1
    middle = min(max(middle, first), last - 1)
    return [(first, middle), (middle + 1, last)]


class _Arcs:
    """The arcs of a model as arrays, in the order of stages."""

    def __init__(self, model: Any, waits: Mapping[tuple[int, int, int], float]) -> None:
        self.variables = [model.carries[arc] for arc in waits]
        self.others = [model.waiting, model.all_reduce]
        self.ends = [((j, start), (j + 1, end)) for j, start, end in waits]
        self.wait = np.array(list(waits.values()))
        self.last = max(head for _, head in self.ends)

    def left_out(self, cap: float) -> list[Any] | None:
        """The variables that no path of arcs within the cap has; ``None`` if there is no such path."""
        usable = on_paths(self.ends, (self.wait <= cap).tolist(), (0, 0), self.last.__eq__)
        if not any(usable):
            return None
        return self.others + [variable for variable, used in zip(self.variables, usable, strict=True) if not used]

    def slowest(self, values: Any) -> float | None:
        """What waiting for the slowest arc of a solution costs; ``None`` if the solution is no single path."""
        taken = [a for a, variable in enumerate(self.variables) if values[variable] > 0.5]
        if not is_path([self.ends[a] for a in taken], (0, 0), self.last.__eq__):
            return None
        return float(self.wait[taken].max())
