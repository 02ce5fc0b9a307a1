"""Operator partitioning for CP-SAT: the assignment model of assignment.py in integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from formulations.family import Answer
from formulations.operator_partitioning import assignment
from formulations.operator_partitioning.assignment import Column
from formulations.operator_partitioning.costs import load_bound
from formulations.operator_partitioning.problem import OperatorPlan, evaluate, violations
from formulations.operator_partitioning.shapes import shortage
from instances.operator_partitioning import OperatorInstance
from solvers import cpsat
from solvers.outcome import Limits, Stop, Watch
from solvers.scaling import Scale, cost_scale, size_scale


@dataclass
class CpsatModel:
    """The model, its Booleans by column, the slowest stage over its replicas (``slowest``), and its unit."""

    model: cp_model.CpModel
    columns: dict[Column, Any]
    slowest: Any
    scale: Scale
    replicas: int
    free: bool

    def chosen(self, values: Any) -> list[Column]:
        """The columns that are 1."""
        return [name for name, variable in self.columns.items() if values[variable]]

    def seconds(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        units = math.ceil(bound - 1e-6) - self.free  # the slowest stage is whole, a load over its replicas need not be
        return max(0.0, self.scale.restore(units) / self.replicas * (1 - 1e-14))


def build(instance: OperatorInstance, lower: float = 0.0) -> CpsatModel:
    """The model; costs are rounded down to units, sizes and limits too. ``lower`` is a bound in seconds."""
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
    replicas = 1 if free else instance.replicas
    terms_each = max((len(load) for load in rows.loads), default=1) + (instance.num_devices or 0)
    top = assignment.largest_load(instance)
    scale = cost_scale(load_bound(instance), terms_each, top * (1 + (instance.num_devices or 0)))
    slowest = model.new_int_var(max(0, scale.floor(lower * replicas * (1 - 1e-9))), scale.ceil(top), "slowest")
    for s, load in enumerate(rows.loads):
        cost = _sum(columns, {name: scale.floor(value) for name, value in load.items()})
        if not free:
            model.add(cost <= slowest)
            continue
        for name, count in assignment.replica_counts(instance, s):
            model.add(cost <= count * slowest).only_enforce_if(columns[name])
    model.minimize(slowest)
    return CpsatModel(model, columns, slowest, scale, replicas, free)


def _sum(columns: dict[Column, Any], terms: dict[Column, int]) -> Any:
    return cp_model.LinearExpr.weighted_sum([columns[name] for name in terms], list(terms.values()))


def solve(instance: OperatorInstance, limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The best plan; the bound is within 1e-7 of it unless 62 bits are too few for the spread of the costs."""
    reason = shortage(instance)
    if reason is not None:
        return Answer(infeasible=True, stop=Stop.PROVED, reason=reason)
    if watch.stopped():
        return Answer(stop=watch.why())
    lower = load_bound(instance)
    built = build(instance, lower)
    broken = False
    while True:
        wrong: list[list[Column]] = []

        def listen(values: Any, wrong: list[list[Column]] = wrong) -> None:
            chosen = built.chosen(values)
            plan = assignment.plan_of(instance, chosen)
            if violations(instance, plan):
                wrong.append([name for name in chosen if name[0] in ("x", "many")])
                return
            watch.plan(plan, evaluate(instance, plan))

        run = cpsat.run(
            built.model,
            limits,
            watch,
            on_solution=listen,
            on_bound=lambda value: watch.bound(max(lower, built.seconds(value))),
        )
        if run.values is not None:
            listen(run.values)
        if not wrong or run.stop is not Stop.PROVED:
            break
        broken = True  # rounded sizes let in what does not fit: forbid it and go on
        for chosen in wrong:
            model_columns = [built.columns[name] for name in chosen]
            built.model.add_bool_or([column.negated() for column in model_columns])
    if run.bound is not None:
        watch.bound(max(lower, built.seconds(run.bound)))
    infeasible = run.infeasible and watch.best_plan is None
    plan, _ = watch.incumbent()
    if run.infeasible and plan is not None:  # everything better was cut off
        watch.bound(watch.best_objective or 0.0)
    return Answer(
        plan,
        None if infeasible else watch.best_bound,
        infeasible=infeasible,
        stop=run.stop,
        solver=run.solver,
        reason="no assignment fits" if infeasible else "",
        stats={**run.stats, **({"cut_off": True} if broken else {})},
    )
