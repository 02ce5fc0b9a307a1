"""Layer assignment: the definition, naively and without any solver.

Source: AMP's supplement, section 6.2 (Equation 4, as its terms appear in section 6.4); the all-reduce term is
reconstructed from the published predictions.
"""

import itertools
import math
from dataclasses import dataclass

from formulations.contract.violation import Violation
from formulations.layer_assignment.definition.plan import LayerPlan
from instances.problems.layer_assignment import LayerAssignmentInstance


@dataclass(frozen=True)
class Terms:
    """Seconds of a step by cause; their sum is the objective.

    ``waiting``: the slowest stage, once for every micro-batch but the first. ``filling``: all stages once.
    ``sending``: all cuts once. ``all_reduce``: the slowest stage's data-parallel all-reduce.
    """

    waiting: float
    filling: float
    sending: float
    all_reduce: float


def cuts(plan: LayerPlan) -> tuple[int, ...]:
    """Layers in front of each stage, and all layers: 0, ..., L."""
    return tuple(sum(plan.lengths[:stage]) for stage in range(len(plan.lengths) + 1))


def parameters_of(instance: LayerAssignmentInstance, start: int, end: int) -> float:
    """Parameters of a stage of layers ``start`` to ``end - 1``; tied ones count once."""
    tied = [tie.parameters for tie in instance.tied if any(start <= layer < end for layer in tie.layers)]
    return math.fsum([*instance.parameters[start:end], *tied])


def terms(instance: LayerAssignmentInstance, plan: LayerPlan) -> Terms:
    """The objective of a plan, term by term."""
    ends = cuts(plan)
    stages = list(itertools.pairwise(ends))
    times = [instance.stage_s(stage, *part) for stage, part in enumerate(stages)]
    return Terms(
        waiting=(instance.num_microbatches - 1) * max(times),
        filling=math.fsum(times),
        sending=math.fsum(instance.cut_cost(end - 1, stage) for stage, (_, end) in enumerate(stages[:-1])),
        all_reduce=max(
            instance.ring(stage) * parameters_of(instance, start, end) for stage, (start, end) in enumerate(stages)
        ),
    )


def evaluate(instance: LayerAssignmentInstance, plan: LayerPlan) -> float:
    """Seconds of a training step.

    `ValueError` if the plan has no stage or the wrong number of layers.
    Source: AMP, Equation 4: (gas - 1) max T + sum of e + sum of T; plus the all-reduce, reconstructed.
    """
    if violations(instance, plan):
        raise ValueError("; ".join(map(str, violations(instance, plan))))
    found = terms(instance, plan)
    return math.fsum([found.waiting, found.filling, found.sending, found.all_reduce])


def violations(instance: LayerAssignmentInstance, plan: LayerPlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks.

    Rules: ``stages`` (as many as declared), ``empty`` (no such stage), ``layers`` (all).
    """
    found = []
    if len(plan.lengths) != instance.num_stages:
        found.append(Violation("stages", f"{len(plan.lengths)} stages; expected {instance.num_stages}"))
    found += [
        Violation("empty", f"stage {stage} takes {length} layers; expected at least 1")
        for stage, length in enumerate(plan.lengths)
        if length < 1
    ]
    if sum(plan.lengths) != instance.num_layers:
        found.append(Violation("layers", f"the stages take {sum(plan.lengths)} layers of {instance.num_layers}"))
    return tuple(found)
