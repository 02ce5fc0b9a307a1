"""The knapsack for CP-SAT: one Boolean per option, integer times and sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.quantities import VOCABULARY
from formulations.tmpc_knapsack.models import shared
from formulations.tmpc_knapsack.models.shared import SAYS, Data, KnapsackModel, data_of
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


def build(data: Data) -> tuple[cpsat.SpokenModel, list[list[cp_model.IntVar]], Scale]:
    """The model, ``chosen``, and the unit of times; these are rounded down, as are sizes and the capacity.

    Sizes are exact where all are integers.
    """
    model = cpsat.SpokenModel()
    for name, sentence in SAYS.items():
        model.says(name, sentence)
    chosen = [[model.new_bool_var(f"chosen[{v},{j}]") for j in range(len(times))] for v, times in enumerate(data.extra)]
    for v, options in enumerate(chosen):
        model.add_exactly_one(options).with_name(f"one_tmpc[{v}]")
    flat, memory, extra = (list(chain.from_iterable(each)) for each in (chosen, data.memory, data.extra))
    unit = size_scale(memory, data.limit, math.fsum(memory))  # CP-SAT adds up all options of a node
    held = cp_model.LinearExpr.weighted_sum(flat, [unit.floor(size) for size in memory])
    model.add(held <= unit.floor(data.limit)).with_name("memory")

    # Least total time ("minimizes the total TPS of the stage"), counted from the fastest options: a lower bound.
    scale = cost_scale(math.fsum(data.fastest), len(chosen), math.fsum([*data.fastest, *extra]))
    model.minimize(cp_model.LinearExpr.weighted_sum(flat, [scale.floor(time) for time in extra]))
    return model, chosen, scale


def model_of(instance: KnapsackInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements."""
    data = data_of(instance, watch or Watch(), complete=complete)
    return add_requirements(Model(instance, *build(data)), VOCABULARY, instance)


def solve(instance: KnapsackInstance, limits: Limits, watch: Watch) -> Answer[KnapsackPlan]:
    """The best choice; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the times."""
    return shared.solve(model_of, instance, limits, watch)
