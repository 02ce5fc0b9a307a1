"""What a label must remember of the depths of its stages, where the layer graph has branches.

The stage put in front of a downset D is one deeper than the deepest stage that it reaches. So what matters of D is
depth(E) for the sets E = E(v) of nodes of D that a node v outside reaches, and for all of D. Reached sets are closed
under successors, so the depth of a union is the larger of the depths: only sets that are no union of others are kept,
the *reached sets* of D. A chain has one, and so has any graph whose downsets each have one entry that reaches the rest.
"""

from collections.abc import Sequence

import numpy as np

from formulations.compiled.array_types import Words
from formulations.compiled.downsets import position_masks
from formulations.flushed_partitioning.kernels.arrays import ReachedSets
from instances.graph import Edges, adjacency, topological_order
from solvers.memory_budget import demand

#: ReachedSets of a downset are the bits of one word.
MAX_REACHED_SETS = 60


def reachable(num_nodes: int, edges: Edges) -> list[int]:
    """The nodes that each node reaches, without itself, as bitsets.

    Not networkx: its closure of the largest graph of the catalog (1,057 operators) takes 0.4 s, this 0.7 ms.
    """
    successors, _ = adjacency(num_nodes, edges)
    reach = [0] * num_nodes
    for v in reversed(topological_order(num_nodes, edges)):
        for w in successors[v]:
            reach[v] |= reach[w] | 1 << w
    return reach


def find_reached_sets(num_nodes: int, edges: Edges, bits: Words) -> ReachedSets | None:
    """The reached sets of the downsets ``bits``; ``None`` if one has more than ``MAX_REACHED_SETS``."""
    reach = [*reachable(num_nodes, edges), (1 << num_nodes) - 1]
    words = bits.shape[1]
    own = [_of_downset(reach, downset) for downset in position_masks(bits)]
    most = max(len(nodes) for nodes, _ in own)
    if most > MAX_REACHED_SETS:
        return None
    demand(8.0 * len(own) * (most + num_nodes + 1), f"the reached sets of {len(own)} downsets")
    node = np.full((len(own), most), -1, np.int64)
    mask = np.zeros((len(own), num_nodes + 1), np.uint64)
    for i, (nodes, masks) in enumerate(own):
        node[i, : len(nodes)] = nodes
        for v, value in masks.items():
            mask[i, v] = value
    packed = np.frombuffer(b"".join(each.to_bytes(words * 8, "little") for each in reach), np.uint64)
    return ReachedSets(np.array([len(nodes) for nodes, _ in own]), node, mask, packed.reshape(-1, words).copy())


def _of_downset(reach: Sequence[int], downset: int) -> tuple[list[int], dict[int, int]]:
    """The nodes that stand for the reached sets of a downset, and the reached sets of every node outside."""
    root = len(reach) - 1
    sets = {v: reach[v] & downset for v in range(root + 1) if v == root or not downset >> v & 1}
    nodes: list[int] = []
    masks: dict[int, int] = {}
    kept: list[int] = []
    for v in sorted(sets, key=lambda v: (sets[v].bit_count(), v)):
        inside = [u for u, other in enumerate(kept) if not other & ~sets[v]]
        union = 0
        for u in inside:
            union |= kept[u]
        if union != sets[v]:
            inside.append(len(kept))
            nodes.append(v)
            kept.append(sets[v])
        masks[v] = sum(1 << u for u in inside)
    return nodes, masks
