"""The knapsack for a MILP solver: one binary per option, times and sizes scaled to natural size."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.quantities import VOCABULARY
from formulations.tmpc_knapsack.models import shared
from formulations.tmpc_knapsack.models.shared import Data, KnapsackModel, Option, data_of
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.milp import backend as milp
from solvers.outcome import Limits, Watch

#: The capacity, and the largest extra time, in the model's units.
_NATURAL = 1e6


def scaled(data: Data) -> tuple[Data, float]:
    """The data in the model's units, and the unit of its times."""
    byte = _NATURAL / data.limit if data.limit > 0 else _NATURAL
    unit = max([*data.extra.values(), 0.0]) / _NATURAL or 1.0
    memory = {option: size * byte for option, size in data.memory.items()}
    extra = {option: time / unit for option, time in data.extra.items()}
    return replace(data, memory=memory, limit=data.limit * byte, extra=extra), unit


def build(data: Data) -> Any:
    """The knapsack of a stage: Piper, section 4, "The knapsack subproblem"."""
    model = pyo.ConcreteModel()
    model.chosen = pyo.Var(list(data.extra), domain=pyo.Binary, doc="chosen[v,j]: node v takes its option j")

    def total(amounts: Mapping[Option, float]) -> Any:
        return milp.weighted_sum((amount, model.chosen[option]) for option, amount in amounts.items())

    # fmt: off
    model.one_tmpc = pyo.Constraint(range(len(data.options)),
        rule=lambda m, v: pyo.quicksum(m.chosen[option] for option in data.options[v]) == 1,
        doc='a node takes exactly one TMPC: "choose one TMPC X in T(v, t) for each v in S": sum over j of chosen[v,j] '
        "= 1 [Piper, section 4]")
    model.memory = pyo.Constraint(expr=total(data.memory) <= data.limit,
        doc='total memory is within the capacity: "staying under the memory limit M": sum over v, j of memory(v,j) '
        "chosen[v,j] <= M [Piper, section 4]")
    model.forbidden = pyo.Constraint(pyo.Any,
        doc="what has more bytes than fit, which only rounding or tolerances admitted, is cut off")
    # fmt: on
    # Least total time ("minimizes the total TPS of the stage"), counted from the fastest options.
    model.time = pyo.Objective(expr=total(data.extra))
    return model


@dataclass
class Model(KnapsackModel, milp.Runnable):
    """The objective is extra time in units of ``unit``."""

    instance: KnapsackInstance
    model: Any
    unit: float
    weighted_sum = staticmethod(milp.weighted_sum)

    def __post_init__(self) -> None:
        self.chosen = dict(self.model.chosen.items())

    def extra_time(self, bound: float) -> float:
        """A bound less HiGHS's tolerance."""
        return milp.proved_bound(bound) * self.unit


def model_of(instance: KnapsackInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements."""
    data, unit = scaled(data_of(instance, watch or Watch(), complete=complete))
    return add_requirements(Model(instance, build(data), unit), VOCABULARY, instance)


def solve(instance: KnapsackInstance, limits: Limits, watch: Watch) -> Answer[KnapsackPlan]:
    """The best choice; the bound gives up what HiGHS's tolerances may add (`milp.proved_bound`)."""
    return shared.solve(model_of, instance, limits, watch)
