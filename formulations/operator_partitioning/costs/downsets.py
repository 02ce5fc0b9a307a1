"""Families of downsets of an operator graph: all of them, those of a clustered graph, those of one order.

Source: Parmesan, Definitions 4.2 and 4.3 (its fronted subgraphs are closed under predecessors).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from formulations.compiled.array_types import Words
from formulations.compiled.downsets import enumerate_all
from instances.graph import Edges, adjacency, topological_order
from instances.problems.operator_partitioning import OperatorInstance
from solvers.memory_budget import demand


def all_downsets(instance: OperatorInstance, limit: int) -> Words | None:
    """Every fronted subgraph, shape (D, words), with the empty one; ``None`` if there are more than ``limit``."""
    return _enumerate(len(instance.operators), instance.edges, limit)


@lru_cache(maxsize=4)  # the dispatcher counts them before a method walks over them
def _enumerate(n: int, edges: tuple[tuple[int, int], ...], limit: int) -> Words | None:
    successors, predecessors = adjacency(n, edges)
    return enumerate_all(n, predecessors, successors, limit)  # fronted: closed under predecessors


def quotient_edges(cluster_of: Sequence[int], edges: Edges) -> tuple[tuple[int, int], ...]:
    """Pairs of adjacent clusters."""
    pairs = {(cluster_of[a], cluster_of[b]) for a, b in edges}
    return tuple(sorted((a, b) for a, b in pairs if a != b))


def downsets_of_clusters(
    clusters: Sequence[Sequence[int]], edges: Edges, num_operators: int, limit: int
) -> Words | None:
    """The downsets that split no cluster; ``None`` if there are more than ``limit``."""
    small = _enumerate(len(clusters), quotient_edges(membership(clusters, num_operators), edges), limit)
    return None if small is None else _expand(small, clusters, num_operators)


def order_downsets(clusters: Sequence[Sequence[int]], edges: Edges, num_operators: int) -> Words:
    """The downsets that begin a topological order of the clusters (of ready ones the first comes first)."""
    demand(8.0 * (len(clusters) + 1) * words(num_operators), "the downsets of one order")
    order = topological_order(len(clusters), quotient_edges(membership(clusters, num_operators), edges))
    found = np.zeros((len(clusters) + 1, words(num_operators)), np.uint64)
    for position, cluster in enumerate(order):
        found[position + 1] = found[position]
        for operator in clusters[cluster]:
            found[position + 1, operator >> 6] |= np.uint64(1 << (operator & 63))
    return found


def membership(clusters: Sequence[Sequence[int]], num_operators: int) -> list[int]:
    """The cluster of every operator."""
    found = [0] * num_operators
    for cluster, members in enumerate(clusters):
        for operator in members:
            found[operator] = cluster
    return found


def words(num_nodes: int) -> int:
    """64-bit words of a set of nodes."""
    return max(1, -(-num_nodes // 64))


def _expand(small: Words, clusters: Sequence[Sequence[int]], num_operators: int) -> Words:
    demand(8.0 * len(small) * words(num_operators), "the downsets of the clusters")
    found = np.zeros((len(small), words(num_operators)), np.uint64)
    for cluster, members in enumerate(clusters):
        mask = np.zeros(found.shape[1], np.uint64)
        for operator in members:
            mask[operator >> 6] |= np.uint64(1 << (operator & 63))
        inside = (small[:, cluster >> 6] >> np.uint64(cluster & 63)) & np.uint64(1) != 0
        found[inside] |= mask
    return found
