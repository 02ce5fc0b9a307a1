"""The declarative models and what they share."""

from formulations.stage_graph.definition.quantities import required_sizes
from instances.problems.stage_graph import StageGraph

#: Up to so many operators one model that chooses the micro-batch size is as fast as a search that fixes it.
FEW_OPERATORS = 8
#: More rows on warm-ups than this take CP-SAT minutes to start with.
MAX_WARM_UPS = 100_000


def usable_sizes(instance: StageGraph) -> tuple[int, ...]:
    """Sizes that a model is about: those required, or all of them where none is left (which the model then refutes)."""
    return required_sizes(instance) or instance.microbatch_sizes


def warm_ups(instance: StageGraph) -> int:
    """Pairs of passes of a stage whose order a model of passes leaves to the warm-up, at all sizes."""
    places = min(instance.num_operators, instance.num_devices)
    return places * sum((instance.minibatch // size) ** 2 for size in usable_sizes(instance))


def warm_ups_too_many(instance: StageGraph) -> str | None:
    """``None``, or why a model of passes would be too large to be built."""
    if (rows := warm_ups(instance)) <= MAX_WARM_UPS:
        return None
    return f"the model would have {rows:,} rows on warm-ups; expected at most {MAX_WARM_UPS:,} (larger --microbatches)"
