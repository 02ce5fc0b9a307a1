"""AMP's two algorithms, as published and as released, and Megatron's split.

| Paper                  | Here                                                    |
|------------------------|---------------------------------------------------------|
| enumerate_degrees()    | ``problem.strategies``                                  |
| placement()            | ``problem.placements``: Megatron's, or a tiling         |
| pipe_ast()             | a method of formulations/layer_assignment               |
| estimate()             | ``problem.evaluate``                                    |
| record, budget         | ``stats["ranked"]``, ``top``                            |

Source: AMP's supplement, sections 6.2 and 6.3.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from formulations.amp_strategy.definition.plan import Degrees, StrategyPlan, plan_to_json
from formulations.amp_strategy.definition.problem import evaluate, layer_assignment, placements, terms
from formulations.amp_strategy.models.candidates import infeasible_answer
from formulations.amp_strategy.paper.classes import possible
from formulations.contract.family import Answer
from formulations.layer_assignment import exact, paper
from formulations.layer_assignment.definition.plan import LayerPlan
from instances.problems.amp_strategy import AmpInstance
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.memory_budget import demand
from solvers.outcome import Limits, Stop, Watch

#: A method of layer assignment: what cuts the layers once the rest is chosen.
Assign = Callable[[LayerAssignmentInstance, Limits, Watch], Answer[LayerPlan]]

#: Strategies that Algorithm 2 looks at.
ITERATIONS = 300


@dataclass(frozen=True)
class Assigned:
    """A strategy, if the layer assignment gave one, and its lower bound on all with these degrees and placement."""

    plan: StrategyPlan | None
    bound: float | None


@dataclass(frozen=True)
class Tried:
    """Degrees and a placement that a method looked at, with the strategy that came of it, and its seconds, if one did.

    ``is_accepted``: whether annealing went on from there.
    """

    degrees: Degrees
    placement: tuple[int, ...]
    plan: StrategyPlan | None
    seconds: float
    is_accepted: bool = True


def assign_layers(
    instance: AmpInstance, degrees: Degrees, placement: tuple[int, ...], assign: Assign, watch: Watch
) -> Assigned:
    """The strategy with the layers that ``assign`` gives its stages before the watch is stopped."""
    answer = assign(layer_assignment(instance, degrees, placement), Limits(), watch.part(silent=True))
    plan = None if answer.plan is None else StrategyPlan(degrees, answer.plan.lengths, placement)
    return Assigned(plan, answer.bound)


def solve_amp(instance: AmpInstance, _limits: Limits, watch: Watch, top: int = 10) -> Answer[StrategyPlan]:
    """Algorithm 1: all degrees, Megatron's placement, the layer assignment without the all-reduce, then estimate()."""
    return _solve_by_rank(instance, watch, paper.solve_amp, top)


def solve_released(instance: AmpInstance, _limits: Limits, watch: Watch, top: int = 10) -> Answer[StrategyPlan]:
    """The same with the released layer assignment."""
    return _solve_by_rank(instance, watch, released_assignment(instance), top)


def solve_megatron(instance: AmpInstance, _limits: Limits, watch: Watch, top: int = 10) -> Answer[StrategyPlan]:
    """Megatron's placement and split for all degrees, by predicted time. How the paper picked its rows is unknown."""
    return _solve_by_rank(instance, watch, paper.solve_megatron, top)


def released_assignment(instance: AmpInstance) -> Assign:
    """The released layer assignment, with its own idea of head and tail where there is one micro-batch."""

    def assign(layers: LayerAssignmentInstance, limits: Limits, watch: Watch) -> Answer[LayerPlan]:
        head, tail = instance.released_framing or (layers.head_layers, layers.tail_layers)
        return paper.solve_released(replace(layers, head_layers=head, tail_layers=tail), limits, watch)

    return assign


def possible_degrees(instance: AmpInstance) -> list[Degrees]:
    """All degrees that are possible; fewer stages, whose programs are shorter, come first."""
    demand(40.0 * instance.num_devices, f"a placement of {instance.num_devices} devices")
    return sorted(possible(instance), key=lambda degrees: degrees.pp_degree)


def rank_degrees(instance: AmpInstance, watch: Watch, assign: Assign) -> Iterator[Tried]:
    """All degrees in Megatron's placement, each with the layers that ``assign`` gives its stages."""
    for degrees in possible_degrees(instance):
        if watch.stopped():
            break
        placement = placements(instance, degrees)[0]
        plan = assign_layers(instance, degrees, placement, assign, watch).plan
        yield Tried(degrees, placement, plan, math.inf if plan is None else evaluate(instance, plan))


def _solve_by_rank(instance: AmpInstance, watch: Watch, assign: Assign, top: int) -> Answer[StrategyPlan]:
    record: dict[StrategyPlan, float] = {}
    for each in rank_degrees(instance, watch, assign):
        if each.plan is not None:
            record[each.plan] = each.seconds
            watch.plan(each.plan, each.seconds)
    return _answer(instance, record, watch, top)


def solve_best_layers(instance: AmpInstance, _limits: Limits, watch: Watch, top: int = 10) -> Answer[StrategyPlan]:
    """Algorithm 1 with the best layer assignment for the whole step in place of its own."""
    return _solve_by_rank(instance, watch, exact.solve, top)


def _answer(instance: AmpInstance, record: dict[StrategyPlan, float], watch: Watch, top: int) -> Answer[StrategyPlan]:
    if not record and not watch.stopped():
        return empty_split_answer(instance)
    best = min(record, key=record.__getitem__) if record else None
    stats = {"strategies": len(record), "ranked": rows_of(instance, record, top)}
    return Answer(best, stop=watch.why(Stop.COMPLETED), stats=stats, options={"top": top})


def empty_split_answer(instance: AmpInstance) -> Answer[StrategyPlan]:
    """A method whose split left nothing has no proof, unless there are no degrees at all."""
    return infeasible_answer(instance) or Answer(reason="no strategy was left by the split", stop=Stop.COMPLETED)


def rows_of(instance: AmpInstance, record: dict[StrategyPlan, float], top: int) -> list[dict[str, Any]]:
    """The best strategies with their predicted seconds, term by term."""
    return [
        {**plan_to_json(instance, plan), "predicted_s": record[plan], **vars(terms(instance, plan))}
        for plan in sorted(record, key=record.__getitem__)[:top]
    ]


def solve_annealing(
    instance: AmpInstance, limits: Limits, watch: Watch, top: int = 10, iterations: int = ITERATIONS
) -> Answer[StrategyPlan]:
    """Algorithm 2: vary the tensor-parallel or the data-parallel degree, draw a placement and a micro-batch, accept.

    Misprints corrected: the lines below the else belong to both branches, the layer assignment is that of the new
    strategy, and random numbers are uniform. The temperature is in the first strategy's seconds; where the paper leaves
    open which one is the first, it has the fewest stages.
    """
    return _anneal(instance, limits, watch, paper.solve_amp, top, iterations)


def solve_annealing_best_layers(
    instance: AmpInstance, limits: Limits, watch: Watch, top: int = 10, iterations: int = ITERATIONS
) -> Answer[StrategyPlan]:
    """The same with the best layer assignment for the whole step; other costs lead it elsewhere."""
    return _anneal(instance, limits, watch, exact.solve, top, iterations)


def _anneal(
    instance: AmpInstance, limits: Limits, watch: Watch, assign: Assign, top: int, iterations: int
) -> Answer[StrategyPlan]:
    record: dict[StrategyPlan, float] = {}
    done = 0
    for each in anneal(instance, limits, watch, assign, iterations):
        done += 1
        if each.plan is not None and each.is_accepted:
            record[each.plan] = each.seconds
            watch.plan(each.plan, each.seconds)
    if not done and not watch.stopped():
        return empty_split_answer(instance)
    answer = _answer(instance, record, watch, top)
    return replace(answer, stats={**answer.stats, "iterations": done}, options={"top": top, "iterations": iterations})


def anneal(
    instance: AmpInstance, limits: Limits, watch: Watch, assign: Assign, iterations: int = ITERATIONS
) -> Iterator[Tried]:
    """What Algorithm 2 looks at, in its order."""
    rng = random.Random(limits.seed)
    allowed = possible_degrees(instance)
    current: tuple[Degrees, float] | None = None
    first = 0.0
    for iteration in range(iterations if allowed else 0):
        if watch.stopped():
            break
        degrees = allowed[0] if current is None else _neighbour(rng, allowed, current[0])
        placement = rng.choice(placements(instance, degrees))
        plan = assign_layers(instance, degrees, placement, assign, watch).plan
        if plan is None:
            yield Tried(degrees, placement, None, math.inf, is_accepted=False)
            continue
        cost = evaluate(instance, plan)
        first = first or cost
        temperature = max(first * (1 - iteration / iterations), 1e-300)
        is_accepted = current is None or rng.random() < math.exp(min(current[1] - cost, 0.0) / temperature)
        if is_accepted:
            current = degrees, cost
        yield Tried(degrees, placement, plan, cost, is_accepted)


def _neighbour(rng: random.Random, allowed: list[Degrees], now: Degrees) -> Degrees:
    """Another tensor-parallel degree at the same data-parallel one, or the other way round; any micro-batch."""
    if rng.random() < 0.5:
        near = [degrees for degrees in allowed if degrees.dp_degree == now.dp_degree]
    else:
        near = [degrees for degrees in allowed if degrees.tp_degree == now.tp_degree]
    shape = rng.choice(sorted({(degrees.tp_degree, degrees.dp_degree) for degrees in near}))
    return rng.choice([degrees for degrees in near if (degrees.tp_degree, degrees.dp_degree) == shape])
