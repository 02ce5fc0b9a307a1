"""All strategies, each with the best layer assignment for its whole time."""

import math

from formulations.amp_strategy.definition.plan import StrategyPlan
from formulations.amp_strategy.definition.problem import evaluate, layer_assignment, placements
from formulations.amp_strategy.paper.amp import assign_layers, empty_split_answer, possible_degrees, rows_of
from formulations.contract.family import Answer
from formulations.layer_assignment import exact as layers_exact
from instances.problems.amp_strategy import SLOWEST, AmpInstance
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.outcome import Limits, Stop, Watch

_ROUNDING = 1e-12
#: The proof of a strategy's best layers is another problem's; all strategies are tried, or left out by a bound.
_WHOSE = "layer_assignment/exact"


def solve(instance: AmpInstance, _limits: Limits, watch: Watch, top: int = 10) -> Answer[StrategyPlan]:
    """All degrees and placements, most promising first, each with the best layer assignment for its whole time.

    A strategy is left out once its lower bound is no better than the ``top``-th best plan: the slowest stage is at
    least the mean and at least the longest layer.
    """
    pairs = []
    for degrees in possible_degrees(instance):
        least = 0.0
        for placement in placements(instance, degrees):
            if watch.stopped():
                return Answer(stop=watch.why())
            if least == 0.0 or instance.layer_times == SLOWEST:  # else it is that of all placements
                least = _lower_bound(layer_assignment(instance, degrees, placement))
            pairs.append((least, degrees, placement))
    if not pairs:
        return empty_split_answer(instance)
    pairs.sort(key=lambda pair: pair[0])
    record: dict[StrategyPlan, float] = {}
    bound, pruned = math.inf, 0
    for position, (least, degrees, placement) in enumerate(pairs):
        if watch.stopped():
            bound = min(bound, least)
            break
        if len(record) >= top and least >= sorted(record.values())[top - 1]:
            pruned = len(pairs) - position
            break
        found = assign_layers(instance, degrees, placement, layers_exact.solve, watch)
        bound = min(bound, max(least, found.bound or 0.0))
        if found.plan is not None:
            record[found.plan] = evaluate(instance, found.plan)
            watch.plan(found.plan, record[found.plan])
    best = min(record, key=record.__getitem__) if record else None
    watch.bound(bound, _WHOSE)
    return Answer(
        best,
        bound,
        proved_by=_WHOSE,
        stop=watch.why(Stop.PROVED),
        stats={"strategies": len(pairs), "pruned": pruned, "ranked": rows_of(instance, record, top)},
        options={"top": top},
    )


def _lower_bound(layers: LayerAssignmentInstance) -> float:
    least = layers.least_time_s
    total = math.fsum(least)
    slowest = max(*least, total / layers.num_stages)
    return ((layers.num_microbatches - 1) * slowest + total) * (1 - _ROUNDING)
