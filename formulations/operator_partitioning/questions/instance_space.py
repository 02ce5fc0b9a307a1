"""Small instances for searches: graphs of operators for a given number of stages, in whole numbers."""

from collections.abc import Mapping

from formulations.contract.instance_space import UNIFORM_LAYERS, Gene, Genes, Genome, InstanceSpace, positive_times
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor


def mining() -> InstanceSpace[OperatorInstance]:
    """The limits, genes and domains of the problem."""
    return InstanceSpace({"nodes": 8, "stages": 3, "number": 6}, genes, (positive_times(0), UNIFORM_LAYERS))


def genes(limits: Mapping[str, int]) -> Genes[OperatorInstance]:
    """Instances within limits: a tensor for each edge, links of a byte per second, memory for everything."""
    most = limits["number"]
    stages = Gene("stages", limits["stages"], 1, "stages")
    return Genes(limits["nodes"], (stages,), (Gene("time", most),), (Gene("bytes", most),), _build)


def _build(genome: Genome) -> OperatorInstance:
    (stages,) = genome.whole
    operators = tuple(Operator(number, time) for number, (time,) in enumerate(genome.nodes))
    tensors = tuple(Tensor(u, (v,), size) for u, v, (size,) in genome.edges)
    return OperatorInstance("mined", operators, tensors, stages, bandwidth_bytes_per_s=1)
