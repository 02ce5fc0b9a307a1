"""The column models' search by targets: with T given, the fewest devices are a shortest path, an exact relaxation.

A target is met by some plan if and only if a path through the arcs that are no slower takes at most K devices. HiGHS
has that path as a linear program, and what its duals prove decides a target; CP-SAT has it in whole numbers, and proves
it at its root. Halving finds the least target that is met.

Source: reconstructed; the states are those of Piper's dynamic program, section 4, with time and devices exchanged.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from formulations.modelling.linear_paths import LinearPaths, PathWithin
from formulations.modelling.threshold_search import Cheapest, search_intervals
from formulations.stage_partitioning.models.stage_costs import SAME
from solvers.outcome import Limits, Run, Watch

#: A downset's position, and the sum of degrees.
State = tuple[int, int]

#: Devices are counted: a bound this little above a number of them says that one more is needed.
_PART_OF_A_DEVICE = 1e-3


class Column(Protocol):
    """An arc from a state (downset, sum) to a later one, on some devices (or machines), for some time."""

    @property
    def tail(self) -> State:
        """The state it leaves."""

    @property
    def head(self) -> State:
        """The state it enters."""

    @property
    def devices(self) -> int:
        """What a path has so many of."""

    @property
    def time(self) -> float:
        """What the slowest arc of a path has least of."""


@dataclass(frozen=True)
class Paths:
    """The arcs of a column model, and what its paths are about.

    They lead to states of the downset ``last``, on at most ``num_devices``; plans slower than ``target`` are not in
    the model, whose times are in parts of ``unit``.
    """

    arcs: Sequence[Column]
    last: int
    num_devices: int
    target: float
    unit: float


def search(
    paths: Paths,
    fewest: Callable[[float], PathWithin | None],
    limits: Limits,
    watch: Watch,
    on_solution: Callable[[Any], None],
    on_bound: Callable[[float], None],
) -> Run:
    """The least target that is met (`search_intervals`); ``fewest`` is the path of a target on the fewest devices."""
    times, known = np.array([arc.time for arc in paths.arcs]), watch.best_objective

    def cheapest(target: float) -> Cheapest | None:
        found = fewest(target)
        if found is None or (found.bound is not None and found.bound > paths.num_devices + _PART_OF_A_DEVICE):
            return None
        is_met = found.taken is not None and sum(paths.arcs[a].devices for a in found.taken) <= paths.num_devices
        return Cheapest(None if found.bound is None else 0.0, found.slowest if is_met else None, found.values)

    targets = np.unique(times if known is None else times[times < known * (1 - SAME)])
    most = paths.target if known is None else known
    found = search_intervals(
        targets, cheapest, math.inf if known is None else known, limits, watch, on_solution,
        lambda bound: on_bound(min(bound, most) / paths.unit),
    )  # fmt: skip
    objective, bound = (None if value is None else value / paths.unit for value in (found.objective, found.bound))
    return replace(found, objective=objective, bound=bound)


def search_linear(
    paths: Paths,
    model: Any,
    flow: Mapping[int, Any],
    limits: Limits,
    watch: Watch,
    on_solution: Callable[[Any], None],
    on_bound: Callable[[float], None],
) -> Run:
    """The least target that is met, by linear programs: those of ``model``, whose ``flow[a]`` is 1 for arcs taken."""
    ends, times = [(arc.tail, arc.head) for arc in paths.arcs], np.array([arc.time for arc in paths.arcs])
    programs = LinearPaths(model, list(flow.values()), ends, times, lambda state: state[0] == paths.last, limits, watch)
    found = search(paths, programs.within, limits, watch, on_solution, on_bound)
    return replace(found, solver=programs.program.solver, stats={**programs.program.stats, **found.stats})
