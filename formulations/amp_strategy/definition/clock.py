"""AMP's Equation 4 is a formula of a step; an iteration is the step of the strategy's layers under 1F1B."""

from formulations.amp_strategy.definition.plan import StrategyPlan
from formulations.amp_strategy.definition.problem import layer_assignment
from formulations.contract.clock import Clock
from formulations.layer_assignment.definition.clock import clock as of_layers
from formulations.layer_assignment.definition.plan import LayerPlan
from instances.problems.amp_strategy import AmpInstance


def clock(instance: AmpInstance, plan: StrategyPlan) -> Clock:
    """That of the layer assignment which the strategy's degrees and placement leave."""
    return of_layers(layer_assignment(instance, plan.degrees, plan.placement), LayerPlan(plan.lengths))
