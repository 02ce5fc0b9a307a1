"""The best of several schedules, repaired where they get stuck, and then improved along their critical paths.

Greedy both ways in time and by what still has to follow; so, too, behind the best order along a path of stages;
kFkB with different k and warm-ups, orders that trainers run where the stages are theirs.
Then passes of different kinds that are neighbours on a critical path change places while that helps; choices are
random, from a seed.

Source: GraphPipe's own schedules (`orders`), those of `known_orders`; the neighbourhood is the usual one of job shops.
"""

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from formulations.microbatch_schedule.along_path import Along
from formulations.microbatch_schedule.bounds import chains, narrow_paths
from formulations.microbatch_schedule.heuristics.known_orders import NAMES, orders_of, refusal
from formulations.microbatch_schedule.heuristics.orders import kfkb_orders
from formulations.simulation.simulate_graph import GraphTrace, Order, PassGraph, run
from solvers.outcome import Watch

#: Passes that the improvement may simulate; about five microseconds each.
EFFORT = 300_000
#: Steps for each pass: a small schedule has few neighbours.
_STEPS = 15
#: Steps without a better schedule before the search goes back to the best one.
_PATIENCE = 25

#: Paths whose order all other passes follow: those of the highest bounds.
_NARROW = 2

Found = Callable[[GraphTrace], object]


def candidates(graph: PassGraph) -> Iterator[GraphTrace]:
    """Schedules that start with an idea; those that got stuck are repaired."""
    instance = graph.instance
    yield run(graph)
    yield _by_what_follows(graph)
    for name in NAMES:
        if refusal(instance, name) is None:
            yield _run_or_repair(graph, orders_of(graph, name))
    for along in heapq.nlargest(_NARROW, narrow_paths(graph), attrgetter("seconds")):
        yield from behind(graph, along)
    if not instance.shares_devices:
        own, p = tuple(stage.k for stage in instance.stages), len(graph.counts)
        for ks in dict.fromkeys([(1,) * p, own, (2,) * p]):
            for more in (0, 1, 2, max(graph.counts)):
                yield _run_or_repair(graph, kfkb_orders(graph, ks, more))
    yield from _backwards(graph)


def _backwards(graph: PassGraph) -> Iterator[GraphTrace]:
    """Greedy from the end on: W comes first, then B, then F."""
    if not any(map(graph.shares_memory, range(len(graph.instance.stages_on)))):
        backwards = run(graph.mirrored(), priority=lambda number: "FBW".index(graph.kind[number]))
        yield run(graph, [order[::-1] for order in graph.orders_of(backwards.passes)], repair=True)


def behind(graph: PassGraph, along: Along) -> Iterator[GraphTrace]:
    """Schedules whose passes of some stages are in the order of a bound, the others behind them."""
    pinned = PassGraph(graph.instance, graph.rooms)
    for device in range(len(graph.instance.stages_on)):
        pinned.pin(device, [number for number in along.passes if graph.device[number] == device])
    if along.passes and pinned.is_possible():
        yield run(pinned)
        yield _by_what_follows(pinned)
        yield from _backwards(pinned)


def _by_what_follows(graph: PassGraph) -> GraphTrace:
    tails = chains(graph).tails
    return run(graph, priority=lambda number: (-tails[number], graph.backward_first(number)))


def _run_or_repair(graph: PassGraph, orders: Sequence[Order]) -> GraphTrace:
    trace = run(graph, orders)
    return run(graph, orders, repair=True) if trace.stuck else trace


def search(graph: PassGraph, watch: Watch, seed: int, found: Found, goal_s: float, effort: int = EFFORT) -> None:
    """Find schedules for a graph that is possible, each better than the last; stops at the goal, or with the watch."""
    best: GraphTrace | None = None
    for trace in candidates(graph):
        if _keeps(graph, trace) and (best is None or trace.iteration_s < best.iteration_s):
            best = trace
            found(best)
        if watch.stopped() or (best is not None and best.iteration_s <= goal_s):
            return
    if best is not None:  # without memory that stages share greedy is never stuck
        _improve(graph, best, watch, random.Random(seed), found, goal_s, effort)


def _keeps(graph: PassGraph, trace: GraphTrace) -> bool:
    return not trace.stuck and graph.fits(graph.orders_of(trace.passes))


def _improve(
    graph: PassGraph, best: GraphTrace, watch: Watch, rng: random.Random, found: Found, goal_s: float, effort: int
) -> None:
    current, seen, stale = best, {_key(graph, best)}, 0
    size = len(graph.stage)
    for _ in range(min(effort // size, _STEPS * size)):
        if best.iteration_s <= goal_s or watch.stopped():
            break
        trace = _neighbour(graph, current, rng)
        key = _key(graph, trace)
        stale += 1
        if key not in seen and _keeps(graph, trace):
            seen.add(key)
            if trace.iteration_s <= current.iteration_s or rng.random() < 0.02:
                current = trace
            if trace.iteration_s < best.iteration_s:
                best, stale = trace, 0
                found(best)
        if stale > _PATIENCE:
            current, stale = best, 0


def _key(graph: PassGraph, trace: GraphTrace) -> int:
    return hash(graph.orders_of(trace.passes))


def _neighbour(graph: PassGraph, trace: GraphTrace, rng: random.Random) -> GraphTrace:
    """One or two pairs of neighbours on a critical path change places."""
    pairs = _swaps(graph, trace, rng)
    orders = [list(order) for order in graph.orders_of(trace.passes)]
    for device, place in rng.sample(pairs, min(len(pairs), rng.choice((1, 1, 1, 2)))):
        orders[device][place - 1 : place + 1] = orders[device][place], orders[device][place - 1]
    return run(graph, orders)


def _swaps(graph: PassGraph, trace: GraphTrace, rng: random.Random) -> list[tuple[int, int]]:
    """(device, place) where the pass before could come after, along one critical path taken at random."""
    count = len(graph.stage)
    end, place, previous = [0.0] * count, [0] * count, [-1] * count
    for order in graph.orders_of(trace.passes):
        for at, number in enumerate(order):
            place[number], previous[number] = at, order[at - 1] if at else -1
    for task in trace.passes:
        end[graph.number(task.stage, task.kind, task.index)] = task.end_s
    latest = max(range(count), key=end.__getitem__)
    found, number = [], latest
    while number >= 0:
        start = end[number] - graph.seconds[number]
        slack = 1e-9 * (end[latest] + 1e-300)
        waits = [earlier for earlier, lag in graph.before[number] if end[earlier] + lag >= start - slack]
        before = previous[number]
        if before >= 0 and before not in waits and end[before] >= start - slack:
            waits.append(before)
            if graph.next_of_kind(before) != number:
                found.append((graph.device[number], place[number]))
        number = rng.choice(waits) if waits else -1
    return found
