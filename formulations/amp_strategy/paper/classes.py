"""Degrees that are possible, and placements that cost the same with them, which no method need tell apart.

No requirement speaks of devices, so none can tell placements of a class apart either. Nothing here imports an array.
"""

from collections.abc import Iterator
from typing import NamedTuple

from formulations.amp_strategy.definition.plan import Degrees
from formulations.amp_strategy.definition.problem import layer_assignment, placements, strategies
from formulations.amp_strategy.definition.quantities import allows
from instances.problems.amp_strategy import AmpInstance
from instances.problems.layer_assignment import LayerAssignmentInstance


class PlacementClass(NamedTuple):
    """Degrees, the placements that cost the same with them, and the layer assignment that is left."""

    degrees: Degrees
    placements: tuple[tuple[int, ...], ...]
    priced: LayerAssignmentInstance


def possible(instance: AmpInstance) -> Iterator[Degrees]:
    """All degrees that leave a layer for each stage and meet the requirements on them."""
    layers = len(instance.layers)
    return (each for each in strategies(instance) if each.pp_degree <= layers and allows(instance, each))


def classes(instance: AmpInstance, degrees: Degrees) -> list[PlacementClass]:
    """The classes of placements that the instance allows, Megatron's first."""
    placed: dict[object, list[tuple[int, ...]]] = {}
    priced: dict[object, LayerAssignmentInstance] = {}
    for placement in placements(instance, degrees):
        layers = layer_assignment(instance, degrees, placement)
        costs = layers.cut_cost_s, layers.ring_s_per_parameter, layers.stage_time_s
        placed.setdefault(costs, []).append(placement)
        priced.setdefault(costs, layers)
    return [PlacementClass(degrees, tuple(own), priced[costs]) for costs, own in placed.items()]


def num_arcs(instance: AmpInstance, degrees: Degrees) -> int:
    """Arcs of a path of stages through all layers: first and last layer of every stage that these degrees have."""
    free, stages = len(instance.layers) - degrees.pp_degree + 1, degrees.pp_degree
    return 1 if stages == 1 else (stages - 2) * free * (free + 1) // 2 + 2 * free
