"""Small instances for searches: chains of layers with the cost of a cut behind each, in whole numbers."""

from collections.abc import Mapping

from formulations.contract.instance_space import UNIFORM_LAYERS, Gene, Genes, Genome, InstanceSpace, positive_times
from instances.problems.layer_assignment import LayerAssignmentInstance


def mining() -> InstanceSpace[LayerAssignmentInstance]:
    """The limits, genes and domains of the problem."""
    limits = {"nodes": 6, "stages": 3, "microbatches": 4, "ring": 0, "number": 6}
    return InstanceSpace(limits, genes, (positive_times(0), UNIFORM_LAYERS))


def genes(limits: Mapping[str, int]) -> Genes[LayerAssignmentInstance]:
    """Instances within limits; with ``ring``, seconds of all-reduce for each parameter, layers have parameters."""
    most = limits["number"]
    return Genes(
        limits["nodes"],
        (
            Gene("stages", limits["stages"], 1, "stages"),
            Gene("microbatches", limits["microbatches"], 1, "microbatches"),
            Gene("ring", limits["ring"]),
        ),
        (Gene("time", most), Gene("cut", most), Gene("parameters", most if limits["ring"] else 0)),
        None,
        _build,
    )


def _build(genome: Genome) -> LayerAssignmentInstance:
    """The cost of a cut behind the last layer plays no part."""
    stages, microbatches, ring = genome.whole
    times, cuts, parameters = zip(*genome.nodes, strict=True)
    return LayerAssignmentInstance(
        "mined",
        times,
        tuple((cut,) for cut in cuts[:-1]),
        stages,
        microbatches,
        parameters=parameters if ring else (),
        ring_s_per_parameter=(ring,) if ring else (),
    )
