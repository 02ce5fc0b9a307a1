"""Piper's objective is that of a pipeline that never runs empty; an iteration is one batch under 1F1B."""

from formulations.contract.clock import Clock
from formulations.stage_partitioning.definition.batch import gradient_bytes, iteration
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import evaluate
from instances.problems.stage_partitioning import StageInstance


def clock(instance: StageInstance, plan: StagePlan) -> Clock:
    """A steady state beside one batch of all micro-batches."""

    def simulate() -> float | None:
        longest = max(gradient_bytes(instance, stage) for stage in plan.stages) / instance.bandwidth
        return iteration(instance, plan, "1f1b", longest)

    m = instance.num_microbatches
    by_formula = evaluate(instance, plan) * m * (1e-3 if instance.time_unit == "ms" else 1.0)
    other = "" if instance.exactly else "--problem flushed_partitioning"
    return Clock("steady", "1f1b", m, simulate, by_formula, other)
