"""Hierarchical stage partitioning as a path of priced superstages (`paths`) in Pyomo and HiGHS.

Without requirements HiGHS gets the targets one by one: with T given, the fewest machines are a shortest path, whose
relaxation is exact (`stage_partitioning.models.by_target`).

Source: this project; the problem is Piper's, Appendix E.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.definition.quantities import VOCABULARY
from formulations.hierarchical_partitioning.models.paths import SENTENCES, START, Paths, reach_of, solve_with
from formulations.hierarchical_partitioning.models.usable_arcs import Reach
from formulations.modelling.solve_model import go_on, require
from formulations.stage_partitioning.models import by_target
from instances.problems.hierarchical_partitioning import HierarchicalInstance
from solvers.milp import backend as milp
from solvers.milp.backend import until_stopped, weighted_sum
from solvers.outcome import DEFAULT_SOLVER, Limits, Run, Watch


class Model(Paths, milp.Runnable):
    """``model.flow[a]`` is 1 if the plan has the superstage of arc a; ``model.time`` is T in parts of ``unit``.

    ``searches``: run it by targets; not where others may have changed the model.
    """

    searches = False

    def __init__(self, reach: Reach, watch: Watch, *, whole: bool) -> None:
        super().__init__(reach, watch, whole=whole)
        self.unit = reach.target / milp.NATURAL or 1.0
        self.model = model = pyo.ConcreteModel()
        most = reach.target / self.unit * (1 + milp.ROOM)
        model.time = pyo.Var(bounds=(0, most), doc=SENTENCES["time"])
        model.flow = pyo.Var(range(len(self.arcs)), domain=pyo.Binary, doc=SENTENCES["flow"])
        model.objective = pyo.Objective(expr=model.time)
        self._path()
        taken = self.total(lambda a: self.arcs[a].devices)
        model.machines = pyo.Constraint(expr=taken <= reach.superstages.K2, doc=SENTENCES["machines"])
        self._time()
        go_on(watch)

    def flow(self, a: int) -> Any:
        """1 if the path has arc a."""
        return self.model.flow[a]

    def total(self, factor: Callable[[int], int]) -> Any:
        """A whole number of every arc of the path, summed."""
        factors = ((float(factor(a)), self.model.flow[a]) for a in range(len(self.arcs)))
        return weighted_sum(pair for pair in factors if pair[0])

    def _path(self) -> None:
        """One path from the empty set to V."""
        leaving, entering = self.ends()

        def through(arcs: list[int]) -> Any:
            return weighted_sum((1.0, self.model.flow[a]) for a in arcs)

        def conserved(_: Any, *at: int) -> Any:
            return through(leaving.get((at[0], at[1]), [])) == through(entering.get((at[0], at[1]), []))

        begins = through(leaving.get(START, []))
        self.model.one_path = pyo.Constraint(expr=begins == 1, doc=SENTENCES["one_path"])
        self.model.conserved = pyo.Constraint(
            self.between(), rule=until_stopped(self.watch, conserved), doc=SENTENCES["conserved"]
        )

    def _time(self) -> None:
        def superstage_time(m: Any, v: int) -> Any:
            times = ((milp.in_units(arc.time, self.unit), m.flow[a]) for a, arc in enumerate(self.arcs)
                     if self.bits[a] >> v & 1)  # fmt: skip
            return weighted_sum(times) <= m.time

        self.model.superstage_time = pyo.Constraint(
            self.reach.superstages.terms.nodes,
            rule=until_stopped(self.watch, superstage_time),
            doc=SENTENCES["superstage_time"],
        )

    def lower_bound(self, bound: float) -> float:
        """The bound in the instance's unit, less what the solver's tolerances may have added."""
        return min(milp.trusted(bound) * self.unit, self.reach.target)  # slower plans are not in the model

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[Any], None] | None = None,
        on_bound: Callable[[float], None] | None = None,
    ) -> Run:
        """Search by targets, or run the model as it is, as other solvers do; ``stats`` counts downsets and arcs."""
        if not self.searches or limits.solver != DEFAULT_SOLVER or on_solution is None or on_bound is None:
            run = super().run(limits, watch, on_solution, on_bound)
        else:
            reach, m = self.reach, self.model
            exchanged = m.superstage_time, m.machines, m.objective
            machines = reach.superstages.K2
            paths = by_target.Paths(self.arcs, reach.last, machines, reach.target, self.unit)
            run = by_target.run(m, exchanged, paths, limits, watch, on_solution, on_bound)
        return replace(run, stats={**run.stats, **self.counts()})


def build(instance: HierarchicalInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The Pyomo model of all plans that are hardly slower than the watch's best one; as `paths.reach_of`."""
    watch = watch or Watch()
    reach = reach_of(instance, watch, complete=complete)
    model = Model(reach, watch, whole=complete or bool(instance.requirements))
    require(model, VOCABULARY, instance)
    return model


def solve(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Answer[HierarchicalPlan]:
    """The optimum by a path of superstages, with HiGHS.

    Source
    ------
    This project; see the module.
    """

    def model() -> Model:
        found = build(instance, watch)
        found.searches = not instance.requirements
        return found

    return solve_with(model, instance, limits, watch)
