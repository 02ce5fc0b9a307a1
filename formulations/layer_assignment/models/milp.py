"""Layer assignment as a MILP (Pyomo, HiGHS): a path through the layers, one arc (j, a, b) for each stage j.

AMP's Equation 4 over all ways to cut L layers into S stages, of which each takes the layers a to b - 1 that follow::

    min (gas - 1) max_j t_j  +  sum_j e_j  [ + max_j A_j ]      (the layers where they take least are a constant)

With a number in place of the first part (``target``) the relaxation is that of a path, which is exact: `Model.run`
searches those numbers (`modelling.threshold_search`) where there is no all-reduce and no requirement. Symbols as in
the README.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.layer_assignment.costs import Tables, ceiling, infeasible_answer, plan_of, tables, within_reach
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import evaluate, violations
from formulations.layer_assignment.definition.quantities import VOCABULARY
from formulations.layer_assignment.models.first_plan import first_plan
from formulations.modelling.layered_paths import on_paths
from formulations.modelling.linear_paths import LinearPaths
from formulations.modelling.solve_model import WithoutSizes, add_requirements, prove
from formulations.modelling.threshold_search import Cheapest, search_intervals
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.milp import backend as milp
from solvers.outcome import DEFAULT_SOLVER, Limits, OnBound, OnSolution, Run, Watch

#: Stage j with layers a to b - 1.
Arc = tuple[int, int, int]

#: Relative room for rounding where what is too slow is left out.
_MARGIN = 1e-9


@dataclass(frozen=True)
class Data:
    """An instance in units of ``unit`` seconds: L layers, S stages, gas micro-batches.

    Of stage j with layers a to b - 1: ``waiting`` is (gas - 1) t, what waiting costs if it is the slowest; ``cut`` is
    e of the cut before it, and what its layers take more than each in the stage where it takes least; ``all_reduce`` is
    A, empty if none is declared. ``constant``: all layers where they take least, in seconds.
    """

    num_layers: int
    num_stages: int
    waiting: Mapping[Arc, float]
    cut: Mapping[Arc, float]
    all_reduce: Mapping[Arc, float]
    unit: float
    constant: float

    @property
    def arcs(self) -> list[Arc]:
        """The stages that there may be."""
        return list(self.waiting)


def data_of(instance: LayerAssignmentInstance, watch: Watch, *, complete: bool) -> Data:
    """The instance without the stages that alone cost more than a known assignment, unless ``complete``.

    Without one nothing costs more than what `ceiling` says: HiGHS's bounds are wrong beside far larger numbers.
    """
    known, most_s, balanced_s = ceiling(instance, watch, complete=complete)
    near = instance if complete else within_reach(instance, has_requirements=bool(instance.requirements))
    layers, stages, table = instance.num_layers, instance.num_stages, tables(near)
    weight, constant = instance.num_microbatches - 1, math.fsum(near.least_time_s)
    unit = (balanced_s if known is None else known) / milp.NATURAL or 1.0
    most = math.inf if known is None else (known - constant) + _MARGIN * known
    arcs = list(_arcs(table, layers, stages, weight, most))
    if not complete:
        used = on_paths([_ends(arc) for arc in arcs], [True] * len(arcs), (0, 0), (stages, layers).__eq__)
        arcs = list(itertools.compress(arcs, used))

    def units(seconds: float) -> float:
        return milp.in_units(min(seconds, most_s), unit)

    return Data(
        layers,
        stages,
        {(j, a, b): units(weight * (table.elapsed[j, b] - table.elapsed[j, a])) for j, a, b in arcs},
        {(j, a, b): units(table.cut[a, j] + table.extra[j, b] - table.extra[j, a]) for j, a, b in arcs},
        {(j, a, b): units(table.ring[j] * table.held[a, b]) for j, a, b in arcs} if len(table.ring) else {},
        unit,
        constant,
    )


def _arcs(table: Tables, layers: int, stages: int, weight: int, most: float) -> Iterator[Arc]:
    """All stages (j, a, b) with a layer left for each other stage that alone do not cost more than ``most``."""
    for j in range(stages):
        for start in [0] if j == 0 else range(j, layers - stages + j + 1):
            for end in [layers] if j == stages - 1 else range(start + 1, layers - stages + j + 2):
                syncing = table.ring[j] * table.held[start, end] if len(table.ring) else 0.0
                extra = table.extra[j, end] - table.extra[j, start]
                waiting = weight * (table.elapsed[j, end] - table.elapsed[j, start])
                if waiting + table.cut[start, j] + extra + syncing > most:
                    break  # longer stages cost no less
                yield j, start, end


def _ends(arc: Arc) -> tuple[tuple[int, int], tuple[int, int]]:
    """The states of a path, (stages, layers) so far, that an arc joins."""
    j, start, end = arc
    return (j, start), (j + 1, end)


def build(data: Data, target: float | None = None) -> Any:
    """The model; with a target, of the stages for which waiting costs no more, and with it in place of that cost."""
    arcs = [arc for arc in data.arcs if target is None or data.waiting[arc] <= target]
    stages = range(data.num_stages)
    borders = [(j, layer) for j in stages[1:] for layer in range(j, data.num_layers - data.num_stages + j + 1)]
    of_stage, begin, end = (defaultdict[Any, list[Arc]](list) for _ in range(3))
    for arc in arcs:
        j, a, b = arc
        of_stage[j].append(arc)
        begin[j, a].append(arc)
        end[j, b].append(arc)

    model = pyo.ConcreteModel()
    model.carries = pyo.Var(arcs, domain=pyo.Binary, doc="carries[j,a,b]: stage j takes layers a to b - 1")
    if target is None:
        model.waiting = pyo.Var(domain=pyo.NonNegativeReals, doc="time of waiting for the slowest stage, in units")
    waiting = model.waiting if target is None else target
    if data.all_reduce:
        model.all_reduce = pyo.Var(domain=pyo.NonNegativeReals, doc="time of the slowest all-reduce, in units")
    all_reduce = model.all_reduce if data.all_reduce else 0

    def total(own: Iterable[Arc], cost: Mapping[Arc, float] | None = None) -> Any:
        return milp.weighted_sum((1.0 if cost is None else cost[arc], model.carries[arc]) for arc in own)

    # fmt: off
    model.first = pyo.Constraint(expr=total(begin[0, 0]) == 1,
        doc="stage 0 begins at layer 0: sum over b of carries[0,0,b] = 1; all arcs of the last stage end at layer L")
    model.follows = pyo.Constraint([border for border in borders if begin[border] or end[border[0] - 1, border[1]]],
        rule=lambda _, j, layer: total(end[j - 1, layer]) == total(begin[j, layer]),
        doc="stage j begins where stage j - 1 ends: sum of carries[j-1,a,l] over a = sum of carries[j,l,b] over b")
    model.stage_time = pyo.Constraint(stages, rule=lambda _, j: total(of_stage[j], data.waiting) <= waiting,
        doc="waiting takes as long as for every stage: waiting >= (gas - 1) t_j [AMP, section 6.4]")
    model.stage_all_reduce = pyo.Constraint(stages if data.all_reduce else [],
        rule=lambda _, j: total(of_stage[j], data.all_reduce) <= all_reduce,
        doc="the slowest all-reduce takes as long as every stage's: all_reduce >= A_j [reconstructed]")
    # fmt: on
    # AMP's Equation 4 less the sum of t, and with A [reconstructed]; later stages pay for the cut before them.
    cuts = total((arc for arc in arcs if arc[0] or data.cut[arc]), data.cut)
    model.step = pyo.Objective(expr=waiting + cuts + all_reduce)
    return model


@dataclass
class Model(milp.Runnable, WithoutSizes):
    """The model of ``data``; with a ``target`` it is searched by lesser ones."""

    model: Any
    data: Data
    target: float | None = None

    def run(self, limits: Limits, watch: Watch, on_solution: OnSolution = None, on_bound: OnBound = None) -> Run:
        """Search by the time of the slowest stage, or run the model as it is."""
        most = self.target
        if most is None or on_solution is None or on_bound is None:
            return super().run(limits, watch, on_solution, on_bound)
        waiting, carries = np.array(list(self.data.waiting.values())), list(self.model.carries.values())
        ends, complete = [_ends(arc) for arc in self.data.arcs], (self.data.num_stages, self.data.num_layers).__eq__
        paths = LinearPaths(self.model, carries, ends, waiting, complete, limits, watch)

        def cheapest(target: float) -> Cheapest | None:
            found = paths.within(target)
            if found is None:
                return None
            # The objective of the program has the largest target in place of waiting: the rest of it is the bound.
            return Cheapest(None if found.bound is None else found.bound - most, found.slowest, found.values)

        plan = watch.best_objective
        known = math.inf if plan is None else (plan - self.data.constant) / self.data.unit
        found = search_intervals(np.unique(waiting), cheapest, known, limits, watch, on_solution, on_bound)
        return replace(found, solver=paths.program.solver, stats={**paths.program.stats, **found.stats})

    def begin_with(self, values: Iterable[tuple[Any, float]]) -> None:
        """Make these values of variables the hint; linear programs at targets have none."""
        if self.target is None:
            super().begin_with(values)

    def decode(self, values: Any) -> LayerPlan:
        """The plan of a solution."""
        taken = [arc for arc, variable in self.model.carries.items() if values[variable] > 0.5]
        return plan_of(end - start for _, start, end in sorted(taken))

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of an assignment, as sums over the arcs."""

        def carried(factor: Callable[[int, int, int], float]) -> Any:
            return milp.weighted_sum((factor(*arc), variable) for arc, variable in self.model.carries.items())

        return {
            "layers": lambda stage: carried(lambda j, start, end: (end - start) * (j == stage)),
            "stage_of": lambda layer: carried(lambda j, start, end: j * (start <= layer < end)),
            "same_stage": lambda layer, other: carried(
                lambda _, start, end: float(start <= min(layer, other) and max(layer, other) < end)
            ),
        }

    def measures(self) -> Mapping[str, Callable[..., Any]]:
        """``choice``: 1 if a stage has a layer."""
        stages, layers = range(self.data.num_stages), range(self.data.num_layers)

        def choice(layer: int, stage: int) -> Any:
            own = (arc for arc in self.model.carries if arc[0] == stages[stage] and arc[1] <= layers[layer] < arc[2])
            return milp.weighted_sum((1.0, self.model.carries[arc]) for arc in own)

        return {"choice": choice}

    def meaning(self, name: str, index: Any) -> Mapping[str, Any]:
        """The stage of an arc and its layers."""
        return {"stage": index[0], "layer": frozenset(range(*index[1:]))} if name == "carries" else {}

    def values_of(self, plan: LayerPlan) -> Iterator[tuple[Any, int]]:
        """The values of all arcs in a plan."""
        borders = [0, *itertools.accumulate(plan.lengths)]
        taken = {(j, *ends) for j, ends in enumerate(itertools.pairwise(borders))}
        return ((variable, int(arc in taken)) for arc, variable in self.model.carries.items())

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return self.data.constant + milp.proved_bound(bound) * self.data.unit


def model_of(
    instance: LayerAssignmentInstance, watch: Watch | None = None, *, complete: bool = False, search: bool = False
) -> Model:
    """The model of an instance (`data_of`), with its requirements; to be searched by targets if it has none."""
    data = data_of(instance, watch or Watch(), complete=complete)
    target = max(data.waiting.values()) if search and not data.all_reduce and not instance.requirements else None
    return add_requirements(Model(build(data, target), data, target), VOCABULARY, instance)


def solve(instance: LayerAssignmentInstance, limits: Limits, watch: Watch) -> Answer[LayerPlan]:
    """The best assignment, with a bound less what HiGHS's tolerances may add to it (`milp.proved_bound`)."""
    search = limits.solver == DEFAULT_SOLVER
    return infeasible_answer(instance) or prove(
        instance, lambda: model_of(instance, watch, search=search), evaluate, violations, limits, watch, to_scale=True,
        first=first_plan(instance, limits),
    )  # fmt: skip
