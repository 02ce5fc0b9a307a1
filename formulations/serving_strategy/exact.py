"""The exact method: every shape (`shapes`), the one that can be best first, and of each the best layers by stage.

Of one shape, all that the layers of stages decide is the slowest stage and what devices hold. So the least slowest
stage, of layouts that fit, is the best plan of the shape, and it keeps the limit between tokens if any layout does.
More replicas are never worse. A shape whose bound is no better than a known plan is left out, with all behind it.

Source: reconstructed; a chain of layers on a chain of devices, for all degrees.
"""

import math

from formulations.contract.family import Answer
from formulations.serving_strategy import guide
from formulations.serving_strategy.definition.plan import ServingPlan
from formulations.serving_strategy.definition.problem import evaluate, stage_bytes, violations
from formulations.serving_strategy.shapes import ROUNDED, Shape, shapes
from instances.problems.serving_strategy import ServingInstance
from solvers.outcome import Limits, Prover, Stop, Watch

#: Seconds that the guide may take.
_GUIDE_S = 1.0


def least_s(shape: Shape) -> float:
    """No layout has less from one request of a replica to the next: its slowest stage has the mean, and some layer."""
    return max(shape.apart_s, max(shape.mean_s, *shape.work_s) * (1 - ROUNDED))


def best_lengths(instance: ServingInstance, shape: Shape, below: float, watch: Watch) -> list[int] | None:
    """Layers by stage whose slowest stage is least and below a number, of those that fit; ``None`` if none is.

    ``least[j]`` is the slowest stage of the first j layers on k stages, for k from 1 on. Stages are tried from their
    last layer back: with each layer more they take longer and hold more. ``None`` as well where the watch stops.
    """
    count, any_plan = len(instance.layers), shape.plan([1] * shape.pp_degree)
    least, cuts = [0.0] + [math.inf] * count, []
    work: dict[tuple[int, int], float] = {}
    for k in range(1, shape.pp_degree + 1):
        now, cut = [math.inf] * (count + 1), [0] * (count + 1)
        for end in range(k, count - (shape.pp_degree - k) + 1):
            if watch.stopped():
                return None
            for first in range(end - 1, k - 2, -1):
                if (first, end) not in work:
                    held = stage_bytes(instance, any_plan, first, end)
                    own = math.fsum([*shape.work_s[first:end], *[shape.head_s] * (end == count)])
                    work[first, end] = own if held <= instance.memory_bytes else math.inf
                if work[first, end] >= min(now[end], below):
                    break
                slowest = max(least[first], work[first, end])
                if slowest < now[end]:
                    now[end], cut[end] = slowest, first
        least = now
        cuts.append(cut)
    if math.isinf(least[count]):
        return None
    lengths, end = [], count
    for cut in reversed(cuts):
        lengths.append(end - cut[end])
        end = cut[end]
    return lengths[::-1]


def solve(instance: ServingInstance, limits: Limits, watch: Watch) -> Answer[ServingPlan]:
    """The best plan of all shapes; the first one is that of vLLM's guide, which has a tenth of the time at most."""
    left = watch.remaining_s()
    first = guide.solve(instance, limits, watch.part(_GUIDE_S if left is None else min(_GUIDE_S, left / 10))).plan
    known = list(shapes(instance, watch))
    in_time = [shape for shape in known if least_s(shape) <= shape.limit_s * (1 + ROUNDED)]
    best, seen, none_fits, late = evaluate(instance, first) if first else math.inf, 0, 0, len(known) - len(in_time)
    bounds = ((shape.objective(instance, least_s(shape)) * (1 - ROUNDED), shape) for shape in in_time)
    for bound, shape in sorted(bounds, key=lambda pair: pair[0]):
        if watch.stopped() or bound >= best:
            break
        watch.bound(bound, Prover.BOUNDS)
        seen += 1
        # With a slower stage no plan of this shape is better than the known one.
        better = best / shape.objective(instance, 1.0) * (1 + ROUNDED)
        lengths = best_lengths(instance, shape, better, watch)
        if lengths is None:
            none_fits += 1
            continue
        plan = shape.plan(lengths)
        if violations(instance, plan):
            late += 1
        elif (objective := evaluate(instance, plan)) < best:
            best = objective
            watch.plan(plan, best)
    stats = {"shapes": len(in_time), "layouts": seen}
    if watch.stopped():
        return Answer(watch.best_plan, watch.best_bound, stop=watch.why(), stats=stats)
    if math.isinf(best):
        where = "degrees and batches that keep the rules on devices, requests and the first token"
        reason = f"of {len(known)} {where}, {late} are too slow between tokens, {none_fits} do not fit into memory"
        return Answer(infeasible=True, stop=Stop.PROVED, proved_by=Prover.SEARCH, reason=reason, stats=stats)
    watch.bound(best)
    return Answer(watch.best_plan, best, stop=Stop.PROVED, stats=stats)
