"""Random tilings under simulated annealing: the placement part of AMP's Algorithm 2.

| Paper              | Here                                              |
|--------------------|---------------------------------------------------|
| sample_domino      | ``random_tiling``: first free device, random tile |
| cool_down(t, i)    | 1 - i / iterations, times the first cost          |
| acc_prob           | ``exp(min(cost - next, 0) / t)``                  |

The printed listing draws from randn() where a uniform number is meant; here it is uniform. Stages are numbered in the
order in which their tiles are laid.
"""

import math
import random

from formulations.contract.family import Answer
from formulations.mesh_tiling.definition.plan import TilingPlan
from formulations.mesh_tiling.definition.problem import evaluate
from formulations.mesh_tiling.placements import Placements, infeasible_answer, regular_tiling
from instances.problems.mesh_tiling import MeshInstance
from solvers.outcome import Limits, Stop, Watch

#: A tiling that took so many attempts to lay a tile is given up.
_ATTEMPTS = 100


def solve(instance: MeshInstance, limits: Limits, watch: Watch, iterations: int = 1000) -> Answer[TilingPlan]:
    """The best of ``iterations`` tilings, a regular one and random ones, each a neighbour of all, as in the listing."""
    places = Placements(instance)
    infeasible = infeasible_answer(instance, places)
    if infeasible is not None:
        return infeasible
    rng = random.Random(limits.seed)
    plan, cost, first = None, math.inf, None
    done = 0
    for iteration in range(iterations):
        if watch.stopped():
            break
        done += 1
        tiling = regular_tiling(places) if iteration == 0 else random_tiling(places, rng, watch)
        if tiling is None:
            continue
        after = places.plan(tiling)
        after_cost = evaluate(instance, after)
        first = first or after_cost
        temperature = first * (1 - iteration / iterations)
        if plan is None or rng.random() < math.exp(min(cost - after_cost, 0.0) / max(temperature, 1e-300)):
            plan, cost = after, after_cost
            watch.plan(plan, cost)
    return Answer(
        watch.best_plan,
        stop=watch.why(Stop.COMPLETED),
        reason="" if watch.best_plan else "no tiling was drawn",
        stats={"iterations": done},
        options={"iterations": iterations},
    )


def random_tiling(places: Placements, rng: random.Random, watch: Watch) -> list[int] | None:
    """Lay random tiles at the first free device, going back where none fits; ``None`` if it takes too long."""
    free = [True] * len(places.tiles_over)
    laid: list[tuple[int, list[int]]] = []  # a tile, and those still to be tried in its place
    device = 0  # no device before this one is free
    for _ in range(_ATTEMPTS * max(1, places.instance.num_stages)):
        while device < len(free) and not free[device]:
            device += 1
        if device == len(free):
            return [number for number, _ in laid]
        if watch.stopped():
            return None
        choices = [number for number in places.tiles_over[device] if all(free[each] for each in places.devices[number])]
        rng.shuffle(choices)
        while not choices:
            if not laid:
                return None
            number, choices = laid.pop()
            device = places.devices[number][0]
            for each in places.devices[number]:
                free[each] = True
        number = choices.pop()
        for each in places.devices[number]:
            free[each] = False
        laid.append((number, choices))
    return None
