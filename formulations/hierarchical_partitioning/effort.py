"""How much work the methods would have with an instance, predicted without building anything."""

import math

from formulations.compiled.downsets import too_many
from formulations.contract.clock import MOST_ACTIONS
from formulations.hierarchical_partitioning import methods
from formulations.hierarchical_partitioning.methods import MAX_LABELS, MAX_TERMS
from formulations.stage_partitioning.exact.effort import downset_count
from formulations.stage_partitioning.methods import MAX_DOWNSETS
from instances.graph import downsets
from instances.problems.hierarchical_partitioning import HierarchicalInstance, Objective

#: Why most methods refuse what has more levels.
TWO_LEVELS = "levels above machines; use piper-levels-exact-knapsack"


def states_another_clock(instance: HierarchicalInstance, *, levels: bool = False) -> str | None:
    """Why what finds the best pipeline that is never flushed does not take an instance, if it does not."""
    if instance.objective is Objective.ITERATION:
        return "objective iteration; it states a pipeline that is never flushed (--objective steady)"
    return TWO_LEVELS if instance.upper_levels and not levels else None


def simulated_supports(instance: HierarchicalInstance) -> str | None:
    """Whether the search of simulated plans is exact for this instance and has room for its stages."""
    if instance.objective is not Objective.ITERATION:
        return "objective steady; it proves the shortest simulated iteration (--objective iteration)"
    if instance.upper_levels:
        return "levels above machines: of their iterations only plans are known (evaluate)"
    if 2 * len(instance.flat.layers) * instance.flat.num_microbatches > MOST_ACTIONS:
        return f"a plan may have more than {MOST_ACTIONS:,} passes, each of which is simulated"
    if not all(len({x.weight_bytes for x in own}) <= 1 for each in instance.flat.layers for own in each.tmpcs.values()):
        return "the TMPCs of a node differ in their weights: the fastest choice need not be the best"
    return None if _few_downsets(instance) is not None else f"the graph has more than {methods.MAX_DOWNSETS} downsets"


def simulated_effort(instance: HierarchicalInstance) -> float:
    """Steps of the table of bounds: pairs of nested downsets, times degrees, devices and sums of degrees."""
    degrees = instance.num_machines * sum(instance.devices_per_machine // t for t in instance.flat.tp_degrees)
    return (
        (_few_downsets(instance) or math.inf) ** 2 / 2 * degrees * instance.flat.num_devices * _most_in_flight(instance)
    )


def supports(instance: HierarchicalInstance) -> str | None:
    """Whether the threshold test can hold its table."""
    if (reason := states_another_clock(instance)) is not None:
        return reason
    count = downset_count(instance.flat)
    if count is None:
        return f"{too_many(len(instance.flat.layers), MAX_DOWNSETS)}; try --linearize"
    most = min(instance.flat.num_microbatches, instance.flat.num_devices)
    if count * (most + 1) > MAX_LABELS:
        return f"{count} downsets times {most} micro-batches do not fit; try --microbatches or --linearize"
    return None


def effort(instance: HierarchicalInstance) -> float:
    """Downsets, times degrees, times labels of a downset (machines, and sums of degrees) and downsets below it."""
    count = downset_count(instance.flat) or MAX_DOWNSETS
    labels = float(instance.num_machines) * _most_in_flight(instance)
    return count * max(1, len(instance.flat.tp_degrees)) * (labels + count)


def model_effort(instance: HierarchicalInstance) -> float:
    """Number of terms of the CP-SAT model: choices per position, in the rows of time and memory."""
    flat, K1, K2 = instance.flat, instance.devices_per_machine, instance.num_machines
    n, S = len(flat.layers), min(flat.num_microbatches, flat.num_devices)
    positions = min(n, K1, S) * min(n, K2, S)
    options = sum(len(found) for layer in flat.layers for t, found in layer.tmpcs.items() if t <= K1)
    return float(positions * options * (min(K1, S) * min(K2, S) + S))


def model_supports(instance: HierarchicalInstance) -> str | None:
    """``None``, or why the CP-SAT model is too large for an instance."""
    if (reason := states_another_clock(instance)) is not None:
        return reason
    terms = model_effort(instance)
    return None if terms <= MAX_TERMS else f"the model would have about {terms:.1g} terms; at most {MAX_TERMS:.0e}"


def _few_downsets(instance: HierarchicalInstance) -> int | None:
    found = downsets(len(instance.flat.layers), instance.flat.edge_indices, methods.MAX_DOWNSETS)
    return None if found is None else len(found)


def _most_in_flight(instance: HierarchicalInstance) -> int:
    return min(instance.flat.num_microbatches, instance.flat.num_devices)


def levels_supports(instance: HierarchicalInstance) -> str | None:
    """``None``, or why the tables of all levels do not fit."""
    if (reason := states_another_clock(instance, levels=True)) is not None:
        return reason
    count = downset_count(instance.flat)
    if count is None or count > methods.MAX_LEVEL_DOWNSETS:
        return f"the graph has more than {methods.MAX_LEVEL_DOWNSETS} downsets"
    cells = cells_of_levels(instance, count)
    if cells <= methods.MAX_LEVEL_CELLS:
        return None
    return f"the tables of all levels would have about {cells:.1g} entries; try --microbatches or --linearize"


def cells_of_levels(instance: HierarchicalInstance, count: int) -> float:
    """Most entries of the recursion's tables below the highest level, and of those of stages, for so many downsets."""
    S = _most_in_flight(instance)
    K1, pairs = instance.devices_per_machine, count**2 / 2
    stages = len(instance.flat.tp_degrees) * sum(-(-S // d) for d in range(1, min(K1, S) + 1))
    return pairs * (stages + sum((S + 1) * (X + 1) for _, X in _counts(instance)[:-1]))


def levels_effort(instance: HierarchicalInstance) -> float:
    """Number of updates of the recursion without any pruning: splits, their last parts, and the states before these."""
    S, count = _most_in_flight(instance), downset_count(instance.flat) or methods.MAX_LEVEL_DOWNSETS
    counts, steps, inner = _counts(instance), 0.0, 0
    for number, (K, X) in enumerate(counts, 1):
        splits = count**2 / 2 if number == len(counts) else count**3 / 6 * S
        parts = K * inner if inner else sum(min(K // t, S) for t in instance.flat.tp_degrees)
        steps, inner = steps + splits * parts * X * K, X
    return steps


def _counts(instance: HierarchicalInstance) -> list[tuple[int, int]]:
    """Of every level K_l, and the most that degrees of one split sum to."""
    S, devices, found = _most_in_flight(instance), 1, []
    for K in (instance.devices_per_machine, *(level.count for level in instance.levels)):
        devices *= K
        found.append((K, min(devices, S)))
    return found
