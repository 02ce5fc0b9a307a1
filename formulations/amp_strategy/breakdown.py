"""A strategy in figures: those of the layer assignment that its degrees and placement leave."""

from __future__ import annotations

from formulations.amp_strategy.problem import StrategyPlan, layer_assignment
from formulations.breakdown import Breakdown
from formulations.layer_assignment.breakdown import breakdown as of_layers
from formulations.layer_assignment.problem import LayerPlan
from instances.amp_strategy import AmpInstance


def breakdown(instance: AmpInstance, plan: StrategyPlan) -> Breakdown:
    """The stages of the strategy's pipeline."""
    return of_layers(layer_assignment(instance, plan.degrees, plan.placement), LayerPlan(plan.lengths))
