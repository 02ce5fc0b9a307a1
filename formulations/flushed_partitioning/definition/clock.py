"""The objective is a formula of a batch, or the batch in the fixed order of its schedule."""

from typing import Literal

from formulations.contract.clock import Clock
from formulations.flushed_partitioning.definition.problem import formula_time, synchronisation_times
from formulations.stage_partitioning.definition.batch import iteration
from formulations.stage_partitioning.definition.plan import StagePlan
from instances.problems.flushed_partitioning import FlushedInstance, Objective


def clock(instance: FlushedInstance, plan: StagePlan) -> Clock:
    """The formula beside the simulated batch, whichever is the objective."""
    m = instance.flat.num_microbatches

    def simulate() -> float | None:
        longest = max(synchronisation_times(instance, plan))
        return iteration(instance.flat, plan, instance.schedule, longest * m)

    kind: Literal["formula", "iteration"] = "iteration" if instance.objective is Objective.ITERATION else "formula"
    other = Objective.FORMULA if instance.objective is Objective.ITERATION else Objective.ITERATION
    by_formula = formula_time(instance, plan) * m * (1e-3 if instance.flat.time_unit == "ms" else 1.0)
    return Clock(kind, str(instance.schedule), m, simulate, by_formula, f"--objective {other}")
