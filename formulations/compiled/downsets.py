"""Downsets of a layer graph as packed bitsets: all of them, or those of single topological orders.

Source: Piper, Definition 4.1 and Fact 4.2 (differences of nested downsets are the contiguous sets).
"""

import random
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from formulations.compiled.array_types import Ints, Words
from formulations.compiled.kernels import bitsets
from instances.graph import Edges, adjacency, lifo_order, topological_order
from instances.problems.stage_partitioning import StageInstance
from solvers.memory_budget import demand, room

Lists = Sequence[Sequence[int]]

#: Words of 64 nodes that all downsets may take, a second to enumerate; and what the enumeration holds for each: two
#: tables that double, the old ones beside the new.
_MAX_WORDS, _BYTES_PER_WORD = 1 << 23, 48


def all_downsets(instance: StageInstance, limit: int) -> Words | None:
    """Every downset of the layer graph, shape (D, words); ``None`` if there are more than ``limit``."""
    return _enumerate(len(instance.layers), instance.edge_indices, limit)


@lru_cache(maxsize=2)  # the dispatcher counts them before a method walks over them
def _enumerate(n: int, edges: tuple[tuple[int, int], ...], limit: int) -> Words | None:
    successors, predecessors = adjacency(n, edges)
    return enumerate_all(n, successors, predecessors, limit)


def enumerate_all(n: int, after: Lists, before: Lists, limit: int) -> Words | None:
    """Every set of nodes that holds all ``after`` each of its nodes, shape (D, words); ``before`` is the reverse.

    ``None`` if there are more than `most_downsets`.
    """
    found = bitsets.enumerate_downsets(n, *_rows(after), *_rows(before), most_downsets(n, limit))
    return found if len(found) else None


def downsets_near(after: Lists, before: Lists, ends: Sequence[int], most: int) -> Words:
    """Downsets as of `enumerate_all`: ``ends`` (bits of numbers) and those the fewest nodes away, ``most`` in all."""
    n = len(after)
    needed, barred = ([sum(1 << u for u in found) for found in lists] for lists in (after, before))
    found = dict.fromkeys(ends)
    queue = list(found)
    for bits in queue:
        if len(queue) >= most:
            break
        for v in range(n):
            # A node joins if all behind it are inside, and leaves if none before it is.
            is_free = not (bits & barred[v] if bits >> v & 1 else needed[v] & ~bits)
            if is_free and (changed := bits ^ 1 << v) not in found:
                found[changed] = None
                queue.append(changed)
    return np.frombuffer(b"".join(each.to_bytes(8 * _words(n), "little") for each in queue[:most]), "<u8").reshape(
        -1, _words(n)
    )


def most_downsets(n: int, limit: int) -> int:
    """How many downsets of n nodes are enumerated: ``limit``, or as many as there is room for."""
    return int(min(limit, _MAX_WORDS / _words(n), room() / (_BYTES_PER_WORD * _words(n))))


def too_many(n: int, limit: int) -> str:
    """What is said of a graph of n nodes whose downsets are not enumerated."""
    return f"the graph has more than {most_downsets(n, limit)} downsets"


def _rows(lists: Lists) -> tuple[Ints, Ints]:
    """Lists one after the other, and where each begins (CSR)."""
    start = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(each) for each in lists], out=start[1:])
    return start, np.array([v for each in lists for v in each], np.int64)


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
    demand(8.0 * (n + 1) * _words(n), "the downsets of one order")
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
