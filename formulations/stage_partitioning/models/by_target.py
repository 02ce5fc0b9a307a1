"""The column model's search by targets: with T given, the fewest devices are a shortest path, an exact relaxation.

A target is met by some plan if and only if a path through the arcs that are no slower takes at most K devices. That
path is a linear program; what its duals prove decides a target, and halving finds the least one that is met.

Source: reconstructed; the states are those of Piper's dynamic program, section 4, with time and devices exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyomo.environ as pyo

from formulations.paths import is_path, on_paths
from formulations.stage_partitioning.models.prices import SAME
from solvers import milp
from solvers.outcome import Limits, Run, Stop, Watch
from solvers.repeated import Repeated

#: Devices are counted: a bound this little above a number of them says that one more is needed.
_PART_OF_A_DEVICE = 1e-3


class Column(Protocol):
    """An arc from a state (downset, sum) to a later one, on some devices (or machines), for some time."""

    @property
    def tail(self) -> tuple[int, int]:
        """The state it leaves."""

    @property
    def head(self) -> tuple[int, int]:
        """The state it enters."""

    @property
    def devices(self) -> int:
        """What a path has so many of."""

    @property
    def time(self) -> float:
        """What the slowest arc of a path has least of."""


@dataclass(frozen=True)
class Paths:
    """A column model: Pyomo's, whose ``flow[a]`` takes arc a, and what its paths are about.

    They lead to states of the downset ``last``, on at most ``num_devices``; plans slower than ``target`` are not in
    the model, whose times are in parts of ``unit``. ``exchanged`` are its objective and its rows of time and devices,
    which are not of the search.
    """

    model: Any
    arcs: Sequence[Column]
    last: int
    num_devices: int
    target: float
    unit: float
    exchanged: tuple[Any, ...]


def run(
    paths: Paths, limits: Limits, watch: Watch, on_solution: Callable[[Any], None], on_bound: Callable[[float], None]
) -> Run:
    """The least target that is met, and what is proved of those below; arguments as of `solvers.milp.run`."""
    relaxation = _fewest_devices(paths, limits, watch)
    arcs = [(arc.tail, arc.head) for arc in paths.arcs]
    slowest = np.array([arc.time for arc in paths.arcs])
    targets = np.unique(slowest)
    flows = [paths.model.flow[a] for a in range(len(arcs))]

    def is_end(state: tuple[int, int]) -> bool:
        return state[0] == paths.last

    known, values, runs = watch.best_objective, None, 0
    # What is below `low` is refuted, and `high` is met, if there is such a target.
    low, high = 0, len(targets) if known is None else int(np.searchsorted(targets, known * (1 - SAME)))
    middle = high - 1
    while low < high and not watch.stopped():
        usable = on_paths(arcs, (slowest <= targets[middle]).tolist(), (0, 0), is_end)
        needed = float("inf")
        if any(usable):
            found = relaxation.run([flow for flow, used in zip(flows, usable, strict=True) if not used])
            runs += 1
            if found.bound is None or found.values is None:
                break
            needed = found.bound
        if needed > paths.num_devices + _PART_OF_A_DEVICE:
            low = middle + 1
            if low < len(targets):
                on_bound(float(targets[low]) / paths.unit)
        else:
            taken = [a for a, flow in enumerate(flows) if found.values[flow] > 0.5]
            devices = sum(paths.arcs[a].devices for a in taken)
            if not is_path([arcs[a] for a in taken], (0, 0), is_end) or devices > paths.num_devices:
                break
            values, high = found.values, int(np.searchsorted(targets, slowest[taken].max()))
            on_solution(values)
        middle = (low + high) // 2
    bound = paths.target if low >= len(targets) else float(targets[low])
    return Run(
        stop=Stop.PROVED if low >= high else watch.why(),
        values=values,
        objective=float(targets[high]) / paths.unit if values is not None else None,
        bound=bound / paths.unit,
        infeasible=low >= len(targets) and known is None,
        solver=relaxation.solver,
        stats={**relaxation.stats, "targets": runs},
    )


def _fewest_devices(paths: Paths, limits: Limits, watch: Watch) -> Repeated:
    """The path of the model on the fewest devices, instead of the fastest one on K."""
    m = paths.model
    for component in paths.exchanged:
        component.deactivate()
    m.fewest = pyo.Objective(expr=milp.weighted_sum((arc.devices, m.flow[a]) for a, arc in enumerate(paths.arcs)))
    found = Repeated(m, limits, watch)
    m.del_component(m.fewest)
    for component in paths.exchanged:
        component.activate()
    return found
