"""Lower bounds on the iteration: longest chains of passes; one device, or one path of stages, at a time.

Each with what comes before and after it. Source: Jackson's preemptive schedule, the usual bound of one machine with
heads and tails; `along_path`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from formulations.simulation.simulate_graph import PassGraph, run
from instances.problems.microbatch_schedule import MAX_PASSES

if TYPE_CHECKING:
    from formulations.microbatch_schedule.along_path import Along

#: Floats add up to a little more or less than the numbers they stand for: each sum is off by a part of 2^-53. Of a pass
#: there are at most six sums in a bound, and two in the end of the schedule that it is compared with.
SAFE = 1 - 8 * MAX_PASSES * 2.0**-53


@dataclass(frozen=True)
class Chains:
    """For each pass the seconds that must lie before its start and after its end."""

    heads: list[float]
    tails: list[float]


def chains(graph: PassGraph) -> Chains:
    """Longest chains of precedences, without regard to devices being busy. The graph must be possible."""
    order = graph.sorted()
    heads, tails = [0.0] * len(order), [0.0] * len(order)
    for number in order:
        end = heads[number] + graph.seconds[number]
        for later, lag in graph.after[number]:
            heads[later] = max(heads[later], end + lag)
    for number in reversed(order):
        for later, lag in graph.after[number]:
            tails[number] = max(tails[number], lag + graph.seconds[later] + tails[later])
    return Chains(heads, tails)


def iteration_bound(graph: PassGraph, known: Chains | None = None) -> float:
    """No schedule is faster than this many seconds."""
    known = known or chains(graph)
    longest = max(h + s + t for h, s, t in zip(known.heads, graph.seconds, known.tails, strict=True))
    devices = (_one_device(graph, known, device) for device in range(len(graph.instance.stages_on)))
    return max(longest, *devices, *(along.seconds for along in narrow_paths(graph))) * SAFE


@lru_cache(maxsize=1)
def narrow_paths(graph: PassGraph) -> list[Along]:
    """`along_paths`, where the greedy schedule is not faster; kept, as bounds and schedules begin with them."""
    from formulations.microbatch_schedule.along_path import along_paths

    known, greedy = chains(graph), run(graph)
    keeps = not greedy.stuck and graph.fits(graph.orders_of(greedy.passes))
    return along_paths(graph, known.heads, known.tails, greedy.iteration_s if keeps else math.inf)


def wider_paths(graph: PassGraph, most: float) -> Iterator[Along]:
    """`widened`, from the path of the highest bound; ``most`` are the seconds of a schedule."""
    from formulations.microbatch_schedule.along_path import widened

    known, paths = chains(graph), narrow_paths(graph)
    if paths:
        yield from widened(
            graph, known.heads, known.tails, max(paths, key=lambda along: (along.seconds, -len(along.stages))), most
        )


def _one_device(graph: PassGraph, known: Chains, device: int) -> float:
    """The device alone, its passes interruptible: always run the one with most to come after it."""
    passes = sorted(graph.on(device), key=lambda number: known.heads[number])
    left = {number: graph.seconds[number] for number in passes}
    waiting: list[tuple[float, int]] = []
    clock = most = 0.0
    come = 0
    while come < len(passes) or waiting:
        if not waiting:
            clock = max(clock, known.heads[passes[come]])
        while come < len(passes) and known.heads[passes[come]] <= clock:
            heapq.heappush(waiting, (-known.tails[passes[come]], passes[come]))
            come += 1
        number = waiting[0][1]
        until = clock + left[number]
        if come < len(passes) and known.heads[passes[come]] < until:
            left[number] -= known.heads[passes[come]] - clock
            clock = known.heads[passes[come]]
            continue
        heapq.heappop(waiting)
        clock, most = until, max(most, until + known.tails[number])
    return most
