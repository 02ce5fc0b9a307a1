"""Flushed stage partitioning as a path of priced stages (`columns`) in CP-SAT.

Times are whole units, rounded down, so that a bound holds for the instance as declared.

Source: this project.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise, permutations
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.flushed_partitioning.definition.quantities import VOCABULARY
from formulations.flushed_partitioning.models.columns import SENTENCES, Columns, columns_of, solve_with
from formulations.modelling.solve_model import add_requirements
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models.flow import Flow
from formulations.stage_partitioning.models.stage_costs import NOISE
from formulations.stage_partitioning.models.stage_quantities import CpsatQuantities
from instances.problems.flushed_partitioning import FlushedInstance
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, OnBound, OnSolution, Run, Watch
from solvers.scaling import cost_scale

_START = (0, 0)
_sum = cp_model.LinearExpr.sum


class Model(Flow, CpsatQuantities):
    """``flow[a]`` is 1 if the plan has the stage of arc a; ``total`` is m times the objective in whole units."""

    weighted_sum = staticmethod(cpsat.weighted_sum)

    def __init__(self, columns: Columns, *, whole: bool) -> None:
        self.columns = self.reach = columns
        self.prices, self.arcs = columns.prices, columns.arcs(whole=whole)
        self.model = cp = cpsat.SpokenModel()
        for name in ("time", "synchronisation"):
            cp.says(name, SENTENCES[name])
        self.microbatches = m = columns.flushed.flat.num_microbatches
        most, top = columns.most_stages, columns.target * 2
        count = (2 * m + most + len(self.arcs)) * (m if columns.by_replicas else 1)  # t is d <= m times a step
        self.costs = cost_scale(columns.prices.terms.lower_bound, 2, count * top)
        # fmt: off
        self.flow = cp.booleans("flow", range(len(self.arcs)),
            "flow[a]: the plan has the stage of arc a, nodes D \\ D' with degrees (t, d) at a sum s")
        # fmt: on
        self.steps = [self.costs.floor(arc.time) for arc in self.arcs]
        self.syncs = [self.costs.floor(columns.synchronisation(arc)) for arc in self.arcs]
        # The slowest stage of a plan is one of the columns: no other time needs to be tried.
        self.time, self.synchronisation = (
            cp.new_int_var_from_domain(cp_model.Domain.from_values(values or [0]), name)
            for name, values in (("time", self.steps), ("synchronisation", self.syncs))
        )
        self.total = cp.integer("total", 0, (2 * m + most) * self.costs.ceil(top), SENTENCES["total"])
        self._path()
        self._times()
        if columns.by_replicas:
            self._replicas()
        else:
            self.deep = cp.booleans("deep", range(2, most + 1), SENTENCES["deep"])
            self._depth()
            self._batch_time()
        cp.minimize(self.total)

    # fmt: off
    def _path(self) -> None:
        """One path from the empty set to V, on at most K devices."""
        cp = self.model
        leaving, entering = defaultdict[Any, list[Any]](list), defaultdict[Any, list[Any]](list)
        for a, taken in self.flow.items():
            leaving[self.arcs[a].tail].append(taken)
            entering[self.arcs[a].head].append(taken)
        cp.row("one_path", cp.add_exactly_one(leaving.pop(_START, [])),
            "one path begins at the empty set: sum over the arcs a that leave it of flow[a] = 1")
        cp.rows("conserved", sorted(at for at in leaving.keys() | entering.keys() if at[0] != self.columns.last),
            lambda *at: _sum(leaving[at]) == _sum(entering[at]),
            "it leaves a state (D,s) as often as it enters it, up to V")
        cp.row("devices", self._over_stages(lambda arc: arc.devices) <= self.columns.instance.num_devices,
            "its stages take at most K devices: sum over a of t d flow[a] <= K [Piper, section 3.1]")

    def _times(self) -> None:
        """C and R are at least those of every stage."""
        nodes = self.prices.terms.nodes
        holding = self.holding = {v: [a for a, arc in enumerate(self.arcs) if v in arc.block.nodes] for v in nodes}
        for name, units, most in (("stage_time", self.steps, self.time),
                                  ("stage_synchronisation", self.syncs, self.synchronisation)):
            self.model.rows(name, nodes,
                lambda v, units=units, most=most:
                    cpsat.weighted_sum((units[a], self.flow[a]) for a in holding[v]) <= most,
                SENTENCES[name])

    def _depth(self) -> None:
        """L: 1 and the deep l."""
        cp, columns, deep, together = self.model, self.columns, self.deep, self._together
        depth, nodes, most = 1 + _sum(list(deep.values())), self.prices.terms.nodes, columns.most_stages
        cp.rows("deeper", list(deep)[1:], lambda stages: cp.add_implication(deep[stages], deep[stages - 1]),
            SENTENCES["deeper"])
        path = columns.longest_path()
        crossed = (_sum(list(self.flow.values())) if columns.is_chain
                   else len(path) - sum(together(u, v) for u, v in pairwise(path)))
        cp.row("path_depth", crossed <= depth, SENTENCES["path_depth"])
        if columns.is_chain:
            return
        edges = set(columns.flushed.flat.edge_indices)
        level = cp.integers("level", nodes, 1, most, SENTENCES["level"])
        cp.rows("level_depth", nodes, lambda v: level[v] <= depth, SENTENCES["level_depth"])
        cp.rows("edge_level", sorted(edges), lambda u, v: level[u] >= level[v] + 1 - together(u, v),
            SENTENCES["edge_level"])
        cp.rows("same_level", sorted({each for arc in self.arcs for each in permutations(arc.block.nodes, 2)} - edges),
            lambda u, v: level[u] >= level[v] - (most - 1) * (1 - together(u, v)), SENTENCES["same_level"])

    def _batch_time(self) -> None:
        m = self.microbatches
        self.model.rows("batch_time", range(1, self.columns.most_stages + 1),
            lambda depth: (self.total >= (m + depth - 1) * self.time + m * self.synchronisation,
                           *([self.deep[depth]] if depth > 1 else [])),
            "with l stages on a path a batch takes m + l - 1 steps: total >= (m + l - 1) C + m R if deep[l]")

    def _replicas(self) -> None:
        """S, P and the objective where replicas fill."""
        cp, columns, m, nodes = self.model, self.columns, self.microbatches, self.prices.terms.nodes
        times = [self.costs.floor(columns.replica_time(arc)) for arc in self.arcs]
        rounds = [self.costs.floor(columns.later_rounds(arc)) for arc in self.arcs]
        longest = self.costs.ceil(columns.longest) + columns.most_stages
        fill = cp.integer("fill", 0, longest, SENTENCES["fill"])
        later = cp.integer("later", 0, max(rounds, default=0), SENTENCES["later"])

        def total(arcs: Iterable[int], units: list[int]) -> Any:
            return cpsat.weighted_sum((units[a], self.flow[a]) for a in arcs)

        cp.rows("later_rounds", nodes, lambda v: total(self.holding[v], rounds) <= later, SENTENCES["later_rounds"])
        if columns.is_chain:
            cp.row("heaviest", total(self.flow, times) <= fill, SENTENCES["heaviest"])
        else:
            path = cp.integers("path", nodes, 0, longest, SENTENCES["path"])
            apart = {(u, v): [a for a in self.holding[u] if a not in set(self.holding[v])]
                     for u, v in sorted(set(columns.flushed.flat.edge_indices))}
            held = {each for arc in self.arcs for each in permutations(arc.block.nodes, 2)} - set(apart)
            cp.rows("path_ends", nodes, lambda v: path[v] >= total(self.holding[v], times), SENTENCES["path_ends"])
            cp.rows("edge_path", list(apart), lambda u, v: path[u] >= path[v] + total(apart[u, v], times),
                SENTENCES["edge_path"])
            cp.rows("same_path", sorted(held),
                lambda u, v: path[u] >= path[v] - longest * (1 - self._together(u, v)), SENTENCES["same_path"])
            cp.rows("heaviest", nodes, lambda v: path[v] <= fill, SENTENCES["heaviest"])
        cp.row("batch_time", self.total >= fill + later + m * self.synchronisation, SENTENCES["batch_time"])
        cp.row("steps", self.total >= m * self.time + m * self.synchronisation, SENTENCES["steps"])

    # fmt: on
    def lower_bound(self, bound: float) -> float:
        """A bound in the instance's unit, less what sums in another order may differ by; it is times m in the model."""
        units = self.costs.restore(cpsat.whole(bound)) / self.microbatches * (1 - NOISE)
        return max(0.0, min(units, self.columns.target))  # slower plans are not in the model

    def run(self, limits: Limits, watch: Watch, on_solution: OnSolution = None, on_bound: OnBound = None) -> Run:
        """Run CP-SAT on it; ``stats`` counts downsets and arcs."""
        return self.with_counts(super().run(limits, watch, on_solution, on_bound))


def model_of(instance: FlushedInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The CP-SAT model of all plans that are hardly slower than the watch's best one; as `columns.columns_of`."""
    columns = columns_of(instance, watch or Watch(), complete=complete)
    with stops_with(columns.prices.watch):
        model = Model(columns, whole=complete or bool(instance.requirements))
        return add_requirements(model, VOCABULARY, instance)


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by a path of stages, with CP-SAT."""
    return solve_with(lambda: model_of(instance, watch), instance, limits, watch)
