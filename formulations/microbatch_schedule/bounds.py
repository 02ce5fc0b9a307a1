"""Lower bounds on the iteration: longest chains of passes; one device, or two micro-batches of a stage, at a time.

Each with what comes before and after it. Source: Jackson's preemptive schedule, the usual bound of one machine with
heads and tails; `two_in_flight`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from formulations.microbatch_schedule.two_in_flight import two_jobs
from formulations.simulation.simulate_graph import PassGraph
from instances.problems.microbatch_schedule import MAX_PASSES

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
    return max(longest, *devices, *(bound for bound, _ in two_in_flight(graph, known))) * SAFE


def two_in_flight(graph: PassGraph, known: Chains) -> Iterator[tuple[float, dict[int, float]]]:
    """The bound of each stage with room for two micro-batches, of more, and when passes start in its schedule."""
    for stage, (room, count) in enumerate(zip(graph.rooms, graph.counts, strict=True)):
        if room == 2 < count:
            first, last = graph.number(stage, "F", 0), graph.release(stage, count - 1)
            seconds, starts = two_jobs(graph, stage)
            yield known.heads[first] + seconds + known.tails[last], starts


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
