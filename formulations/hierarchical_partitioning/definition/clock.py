"""A pipeline that never runs empty, or one batch under 1F1B."""

from formulations.contract.clock import Clock
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.definition.problem import (
    flatten,
    gradient_time,
    replica_times,
    superstage_times,
)
from formulations.stage_partitioning.definition.batch import iteration
from instances.problems.hierarchical_partitioning import HierarchicalInstance, Objective


def clock(instance: HierarchicalInstance, plan: HierarchicalPlan) -> Clock:
    """A steady state beside one batch of all micro-batches, whichever is the objective."""

    def simulate() -> float | None:
        steps = replica_times(instance, plan)
        return iteration(instance.flat, flatten(plan), "1f1b", gradient_time(instance, plan), steps)

    m, is_simulated = instance.flat.num_microbatches, instance.objective is Objective.ITERATION
    steady_s = max(superstage_times(instance, plan)) * m * (1e-3 if instance.flat.time_unit == "ms" else 1.0)
    other = Objective.STEADY if is_simulated else Objective.ITERATION
    return Clock("iteration" if is_simulated else "steady", "1f1b", m, simulate, steady_s, f"--objective {other}")
