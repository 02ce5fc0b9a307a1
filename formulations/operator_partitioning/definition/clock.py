"""Stages of a given number are those of a pipeline that never runs empty, unless it is flushed; a step is a formula."""

from formulations.contract.clock import MOST_COMPILED, Clock
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import (
    all_reduce_seconds,
    crossing_bytes,
    microbatches_each,
    stage_seconds,
)
from formulations.simulation.one_batch import end_of_batch
from instances.problems.operator_partitioning import OperatorInstance


def clock(instance: OperatorInstance, plan: OperatorPlan) -> Clock:
    """The slowest stage, or a step by its formula, beside the simulated step of one replica and its all-reduce.

    Backward passes take two thirds, and tensors are part of both. Not simulated: instances that do not say how many
    micro-batches a step has, and plans whose stages have different numbers of replicas, for which no order is known.
    """
    training, replicas = instance.training, plan.replicas[0]
    schedule = "1f1b" if training is None else training.schedule
    is_step = instance.objective == "step"
    stated = None if training is None else training.microbatches  # of each replica
    each = microbatches_each(instance, replicas) if is_step else stated

    def run() -> float | None:
        if each is None or set(plan.replicas) != {replicas} or 2 * len(plan.stages) * each > MOST_COMPILED:
            return None
        degrees, seconds = [1] * len(plan.stages), stage_seconds(instance, plan)
        end = end_of_batch(schedule, degrees, each, crossing_bytes(instance, plan), seconds)
        return end + max(all_reduce_seconds(instance, members, replicas) for members in plan.stages)

    return Clock("formula" if is_step else "steady", schedule, instance.step_microbatches if is_step else each, run)
