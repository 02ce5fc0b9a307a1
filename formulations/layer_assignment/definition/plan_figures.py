"""A layer assignment in figures: a stage's micro-batch, and where the step's seconds go."""

import math
from collections.abc import Sequence
from itertools import pairwise

from formulations.contract.figures.gantt import beside_objective, one_f_one_b
from formulations.contract.figures.objective_parts import equation_4
from formulations.contract.figures.plan_figures import Breakdown, Item, Passes, Stack, Stage, Strip, slowest, stages_of
from formulations.layer_assignment.definition.clock import pipeline
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import Terms, cuts, parameters_of, terms
from instances.problems.layer_assignment import LayerAssignmentInstance


def breakdown(instance: LayerAssignmentInstance, plan: LayerPlan, degrees: str = "") -> Breakdown:
    """Every stage's seconds and all-reduce; the bubble is the part of a step in which the slowest stage waits.

    ``degrees`` are those that all stages have, in words.
    """
    parts = list(pairwise(cuts(plan)))
    times = [instance.stage_s(stage, *part) for stage, part in enumerate(parts)]
    sending = [*(instance.cut_cost(end - 1, stage) for stage, (_, end) in enumerate(parts[:-1])), 0.0]
    rings = [instance.ring(stage) * parameters_of(instance, *part) for stage, part in enumerate(parts)]
    found = terms(instance, plan)
    step = math.fsum([found.waiting, found.filling, found.sending, found.all_reduce])
    stages = stages_of(times, [degrees] * len(parts))
    return Breakdown(
        tuple(
            {"layers": list(range(*part)), "microbatch_s": time, "sending_s": sent, "all_reduce_s": ring}
            for part, time, sent, ring in zip(parts, times, sending, rings, strict=True)
        ),
        {
            "bottleneck": f"stage {slowest(times)}",
            "waiting_s": found.waiting,
            "filling_s": found.filling,
            "sending_s": found.sending,
            "all_reduce_s": found.all_reduce,
            "bubble_share": 1 - instance.num_microbatches * max(times) / step if step > 0 else 0.0,
        },
        lambda: (
            _strip(instance, plan, stages),
            Stack("A micro-batch in each stage", stages, {"compute": times}, "time of a micro-batch", "s"),
            equation_4(times, sending, rings, instance.num_microbatches, stages),
            _passes(instance, plan, sending, found, stages),
        ),
        lambda: _strip(instance, plan, stages),
    )


def _strip(instance: LayerAssignmentInstance, plan: LayerPlan, stages: Sequence[Stage]) -> Strip:
    homes = [stage for stage, length in enumerate(plan.lengths) for _ in range(length)]
    roles = [
        "head"
        if layer < instance.head_layers
        else "tail"
        if instance.num_layers - layer <= instance.tail_layers
        else ""
        for layer in range(instance.num_layers)
    ]
    items = [
        Item(f"layer {layer}", home, time, role, {"time_s": time})
        for layer, (home, role) in enumerate(zip(homes, roles, strict=True))
        for time in [instance.times(home)[layer]]
    ]
    return Strip("Layers by stage", items, stages, "compute of a micro-batch, s")


def _passes(
    instance: LayerAssignmentInstance, plan: LayerPlan, sending: Sequence[float], found: Terms, stages: Sequence[Stage]
) -> Passes:
    """One replica's pipeline, which the objective counts in another way."""
    passes = one_f_one_b(pipeline(instance, plan), stages)
    sent = (
        "sends once over every cut and makes no stage wait for what is sent; here every micro-batch is sent, forward "
        "and backward, and stages wait for it"
    )
    counted = sent if any(sending) else "counts the slowest stage for all micro-batches but one, and all stages once"
    step = math.fsum([found.waiting, found.filling, found.sending, found.all_reduce])
    return beside_objective(passes, step, f" for a step, {counted}", found.all_reduce)
