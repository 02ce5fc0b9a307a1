"""Flushed stage partitioning as a path of priced stages (`columns`) in Pyomo and HiGHS.

The flat model of columns without weights, whose T is C, with R, the depth L and the objective added. The product of L
and C is taken apart: a path of l stages costs C / m more than one of l - 1.

Source: this project.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise, permutations
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.flushed_partitioning.definition.problem import evaluate, violations
from formulations.flushed_partitioning.definition.quantities import VOCABULARY
from formulations.flushed_partitioning.models.columns import SENTENCES, Columns, columns_of
from formulations.flushed_partitioning.models.first_plan import first_plan
from formulations.modelling.solve_model import add_requirements, check_stop, prove
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models import milp_columns as flat_columns
from instances.problems.flushed_partitioning import FlushedInstance
from solvers.milp import backend as milp
from solvers.milp.backend import until_stopped, weighted_sum
from solvers.outcome import Limits, Watch


class Model(flat_columns.Model):
    """The flat model of the weightless instance (``time`` is C), with L, R and the objective added."""

    def __init__(self, columns: Columns, *, whole: bool) -> None:
        super().__init__(columns.prices, columns, whole=whole)
        self.columns, model = columns, self.model
        model.time.doc, model.stage_time.doc = SENTENCES["time"], SENTENCES["stage_time"]
        self.microbatches = columns.flushed.flat.num_microbatches
        self.deeper = range(2, columns.most_stages + 1)
        model.synchronisation = pyo.Var(domain=pyo.NonNegativeReals, doc=SENTENCES["synchronisation"])
        model.total = pyo.Var(domain=pyo.NonNegativeReals, doc=SENTENCES["total"])
        self._synchronisation()
        if columns.by_replicas:
            self._replicas()
        else:
            model.deep = pyo.Var(self.deeper, domain=pyo.Binary, doc=SENTENCES["deep"])
            self._depth()
            self._batch_time()
        model.objective.deactivate()
        model.batch = pyo.Objective(expr=model.total)
        check_stop(columns.prices.watch)

    def time_unit(self) -> float | None:
        """What a stage takes is no expression of its own where a batch is filled by replicas."""
        return None

    def _synchronisation(self) -> None:
        times = [milp.in_units(self.columns.synchronisation(arc), self.unit) for arc in self.arcs]

        def stage_synchronisation(m: Any, v: int) -> Any:
            holding = ((times[a], m.flow[a]) for a, arc in enumerate(self.arcs) if times[a] and v in arc.block.nodes)
            return weighted_sum(holding) <= m.synchronisation

        self.model.stage_synchronisation = pyo.Constraint(
            self.prices.terms.nodes,
            rule=until_stopped(self.prices.watch, stage_synchronisation),
            doc=SENTENCES["stage_synchronisation"],
        )

    def _depth(self) -> None:
        """L: 1 and the deep l."""
        model, columns, most = self.model, self.columns, self.columns.most_stages
        nodes, edges = self.prices.terms.nodes, set(columns.flushed.flat.edge_indices)
        depth = 1 + weighted_sum((1.0, model.deep[depth]) for depth in self.deeper)
        path = columns.longest_path()
        crossed = weighted_sum((1.0, model.flow[a]) for a in range(len(self.arcs)))
        if not columns.is_chain:
            crossed = len(path) - pyo.quicksum(self._together(u, v) for u, v in pairwise(path))
        model.deeper = pyo.Constraint(
            self.deeper[1:], rule=lambda m, depth: m.deep[depth] <= m.deep[depth - 1], doc=SENTENCES["deeper"]
        )
        model.path_depth = pyo.Constraint(expr=crossed <= depth, doc=SENTENCES["path_depth"])
        if columns.is_chain:
            return

        def edge_level(m: Any, u: int, v: int) -> Any:
            return m.level[u] >= m.level[v] + 1 - self._together(u, v)

        def same_level(m: Any, u: int, v: int) -> Any:
            return m.level[u] >= m.level[v] - (most - 1) * (1 - self._together(u, v))

        model.level = pyo.Var(nodes, bounds=(1, most), doc=SENTENCES["level"])
        model.level_depth = pyo.Constraint(nodes, rule=lambda m, v: m.level[v] <= depth, doc=SENTENCES["level_depth"])
        model.edge_level = pyo.Constraint(
            sorted(edges), rule=until_stopped(self.prices.watch, edge_level), doc=SENTENCES["edge_level"]
        )
        held = {pair for arc in self.arcs for pair in permutations(arc.block.nodes, 2)} - edges
        model.same_level = pyo.Constraint(
            sorted(held), rule=until_stopped(self.prices.watch, same_level), doc=SENTENCES["same_level"]
        )

    def _replicas(self) -> None:
        """S, P and the objective where replicas fill."""
        model, columns, m, nodes = self.model, self.columns, self.microbatches, self.prices.terms.nodes
        times = [milp.in_units(columns.replica_time(arc), self.unit) for arc in self.arcs]
        rounds = [milp.in_units(columns.later_rounds(arc), self.unit) for arc in self.arcs]
        longest = columns.longest / self.unit * (1 + milp.ROOM)
        model.fill = pyo.Var(bounds=(0, longest), doc=SENTENCES["fill"])
        model.later = pyo.Var(domain=pyo.NonNegativeReals, doc=SENTENCES["later"])

        def total(arcs: Iterable[int], units: list[float]) -> Any:
            return weighted_sum((units[a], model.flow[a]) for a in arcs)

        holding = self.data.holding
        model.later_rounds = pyo.Constraint(
            nodes, rule=lambda m, v: total(holding[v], rounds) <= m.later, doc=SENTENCES["later_rounds"]
        )
        if columns.is_chain:
            model.heaviest = pyo.Constraint(expr=total(self.flow, times) <= model.fill, doc=SENTENCES["heaviest"])
        else:
            self._paths(times, longest, total)
        model.batch_time = pyo.Constraint(
            expr=m * model.total >= model.fill + model.later + m * model.synchronisation, doc=SENTENCES["batch_time"]
        )
        model.steps = pyo.Constraint(expr=model.total >= model.time + model.synchronisation, doc=SENTENCES["steps"])

    def _paths(self, times: list[float], longest: float, total: Callable[[Iterable[int], list[float]], Any]) -> None:
        """S on a graph with branches."""
        model, nodes, holding = self.model, self.prices.terms.nodes, self.data.holding
        edges = sorted(set(self.columns.flushed.flat.edge_indices))
        apart = {(u, v): [a for a in holding[u] if a not in set(holding[v])] for u, v in edges}
        held = {pair for arc in self.arcs for pair in permutations(arc.block.nodes, 2)} - set(edges)
        model.path = pyo.Var(nodes, bounds=(0, longest), doc=SENTENCES["path"])
        # fmt: off
        model.path_ends = pyo.Constraint(nodes, rule=lambda m, v: m.path[v] >= total(holding[v], times),
            doc=SENTENCES["path_ends"])
        model.edge_path = pyo.Constraint(edges, rule=lambda m, u, v: m.path[u] >= m.path[v] + total(apart[u, v], times),
            doc=SENTENCES["edge_path"])
        model.same_path = pyo.Constraint(sorted(held),
            rule=lambda m, u, v: m.path[u] >= m.path[v] - longest * (1 - self._together(u, v)),
            doc=SENTENCES["same_path"])
        # fmt: on
        model.heaviest = pyo.Constraint(nodes, rule=lambda m, v: m.path[v] <= m.fill, doc=SENTENCES["heaviest"])

    def _batch_time(self) -> None:
        model, m = self.model, self.microbatches
        most = self.reach.target / self.unit * (1 + milp.ROOM)
        # fmt: off
        model.step = pyo.Var(self.deeper, domain=pyo.NonNegativeReals,
            doc="step[l]: C if some path has l stages or more, else 0")
        model.one_more_step = pyo.Constraint(self.deeper,
            rule=lambda model, depth: model.step[depth] >= model.time - most * (1 - model.deep[depth]),
            doc="a path of l stages takes one step more: step[l] >= C if deep[l]; big-M: C is at most that of a known "
            "plan, or any plan's")
        steps = pyo.quicksum(model.step[depth] for depth in self.deeper)
        model.batch_time = pyo.Constraint(expr=model.total >= model.time + model.synchronisation + steps / m,
            doc="a batch takes m + L - 1 steps: total >= C + R + sum over l of step[l] / m")
        # fmt: on


def model_of(instance: FlushedInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The Pyomo model of all plans that are hardly slower than the watch's best one; as `columns.columns_of`."""
    columns = columns_of(instance, watch or Watch(), complete=complete)
    return add_requirements(Model(columns, whole=complete or bool(instance.requirements)), VOCABULARY, instance)


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by a path of stages, with HiGHS, which begins with the plan of `first_plan`."""
    model, first = lambda: model_of(instance, watch), first_plan(instance)
    return prove(instance, model, evaluate, violations, limits, watch, to_scale=True, first=first)
