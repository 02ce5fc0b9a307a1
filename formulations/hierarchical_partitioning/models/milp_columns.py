"""Hierarchical stage partitioning as a path of priced superstages (`columns`) in Pyomo and HiGHS.

With a number in place of T the fewest machines are a shortest path, whose relaxation is exact: `Model.run` searches
those numbers where there is no requirement.

Source: this project; the problem is Piper's, Appendix E.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.definition.problem import evaluate, violations
from formulations.hierarchical_partitioning.definition.quantities import VOCABULARY
from formulations.hierarchical_partitioning.models.columns import Data, Paths, usable
from formulations.hierarchical_partitioning.models.first_plan import first_plan
from formulations.modelling.layered_paths import START
from formulations.modelling.solve_model import add_requirements, prove
from formulations.stage_partitioning.models import by_target
from instances.problems.hierarchical_partitioning import HierarchicalInstance
from solvers.build_stop import stops_with
from solvers.milp import backend as milp
from solvers.outcome import DEFAULT_SOLVER, Limits, OnBound, OnSolution, Run, Watch


def data_of(instance: HierarchicalInstance, watch: Watch, *, complete: bool) -> Data:
    """The superstages that are `usable`, with times in parts of the slowest plan's."""
    reach, arcs = usable(instance, watch, complete=complete)
    unit = reach.target / milp.NATURAL or 1.0
    return Data(
        reach, arcs, [milp.in_units(arc.time, unit) for arc in arcs], unit, reach.target / unit * (1 + milp.ROOM)
    )


def build(data: Data, target: float | None = None) -> Any:
    """The model; with a target no superstage takes longer, and the plan is the one on the fewest machines."""
    most, machines = data.most, data.reach.superstages.K2
    if target is not None:
        most, machines = (
            target / data.unit * (1 + milp.ROOM),
            machines * len(data.arcs_of),
        )  # each superstage holds a node

    model = pyo.ConcreteModel()
    # fmt: off
    model.flow = pyo.Var(range(len(data.arcs)), domain=pyo.Binary,
        doc="flow[a]: the plan has the superstage of arc a: nodes D \\ D' on d_2 machines, in which degrees d_1 sum to "
        "x, in front of degrees that sum to s")
    model.time = pyo.Var(bounds=(0, most),
        doc="T, the time per sample: that of the slowest superstage [Piper, Appendix E]")
    model.taken = pyo.Var(bounds=(0, machines), doc="machines that the plan takes: at most K_2, or the fewest within T")

    def total(own: Iterable[int], factors: Sequence[float] | None = None) -> Any:
        return milp.weighted_sum((1.0 if factors is None else factors[a], model.flow[a]) for a in own)

    model.one_path = pyo.Constraint(expr=total(data.leaving[START]) == 1,
        doc="one path begins at the empty set: sum over the arcs a that leave it of flow[a] = 1")
    model.conserved = pyo.Constraint(data.between,
        rule=lambda _, *at: total(data.leaving[at]) == total(data.entering[at]),
        doc="it leaves a state (D,s) as often as it enters it, up to V: sum over a that leave of flow[a] = sum over a "
        "that enter of flow[a]")
    model.machines = pyo.Constraint(
        expr=total(range(len(data.arcs)), [arc.devices for arc in data.arcs]) <= model.taken,
        doc="the superstages of the path take at most K_2 machines: sum over a of d_2 flow[a] <= taken [Piper, "
        "Appendix E]")
    model.superstage_time = pyo.Constraint(list(data.arcs_of),
        rule=lambda m, v: total(data.arcs_of[v], data.times) <= m.time,
        doc="T is at least the time of the superstage that holds v, its link or its slowest stage: sum over the arcs a "
        "that hold v of time(a) flow[a] <= T [Piper, Appendix E]")
    # fmt: on
    model.objective = pyo.Objective(expr=model.time if target is None else model.taken)
    return model


@dataclass
class Model(Paths, milp.Runnable):
    """The model of ``data``; with a ``target`` it is searched by lesser ones."""

    model: Any
    data: Data
    target: float | None = None

    @property
    def flow(self) -> Any:
        """1 for the arcs of the path."""
        return self.model.flow

    def run(self, limits: Limits, watch: Watch, on_solution: OnSolution = None, on_bound: OnBound = None) -> Run:
        """Search by targets, or run the model as it is; ``stats`` counts downsets and arcs."""
        if self.target is None or on_solution is None or on_bound is None:
            run = super().run(limits, watch, on_solution, on_bound)
        else:
            reach = self.data.reach
            paths = by_target.Paths(self.data.arcs, reach.last, reach.superstages.K2, reach.target, self.data.unit)
            run = by_target.search_linear(paths, self.model, self.flow, limits, watch, on_solution, on_bound)
        return replace(run, stats={**run.stats, **self.counts()})

    def lower_bound(self, bound: float) -> float:
        """The bound in the instance's unit, less what the solver's tolerances may have added."""
        return min(milp.proved_bound(bound) * self.data.unit, self.data.reach.target)  # no slower plans


def model_of(
    instance: HierarchicalInstance, watch: Watch | None = None, *, complete: bool = False, search: bool = False
) -> Model:
    """The model of an instance (`data_of`), with its requirements; to be searched by targets if it has none."""
    watch = watch or Watch()
    with stops_with(watch):
        data = data_of(instance, watch, complete=complete)
        target = data.reach.target if search and not instance.requirements else None
        return add_requirements(Model(build(data, target), data, target), VOCABULARY, instance)


def solve(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Answer[HierarchicalPlan]:
    """The optimum by a path of superstages, with HiGHS, which begins with the plan of `first_plan`."""
    search, first = limits.solver == DEFAULT_SOLVER, first_plan(instance, limits)
    model = lambda: model_of(instance, watch, search=search)  # noqa: E731
    return prove(instance, model, evaluate, violations, limits, watch, to_scale=True, first=first)
