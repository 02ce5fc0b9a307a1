"""Downsets of a layer graph as packed bitsets: all of them, or those of single topological orders.

Source: Piper, Definition 4.1 and Fact 4.2 (differences of nested downsets are the contiguous sets).
"""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np

from formulations.stage_partitioning import kernels_downsets
from formulations.stage_partitioning.costs import Words
from instances.graph import Edges, adjacency, lifo_order, topological_order
from instances.stage_partitioning import StageInstance


def all_downsets(instance: StageInstance, limit: int) -> Words | None:
    """Every downset of the layer graph, shape (D, words); ``None`` if there are more than ``limit``."""
    return _enumerate(len(instance.layers), instance.edge_indices, limit)


@lru_cache(maxsize=2)  # the dispatcher counts them before a method walks over them
def _enumerate(n: int, edges: tuple[tuple[int, int], ...], limit: int) -> Words | None:
    successors, _ = adjacency(n, edges)
    below = np.zeros((n, _words(n)), np.uint64)
    for v, nodes in enumerate(successors):
        for w in nodes:
            below[v, w >> 6] |= np.uint64(1 << (w & 63))
    found = kernels_downsets.enumerate_downsets(n, below, limit)
    return found if len(found) else None


def linear_orders(instance: StageInstance) -> list[list[int]]:
    """A few topological orders of the layer graph that differ in how they interleave branches."""
    n = len(instance.layers)
    forward: Edges = instance.edge_indices
    backward = [(v, u) for u, v in forward]
    return [topological_order(n, forward), lifo_order(n, forward), lifo_order(n, backward)[::-1]]


def random_order(instance: StageInstance, rng: random.Random, stage_of: list[int] | None = None) -> list[int]:
    """A random topological order; with ``stage_of`` (a stage for every node) one that keeps stages together."""
    key = [rng.random() for _ in instance.layers]
    return topological_order(
        len(instance.layers), instance.edge_indices, lambda v: (stage_of[v] if stage_of else 0, key[v])
    )


def chain_downsets(order: list[int]) -> Words:
    """The n + 1 downsets that end pieces of one topological order, shape (n + 1, words)."""
    n = len(order)
    bits = np.zeros((n + 1, _words(n)), np.uint64)
    for position, v in enumerate(reversed(order), start=1):
        bits[position] = bits[position - 1]
        bits[position, v >> 6] |= np.uint64(1 << (v & 63))
    return bits


def position_masks(bits: Words) -> list[int]:
    """The downsets as Python integers, bit v for position v."""
    return [int.from_bytes(row.tobytes(), "little") for row in bits]


def _words(num_nodes: int) -> int:
    return max(1, -(-num_nodes // 64))
