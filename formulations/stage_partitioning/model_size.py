"""How large the declarative models of stage partitioning become, without building anything (no solver, no numpy)."""

from formulations.stage_partitioning.definition.problem import allowed_dp_degrees
from instances.graph import downsets
from instances.problems.stage_partitioning import StageInstance

#: Models of blocks of more choices (options in blocks) take longer to build than they prove.
MAX_CHOICES = 60_000

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


def blocks_effort(instance: StageInstance) -> float:
    """Most choices of a model of blocks: options of every block (s, t, d)."""
    S, K = min(instance.num_microbatches, instance.num_devices), instance.num_devices
    places = {t: sum(S - d + 1 for d in allowed_dp_degrees(instance) if t * d <= K) for t in instance.tp_degrees}
    return float(sum(places.get(t, 0) * len(found) for layer in instance.layers for t, found in layer.tmpcs.items()))


def blocks_too_large(instance: StageInstance) -> str | None:
    """``None``, or why the models of blocks of an instance would be too large to be built."""
    effort = blocks_effort(instance)
    if effort <= MAX_CHOICES:
        return None
    return f"the model would have about {effort:.1g} choices; at most {MAX_CHOICES:.0e} are built"


def assignment_supports(instance: StageInstance) -> str | None:
    """``None``, or what the direct models cannot say of an instance."""
    return (
        "the direct models do not count activations that layers of several stages keep"
        if instance.shared_activations
        else None
    )
