"""Small instances for searches: nodes that are live for a while, up to three strategies, and edges between them."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from random import Random

from formulations.contract.instance_space import UNIFORM_LAYERS, Gene, Genes, Genome, InstanceSpace
from instances.problems.operator_strategies import OperatorStrategies, StrategyEdge, StrategyNode


def mining() -> InstanceSpace[OperatorStrategies]:
    """The limits, genes and domains of the problem."""
    return InstanceSpace({"nodes": 5, "strategies": 2, "number": 9}, genes, (UNIFORM_LAYERS,))


def genes(limits: Mapping[str, int]) -> Genes[OperatorStrategies]:
    """Instances within limits: at most ``strategies`` for each node."""
    most, count = limits["number"], limits["strategies"]
    time = (Gene("start", limits["nodes"]), Gene("length", limits["nodes"]))
    strategy = (Gene("present", 1, counts="strategies"), Gene("cost", most), Gene("usage", most))
    pairs = tuple(Gene("pair", most) for _ in range(count * count))

    def strategies(node: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [node[place : place + 3] for place in range(2, len(node), 3)]

    def tidy(genome: Genome) -> Genome:
        """Strategies that are absent have no numbers."""
        nodes = [
            (*node[:2], *(x for s in strategies(node) for x in (s if s[0] else (0, 0, 0)))) for node in genome.nodes
        ]
        return replace(genome, nodes=tuple(nodes))

    def plant(genome: Genome, rng: Random) -> Genome:
        """A limit that some choice just keeps if all nodes are live together."""
        held = (rng.choice([each[2] for each in strategies(node) if each[0]] or [0]) for node in genome.nodes)
        return replace(genome, whole=(sum(held),))

    def build(genome: Genome) -> OperatorStrategies | None:
        there = [[k for k, each in enumerate(strategies(node)) if each[0]] for node in genome.nodes]
        if not all(there):
            return None
        nodes = []
        for node, kept in zip(genome.nodes, there, strict=True):
            costs, usages = (tuple(strategies(node)[k][field] for k in kept) for field in (1, 2))
            nodes.append(StrategyNode((node[0], node[0] + node[1]), costs, usages))
        edges = (
            StrategyEdge((u, v), tuple(values[i * count + j] for i, j in product(there[u], there[v])))
            for u, v, values in genome.edges
        )
        return OperatorStrategies("mined", tuple(nodes), tuple(edges), genome.whole[0])

    return Genes(limits["nodes"], (Gene("limit", most * limits["nodes"]),), (*time, *strategy * count), pairs, build,
                 tidy, plant)  # fmt: skip
