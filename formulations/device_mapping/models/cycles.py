"""Rings as columns for CP-SAT: an exact cover of the devices by cycles of R of them, rings alone.

All cycles over the links of the most demanding stages are listed, then those of the next ones, and so on; a column is
a set of devices with the first demand that one of its cycles meets. The stages' demands are nested, so it is enough
that as many columns meet each demand as there are stages with it. On grids and inside machines there are few cycles of
fast links; where there are many this says nothing. Source: reconstructed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from formulations.device_mapping.arrays import SLACK, Arrays, needed_speed
from formulations.device_mapping.models.quotient import cycles

#: More cycles than this are not listed.
MOST_CYCLES = 20_000
#: Longer cycles are too many on any network.
LONGEST = 10


class TooManyCyclesError(Exception):
    """The cycles of a target are too many to list."""


class ColumnModel:
    """The model of one target: ``columns[devices]`` are the demand met (an index), the cycle, and its variable."""

    def __init__(self, given: Arrays, target: float) -> None:
        self.given = given
        self.cp = cp_model.CpModel()
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
            if count > 2 * MOST_CYCLES:
                raise TooManyCyclesError(f"more than {MOST_CYCLES} cycles")
            inside = frozenset(cycle)
            if inside not in self.columns:
                self.columns[inside] = (demand, cycle, self.cp.new_bool_var(f"column[{cycle}]"))

    def _cover(self) -> None:
        """Every device is in one column, and enough columns meet each demand."""
        for device in range(self.given.num_devices):
            self.cp.add_exactly_one(one for inside, (_, _, one) in self.columns.items() if device in inside)
        for demand in range(len(self.demands)):
            good = [one for met, _, one in self.columns.values() if met <= demand]
            self.cp.add(cp_model.LinearExpr.sum(good) >= sum(self.demands[: demand + 1]))

    def placement(self, values: Any) -> list[list[int]]:
        """Devices by stage, in the order of their rings; the most demanding stages get the fastest columns."""
        chosen = sorted((met, cycle) for met, cycle, one in self.columns.values() if values[one])
        rows = [[0]] * self.given.num_stages
        for stage, (_, cycle) in zip(self.order, chosen, strict=True):
            rows[stage] = list(cycle)
        return rows
