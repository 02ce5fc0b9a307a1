"""All strategies of an experiment, each with three layer assignments."""

from dataclasses import dataclass, replace

from formulations.amp_strategy.definition.plan import Degrees
from formulations.amp_strategy.definition.problem import layer_assignment, strategies
from formulations.amp_strategy.paper.amp import Assign, released_assignment
from formulations.layer_assignment import exact
from formulations.layer_assignment.definition import problem as assignment
from formulations.layer_assignment.definition.plan import LayerPlan
from instances.problems.amp_strategy import AmpInstance
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.outcome import Limits, Watch


@dataclass(frozen=True)
class Strategy:
    """What three layer assignments make of some degrees with Megatron's placement.

    ``predicted``: as released (``lengths``); ``exact``: the best without the all-reduce, which the released program
    leaves out as well; ``exact_joint``: the best with it. Seconds of a whole step as estimate() has them; those of a
    pipeline are without the all-reduce.
    """

    degrees: Degrees
    lengths: tuple[int, ...]
    predicted_s: float
    exact_s: float
    exact_joint_s: float
    predicted_pipeline_s: float
    exact_pipeline_s: float


def examine(instance: AmpInstance) -> list[Strategy]:
    """All strategies with Megatron's placement, in the order of the released prediction."""
    found = []
    for degrees in strategies(instance):
        if degrees.pp_degree > len(instance.layers):
            continue
        placement = tuple(range(instance.num_devices))
        whole = layer_assignment(instance, degrees, placement)
        pipeline = replace(whole, ring_s_per_parameter=())
        old, best = lengths_by(released_assignment(instance), pipeline), lengths_by(exact.solve, pipeline)
        joint = lengths_by(exact.solve, whole)
        slip = layer_assignment(instance, degrees, placement, closing_link_only=True)
        found.append(
            Strategy(
                degrees,
                old.lengths,
                assignment.evaluate(slip, old),
                assignment.evaluate(whole, best),
                assignment.evaluate(whole, joint),
                assignment.evaluate(pipeline, old),
                assignment.evaluate(pipeline, best),
            )
        )
    return sorted(found, key=lambda strategy: strategy.predicted_s)


def lengths_by(assign: Assign, layers: LayerAssignmentInstance) -> LayerPlan:
    """The layers of each stage by a method that always has an answer."""
    plan = assign(layers, Limits(), Watch()).plan
    if plan is None:
        raise AssertionError(f"{layers.name} has no layer assignment")
    return plan
