"""The knapsack for CP-SAT: one Boolean per option, integer times and sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements, prove
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.problem import evaluate, violations
from formulations.tmpc_knapsack.definition.quantities import VOCABULARY
from formulations.tmpc_knapsack.models.shared import SAYS, KnapsackModel, extra_times, fastest, first_plan, sizes, why
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import Scale, cost_scale, size_scale


@dataclass
class Model(KnapsackModel, cpsat.Runnable):
    """``chosen[v][j]``: node v takes its option j. The objective is extra time in units of ``scale``."""

    instance: KnapsackInstance
    model: cp_model.CpModel
    chosen: list[list[cp_model.IntVar]]
    scale: Scale

    def option(self, node: int, option: int) -> cp_model.IntVar:
        """Whether that option is taken."""
        return self.chosen[node][option]

    def total(self, options: Iterable[tuple[int, int]]) -> Any:
        """How many of these are taken."""
        return sum(self.chosen[v][j] for v, j in options)

    def extra_time(self, bound: float) -> float:
        """Units are whole, so a bound may be rounded up (CP-SAT's may be a hair below an integer)."""
        return self.scale.restore(cpsat.whole(bound))

    def forbid(self, options: list[tuple[int, int]]) -> None:
        """Not every node takes one of these."""
        taken = sum(self.chosen[node][option] for node, option in options)
        self.model.add(taken <= len(self.chosen) - 1).with_name("forbidden")


def build(instance: KnapsackInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model; times are rounded down to units, sizes and the capacity too (exactly where all are integers).

    Times far beyond those of the best plan that the watch knows are not distinguished (`extra_times`), unless
    ``complete``.
    """
    model = cpsat.SpokenModel()
    for name, sentence in SAYS.items():
        model.says(name, sentence)
    chosen = [
        [model.new_bool_var(f"chosen[{v},{j}]") for j in range(len(node.options))]
        for v, node in enumerate(instance.nodes)
    ]
    for v, options in enumerate(chosen):
        model.add_exactly_one(options).with_name(f"one_tmpc[{v}]")
    flat = [variable for options in chosen for variable in options]

    memory, limit = sizes(instance)
    flat_memory = [size for options in memory for size in options]
    unit = size_scale(flat_memory, limit, math.fsum(flat_memory))  # CP-SAT adds up all options of a node
    model.add(
        cp_model.LinearExpr.weighted_sum(flat, [unit.floor(size) for size in flat_memory]) <= unit.floor(limit)
    ).with_name("memory")

    # Least total time ("minimizes the total TPS of the stage"), counted from the fastest options: a lower bound.
    least = fastest(instance)
    known = None if complete or watch is None else watch.best_objective
    extra = [time for times in extra_times(instance, known) for time in times]
    scale = cost_scale(math.fsum(least), len(instance.nodes), math.fsum([*least, *extra]))
    model.minimize(cp_model.LinearExpr.weighted_sum(flat, [scale.floor(time) for time in extra]))
    found = Model(instance, model, chosen, scale)
    add_requirements(found, VOCABULARY, instance)
    return found


def solve(instance: KnapsackInstance, limits: Limits, watch: Watch) -> Answer[KnapsackPlan]:
    """The best choice; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the times."""
    reason, first = why(instance), first_plan(instance, limits)
    return prove(
        instance,
        lambda: build(instance, watch),
        evaluate,
        violations,
        limits,
        watch,
        reason=reason,
        to_scale=True,
        first=first,
    )
