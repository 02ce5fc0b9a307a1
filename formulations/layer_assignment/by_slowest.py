"""The MILP's search over the time of the slowest stage: with a cap on it, the model is a path and its relaxation exact.

For an interval of that time, the linear relaxation of the path through the arcs that are no slower than its upper end,
plus the waiting for its lower end, bounds all assignments whose slowest stage lies in it. A vertex of that relaxation
is an assignment; where its slowest stage is t, the interval is settled from t on, and the rest is halved.

Source: reconstructed. AMP, section 6.4, tries every cap; here the bounds say which are worth a try.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.paths import is_path, on_paths
from solvers.outcome import OPTIMAL_GAP, Limits, Run, Stop, Watch, relative_gap
from solvers.repeated import Repeated

#: A gap that rounding alone explains.
_NOISE = 1e-9


class _Interval(NamedTuple):
    """Caps number ``first`` to ``last``; an assignment whose slowest stage is one of them costs ``bound`` at least."""

    bound: float
    first: int
    last: int


def run(
    model: Any,
    waits: Mapping[tuple[int, int, int], float],
    limits: Limits,
    watch: Watch,
    on_solution: Callable[[Any], None],
    on_bound: Callable[[float], None],
    known: float,
) -> Run:
    """Search the intervals, the one with the least bound first, until none can hold a better assignment.

    Parameters
    ----------
    model
        The Pyomo model, without requirements and without an all-reduce.
    waits
        What waiting for each arc costs, in the model's units.
    on_solution, on_bound
        As for `solvers.milp.run`.
    known
        The objective of a known plan in the model's units (infinite: none is known).
    """
    caps = np.unique(list(waits.values()))
    model.stage_time.deactivate()  # a cap stands for them
    relaxation = Repeated(model, limits, watch)
    model.stage_time.activate()
    arcs = _Arcs(model, waits)
    queue = [_Interval(float(caps[0]), 0, len(caps) - 1)]
    best, values, runs = known, None, 0
    close = limits.gap if limits.gap > OPTIMAL_GAP else _NOISE
    while queue and not _is_closed(best, queue[0].bound, close) and not watch.stopped():
        on_bound(min(best, queue[0].bound))
        _, first, last = interval = heapq.heappop(queue)
        without = arcs.left_out(caps[last])
        if without is None:  # no path
            continue
        found = relaxation.run(without)
        runs += 1
        if found.bound is None or found.values is None:
            heapq.heappush(queue, interval)
            break
        slowest = arcs.slowest(found.values)
        if slowest is None and first == last:  # the relaxation is no path, and nothing is left to halve
            heapq.heappush(queue, _Interval(float(caps[first]) + found.bound, first, last))
            break
        if slowest is not None:
            last = int(np.searchsorted(caps, slowest)) - 1
            if slowest + found.bound < best:  # what is settled costs no less
                best, values = slowest + found.bound, found.values
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
        solver=relaxation.solver,
        stats={**relaxation.stats, "relaxations": runs},
    )


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
