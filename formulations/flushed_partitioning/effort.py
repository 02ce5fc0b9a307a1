"""How much work the recursion with depth would have, predicted without building anything."""

from __future__ import annotations

from formulations.flushed_partitioning.labels import MOST_DOWNSETS, uniform_weights
from instances.flushed_partitioning import FlushedInstance
from instances.graph import downsets


def supports(instance: FlushedInstance) -> str | None:
    """Whether the recursion is exact for this instance and has few enough pairs of downsets."""
    if not uniform_weights(instance):
        return "the TMPCs of a node differ in their weights: the fastest choice need not be the best"
    if downsets(len(instance.flat.layers), instance.flat.edge_indices, MOST_DOWNSETS) is None:
        return f"the graph has more than {MOST_DOWNSETS} downsets; try --linearize"
    return None


def effort(instance: FlushedInstance) -> float:
    """Pairs of downsets, times degrees and their sums."""
    masks = downsets(len(instance.flat.layers), instance.flat.edge_indices, MOST_DOWNSETS)
    count = float("inf") if masks is None else len(masks)
    most = min(instance.flat.num_microbatches, instance.flat.num_devices)
    return count**2 / 2 * len(instance.flat.tp_degrees) * most * most
