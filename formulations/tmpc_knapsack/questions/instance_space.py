"""Small instances for searches: nodes with a few TMPCs and a capacity, in whole numbers."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from formulations.contract.instance_space import UNIFORM_LAYERS, Gene, Genes, Genome, InstanceSpace
from instances.problems.tmpc_knapsack import Choice, KnapsackInstance, KnapsackNode

#: Numbers of a TMPC: whether it is there, time and bytes.
_FIELDS = 3


def mining() -> InstanceSpace[KnapsackInstance]:
    """The limits, genes and domains of the problem."""
    return InstanceSpace({"nodes": 4, "tmpcs": 2, "number": 12}, genes, (UNIFORM_LAYERS,))


def genes(limits: Mapping[str, int]) -> Genes[KnapsackInstance]:
    """Instances within limits: at most ``tmpcs`` for each node."""
    most = limits["number"]
    tmpc = (Gene("present", 1, counts="tmpcs"), Gene("time", most), Gene("memory", most))
    capacity = most * limits["nodes"]
    return Genes(limits["nodes"], (Gene("capacity", capacity),), tmpc * limits["tmpcs"], None, _build, _tidy, _plant)


def _tmpcs(node: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [node[start : start + _FIELDS] for start in range(0, len(node), _FIELDS)]


def _tidy(genome: Genome) -> Genome:
    """TMPCs that are absent have no numbers."""
    nodes = [[each if each[0] else (0,) * _FIELDS for each in _tmpcs(node)] for node in genome.nodes]
    return replace(genome, nodes=tuple(tuple(value for each in node for value in each) for node in nodes))


def _plant(genome: Genome, rng: Random) -> Genome:
    """A capacity that some choice just fits."""
    held = (rng.choice([each[2] for each in _tmpcs(node) if each[0]] or [0]) for node in genome.nodes)
    return replace(genome, whole=(sum(held),))


def _build(genome: Genome) -> KnapsackInstance | None:
    nodes = []
    for number, node in enumerate(genome.nodes):
        options = tuple(
            Choice(f"x{place}", time, memory) for place, (there, time, memory) in enumerate(_tmpcs(node)) if there
        )
        if not options:
            return None
        nodes.append(KnapsackNode(number, options))
    return KnapsackInstance("mined", tuple(nodes), genome.whole[0])
