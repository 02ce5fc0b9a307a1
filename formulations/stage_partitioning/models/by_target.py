"""The column models' search by targets: with T given, the fewest devices are a shortest path, an exact relaxation.

A target is met by some plan if and only if a path through the arcs that are no slower takes at most K devices. HiGHS
has that path as a linear program, and what its duals prove decides a target; CP-SAT has it in whole numbers, and proves
it at its root. Halving finds the least target that is met.

Source: reconstructed; the states are those of Piper's dynamic program, section 4, with time and devices exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyomo.environ as pyo

from formulations.modelling.layered_paths import is_path, on_paths
from formulations.stage_partitioning.models.stage_costs import SAME
from solvers.milp import backend as milp
from solvers.milp.reusable_lp import Repeated
from solvers.outcome import Limits, Run, Stop, Watch

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


class Fewest(NamedTuple):
    """The path on the fewest devices: how many are proved to be needed, the arcs it takes, and the solver's values."""

    devices: float
    taken: list[int]
    values: Any


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

    @cached_property
    def ends(self) -> list[tuple[State, State]]:
        """The states that each arc joins."""
        return [(arc.tail, arc.head) for arc in self.arcs]

    def is_end(self, state: State) -> bool:
        """Whether a plan is complete there."""
        return state[0] == self.last


def search(
    paths: Paths,
    fewest: Callable[[list[bool]], Fewest | None],
    watch: Watch,
    on_solution: Callable[[Any], None],
    on_bound: Callable[[float], None],
) -> Run:
    """The least target that is met, and what is proved of those below.

    Parameters
    ----------
    fewest
        The path through the arcs that are marked; ``None`` if a solver fails or stops.
    watch, on_solution, on_bound
        As for `solvers.milp.backend.run`.
    """
    slowest = np.array([arc.time for arc in paths.arcs])
    targets = np.unique(slowest)
    known, values, runs = watch.best_objective, None, 0
    # What is below `low` is refuted, and `high` is met, if there is such a target.
    low, high = 0, len(targets) if known is None else int(np.searchsorted(targets, known * (1 - SAME)))
    middle = high - 1
    while low < high and not watch.stopped():
        found = fewest((slowest <= targets[middle]).tolist())
        runs += 1
        if found is None:
            break
        if found.devices > paths.num_devices + _PART_OF_A_DEVICE:
            low = middle + 1
            if low < len(targets):
                on_bound(float(targets[low]) / paths.unit)
        else:
            devices = sum(paths.arcs[a].devices for a in found.taken)
            if not is_path([paths.ends[a] for a in found.taken], (0, 0), paths.is_end) or devices > paths.num_devices:
                break
            values, high = found.values, int(np.searchsorted(targets, slowest[found.taken].max()))
            on_solution(values)
        middle = (low + high) // 2
    bound = paths.target if low >= len(targets) else float(targets[low])
    return Run(
        stop=Stop.PROVED if low >= high else watch.why(),
        values=values,
        objective=float(targets[high]) / paths.unit if values is not None else None,
        bound=bound / paths.unit,
        infeasible=low >= len(targets) and known is None,
        stats={"targets": runs},
    )


def run(
    model: Any,
    exchanged: tuple[Any, ...],
    paths: Paths,
    limits: Limits,
    watch: Watch,
    on_solution: Callable[[Any], None],
    on_bound: Callable[[float], None],
) -> Run:
    """The search with linear programs.

    ``model`` is Pyomo's, whose ``flow[a]`` takes arc a; ``exchanged`` are its objective and its rows of time and
    devices, which are not of the search.
    """
    relaxation = _fewest_devices(model, exchanged, paths, limits, watch)
    flows = [model.flow[a] for a in range(len(paths.arcs))]

    def fewest(fast: list[bool]) -> Fewest | None:
        usable = on_paths(paths.ends, fast, (0, 0), paths.is_end)
        if not any(usable):
            return Fewest(math.inf, [], None)
        found = relaxation.run([flow for flow, used in zip(flows, usable, strict=True) if not used])
        if found.bound is None or found.values is None:
            return None
        return Fewest(found.bound, [a for a, flow in enumerate(flows) if found.values[flow] > 0.5], found.values)

    found = search(paths, fewest, watch, on_solution, on_bound)
    return replace(found, solver=relaxation.solver, stats={**relaxation.stats, **found.stats})


def _fewest_devices(model: Any, exchanged: tuple[Any, ...], paths: Paths, limits: Limits, watch: Watch) -> Repeated:
    """The path of the model on the fewest devices, instead of the fastest one on K."""
    for component in exchanged:
        component.deactivate()
    model.fewest = pyo.Objective(
        expr=milp.weighted_sum((arc.devices, model.flow[a]) for a, arc in enumerate(paths.arcs))
    )
    found = Repeated(model, limits, watch)
    model.del_component(model.fewest)
    for component in exchanged:
        component.activate()
    return found
