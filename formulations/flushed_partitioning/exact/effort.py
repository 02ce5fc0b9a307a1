"""How much work the recursion with depth would have, predicted without building anything."""

from __future__ import annotations

from formulations.compiled.downsets import all_downsets, too_many
from formulations.flushed_partitioning.exact.labels import uniform_weights
from formulations.flushed_partitioning.methods import MAX_DOWNSETS
from formulations.stage_partitioning.exact.effort import max_sum
from formulations.stage_partitioning.model_size import columns_supports as flat_columns_supports
from instances.problems.flushed_partitioning import FlushedInstance


def supports(instance: FlushedInstance) -> str | None:
    """Whether the recursion is exact for this instance and has few enough pairs of downsets."""
    if not uniform_weights(instance):
        return "the TMPCs of a node differ in their weights: the fastest choice need not be the best"
    if all_downsets(instance.flat, MAX_DOWNSETS) is None:
        return f"{too_many(len(instance.flat.layers), MAX_DOWNSETS)}; try --linearize"
    return None


def effort(instance: FlushedInstance) -> float:
    """Pairs of downsets, times degrees and labels."""
    downsets = all_downsets(instance.flat, MAX_DOWNSETS)
    count = float("inf") if downsets is None else len(downsets)
    return 0.5 * count * count * len(instance.flat.tp_degrees) * max_sum(instance.flat)


def columns_supports(instance: FlushedInstance) -> str | None:
    """``None``, or why the models of columns do not take an instance."""
    if instance.devices_per_machine is not None:
        return "on machines the model would have to place the stages: labels does"
    if not uniform_weights(instance):
        return "the TMPCs of a node differ in their weights: the fastest choice need not be the best"
    return flat_columns_supports(instance.flat)
