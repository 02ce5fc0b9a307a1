"""From a partition of an operator graph to the device mapping of its stages: the paper's first phase feeds its second.

Source: Parmesan, sections 3 to 5.
"""

import math

from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import ring_seconds, sending_seconds
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import crossing_bytes
from instances.generators.topologies import Matrix
from instances.problems.device_mapping import AUTO, DeviceMapping, MappingEdge, MappingStage, with_objective
from instances.problems.operator_partitioning import OperatorInstance


def mapping_of(operators: OperatorInstance, plan: OperatorPlan, matrix: Matrix, objective: str = AUTO) -> DeviceMapping:
    """The stages of a partition, each with its replicas, on the devices of a matrix of bandwidths.

    Stages compute what their operators compute, hold their parameters, and exchange the tensors between them.

    `ValueError` if stages differ in replicas, or the matrix has not one device for each replica of each stage.
    """
    if len(set(plan.replicas)) != 1:
        raise ValueError(f"replicas are {', '.join(map(str, plan.replicas))}; expected the same for every stage")
    replicas = plan.replicas[0]
    stages = tuple(
        MappingStage(
            math.fsum(operators.operators[each].compute_s for each in members),
            math.fsum(operators.operators[each].parameter_bytes for each in members),
        )
        for members in plan.stages
    )
    if len(matrix) != len(stages) * replicas:
        raise ValueError(f"{len(matrix)} devices for {len(stages)} stages of {replicas} replicas")
    edges = tuple(MappingEdge(*pair, volume) for pair, volume in sorted(crossing_bytes(operators, plan).items()))
    return with_objective(DeviceMapping(operators.name, stages, edges, replicas, matrix), objective)


def step_seconds(instance: DeviceMapping, plan: Mapping) -> float:
    """Predicted seconds of a synchronous training step, whatever the instance's objective is.

    The slowest stage, computing and exchanging tensors, once for every micro-batch and once for every stage to fill;
    then the slowest all-reduce. Source: reconstructed (the paper measures steps).
    """
    slowest = max(
        math.fsum([part.compute_s, *sending_seconds(instance, plan, stage, replica)])
        for stage, part in enumerate(instance.stages)
        for replica in range(instance.replicas)
    )
    reduced = max(ring_seconds(instance, plan, stage) for stage in range(instance.num_stages))
    return (instance.microbatches + instance.num_stages - 1) * slowest + reduced
