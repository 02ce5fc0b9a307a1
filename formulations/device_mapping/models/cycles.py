"""Rings as columns for CP-SAT: an exact cover of the devices by cycles of R of them, rings alone.

Parmesan's Equation 7: with a target t, each link of the ring of s needs B >= 2 (R - 1) P(s) / (R (t - c_u(s))), which
is what the stage demands. All cycles over the links of the most demanding stages are listed, then those of the next
ones, and so on: ``cycle[d, e, ...]`` takes a set of devices, with the first demand that one of its cycles meets. The
demands are nested, so it is enough that as many cycles meet each demand as there are stages with it. On grids and
inside machines there are few cycles of fast links; where there are many this says nothing. Source: this project.
"""

from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from formulations.device_mapping.data.arrays import SLACK, Arrays, needed_speed
from formulations.device_mapping.models.machine_groups import cycles
from solvers.cpsat import backend as cpsat

#: More cycles than this are not listed.
MAX_CYCLES = 20_000
#: Longer cycles are too many on any network.
LONGEST = 10


class TooManyCyclesError(Exception):
    """The cycles of a target are too many to list."""


class CycleModel(cpsat.Runnable):
    """The model of one target: ``columns[devices]`` are the demand met (an index), the cycle, and its variable."""

    def __init__(self, given: Arrays, target: float) -> None:
        self.given = given
        self.model = cp_model.CpModel()
        needed = needed_speed(given, target) * (1 - SLACK)
        self.order = [int(stage) for stage in np.argsort(-needed, kind="stable")]
        graphs = [given.speed >= max(float(needed[stage]), 1e-300) for stage in self.order]
        self.columns: dict[frozenset[int], tuple[int, tuple[int, ...], Any]] = {}
        # Stages whose graphs have equal links demand the same.
        self.demands: list[int] = []
        for position, graph in enumerate(graphs):
            if position and (graph == graphs[position - 1]).all():
                self.demands[-1] += 1
                continue
            self.demands.append(1)
            self._list(graph, len(self.demands) - 1)
        self._cover()

    def _list(self, graph: Any, demand: int) -> None:
        near = [np.nonzero(row)[0].tolist() for row in graph]
        for count, cycle in enumerate(cycles(near, self.given.replicas)):
            if count > 2 * MAX_CYCLES:
                raise TooManyCyclesError(f"more than {MAX_CYCLES} cycles")
            inside = frozenset(cycle)
            if inside not in self.columns:
                taken = self.model.new_bool_var(f"cycle[{','.join(map(str, cycle))}]")
                self.columns[inside] = (demand, cycle, taken)

    def _cover(self) -> None:
        through: list[list[Any]] = [[] for _ in range(self.given.num_devices)]
        for inside, (_, _, one) in self.columns.items():
            for device in inside:
                through[device].append(one)
        # p is a bijection: every device is in one cycle.
        for device, cycles_here in enumerate(through):
            self.model.add_exactly_one(cycles_here).with_name(f"one_cycle[{device}]")
        # Equation 7: enough cycles meet each demand, for the stages that have it or a higher one.
        for demand in range(len(self.demands)):
            good = [one for met, _, one in self.columns.values() if met <= demand]
            enough = self.model.add(cp_model.LinearExpr.sum(good) >= sum(self.demands[: demand + 1]))
            enough.with_name(f"demand_met[{demand}]")

    def decode(self, values: Any) -> list[list[int]]:
        """Devices by stage, in the order of their rings; the most demanding stages get the fastest cycles."""
        chosen = sorted((met, cycle) for met, cycle, one in self.columns.values() if values[one])
        rows = [[0]] * self.given.num_stages
        for stage, (_, cycle) in zip(self.order, chosen, strict=True):
            rows[stage] = list(cycle)
        return rows
