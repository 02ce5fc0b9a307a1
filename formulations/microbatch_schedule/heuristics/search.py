"""The best of several schedules, repaired where they get stuck, and then improved along their critical paths.

Greedy both ways in time and by what still has to follow, kFkB with different k and warm-ups. Then passes of different
kinds that are neighbours on a critical path change places while that helps; choices are random, from a seed.

Source: GraphPipe's own schedules (`orders`); the neighbourhood is the usual one of job shops.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from formulations.microbatch_schedule.bounds import chains
from formulations.microbatch_schedule.heuristics.orders import kfkb_orders
from formulations.simulation.simulate_graph import GraphTrace, PassGraph, run
from solvers.outcome import Watch

#: Passes that the improvement may simulate; about five microseconds each.
EFFORT = 300_000
#: Steps for each pass: a small schedule has few neighbours.
_STEPS = 15
#: Steps without a better schedule before the search goes back to the best one.
_PATIENCE = 25

Found = Callable[[GraphTrace], object]


def candidates(graph: PassGraph) -> Iterator[GraphTrace]:
    """Schedules that start with an idea; those that got stuck are repaired."""
    yield run(graph)
    tails = chains(graph).tails
    yield run(graph, prefer_forward=lambda forward, backward: tails[forward] > tails[backward])
    stages = range(len(graph.counts))
    own = tuple(stage.k for stage in graph.instance.stages)
    for ks in dict.fromkeys([tuple(1 for _ in stages), own, tuple(2 for _ in stages)]):
        for more in (0, 1, 2, max(graph.counts)):
            orders = kfkb_orders(graph, ks, more)
            trace = run(graph, orders)
            yield run(graph, orders, repair=True) if trace.stuck else trace
    backwards = run(graph.mirrored(), prefer_forward=lambda _forward, _backward: True)
    orders = [order[::-1] for order in backwards.orders(len(graph.counts))]
    yield run(graph, orders, repair=True)


def search(graph: PassGraph, watch: Watch, seed: int, found: Found, goal_s: float, effort: int = EFFORT) -> GraphTrace:
    """The best schedule found for a graph that is possible; stops at the goal, or once the watch is stopped."""
    best: GraphTrace | None = None
    for trace in candidates(graph):
        if not trace.stuck and (best is None or trace.iteration_s < best.iteration_s):
            best = trace
            found(best)
        if best is not None and (best.iteration_s <= goal_s or watch.stopped()):
            return best
    assert best is not None  # greedy is never stuck where the graph is possible
    return _improve(graph, best, watch, random.Random(seed), found, goal_s, effort)


def _improve(
    graph: PassGraph, best: GraphTrace, watch: Watch, rng: random.Random, found: Found, goal_s: float, effort: int
) -> GraphTrace:
    current, seen, stale = best, {_key(graph, best)}, 0
    size = len(graph.stage)
    for _ in range(min(effort // size, _STEPS * size)):
        if best.iteration_s <= goal_s or watch.stopped():
            break
        trace = _neighbour(graph, current, rng)
        key = _key(graph, trace)
        stale += 1
        if not trace.stuck and key not in seen:
            seen.add(key)
            if trace.iteration_s <= current.iteration_s or rng.random() < 0.02:
                current = trace
            if trace.iteration_s < best.iteration_s:
                best, stale = trace, 0
                found(best)
        if stale > _PATIENCE:
            current, stale = best, 0
    return best


def _key(graph: PassGraph, trace: GraphTrace) -> int:
    return hash(trace.orders(len(graph.counts)))


def _neighbour(graph: PassGraph, trace: GraphTrace, rng: random.Random) -> GraphTrace:
    """One or two pairs of neighbours on a critical path change places."""
    pairs = _swaps(graph, trace, rng)
    orders = [list(order) for order in trace.orders(len(graph.counts))]
    for stage, place in rng.sample(pairs, min(len(pairs), rng.choice((1, 1, 1, 2)))):
        orders[stage][place - 1 : place + 1] = orders[stage][place], orders[stage][place - 1]
    return run(graph, ["".join(order) for order in orders])


def _swaps(graph: PassGraph, trace: GraphTrace, rng: random.Random) -> list[tuple[int, int]]:
    """(stage, place) where the pass before could come after, along one critical path taken at random."""
    count = len(graph.stage)
    end, place, previous = [0.0] * count, [0] * count, [-1] * count
    last_of, places = [-1] * len(graph.counts), [0] * len(graph.counts)
    latest = -1
    for task in trace.passes:
        number = graph.number(task.stage, task.is_forward, task.index)
        end[number], place[number], previous[number] = task.end_s, places[task.stage], last_of[task.stage]
        last_of[task.stage], places[task.stage] = number, places[task.stage] + 1
        if latest < 0 or task.end_s > end[latest]:
            latest = number
    found, number = [], latest
    while number >= 0:
        start = end[number] - graph.seconds[number]
        slack = 1e-9 * (end[latest] + 1e-300)
        waits = [earlier for earlier, lag in graph.before[number] if end[earlier] + lag >= start - slack]
        before = previous[number]
        if before >= 0 and before not in waits and end[before] >= start - slack:
            waits.append(before)
            if graph.forward[before] != graph.forward[number]:
                found.append((graph.stage[number], place[number]))
        number = rng.choice(waits) if waits else -1
    return found
