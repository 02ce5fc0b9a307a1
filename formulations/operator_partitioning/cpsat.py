"""Operator partitioning for CP-SAT: the assignment model of assignment.py in integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from formulations.family import Answer, infeasible_by_counting
from formulations.modelled import prove
from formulations.operator_partitioning.costs import load_bound
from formulations.operator_partitioning.models import assignment
from formulations.operator_partitioning.models.assignment import Column
from formulations.operator_partitioning.problem import OperatorPlan, evaluate, violations
from formulations.operator_partitioning.shapes import shortage
from instances.operator_partitioning import OperatorInstance
from solvers import cpsat
from solvers.outcome import Limits, Prover, Watch
from solvers.scaling import Scale, cost_scale, size_scale


@dataclass
class CpsatModel(cpsat.Runnable):
    """The model, its Booleans by column, the slowest stage over its replicas (``slowest``), and its unit."""

    instance: OperatorInstance
    model: cp_model.CpModel
    columns: dict[Column, Any]
    slowest: Any
    scale: Scale

    def chosen(self, values: Any) -> list[Column]:
        """The columns that are 1."""
        return [name for name, variable in self.columns.items() if values[variable]]

    def decode(self, values: Any) -> OperatorPlan:
        """The plan of a solution."""
        return assignment.plan_of(self.instance, self.chosen(values))

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        free = self.instance.num_devices is not None
        units = cpsat.whole(bound) - free  # the slowest stage is whole, a load over its replicas need not be
        seconds = self.scale.restore(units) / (1 if free else self.instance.replicas)
        return max(0.0, seconds * (1 - 1e-14))

    def cut_off(self, _plan: OperatorPlan, values: Any) -> None:
        """Not this assignment, nor any as large."""
        row = assignment.smaller(self.instance, self.chosen(values))
        self.model.add(_sum(self.columns, {name: int(factor) for name, factor in row.terms.items()}) <= int(row.limit))


def build(instance: OperatorInstance) -> CpsatModel:
    """The model; costs are rounded down to units, sizes and limits too."""
    rows = assignment.build(instance)
    model = cp_model.CpModel()
    columns = {name: model.new_bool_var("_".join(map(str, name))) for name in rows.columns}
    for choice in rows.choices:
        model.add_exactly_one([columns[name] for name in choice])
    for row in rows.counts:
        model.add(_sum(columns, {name: int(factor) for name, factor in row.terms.items()}) <= int(row.limit))
    for row in rows.sizes:
        sizes = [abs(value) for value in row.terms.values()]
        unit = size_scale([*sizes, row.limit], max(row.limit, max(sizes, default=0.0)), math.fsum(sizes))
        terms = {name: unit.floor(value) for name, value in row.terms.items()}
        model.add(_sum(columns, terms) <= unit.ceil(row.limit))
    free = instance.num_devices is not None
    terms_each = max((len(load) for load in rows.loads), default=1) + (instance.num_devices or 0)
    top = assignment.largest_load(instance)
    scale = cost_scale(load_bound(instance), terms_each, top * (1 + (instance.num_devices or 0)))
    slowest = model.new_int_var(0, scale.ceil(top), "slowest")
    for s, load in enumerate(rows.loads):
        cost = _sum(columns, {name: scale.floor(value) for name, value in load.items()})
        if not free:
            model.add(cost <= slowest)
            continue
        for name, count in assignment.replica_counts(instance, s):
            model.add(cost <= count * slowest).only_enforce_if(columns[name])
    model.minimize(slowest)
    return CpsatModel(instance, model, columns, slowest, scale)


def _sum(columns: dict[Column, Any], terms: dict[Column, int]) -> Any:
    return cp_model.LinearExpr.weighted_sum([columns[name] for name in terms], list(terms.values()))


def solve(instance: OperatorInstance, limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The best plan; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the costs."""
    reason = shortage(instance)
    if reason is not None:
        return infeasible_by_counting(reason)
    lower = load_bound(instance)
    watch.bound(lower, Prover.BOUNDS)
    return prove(instance, lambda: build(instance), evaluate, violations, limits, watch, reason="no assignment fits")
