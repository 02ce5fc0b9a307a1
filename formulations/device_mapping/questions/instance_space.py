"""Small instances for searches: chains of stages on devices with faster and slower links, in whole numbers."""

from collections.abc import Mapping

from formulations.contract.instance_space import UNIFORM_LAYERS, Gene, Genes, Genome, InstanceSpace
from instances.problems.device_mapping import OBJECTIVES, DeviceMapping, MappingEdge, MappingStage


def mining() -> InstanceSpace[DeviceMapping]:
    """The limits, genes and domains of the problem."""
    return InstanceSpace({"nodes": 4, "replicas": 2, "microbatches": 4, "number": 6}, genes, (UNIFORM_LAYERS,))


def genes(limits: Mapping[str, int]) -> Genes[DeviceMapping]:
    """Instances within limits: ``nodes`` are the devices, a byte per second between two of them, or more on an edge."""
    most = limits["number"]
    return Genes(
        limits["nodes"],
        (
            Gene("replicas", limits["replicas"], 1, "replicas"),
            Gene("microbatches", limits["microbatches"], 1, "microbatches"),
            Gene("objective", len(OBJECTIVES) - 1),
        ),
        (Gene("time", most), Gene("parameters", most), Gene("volume", most)),
        (Gene("faster by", most, 1),),
        _build,
    )


def _build(genome: Genome) -> DeviceMapping | None:
    """The first nodes also have the numbers of the stages; ``volume`` is sent to the next stage."""
    replicas, microbatches, objective = genome.whole
    count = len(genome.nodes)
    if count % replicas:
        return None
    own = genome.nodes[: count // replicas]
    bandwidth = [[float(u != v) for v in range(count)] for u in range(count)]
    for u, v, (faster,) in genome.edges:
        bandwidth[u][v] = bandwidth[v][u] = 1.0 + faster
    return DeviceMapping(
        "mined",
        tuple(MappingStage(time, parameters) for time, parameters, _ in own),
        tuple(MappingEdge(stage, stage + 1, volume) for stage, (_, _, volume) in enumerate(own[:-1])),
        replicas,
        tuple(map(tuple, bandwidth)),
        OBJECTIVES[objective],
        microbatches=microbatches,
    )
