"""The knapsack for a MILP solver: one binary per option, times and sizes scaled to natural size."""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements, prove
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.problem import evaluate, violations
from formulations.tmpc_knapsack.definition.quantities import VOCABULARY
from formulations.tmpc_knapsack.models.shared import SAYS, KnapsackModel, extra_times, first_plan, sizes, why
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.milp import backend as milp
from solvers.outcome import Limits, Watch

#: The capacity, and the largest extra time, in the model's units.
_NATURAL = 1e6


@dataclass
class Model(KnapsackModel, milp.Runnable):
    """``model.chosen[v, j]``: node v takes its option j. The objective is extra time in units of ``unit``."""

    instance: KnapsackInstance
    model: Any
    unit: float

    def option(self, node: int, option: int) -> Any:
        """Whether that option is taken."""
        return self.model.chosen[node, option]

    def total(self, options: Iterable[tuple[int, int]]) -> Any:
        """How many of these are taken."""
        return milp.weighted_sum((1, self.model.chosen[pair]) for pair in options)

    def extra_time(self, bound: float) -> float:
        """A bound less HiGHS's tolerance."""
        return milp.trusted(bound) * self.unit

    def forbid(self, options: list[tuple[int, int]]) -> None:
        """Not every node takes one of these."""
        self.model.forbidden.add(sum(self.model.chosen[pair] for pair in options) <= len(self.instance.nodes) - 1)


def build(instance: KnapsackInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model; the numbers are those of the instance but for their scale.

    Times far beyond those of the best plan that the watch knows are not distinguished (`extra_times`), unless
    ``complete``.
    """
    memory, limit = sizes(instance)
    known = None if complete or watch is None else watch.best_objective
    extra = {(v, j): time for v, times in enumerate(extra_times(instance, known)) for j, time in enumerate(times)}
    byte = _NATURAL / limit if limit > 0 else _NATURAL
    unit = max([*extra.values(), 0.0]) / _NATURAL or 1.0

    model = pyo.ConcreteModel()
    model.chosen = pyo.Var(list(extra), domain=pyo.Binary, doc=SAYS["chosen"])
    model.one_tmpc = pyo.Constraint(
        range(len(instance.nodes)),
        rule=lambda m, v: pyo.quicksum(m.chosen[v, j] for j in range(len(instance.nodes[v].options))) == 1,
        doc=SAYS["one_tmpc"],
    )
    if extra:
        model.memory = pyo.Constraint(
            expr=pyo.quicksum(memory[v][j] * byte * model.chosen[v, j] for v, j in extra) <= limit * byte,
            doc=SAYS["memory"],
        )
    model.forbidden = pyo.ConstraintList(doc=SAYS["forbidden"])
    # Least total time ("minimizes the total TPS of the stage"), counted from the fastest options.
    model.time = pyo.Objective(expr=pyo.quicksum(time / unit * model.chosen[pair] for pair, time in extra.items()))
    found = Model(instance, model, unit)
    add_requirements(found, VOCABULARY, instance)
    return found


def solve(instance: KnapsackInstance, limits: Limits, watch: Watch) -> Answer[KnapsackPlan]:
    """The best choice; the bound gives up what HiGHS's tolerances may add (`milp.trusted`)."""
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
