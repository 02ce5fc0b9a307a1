"""Layer assignment as a MILP (Pyomo, HiGHS): a path through the layers, one arc for each stage.

``carries[j, a, b]``: stage j takes layers a to b - 1. The arcs know a stage's whole cost, which makes the relaxation
tighter than one about single layers.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from formulations.family import Answer
from formulations.layer_assignment.costs import infeasible_answer, plan_of, tables
from formulations.layer_assignment.problem import LayerPlan, evaluate
from instances.layer_assignment import LayerAssignmentInstance
from solvers import milp
from solvers.outcome import Limits, Watch

#: The sum of all stages in the model's units.
_NATURAL = 1e3

#: HiGHS's tolerances let rows and costs be off by about this much, absolutely and relatively.
_ABSOLUTE, _RELATIVE = 1e-6, 2e-7


@dataclass
class MilpModel:
    """``model.carries[j, a, b]``; the objective is all seconds but the sum of all stages, in units of ``unit``."""

    model: Any
    num_stages: int
    unit: float
    constant: float

    def lengths(self, values: Any) -> list[int]:
        """Layers of each stage in a solution."""
        taken = [arc for arc, variable in self.model.carries.items() if values[variable] > 0.5]
        return [end - start for _, start, end in sorted(taken)]

    def seconds(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return self.constant + max(0.0, bound - _ABSOLUTE - _RELATIVE * abs(bound)) * self.unit


def build(instance: LayerAssignmentInstance) -> MilpModel:
    """The model; its numbers are those of the instance but for their scale."""
    layers, stages = instance.num_layers, instance.num_stages
    table = tables(instance)
    constant = math.fsum(instance.layer_time_s)
    unit = constant / _NATURAL or 1.0
    arcs = [
        (j, start, end)
        for j in range(stages)
        for start in ([0] if j == 0 else range(j, layers - stages + j + 1))
        for end in ([layers] if j == stages - 1 else range(start + 1, layers - stages + j + 2))
    ]
    model = pyo.ConcreteModel()
    model.carries = pyo.Var(arcs, domain=pyo.Binary)
    model.slowest = pyo.Var(domain=pyo.NonNegativeReals)
    model.all_reduce = pyo.Var(domain=pyo.NonNegativeReals)
    _add_path(model, arcs, layers, stages)
    # The slowest stage and the slowest all-reduce are at least those of every stage.
    model.slow = pyo.ConstraintList()
    for j in range(stages):
        own = [arc for arc in arcs if arc[0] == j]
        times = (
            (table.elapsed[end] - table.elapsed[start]) / unit * model.carries[stage, start, end]
            for stage, start, end in own
        )
        model.slow.add(model.slowest >= pyo.quicksum(times))
        if len(table.ring):
            syncs = (
                table.ring[j] * table.held[start, end] / unit * model.carries[stage, start, end]
                for stage, start, end in own
            )
            model.slow.add(model.all_reduce >= pyo.quicksum(syncs))
    sending = pyo.quicksum(table.cut[start, j] / unit * model.carries[j, start, end] for j, start, end in arcs if j)
    model.step = pyo.Objective(expr=(instance.num_microbatches - 1) * model.slowest + sending + model.all_reduce)
    return MilpModel(model, stages, unit, constant)


def _add_path(model: Any, arcs: list[tuple[int, int, int]], layers: int, stages: int) -> None:
    """Stage 0 takes one arc, and every later stage begins where the one before it ends."""
    model.first = pyo.Constraint(expr=pyo.quicksum(model.carries[arc] for arc in arcs if arc[0] == 0) == 1)
    model.path = pyo.ConstraintList()
    begins: dict[tuple[int, int], list[Any]] = {}
    ends: dict[tuple[int, int], list[Any]] = {}
    for j, start, end in arcs:
        begins.setdefault((j, start), []).append(model.carries[j, start, end])
        ends.setdefault((j + 1, end), []).append(model.carries[j, start, end])
    for j in range(1, stages):
        for layer in range(j, layers - stages + j + 1):
            model.path.add(pyo.quicksum(ends[j, layer]) == pyo.quicksum(begins[j, layer]))


def solve(instance: LayerAssignmentInstance, limits: Limits, watch: Watch) -> Answer[LayerPlan]:
    """The best assignment, with a bound some 1e-9 of it below."""
    infeasible = infeasible_answer(instance)
    if infeasible is not None:
        return infeasible
    if watch.stopped():
        return Answer(stop=watch.why())
    built = build(instance)

    def listen(values: Any) -> None:
        plan = plan_of(built.lengths(values))
        watch.plan(plan, evaluate(instance, plan))

    run = milp.run(
        built.model,
        limits,
        watch,
        on_solution=listen,
        on_bound=lambda value: watch.bound(built.seconds(value)),
        options={"mip_feasibility_tolerance": 1e-9},
    )
    if run.values is not None:
        listen(run.values)
    if run.bound is not None:
        watch.bound(built.seconds(run.bound))
    return Answer(watch.best_plan, watch.best_bound, stop=run.stop, solver=run.solver, stats=run.stats)
