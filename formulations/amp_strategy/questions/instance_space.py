"""Small instances for searches: chains of layers on a few machines of one kind, in whole numbers."""

from collections.abc import Mapping

from formulations.contract.instance_space import UNIFORM_LAYERS, Gene, Genes, Genome, InstanceSpace, positive_times
from instances.problems.amp_strategy import AmpInstance, ModelLayer, Node


def mining() -> InstanceSpace[AmpInstance]:
    """The limits, genes and domains of the problem."""
    return InstanceSpace(
        {"nodes": 5, "machines": 2, "devices": 2, "batch": 8, "number": 6},
        genes,
        (positive_times(0, 1), UNIFORM_LAYERS),
    )


def genes(limits: Mapping[str, int]) -> Genes[AmpInstance]:
    """Instances within limits: ``devices`` for each of the ``machines``, times at tensor-parallel degrees 1 and 2.

    The batch is a power of two, at most ``batch``.
    """
    most = limits["number"]
    return Genes(
        limits["nodes"],
        (
            Gene("machines", limits["machines"], 1, "machines"),
            Gene("devices", limits["devices"], 1, "devices"),
            Gene("doublings", limits["batch"].bit_length() - 1, counts="doublings of the batch"),
            Gene("inside", most, 1),
            Gene("between", most, 1),
        ),
        (Gene("time", most), Gene("time at t = 2", most), Gene("activation", most), Gene("parameters", most)),
        None,
        _build,
    )


def _build(genome: Genome) -> AmpInstance:
    machines, devices, doublings, inside, between = genome.whole
    layers = tuple(
        ModelLayer({"gpu": {1: one, 2: two}}, activation, parameters)
        for one, two, activation, parameters in genome.nodes
    )
    return AmpInstance("mined", (Node("gpu", inside, between),) * machines, devices, layers, 2**doublings)
