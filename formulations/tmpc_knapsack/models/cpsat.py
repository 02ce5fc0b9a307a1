"""The knapsack for CP-SAT: one Boolean per option, integer times and sizes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.quantities import VOCABULARY
from formulations.tmpc_knapsack.models import shared
from formulations.tmpc_knapsack.models.shared import Data, KnapsackModel, Option, data_of
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import Scale, cost_scale, size_scale


def scaled(data: Data) -> tuple[Data, Scale]:
    """The data in whole units, and the unit of times; times, sizes and the capacity are rounded down.

    Sizes are exact where all are integers.
    """
    sizes, times = data.memory.values(), data.extra.values()
    byte = size_scale(list(sizes), data.limit, math.fsum(sizes))  # CP-SAT adds up all options of a node
    scale = cost_scale(data.fastest, len(data.options), math.fsum([data.fastest, *times]))
    memory = {option: byte.floor(size) for option, size in data.memory.items()}
    extra = {option: scale.floor(time) for option, time in data.extra.items()}
    return replace(data, memory=memory, limit=byte.floor(data.limit), extra=extra), scale


def build(data: Data) -> cpsat.SpokenModel:
    """The knapsack of a stage: Piper, section 4, "The knapsack subproblem"."""
    model = cpsat.SpokenModel()
    chosen = model.booleans("chosen", data.extra, "chosen[v,j]: node v takes its option j")

    def total(amounts: Mapping[Option, float]) -> Any:
        return cpsat.weighted_sum((int(amount), chosen[option]) for option, amount in amounts.items())

    # fmt: off
    model.rows("one_tmpc", range(len(data.options)),
        lambda v: model.add_exactly_one(chosen[option] for option in data.options[v]),
        'a node takes exactly one TMPC: "choose one TMPC X in T(v, t) for each v in S": sum over j of chosen[v,j] = 1 '
        "[Piper, section 4]")
    model.row("memory", total(data.memory) <= int(data.limit),
        'total memory is within the capacity: "staying under the memory limit M": sum over v, j of memory(v,j) '
        "chosen[v,j] <= M [Piper, section 4]")
    model.says("forbidden", "what has more bytes than fit, which only rounding or tolerances admitted, is cut off")
    # fmt: on
    # Least total time ("minimizes the total TPS of the stage"), counted from the fastest options: a lower bound.
    model.minimize(total(data.extra))
    return model


@dataclass
class Model(KnapsackModel, cpsat.Runnable):
    """The objective is extra time in units of ``scale``."""

    instance: KnapsackInstance
    model: cpsat.SpokenModel
    scale: Scale
    weighted_sum = staticmethod(cpsat.weighted_sum)

    def __post_init__(self) -> None:
        self.chosen = self.model.variables["chosen"]

    def extra_time(self, bound: float) -> float:
        """Units are whole, so a bound may be rounded up (CP-SAT's may be a hair below an integer)."""
        return self.scale.restore(cpsat.whole(bound))


def model_of(instance: KnapsackInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements."""
    data, scale = scaled(data_of(instance, watch or Watch(), complete=complete))
    return add_requirements(Model(instance, build(data), scale), VOCABULARY, instance)


def solve(instance: KnapsackInstance, limits: Limits, watch: Watch) -> Answer[KnapsackPlan]:
    """The best choice; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the times."""
    return shared.solve(model_of, instance, limits, watch)
