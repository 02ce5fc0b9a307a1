"""Small models of the backends' entrance exam, written for each backend."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from solvers import BACKENDS
from solvers.outcome import Limits, Run, Watch


@dataclass(frozen=True)
class Linear:
    """Integer variables in [0, upper], rows ``sum <= right`` or ``sum == right``, and perhaps an objective."""

    upper: Sequence[int]
    rows: Sequence[tuple[Sequence[int], str, int]] = ()
    minimise: Sequence[int] | None = None
    constant: int = 0
    maximise: bool = False


def for_cpsat(linear: Linear) -> tuple[Any, list[Any]]:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    variables = [model.new_int_var(0, top, f"x{index}") for index, top in enumerate(linear.upper)]
    for weights, sense, right in linear.rows:
        total = cp_model.LinearExpr.weighted_sum(variables, weights)
        model.add(total <= right if sense == "<=" else total == right)
    if linear.minimise is not None:
        value = cp_model.LinearExpr.weighted_sum(variables, linear.minimise) + linear.constant
        (model.maximize if linear.maximise else model.minimize)(value)
    return model, variables


def for_highs(linear: Linear) -> tuple[Any, list[Any]]:
    import pyomo.environ as pyo

    model = pyo.ConcreteModel()
    model.x = pyo.Var(range(len(linear.upper)), domain=pyo.Integers, bounds=lambda _, index: (0, linear.upper[index]))
    model.rows = pyo.ConstraintList()
    for weights, sense, right in linear.rows:
        total = sum(weight * model.x[index] for index, weight in enumerate(weights))
        model.rows.add(total <= right if sense == "<=" else total == right)
    if linear.minimise is not None:
        value = sum(cost * model.x[index] for index, cost in enumerate(linear.minimise)) + linear.constant
        model.objective = pyo.Objective(expr=value, sense=pyo.maximize if linear.maximise else pyo.minimize)
    return model, list(model.x.values())


WRITTEN = {"cpsat": for_cpsat, "highs": for_highs}

#: Solvers of MILPs that take HiGHS's place; those of Pyomo are examined where they are installed.
EXTERNAL = ("mathopt:gscip", "mathopt:highs", "scip", "cbc", "glpk", "gurobi", "cplex", "xpress")


@dataclass(frozen=True)
class Bench:
    """One backend on the exam's bench."""

    name: str
    solver: str = "highs"

    @property
    def reports_late(self) -> bool:
        """Whether it says nothing before its end."""
        return self.solver not in ("highs", "mathopt:gscip", "scip")

    def run(self, linear: Linear, limits: Limits | None = None, watch: Watch | None = None, **listeners: Any) -> Run:
        return self.solved(linear, limits, watch, **listeners)[0]

    def solved(
        self, linear: Linear, limits: Limits | None = None, watch: Watch | None = None, **listeners: Any
    ) -> tuple[Run, list[Any]]:
        model, variables = WRITTEN[self.name](linear)
        limits = replace(limits or Limits(time_s=20), solver=self.solver)
        return BACKENDS[self.name].load().run(model, limits, watch, **listeners), variables


ITEMS = Linear(upper=[1, 1, 1, 1], rows=[([5, 4, 3, 2], "<=", 9)], minimise=[10, 7, 4, 3], maximise=True)


def market_split(num_rows: int, num_columns: int, slack: bool, seed: int = 5) -> Linear:
    """Equal halves in every row: hopelessly hard to prove, and without slack hard to satisfy at all."""
    random_ = random.Random(seed)
    rows: list[tuple[list[int], str, int]] = []
    slacks = 2 * num_rows if slack else 0
    for row in range(num_rows):
        weights = [random_.randrange(1000) for _ in range(num_columns)]
        extra = [0] * slacks
        if slack:
            extra[2 * row : 2 * row + 2] = [1, -1]
        rows.append((weights + extra, "==", sum(weights) // 2))
    costs = [0] * num_columns + [1] * slacks if slack else None
    return Linear(upper=[1] * num_columns + [10**5] * slacks, rows=rows, minimise=costs)
