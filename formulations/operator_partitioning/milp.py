"""Operator partitioning as a MILP (Pyomo, HiGHS): the assignment model of assignment.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from formulations.family import Answer, infeasible_by_counting
from formulations.modelled import prove
from formulations.operator_partitioning.models import assignment
from formulations.operator_partitioning.models.assignment import Column, Row
from formulations.operator_partitioning.problem import OperatorPlan, evaluate, violations
from formulations.operator_partitioning.shapes import shortage
from instances.operator_partitioning import OperatorInstance
from solvers import milp
from solvers.outcome import Limits, Watch

#: Room in rows of sizes, in the model's units, for what HiGHS drops; what it lets through is cut off.
_SPARE = 1e-6


@dataclass
class MilpModel(milp.Runnable):
    """``model.chosen[column number]``; the objective is the slowest stage over its replicas in units of ``unit``."""

    instance: OperatorInstance
    model: Any
    names: list[Column]
    unit: float
    replicas: int
    options = milp.TIGHT

    def chosen(self, values: Any) -> list[Column]:
        """The columns that are 1."""
        return [name for number, name in enumerate(self.names) if values[self.model.chosen[number]] > 0.5]

    def decode(self, values: Any) -> OperatorPlan:
        """The plan of a solution."""
        return assignment.plan_of(self.instance, self.chosen(values))

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.trusted(bound, to_scale=True) * self.unit / self.replicas

    def cut_off(self, _plan: OperatorPlan, values: Any) -> None:
        """Not this assignment, which is within the tolerance of a row of sizes, yet too large; nor any as large."""
        numbers = {name: number for number, name in enumerate(self.names)}
        row = assignment.smaller(self.instance, self.chosen(values))
        self.model.rows.add(pyo.quicksum(self.model.chosen[numbers[name]] for name in row.terms) <= row.limit)


def build(instance: OperatorInstance, known: float | None = None) -> MilpModel:
    """The model; its numbers are those of the instance but for their scale. ``known``: the seconds of some plan.

    A load that no plan as fast as the known one has counts as no larger.
    """
    rows = assignment.build(instance)
    names = list(rows.columns)
    place = {name: number for number, name in enumerate(names)}
    free = instance.num_devices is not None
    replicas = 1 if free else instance.replicas
    top = assignment.largest_load(instance)
    unit = (known * replicas if known else top) / milp.NATURAL or 1.0
    if known:
        top = min(top, known * (instance.num_devices or replicas) * (1 + milp.ROOM))
    model = pyo.ConcreteModel()
    model.chosen = pyo.Var(range(len(names)), domain=pyo.Binary)
    model.slowest = pyo.Var(bounds=(0, None))
    model.rows = pyo.ConstraintList()

    def total(terms: Any, scale: float = 1.0) -> Any:
        return pyo.quicksum(value / scale * model.chosen[place[name]] for name, value in terms.items())

    for choice in rows.choices:
        model.rows.add(pyo.quicksum(model.chosen[place[name]] for name in choice) == 1)
    for row in rows.counts:
        model.rows.add(total(row.terms) <= row.limit)
    for row in rows.sizes:
        if any(row.terms.values()):
            scale = _scale(row)
            model.rows.add(total(row.terms, scale) <= row.limit / scale + _SPARE)
    for s, load in enumerate(rows.loads):
        load = {name: min(seconds, 2 * top) for name, seconds in load.items()}
        if not free:
            model.rows.add(total(load, unit) <= model.slowest)
            continue
        for name, count in assignment.replica_counts(instance, s):
            # No load is above the largest one, so without this number of replicas the row says nothing.
            slack = top / unit * (1 - model.chosen[place[name]])
            model.rows.add(total(load, unit) <= count * model.slowest + slack)
    model.objective = pyo.Objective(expr=model.slowest)
    return MilpModel(instance, model, names, unit, replicas)


def _scale(row: Row) -> float:
    return max(abs(value) for value in (*row.terms.values(), row.limit)) / milp.NATURAL or 1.0


def solve(instance: OperatorInstance, limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The best plan, with a bound some 1e-9 of it below."""
    reason = shortage(instance)
    if reason is not None:
        return infeasible_by_counting(reason)

    def model() -> MilpModel:
        return build(instance, watch.best_objective)

    return prove(instance, model, evaluate, violations, limits, watch, reason="no assignment fits", to_scale=True)
