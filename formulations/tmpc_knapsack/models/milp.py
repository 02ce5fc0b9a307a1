"""The knapsack for a MILP solver: one binary per option, times and sizes scaled to natural size."""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.quantities import VOCABULARY
from formulations.tmpc_knapsack.models import shared
from formulations.tmpc_knapsack.models.shared import SAYS, Data, KnapsackModel, data_of
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
        return milp.proved_bound(bound) * self.unit

    def forbid(self, options: list[tuple[int, int]]) -> None:
        """Not every node takes one of these."""
        self.model.forbidden.add(sum(self.model.chosen[pair] for pair in options) <= len(self.instance.nodes) - 1)


def build(data: Data) -> tuple[Any, float]:
    """The model, and its unit of times; the numbers are those of the data but for their scale."""
    extra = {(v, j): time for v, times in enumerate(data.extra) for j, time in enumerate(times)}
    byte = _NATURAL / data.limit if data.limit > 0 else _NATURAL
    unit = max([*extra.values(), 0.0]) / _NATURAL or 1.0

    model = pyo.ConcreteModel()
    model.chosen = pyo.Var(list(extra), domain=pyo.Binary, doc=SAYS["chosen"])
    model.one_tmpc = pyo.Constraint(
        range(len(data.extra)),
        rule=lambda m, v: pyo.quicksum(m.chosen[v, j] for j in range(len(data.extra[v]))) == 1,
        doc=SAYS["one_tmpc"],
    )
    if extra:
        held = pyo.quicksum(data.memory[v][j] * byte * model.chosen[v, j] for v, j in extra)
        model.memory = pyo.Constraint(expr=held <= data.limit * byte, doc=SAYS["memory"])
    model.forbidden = pyo.ConstraintList(doc=SAYS["forbidden"])
    # Least total time ("minimizes the total TPS of the stage"), counted from the fastest options.
    model.time = pyo.Objective(expr=pyo.quicksum(time / unit * model.chosen[pair] for pair, time in extra.items()))
    return model, unit


def model_of(instance: KnapsackInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements."""
    data = data_of(instance, watch or Watch(), complete=complete)
    return add_requirements(Model(instance, *build(data)), VOCABULARY, instance)


def solve(instance: KnapsackInstance, limits: Limits, watch: Watch) -> Answer[KnapsackPlan]:
    """The best choice; the bound gives up what HiGHS's tolerances may add (`milp.proved_bound`)."""
    return shared.solve(model_of, instance, limits, watch)
