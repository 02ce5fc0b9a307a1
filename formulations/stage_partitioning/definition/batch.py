"""One batch of a plan on the clock of a trainer: fixed orders on every replica, weights synchronised after them.

Tensors between stages are part of their passes, as in Piper's cost model, and a backward pass takes two thirds.
Source: the event model is Narayanan et al. 2021, section 2.2 (docs/the-clock.md); the shares are reconstructed.
"""

import math
from collections.abc import Sequence

from formulations.contract.clock import MOST_COMPILED
from formulations.simulation.iteration import Iteration, Stages, simulate
from formulations.simulation.one_batch import end_of_batch
from formulations.simulation.orders import replicated
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import time_terms
from instances.problems.stage_partitioning import StageInstance


def step_time(instance: StageInstance, stage: Stage) -> float:
    """Compute and communication of a stage per micro-batch, shared by its d replicas."""
    terms = time_terms(instance, stage)
    return math.fsum((*terms["compute"], *terms["transfer"]))


def gradient_bytes(instance: StageInstance, stage: Stage) -> float:
    """Bytes that each replica of a stage sends and gets to sum its gradients once: 4 (d-1)/d W (Piper, section 4)."""
    weights = [
        x.weight_bytes
        for node in stage.nodes
        for x in instance.layers[instance.index[node]].tmpcs[stage.tp_degree]
        if x.id == stage.tmpcs[node]
    ]
    return 4 * (stage.dp_degree - 1) / stage.dp_degree * math.fsum(weights)


def replica_times(instance: StageInstance, plan: StagePlan) -> list[float]:
    """Of every stage what a replica computes and sends for one micro-batch."""
    return [step_time(instance, stage) * stage.dp_degree for stage in plan.stages]


def stage_edges(instance: StageInstance, plan: StagePlan) -> set[tuple[int, int]]:
    """Which stages hand a tensor to which; edges that run backwards or leave the plan are left out."""
    stage_of = {node: position for position, stage in enumerate(plan.stages) for node in stage.nodes}
    pairs = {(stage_of.get(edge.source), stage_of.get(edge.target)) for edge in instance.edges}
    return {(s, t) for s, t in pairs if s is not None and t is not None and s < t}


def simulated(
    instance: StageInstance,
    plan: StagePlan,
    schedule: str,
    num_microbatches: int,
    *,
    all_replicas: bool = True,
    steps: Sequence[float] | None = None,
) -> Iteration:
    """So many micro-batches in the order of GPipe or 1F1B (`simulation.orders.replicated`).

    A replica of each stage takes ``steps`` for one, or what it computes and sends on the instance's network.
    """
    steps = steps or replica_times(instance, plan)
    forward, backward = (tuple(step * share for step in steps) for share in (1 / 3, 2 / 3))
    degrees = [stage.dp_degree for stage in plan.stages]
    orders = replicated(schedule, degrees, num_microbatches, all_replicas=all_replicas)
    return simulate(Stages(forward, backward, tuple(sorted(stage_edges(instance, plan)))), orders)


def iteration(
    instance: StageInstance, plan: StagePlan, schedule: str, gradients: float, steps: Sequence[float] | None = None
) -> float | None:
    """Seconds of a batch, with ``gradients`` of the instance's time units after it; ``None``: too many actions."""
    m, degrees = instance.num_microbatches, [stage.dp_degree for stage in plan.stages]
    if 2 * len(degrees) * m > MOST_COMPILED:
        return None
    end = end_of_batch(schedule, degrees, m, stage_edges(instance, plan), steps or replica_times(instance, plan))
    return (end + gradients) * (1e-3 if instance.time_unit == "ms" else 1.0)
