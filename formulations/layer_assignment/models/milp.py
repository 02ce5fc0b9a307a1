"""Layer assignment as a MILP (Pyomo, HiGHS): a path through the layers, one arc for each stage.

``carries[j, a, b]``: stage j takes layers a to b - 1. The arcs know a stage's whole cost, which makes the relaxation
tighter than one about single layers.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.layer_assignment.costs import Tables, ceiling, infeasible_answer, plan_of, tables
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import evaluate, violations
from formulations.layer_assignment.definition.quantities import VOCABULARY
from formulations.layer_assignment.models import threshold_search
from formulations.layer_assignment.models.first_plan import first_plan
from formulations.modelling.layered_paths import on_paths
from formulations.modelling.solve_model import WithoutSizes, prove, require
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.milp import backend as milp
from solvers.outcome import DEFAULT_SOLVER, Limits, Run, Watch

#: Stage j with layers a to b - 1.
Arc = tuple[int, int, int]

#: Relative room for rounding where what is too slow is left out.
_MARGIN = 1e-9


@dataclass
class Model(milp.Runnable, WithoutSizes):
    """``model.carries[j, a, b]``; the objective is all seconds but the sum of all stages, in units of ``unit``.

    ``waits[j, a, b]``: what waiting for that stage costs, in units, if it is the slowest; ``is_path``: nothing but
    that keeps the relaxation from being a path. ``searches``: run it by the time of the slowest stage where it is one;
    not where others may have changed the model.
    """

    model: Any
    num_stages: int
    unit: float
    constant: float
    waits: Mapping[Arc, float]
    is_path: bool
    searches: bool = False

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[Any], None] | None = None,
        on_bound: Callable[[float], None] | None = None,
    ) -> Run:
        """Search by the time of the slowest stage (`by_slowest`), or run the model as it is, as other solvers do."""
        if (
            not (self.searches and self.is_path)
            or limits.solver != DEFAULT_SOLVER
            or on_solution is None
            or on_bound is None
        ):
            return super().run(limits, watch, on_solution, on_bound)
        known = watch.best_objective
        best = math.inf if known is None else (known - self.constant) / self.unit
        return threshold_search.run(self.model, self.waits, limits, watch, on_solution, on_bound, best)

    def lengths(self, values: Any) -> list[int]:
        """Layers of each stage in a solution."""
        taken = [arc for arc, variable in self.model.carries.items() if values[variable] > 0.5]
        return [end - start for _, start, end in sorted(taken)]

    def decode(self, values: Any) -> LayerPlan:
        """The plan of a solution."""
        return plan_of(self.lengths(values))

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

    def values_of(self, plan: LayerPlan) -> Iterator[tuple[Any, int]]:
        """The values of all arcs in a plan."""
        borders = [0, *itertools.accumulate(plan.lengths)]
        taken = {(j, *ends) for j, ends in enumerate(itertools.pairwise(borders))}
        return ((variable, int(arc in taken)) for arc, variable in self.model.carries.items())

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return self.constant + milp.trusted(bound) * self.unit


def build(instance: LayerAssignmentInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model; its numbers are those of the instance but for their scale.

    Stages that alone cost more than a known assignment are left out, unless ``complete``, and where none is known
    (`ceiling`) they count as no dearer than that: the others' costs span few enough magnitudes for HiGHS, whose bounds
    are wrong beside numbers that are far too large.
    """
    layers, stages = instance.num_layers, instance.num_stages
    table = tables(instance)
    constant = math.fsum(instance.layer_time_s)
    known, most_s, balanced_s = ceiling(instance, watch or Watch(), complete=complete)
    unit = (balanced_s if known is None else known) / milp.NATURAL or 1.0
    most = math.inf if known is None else (known - constant) + _MARGIN * known
    arcs = list(_arcs(table, layers, stages, instance.num_microbatches - 1, most))
    if not complete:
        joined = [((j, start), (j + 1, end)) for j, start, end in arcs]
        used = on_paths(joined, [True] * len(arcs), (0, 0), (stages, layers).__eq__)
        arcs = list(itertools.compress(arcs, used))
    model = pyo.ConcreteModel()
    model.carries = pyo.Var(arcs, domain=pyo.Binary, doc="carries[j,a,b]: stage j takes layers a to b - 1")
    model.waiting = pyo.Var(domain=pyo.NonNegativeReals, doc="seconds of waiting for the slowest stage")
    model.all_reduce = pyo.Var(domain=pyo.NonNegativeReals, doc="seconds of the slowest all-reduce")
    own: dict[int, list[Arc]] = {j: [] for j in range(stages)}
    for arc in arcs:
        own[arc[0]].append(arc)
    _add_path(model, arcs, layers, stages)
    weight = instance.num_microbatches - 1

    def cost(seconds: float) -> float:
        return milp.in_units(min(seconds, most_s), unit)

    waits = {arc: cost(weight * (table.elapsed[arc[2]] - table.elapsed[arc[1]])) for arc in arcs}

    def stage_time(m: Any, j: int) -> Any:
        return m.waiting >= pyo.quicksum(waits[arc] * m.carries[arc] for arc in own[j])

    def stage_all_reduce(m: Any, j: int) -> Any:
        times = {arc: cost(table.ring[j] * table.held[arc[1], arc[2]]) for arc in own[j]}
        return m.all_reduce >= pyo.quicksum(time * m.carries[arc] for arc, time in times.items())

    model.stage_time = pyo.Constraint(
        range(stages),
        rule=stage_time,
        doc="waiting takes as long as for every stage: waiting >= (gas - 1) t_j [AMP, section 6.4]",
    )
    model.stage_all_reduce = pyo.Constraint(
        range(stages if len(table.ring) else 0),
        rule=stage_all_reduce,
        doc="the slowest all-reduce takes as long as every stage's: all_reduce >= A_j [reconstructed]",
    )
    # Sum of e: a stage that begins at a layer pays for the cut before it.
    sending = pyo.quicksum(cost(table.cut[start, j]) * model.carries[j, start, end] for j, start, end in arcs if j)
    model.step = pyo.Objective(expr=model.waiting + sending + model.all_reduce)
    is_path = not len(table.ring) and not instance.requirements
    found = Model(model, stages, unit, constant, waits, is_path)
    require(found, VOCABULARY, instance)
    return found


def _arcs(table: Tables, layers: int, stages: int, weight: int, most: float) -> Iterator[Arc]:
    """All stages (j, a, b) with a layer left for each other stage that alone do not cost more than ``most``."""
    for j in range(stages):
        for start in [0] if j == 0 else range(j, layers - stages + j + 1):
            for end in [layers] if j == stages - 1 else range(start + 1, layers - stages + j + 2):
                if _alone(table, weight, j, start, end) > most:
                    break  # longer stages cost no less
                yield j, start, end


def _alone(table: Tables, weight: int, stage: int, start: int, end: int) -> float:
    """What an assignment costs at least, besides the sum of all stages, if this is one of them."""
    syncing = table.ring[stage] * table.held[start, end] if len(table.ring) else 0.0
    cost: float = weight * (table.elapsed[end] - table.elapsed[start]) + table.cut[start, stage] + syncing
    return cost


def _add_path(model: Any, arcs: list[Arc], layers: int, stages: int) -> None:
    """Stage 0 takes one arc, and every later stage begins where the one before it ends."""
    begins: dict[tuple[int, int], list[Any]] = {}
    ends: dict[tuple[int, int], list[Any]] = {}
    for j, start, end in arcs:
        begins.setdefault((j, start), []).append(model.carries[j, start, end])
        ends.setdefault((j, end), []).append(model.carries[j, start, end])
    model.first = pyo.Constraint(
        expr=pyo.quicksum(begins.get((0, 0), [])) == 1,
        doc="stage 0 begins at layer 0: sum over b of carries[0,0,b] = 1",
    )

    def follows(_: Any, j: int, layer: int) -> Any:
        ending, beginning = ends.get((j - 1, layer), []), begins.get((j, layer), [])
        if not ending and not beginning:
            return pyo.Constraint.Skip
        return pyo.quicksum(ending) == pyo.quicksum(beginning)

    borders = [(j, layer) for j in range(1, stages) for layer in range(j, layers - stages + j + 1)]
    model.follows = pyo.Constraint(
        borders,
        rule=follows,
        doc="stage j begins where stage j - 1 ends: sum of carries[j-1,a,l] over a = sum of carries[j,l,b] over b",
    )


def solve(instance: LayerAssignmentInstance, limits: Limits, watch: Watch) -> Answer[LayerPlan]:
    """The best assignment, with a bound less what HiGHS's tolerances may add to it (`milp.trusted`)."""
    infeasible = infeasible_answer(instance)
    if infeasible is not None:
        return infeasible
    first = first_plan(instance, limits)

    def model() -> Model:
        return replace(build(instance, watch), searches=True)

    return prove(instance, model, evaluate, violations, limits, watch, to_scale=True, first=first)
