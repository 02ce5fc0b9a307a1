"""Small instances for searches: graphs of stages whose passes take whole numbers of seconds."""

from collections.abc import Mapping

from formulations.contract.instance_space import UNIFORM_LAYERS, Gene, Genes, Genome, InstanceSpace
from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage


def mining() -> InstanceSpace[ScheduleInstance]:
    """The limits, genes and domains of the problem."""
    return InstanceSpace({"nodes": 4, "microbatches": 4, "number": 6}, genes, (UNIFORM_LAYERS,))


def genes(limits: Mapping[str, int]) -> Genes[ScheduleInstance]:
    """Instances within limits: micro-batches of one sample, and at most ``in flight`` of them (0: any number)."""
    most = limits["number"]
    return Genes(
        limits["nodes"],
        (Gene("microbatches", limits["microbatches"], 1, "microbatches"),),
        (Gene("forward", most, 1), Gene("backward", most, 1), Gene("in flight", limits["microbatches"])),
        (Gene("delay", most),),
        _build,
    )


def _build(genome: Genome) -> ScheduleInstance:
    stages = tuple(
        ScheduleStage(forward, backward, in_flight=in_flight or None) for forward, backward, in_flight in genome.nodes
    )
    edges = tuple(ScheduleEdge(u, v, delay) for u, v, (delay,) in genome.edges)
    return ScheduleInstance("mined", genome.whole[0], stages, edges)
