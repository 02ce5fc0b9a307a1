"""Small instances for searches: graphs of operators for devices with faster and slower links, in whole numbers."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from formulations.contract.instance_space import UNIFORM_LAYERS, Gene, Genes, Genome, InstanceSpace, positive_times
from instances.problems.device_mapping import OBJECTIVES
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor
from instances.problems.pipeline_placement import PlacementInstance

#: What of the whole comes before the links.
_STAGES, _REPLICAS, _OBJECTIVE, _LINKS = range(4)


def mining() -> InstanceSpace[PlacementInstance]:
    """The limits, genes and domains of the problem."""
    limits = {"nodes": 5, "stages": 2, "replicas": 2, "number": 6}
    return InstanceSpace(limits, genes, (positive_times(0), UNIFORM_LAYERS))


def genes(limits: Mapping[str, int]) -> Genes[PlacementInstance]:
    """Instances within limits: ``nodes`` are operators, each link has a byte per second or more.

    The objective is one of the mapping's that the joint methods minimise; the flat network has one byte per second.
    """
    most = limits["number"]
    links = _links(limits["stages"] * limits["replicas"])
    return Genes(
        limits["nodes"],
        (
            Gene("stages", limits["stages"], 1, "stages"),
            Gene("replicas", limits["replicas"], 1, "replicas"),
            Gene("objective", len(OBJECTIVES) - 1),
            *(Gene(f"link {u} {v}", max(most, 1), 1) for u, v in links),
        ),
        (Gene("time", most), Gene("parameters", most)),
        (Gene("bytes", most),),
        _build,
        _tidy,
    )


def _links(devices: int) -> list[tuple[int, int]]:
    """Pairs of devices, those of few devices first."""
    return sorted(combinations(range(devices), 2), key=lambda pair: (pair[1], pair[0]))


def _tidy(genome: Genome) -> Genome:
    """Links of devices that there are not are at their least."""
    devices = genome.whole[_STAGES] * genome.whole[_REPLICAS]
    used = _LINKS + len(_links(devices))
    return replace(genome, whole=(*genome.whole[:used], *(1 for _ in genome.whole[used:])))


def _build(genome: Genome) -> PlacementInstance | None:
    """``None`` where there are fewer operators than stages."""
    stages, replicas, objective = genome.whole[:_LINKS]
    if len(genome.nodes) < stages:
        return None
    operators = tuple(Operator(number, time, size) for number, (time, size) in enumerate(genome.nodes))
    tensors = tuple(Tensor(u, (v,), size) for u, v, (size,) in genome.edges)
    graph = OperatorInstance("mined", operators, tensors, stages, replicas, bandwidth_bytes_per_s=1.0)
    bandwidth = [[0.0] * (stages * replicas) for _ in range(stages * replicas)]
    for (u, v), speed in zip(_links(stages * replicas), genome.whole[_LINKS:], strict=False):
        bandwidth[u][v] = bandwidth[v][u] = float(speed)
    return PlacementInstance(graph, tuple(map(tuple, bandwidth)), OBJECTIVES[objective])
