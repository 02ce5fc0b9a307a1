"""How much work the recursion with depth would have, predicted without building anything."""

from collections.abc import Iterator

from formulations.compiled.downsets import all_downsets, too_many
from formulations.flushed_partitioning.exact.labels import uniform_weights
from formulations.flushed_partitioning.methods import MAX_DOWNSETS, MAX_SIMULATED_DOWNSETS, states_a_formula
from formulations.stage_partitioning.definition.problem import allowed_dp_degrees
from formulations.stage_partitioning.exact.effort import max_sum
from formulations.stage_partitioning.model_size import assignment_supports
from formulations.stage_partitioning.model_size import columns_supports as flat_columns_supports
from instances.problems.flushed_partitioning import FlushedInstance, Objective
from instances.problems.stage_partitioning import StageInstance

#: More passes than this take CP-SAT minutes to start with.
MAX_PASSES = 20_000

_WEIGHTS = "the TMPCs of a node differ in their weights: the fastest choice need not be the best"


def supports(instance: FlushedInstance) -> str | None:
    """Whether the recursion is exact for this instance and has few enough pairs of downsets."""
    if (reason := states_a_formula(instance)) is not None:
        return reason
    if not uniform_weights(instance):
        return _WEIGHTS
    if all_downsets(instance.flat, MAX_DOWNSETS) is None:
        return f"{too_many(len(instance.flat.layers), MAX_DOWNSETS)}; try --linearize"
    return None


def simulated_supports(instance: FlushedInstance) -> str | None:
    """Whether the search of simulated plans is exact for this instance and has room for its stages."""
    if instance.objective is not Objective.ITERATION:
        return "objective formula; it proves the shortest simulated iteration (--objective iteration)"
    if not uniform_weights(instance):
        return _WEIGHTS
    if all_downsets(instance.flat, MAX_SIMULATED_DOWNSETS) is None:
        return f"{too_many(len(instance.flat.layers), MAX_SIMULATED_DOWNSETS)}; try --linearize"
    return None


def effort(instance: FlushedInstance) -> float:
    """Pairs of downsets, times degrees and labels."""
    downsets = all_downsets(instance.flat, MAX_DOWNSETS)
    count = float("inf") if downsets is None else len(downsets)
    return 0.5 * count * count * len(instance.flat.tp_degrees) * max_sum(instance.flat)


def columns_supports(instance: FlushedInstance) -> str | None:
    """``None``, or why the model of columns does not take an instance."""
    if (reason := states_a_formula(instance)) is not None:
        return reason
    if instance.devices_per_machine is not None:
        return "on machines the model would have to place the stages: labels does"
    if not uniform_weights(instance):
        return _WEIGHTS
    return flat_columns_supports(instance.flat)


def degrees_of_chains(flat: StageInstance) -> Iterator[tuple[int, ...]]:
    """The data-parallel degrees of the stages of every plan of a chain, from the input side on; more than fit too."""
    most = max_sum(flat)

    def longer(found: tuple[int, ...], left: int) -> Iterator[tuple[int, ...]]:
        for d in allowed_dp_degrees(flat):
            if d <= left:
                yield (*found, d)
                if len(found) + 1 < len(flat.layers):
                    yield from longer((*found, d), left - d)

    return longer((), most)


def passes_too_many(instance: FlushedInstance) -> str | None:
    """``None``, or why the model of passes of a chain would be too large to be built."""
    m, passes = instance.flat.num_microbatches, 0
    for degrees in degrees_of_chains(instance.flat):
        is_uniform = len(set(degrees)) == 1
        passes += 2 * len(degrees) * (-(-m // degrees[0]) if is_uniform else m)
        if passes > MAX_PASSES:
            return f"the model would have over {MAX_PASSES:,} passes: every choice of data-parallel degrees has its own"
    return None


def passes_supports(instance: FlushedInstance) -> str | None:
    """``None``, or why the model of passes does not take an instance."""
    if instance.objective is not Objective.ITERATION:
        return "objective formula; it states a simulated iteration (--objective iteration)"
    if instance.devices_per_machine is not None:
        return "on machines the model would have to place the stages: best-first does"
    if all_downsets(instance.flat, len(instance.flat.layers) + 1) is None:
        return "the graph is no chain: which stage waits for which depends on the plan; try --linearize"
    return assignment_supports(instance.flat)
