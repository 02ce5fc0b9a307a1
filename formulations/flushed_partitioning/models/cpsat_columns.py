"""Flushed stage partitioning as a path of priced stages (`columns`) in CP-SAT.

Times are whole units, rounded down, so that a bound holds for the instance as declared.

Source: this project.
"""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.flushed_partitioning.definition.quantities import VOCABULARY
from formulations.flushed_partitioning.models.columns import SENTENCES, Columns, columns_of, solve_with
from formulations.modelling.solve_model import add_requirements, check_stop
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models.flow import Flow
from formulations.stage_partitioning.models.stage_costs import NOISE
from formulations.stage_partitioning.models.stage_quantities import CpsatQuantities
from instances.problems.flushed_partitioning import FlushedInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, OnBound, OnSolution, Run, Watch
from solvers.scaling import cost_scale

_START = (0, 0)
_sum, _weighted = cp_model.LinearExpr.sum, cp_model.LinearExpr.weighted_sum


class Model(Flow, CpsatQuantities):
    """``flow[a]`` is 1 if the plan has the stage of arc a; ``total`` is m times the objective in whole units."""

    weighted_sum = staticmethod(cpsat.weighted_sum)

    def __init__(self, columns: Columns, *, whole: bool) -> None:
        self.columns = self.reach = columns
        self.prices, self.arcs = columns.prices, columns.arcs(whole=whole)
        self.model = cp = cpsat.SpokenModel()
        for name, text in SENTENCES.items():
            cp.says(name, text)
        self.microbatches = m = columns.flushed.flat.num_microbatches
        most, top = columns.most_stages, columns.target * 2
        self.costs = cost_scale(columns.prices.terms.lower_bound, 2, (2 * m + most + len(self.arcs)) * top)
        cp.says("flow", "flow[a]: the plan has the stage of arc a, nodes D \\ D' with degrees (t, d) at a sum s")
        self.flow = {a: cp.new_bool_var(f"flow[{a}]") for a in range(len(self.arcs))}
        self.steps = [self.costs.floor(arc.time) for arc in self.arcs]
        self.syncs = [self.costs.floor(columns.synchronisation(arc)) for arc in self.arcs]
        # The slowest stage of a plan is one of the columns: no other time needs to be tried.
        self.time = cp.new_int_var_from_domain(cp_model.Domain.from_values(self.steps or [0]), "time")
        self.synchronisation = cp.new_int_var_from_domain(
            cp_model.Domain.from_values(self.syncs or [0]), "synchronisation"
        )
        self.total = cp.new_int_var(0, (2 * m + most) * self.costs.ceil(top), "total")
        self.deep = [cp.new_bool_var(f"deep[{depth}]") for depth in range(2, most + 1)]
        self._path()
        self._times()
        self._depth()
        self._batch_time()
        cp.minimize(self.total)

    def _path(self) -> None:
        """One path from the empty set to V, on at most K devices."""
        cp = self.model
        cp.says("one_path", "one path begins at the empty set: sum over the arcs a that leave it of flow[a] = 1")
        cp.says("conserved", "it leaves a state (D,s) as often as it enters it, up to V")
        cp.says("devices", "its stages take at most K devices: sum over a of t d flow[a] <= K [Piper, section 3.1]")
        leaving: dict[tuple[int, int], list[Any]] = {}
        entering: dict[tuple[int, int], list[Any]] = {}
        for taken, arc in zip(self.flow.values(), self.arcs, strict=True):
            leaving.setdefault(arc.tail, []).append(taken)
            entering.setdefault(arc.head, []).append(taken)
        cp.add_exactly_one(leaving.get(_START, [])).with_name("one_path")
        for at in sorted(leaving.keys() | entering.keys()):
            if at != _START and at[0] != self.columns.last:
                row = _sum(leaving.get(at, [])) == _sum(entering.get(at, []))
                cp.add(row).with_name(f"conserved[{at[0]},{at[1]}]")
        devices = self._over_stages(lambda arc: arc.devices)
        cp.add(devices <= self.columns.instance.num_devices).with_name("devices")

    def _times(self) -> None:
        """C and R are at least those of every stage."""
        for v in self.prices.terms.nodes:
            check_stop(self.prices.watch)
            holding = [a for a, arc in enumerate(self.arcs) if v in arc.block.nodes]
            flows = [self.flow[a] for a in holding]
            step = _weighted(flows, [self.steps[a] for a in holding])
            sync = _weighted(flows, [self.syncs[a] for a in holding])
            self.model.add(step <= self.time).with_name(f"stage_time[{v}]")
            self.model.add(sync <= self.synchronisation).with_name(f"stage_synchronisation[{v}]")

    def _depth(self) -> None:
        """L: 1 and the deep l."""
        cp, columns, most = self.model, self.columns, self.columns.most_stages
        depth = 1 + _sum(self.deep)
        for number, (shallower, deeper) in enumerate(pairwise(self.deep), start=3):
            cp.add_implication(deeper, shallower).with_name(f"deeper[{number}]")
        if columns.is_chain:
            cp.add(_sum(list(self.flow.values())) <= depth).with_name("path_depth")
            return
        path = columns.longest_path()
        crossed = len(path) - sum(self._together(u, v) for u, v in pairwise(path))
        cp.add(crossed <= depth).with_name("path_depth")
        level = [cp.new_int_var(1, most, f"level[{v}]") for v in self.prices.terms.nodes]
        edges = set(columns.flushed.flat.edge_indices)
        for v in self.prices.terms.nodes:
            cp.add(level[v] <= depth).with_name(f"level_depth[{v}]")
        for u, v in sorted(edges):
            check_stop(self.prices.watch)
            cp.add(level[u] >= level[v] + 1 - self._together(u, v)).with_name(f"edge_level[{u},{v}]")
        for u, v in sorted({pair for arc in self.arcs for pair in permutations(arc.block.nodes, 2)} - edges):
            check_stop(self.prices.watch)
            row = level[u] >= level[v] - (most - 1) * (1 - self._together(u, v))
            cp.add(row).with_name(f"same_level[{u},{v}]")

    def _batch_time(self) -> None:
        self.model.says("batch_time", "with l stages on a path a batch takes m + l - 1 steps: total >= (m + l - 1) C "
                        "+ m R if deep[l]")  # fmt: skip
        m = self.microbatches
        for depth in range(1, self.columns.most_stages + 1):
            row = self.model.add(self.total >= (m + depth - 1) * self.time + m * self.synchronisation)
            row.with_name(f"batch_time[{depth}]")
            if depth > 1:
                row.only_enforce_if(self.deep[depth - 2])

    def lower_bound(self, bound: float) -> float:
        """A bound in the instance's unit, less what sums in another order may differ by; it is times m in the model."""
        units = self.costs.restore(cpsat.whole(bound)) / self.microbatches * (1 - NOISE)
        return max(0.0, min(units, self.columns.target))  # slower plans are not in the model

    def run(self, limits: Limits, watch: Watch, on_solution: OnSolution = None, on_bound: OnBound = None) -> Run:
        """Run CP-SAT on it; ``stats`` counts downsets and arcs."""
        return self.with_counts(super().run(limits, watch, on_solution, on_bound))


def build(instance: FlushedInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The CP-SAT model of all plans that are hardly slower than the watch's best one; as `columns.columns_of`."""
    columns = columns_of(instance, watch or Watch(), complete=complete)
    return add_requirements(Model(columns, whole=complete or bool(instance.requirements)), VOCABULARY, instance)


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by a path of stages, with CP-SAT."""
    return solve_with(lambda: build(instance, watch), instance, limits, watch)
