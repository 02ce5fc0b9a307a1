"""From the first phase to the second: the stage graph of a plan, to be mapped onto devices with unequal links.

Source: Parmesan, sections 4 and 5: G_S with computation and parameters of each stage, and volumes between stages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from formulations.operator_partitioning.problem import OperatorPlan, crossing_bytes
from instances.device_mapping import AUTO, DeviceMapping, MappingEdge, MappingStage, with_objective
from instances.operator_partitioning import OperatorInstance, TrainingMemory


def to_device_mapping(
    instance: OperatorInstance,
    plan: OperatorPlan,
    bandwidth_bytes_per_s: Sequence[Sequence[float]],
    objective: str = AUTO,
    ring: str = "index",
) -> DeviceMapping:
    """The mapping problem that a plan leaves: its stages, each with the plan's replicas, on these links.

    Computation is of one micro-batch on one replica, so it is not divided by replicas; volumes are both ways.

    Parameters
    ----------
    bandwidth_bytes_per_s
        Shape (S R, S R), symmetric and positive off the diagonal.
    objective, ring
        As for device mapping (``auto``: the paper's ratio rule).

    Raises
    ------
    ValueError
        If stages differ in replicas, or there is not a device for every replica of every stage.
    """
    counts = set(plan.replicas)
    if len(counts) != 1:
        raise ValueError(f"replicas are {', '.join(map(str, plan.replicas))}; expected the same for every stage")
    replicas, devices = counts.pop(), len(bandwidth_bytes_per_s)
    if devices != replicas * len(plan.stages):
        raise ValueError(f"{devices} devices; expected {len(plan.stages)} stages times {replicas} replicas")
    operators = instance.operators
    stages = tuple(
        MappingStage(
            math.fsum(operators[each].compute_s for each in members),
            math.fsum(operators[each].parameter_bytes for each in members),
        )
        for members in plan.stages
    )
    edges = tuple(MappingEdge(a, b, volume) for (a, b), volume in sorted(crossing_bytes(instance, plan).items()))
    matrix = tuple(tuple(float(value) for value in row) for row in bandwidth_bytes_per_s)
    training = instance.training or TrainingMemory()
    problem = DeviceMapping(
        f"{instance.name}-{len(stages)}x{replicas}",
        stages,
        edges,
        replicas,
        matrix,
        ring=ring,
        microbatches=training.microbatches,
    )
    return with_objective(problem, objective)
