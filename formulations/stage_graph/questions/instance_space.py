"""Small instances for searches: graphs of operators on identical devices, in whole numbers."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from random import Random

from formulations.contract.instance_space import UNIFORM_LAYERS, Gene, Genes, Genome, InstanceSpace, positive_times
from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph

#: Copies of the weights that the instances hold (`StageGraph.weight_copies`).
_COPIES = 4


def mining() -> InstanceSpace[StageGraph]:
    """The limits, genes and domains of the problem."""
    return InstanceSpace(
        {"nodes": 6, "devices": 4, "batch": 8, "number": 6}, genes, (positive_times(0), UNIFORM_LAYERS)
    )


def genes(limits: Mapping[str, int]) -> Genes[StageGraph]:
    """Instances within limits: links of a byte per second, backward passes that take twice as long as forward ones.

    The mini-batch is a power of two, at most ``batch``.
    """
    most = limits["number"]
    memory = most * limits["nodes"] * (limits["batch"] + _COPIES)
    return Genes(
        limits["nodes"],
        (
            Gene("devices", limits["devices"], 1, "devices"),
            Gene("doublings", limits["batch"].bit_length() - 1, counts="doublings of the batch"),
            Gene("memory", memory),
        ),
        (Gene("time", most), Gene("weight", most), Gene("activation", most)),
        (Gene("bytes", most),),
        _build,
        plant=partial(_plant, memory),
    )


def _plant(most: int, genome: Genome, rng: Random) -> Genome:
    """Memory for everything, or for some of the operators with one sample or more in flight."""
    devices, doublings, _ = genome.whole
    in_flight = rng.randint(1, 2**doublings)
    held = [_COPIES * weight + in_flight * activation for _, weight, activation in genome.nodes if rng.random() < 0.7]
    memory = most if rng.random() < 0.5 else min(most, sum(held))
    return replace(genome, whole=(devices, doublings, memory))


def _build(genome: Genome) -> StageGraph:
    devices, doublings, memory = genome.whole
    operators = tuple(
        Operator(str(number), AffineTime(0, time), AffineTime(0, 2 * time), weight, activation)
        for number, (time, weight, activation) in enumerate(genome.nodes)
    )
    edges = tuple(OperatorEdge(u, v, size) for u, v, (size,) in genome.edges)
    return StageGraph("mined", operators, edges, devices, memory, 1, 0, 2**doublings, weight_copies=_COPIES)
