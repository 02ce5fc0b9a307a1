"""A layer assignment in figures: a stage's micro-batch, and where the step's seconds go."""

from __future__ import annotations

import math
from itertools import pairwise

from formulations.breakdown import Bars, Breakdown, slowest
from formulations.layer_assignment.problem import LayerPlan, cuts, parameters_of, terms
from instances.layer_assignment import LayerAssignmentInstance


def breakdown(instance: LayerAssignmentInstance, plan: LayerPlan) -> Breakdown:
    """Every stage's seconds and all-reduce; the bubble is the part of a step in which the slowest stage waits."""
    parts = list(pairwise(cuts(plan)))
    times = [math.fsum(instance.layer_time_s[start:end]) for start, end in parts]
    found = terms(instance, plan)
    step = math.fsum([found.waiting, found.filling, found.sending, found.all_reduce])
    rows = tuple(
        {
            "microbatch_s": times[stage],
            "sending_s": instance.cut_cost(end - 1, stage) if stage < len(parts) - 1 else 0.0,
            "all_reduce_s": instance.ring(stage) * parameters_of(instance, start, end),
        }
        for stage, (start, end) in enumerate(parts)
    )
    labels = [f"{stage}\n{length}" for stage, length in enumerate(plan.lengths)]
    return Breakdown(
        rows,
        {
            "bottleneck": f"stage {slowest(times)}",
            "waiting_s": found.waiting,
            "filling_s": found.filling,
            "sending_s": found.sending,
            "all_reduce_s": found.all_reduce,
            "bubble_share": 1 - instance.num_microbatches * max(times) / step if step > 0 else 0.0,
        },
        (Bars("Time of a micro-batch", labels, times, "time, s", "stage, layers"),),
    )
