"""A lower bound on the iteration from a stage with room for two micro-batches: a job shop of two jobs.

Let x be such a stage, and a path of stages with micro-batches of one size begin at it. Every micro-batch runs F down
the path, B up it, and where x holds activations until W that pass, too. Micro-batch j + 2 begins when j has ended. So
the even ones are one job, and the odd ones another. Both need devices, which run one pass at a time; passes of a kind
of a stage keep their order. What the jobs take at least lies between the first pass of x and its last one.

A point (u, v) is how many seconds of each job are done, and time is a path of it: to the right where the odd job waits,
up where the even one does, else along the diagonal. Two passes of a device exclude the inside of a rectangle
(u1, u2) x (v1, v2). If the even job's pass has to come first, they exclude (-inf, u2) x (v1, inf), and if the odd one's
does, (u1, inf) x (-inf, v2).

**From a corner** the jobs go on along the diagonal, at no loss, until a rectangle is in the way; then through its
corner (u1, v2), v2 - v seconds later, or (u2, v1), u2 - u seconds later. *Proof.* A path from (u, v) above it
comes to the height v2 at some u' <= u1, after v2 - v seconds or more. Replace the first number of each later point by
u1 where it is less: this takes no longer. As u1 is the beginning of a pass, no bounded rectangle has it inside, nor has
one that is unbounded to the left unless it had the point before. One that begins at a u' < u1, is unbounded to the
right and reaches above v2 would have been in the way before. So from (u1, v2) on no more time is left than on the path.
The same holds below the rectangle. If nothing is in the way, the longer rest of the two jobs is left.

Source: Akers 1956 and Brucker 1988 for job shops of two jobs; for micro-batches this project.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from formulations.simulation.simulate_graph import PassGraph
from instances.problems.microbatch_schedule import Kind

KINDS: tuple[Kind, ...] = ("F", "B", "W")
#: Both ends of a rectangle in the even job, and both in the odd one.
Rectangle = tuple[float, float, float, float]


class _Pass(NamedTuple):
    """A pass of a micro-batch: its device, stage and place in F, B, W, and its seconds of the job."""

    device: int
    stage: int
    rank: int
    begin: float
    end: float


def two_jobs(graph: PassGraph, stage: int) -> tuple[float, dict[int, float]]:
    """From the first pass of a stage with room for two micro-batches to its last one, at least, in seconds.

    And when the passes of both jobs start, counted from the first one, where they take no longer than that.
    """
    steps, takes = _steps(graph, _path(graph, stage))
    count = graph.counts[stage]
    jobs = [[_moved(steps, (j // 2) * takes) for j in range(parity, count, 2)] for parity in range(2)]
    rectangles = [
        [each for odd in (n - 1, n) if 0 <= odd < len(jobs[1]) for each in _excluded(passes, jobs[1][odd], odd < n)]
        for n, passes in enumerate(jobs[0])
    ]
    seconds, corners = _shortest(rectangles, takes, takes * len(jobs[0]), takes * len(jobs[1]))
    starts = {}
    for parity, job in enumerate(jobs):
        at = 0
        for n, step in ((n, step) for n, passes in enumerate(job) for step in passes):
            while at + 1 < len(corners) and corners[at + 1][1 + parity] <= step.begin:
                at += 1
            started = corners[at][0] + step.begin - corners[at][1 + parity]
            starts[graph.number(step.stage, KINDS[step.rank], 2 * n + parity)] = started
    return seconds, starts


def _path(graph: PassGraph, stage: int) -> list[int]:
    """The longest path of stages from one on with micro-batches of its size."""
    instance, longest, after = graph.instance, dict[int, float](), dict[int, int]()
    for s in reversed(instance.order):
        own = instance.stages[s]
        longest[s] = own.forward_s + own.backward_s
        for edge in instance.edges:
            t = edge.target
            if edge.source != s or instance.stages[t].microbatch != own.microbatch:
                continue
            through = longest[t] + own.forward_s + own.backward_s + instance.delay(edge, s) + instance.delay(edge, t)
            if through > longest[s]:
                longest[s], after[s] = through, t
    path = [stage]
    while path[-1] in after:
        path.append(after[path[-1]])
    return path


def _steps(graph: PassGraph, path: Sequence[int]) -> tuple[list[_Pass], float]:
    """The passes of micro-batch 0, and the seconds from the first one to the last one, with messages."""
    instance, found, clock = graph.instance, list[_Pass](), 0.0
    delays = {(edge.source, edge.target): edge for edge in instance.edges}
    kinds: list[tuple[Kind, int]] = [("F", s) for s in path]
    kinds += [("B", s) for s in reversed(path)]
    kinds += [("W", path[0])] if instance.stages[path[0]].releases == "W" else []
    for kind, s in kinds:
        if found and found[-1].stage != s:
            ends = (found[-1].stage, s) if kind == "F" else (s, found[-1].stage)
            clock += instance.delay(delays[ends], found[-1].stage)
        seconds = instance.stages[s].seconds[kind]
        found.append(_Pass(instance.device_of[s], s, KINDS.index(kind), clock, clock + seconds))
        clock += seconds
    return found, clock


def _moved(steps: Sequence[_Pass], by: float) -> list[_Pass]:
    return [each._replace(begin=by + each.begin, end=by + each.end) for each in steps]


def _excluded(even: Sequence[_Pass], odd: Sequence[_Pass], is_later: bool) -> Iterator[Rectangle]:
    """Of two micro-batches that follow each other; ``is_later``: the even one is behind the odd one."""
    for p in even:
        for q in odd:
            if p.device != q.device:
                continue
            if p.stage != q.stage or (p.rank < q.rank if is_later else q.rank < p.rank):
                yield p.begin, p.end, q.begin, q.end
            elif p.rank == q.rank and is_later:
                yield p.begin, math.inf, -math.inf, q.end
            elif p.rank == q.rank:
                yield -math.inf, p.end, q.begin, math.inf


def _shortest(
    rectangles: Sequence[Sequence[Rectangle]], takes: float, width: float, height: float
) -> tuple[float, list[tuple[float, float, float]]]:
    """Seconds of the shortest path to (width, height), and its corners: seconds, u and v.

    ``rectangles`` are those of each micro-batch of the even job, which takes so many seconds.
    """
    known = {(0.0, 0.0): 0.0}
    open_points = [(0.0, 0.0, 0.0)]
    before: dict[tuple[float, float], tuple[float, float]] = {}
    least, corners = math.inf, [(0.0, 0.0)]
    while open_points and open_points[0][0] < least:
        clock, u, v = heappop(open_points)
        if clock > known[u, v]:
            continue
        way, hit = math.inf, None
        for number in range(min(int(u / takes), len(rectangles) - 1), len(rectangles)):
            if number * takes - u >= way:
                break
            for each in rectangles[number]:
                along = max(each[0] - u, each[2] - v, 0.0)
                if along < way and along < min(each[1] - u, each[3] - v):
                    way, hit = along, each
        if hit is None:
            ended = clock + max(width - u, height - v)
            if ended < least:
                least, corners[0] = ended, (u, v)
            continue
        u1, u2, v1, v2 = hit
        for x, y, seconds in ((u1, v2, v2 - v), (u2, v1, u2 - u)):
            if u <= x and v <= y and max(x, y) < math.inf and clock + seconds < known.get((x, y), math.inf):
                known[x, y], before[x, y] = clock + seconds, (u, v)
                heappush(open_points, (clock + seconds, x, y))
    while corners[-1] in before:
        corners.append(before[corners[-1]])
    return least, [(known[corner], *corner) for corner in reversed(corners)]
