"""How much work the methods would have with an instance, predicted without building anything."""

from __future__ import annotations

from formulations.stage_partitioning.effort import MAX_DOWNSETS, downset_count
from instances.hierarchical_partitioning import HierarchicalInstance

#: Most cells of the table of labels (downsets times sums of degrees), about 16 bytes each.
MAX_LABELS = 40_000_000


def supports(instance: HierarchicalInstance) -> str | None:
    """Whether the recursion can hold its table."""
    count = downset_count(instance.flat)
    if count is None:
        return f"the graph has more than {MAX_DOWNSETS} downsets; try --linearize"
    most = min(instance.flat.num_microbatches, instance.flat.num_devices)
    if count * (most + 1) > MAX_LABELS:
        return f"{count} downsets times {most} micro-batches do not fit; try --microbatches or --linearize"
    return None


def effort(instance: HierarchicalInstance) -> float:
    """Splits of a machine from every downset, without any pruning."""
    count = downset_count(instance.flat) or MAX_DOWNSETS
    return count**3 / 6 * instance.num_machines * max(1, len(instance.flat.tp_degrees))
