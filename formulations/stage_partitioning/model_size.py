"""How large the declarative models of stage partitioning become, without building anything (no solver, no numpy)."""

from __future__ import annotations

from formulations.compiled.memory_budget import SizeError
from formulations.stage_partitioning.definition.problem import allowed_dp_degrees
from instances.graph import downsets
from instances.problems.stage_partitioning import StageInstance

#: Larger direct models take minutes to load alone.
MAX_ASSIGNMENT = 2_000_000

#: Each pair of nested downsets is a possible stage with many prices.
MAX_DOWNSETS = 500


def columns_supports(instance: StageInstance) -> str | None:
    """``None``, or why the column model is too large for an instance."""
    found = downsets(len(instance.layers), instance.edge_indices, MAX_DOWNSETS)
    return None if found is not None else f"the graph has more than {MAX_DOWNSETS} downsets"


def columns_effort(instance: StageInstance) -> float:
    """Number of priced stages: pairs of downsets at most, times degrees, times micro-batches in flight."""
    found = downsets(len(instance.layers), instance.edge_indices, MAX_DOWNSETS)
    count = float("inf") if found is None else len(found)
    S = min(instance.num_microbatches, instance.num_devices)
    return count**2 / 2 * len(instance.tp_degrees) * sum(-(-S // d) for d in allowed_dp_degrees(instance))


def assignment_effort(instance: StageInstance) -> float:
    """Number of terms of a direct assignment model: choices per stage position, in the time and memory rows."""
    S = min(instance.num_microbatches, instance.num_devices)
    positions = min(len(instance.layers), S)
    options = sum(
        len(found) for layer in instance.layers for t, found in layer.tmpcs.items() if t <= instance.num_devices
    )
    return float(positions * options * (len(allowed_dp_degrees(instance)) + S))


def assignment_supports(instance: StageInstance) -> str | None:
    """``None``, or what the direct models cannot say of an instance."""
    return "the direct models do not count activations that layers of several stages keep" if instance.carried else None


def assignment_too_large(instance: StageInstance) -> str | None:
    """``None``, or why the direct models of an instance would be too large to be built."""
    effort = assignment_effort(instance)
    if effort <= MAX_ASSIGNMENT:
        return None
    return f"the direct model would have about {effort:.1g} terms; at most {MAX_ASSIGNMENT:.0e} are built"


def demand_assignment(instance: StageInstance) -> None:
    """Raise `SizeError` if the direct models of an instance would be too large to be built."""
    reason = assignment_too_large(instance)
    if reason is not None:
        raise SizeError(reason)
