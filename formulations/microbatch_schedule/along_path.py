"""A lower bound on the iteration from the passes of a few stages: a search over what has begun, with merging.

Let micro-batches of one size run through a few stages, such as down a path and up again. All other passes are left out
but for what must lie before and after each pass that is kept (heads and tails). What is left is a job shop, where room
for so many micro-batches of a stage is a precedence. Its least end is no more than that of the whole: any schedule is
one of it.

**States.** A line is the passes of a kind of a stage, which begin in turn. A state says how many passes of each line
have begun, when the last one of each ends, and when the last pass of all began. Let its value be the least end over
schedules of the passes that are left, none of which begins before that. *The passes that have begun count by these
numbers alone*: a pass that is not the last one of its line ended before that one began, and no pass is made to wait for
it any more. Where messages take time that wait is dropped, which only lowers the bound. An end that is earlier than
the last start, less the longest message from it, delays nothing any more and may be raised to that. The value of the
state before the first pass is the least end, or less where a wait was dropped.

**Steps.** The value of a state is the least one of the states behind it, one for each pass that may begin next, at its
earliest. *Proof.* Of the passes left one begins first, not before its earliest start; beginning then it delays none.
A step may be left out if another pass of the device could end by that start. *Proof.* If the first pass of a best
schedule is such a one, let the other begin at its own earliest start: it ends in time, all else stays, and the sum of
starts is less. A best schedule of the least sum has no such pass.

**Dominance and merging.** A value never falls as a number of its state grows. So of two states of a set one that has
no greater number is enough, and two may be merged into one with the lesser number of each: the value of that is no more
than theirs. So the bound holds for any number of states that are kept, and is the least end where none were merged.
States whose passes, with their tails or with the rest of a device, end as late as a known schedule are left out: the
bound is that schedule's end at most.

Passes wait for others a fixed number of micro-batches before, so sets differ by whole micro-batches, and few are apart
otherwise: 955 for six stages with room for 4, 4, 3, 2, 2 and 1.

Source: Gromicho et al. 2012 for the states and the dominance, Giffler and Thompson 1960 for the steps, Andersen et al.
2007 for merging; for micro-batches this project.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from formulations.microbatch_schedule.kernels.along_path import Lines, least_end
from formulations.simulation.simulate_graph import PassGraph
from instances.problems.microbatch_schedule import Kind

#: Sets of passes of a path, at most, and of several that are met; longer paths are left out, their ends are not.
_SETS, _WIDE_SETS = 5_000, 16_000
#: Sets are some times fewer than counted, as the stages behind have less room; beyond that they are not made.
_AHEAD = 10
#: States that are counted, and of a set for each micro-batch: mostly there are less than ten.
_STATES, _OF_SET = 10_000_000, 10
#: Numbers of the states that are held at once, and states of a set that are kept; rarely are there as many.
_NUMBERS, _WIDTH = 16_000_000, 64


class Along(NamedTuple):
    """A bound of the iteration, and the passes of its schedule by start; none where it is that of a known one."""

    seconds: float
    stages: tuple[int, ...]
    passes: tuple[int, ...]


def along_paths(graph: PassGraph, heads: Sequence[float], tails: Sequence[float], most: float) -> list[Along]:
    """The bound of the longest path from each stage on, where that has few sets.

    ``heads``, ``tails``: seconds before and after each pass, at least.
    ``most``: seconds of a schedule, or more; no bound is above that.
    """
    found = []
    for path in _paths(graph).values():
        # So many micro-batches are on the path, in turn: this counts sets, and more where others have no room.
        ahead = math.comb(len(_kinds(graph, path)) + graph.rooms[path[0]], graph.rooms[path[0]])
        lines = _lines(graph, heads, tails, path, _SETS) if ahead <= _AHEAD * _SETS else None
        if lines is not None:
            found.append(_along(graph, path, lines, most))
    return found


def widened(
    graph: PassGraph, heads: Sequence[float], tails: Sequence[float], along: Along, most: float
) -> Iterator[Along]:
    """With the path from one more stage that comes upon these: that of the highest bound, as long as it is higher."""
    paths = _paths(graph)
    while along.seconds < most:
        known = frozenset(along.stages)
        meeting = {known.union(path) for path in paths.values() if not known.isdisjoint(path)} - {known}
        found = [
            _along(graph, stages, lines, most)
            for stages in map(sorted, sorted(meeting, key=sorted))
            if (lines := _lines(graph, heads, tails, stages, _WIDE_SETS)) is not None
        ]
        wider = max(found, key=lambda each: (each.seconds, -len(each.stages)), default=along)
        if wider.seconds <= along.seconds:
            return
        yield (along := wider)


def _along(graph: PassGraph, stages: Sequence[int], lines: Lines, most: float) -> Along:
    sets, count = lines.begun.shape
    before, begins = np.zeros(_STATES, np.int32), np.zeros(_STATES, np.int32)
    width = min(_WIDTH, 1 + _NUMBERS // (sets * (count + 1)))
    seconds, state = least_end(lines, most, width, before, begins)
    begun, order = [graph.number(stage, kind, 0) for stage, kind in _kinds(graph, stages)], list[int]()
    taken = []
    while state > 0:
        taken.append(int(begins[state]))
        state = before[state]
    for line in reversed(taken):
        order.append(begun[line])
        begun[line] += 1
    return Along(seconds, tuple(stages), tuple(order))


def _paths(graph: PassGraph) -> dict[int, list[int]]:
    """From each stage on the longest path of stages with micro-batches of its size."""
    instance, longest, paths = graph.instance, dict[int, float](), dict[int, list[int]]()
    for s in reversed(instance.order):
        own = instance.stages[s]
        longest[s], paths[s] = sum(own.seconds.values()), [s]
        for edge in instance.edges:
            t = edge.target
            if edge.source != s or instance.stages[t].microbatch != own.microbatch:
                continue
            through = longest[t] + sum(own.seconds.values()) + instance.delay(edge, s) + instance.delay(edge, t)
            if through > longest[s]:
                longest[s], paths[s] = through, [s, *paths[t]]
    return paths


def _kinds(graph: PassGraph, stages: Sequence[int]) -> list[tuple[int, Kind]]:
    return [(stage, kind) for stage in stages for kind in graph.instance.stages[stage].seconds]


def _lines(
    graph: PassGraph, heads: Sequence[float], tails: Sequence[float], stages: Sequence[int], most: int
) -> Lines | None:
    """``None``: there are more sets, or too many states."""
    kinds = _kinds(graph, stages)
    m, place = graph.counts[stages[0]], {kind: line for line, kind in enumerate(kinds)}
    waits: list[list[tuple[int, int, float]]] = []
    for stage, kind in kinds:
        last = graph.number(stage, kind, m - 1)
        givers = (
            (place.get((graph.stage[p], graph.kind[p])), m - 1 - graph.index[p], lag) for p, lag in graph.before[last]
        )
        waits.append([(line, room, lag) for line, room, lag in givers if line is not None and line != len(waits)])
        if kind == "F" and graph.rooms[stage] >= m:  # all may be in flight: so sets are few where passes are
            waits[-1].append((place[stage, graph.instance.stages[stage].releases], m, 0.0))
    steps = _sets(waits, min(most, _STATES // (_OF_SET * m)))
    if steps is None:
        return None
    devices = sorted({graph.instance.device_of[stage] for stage in stages})
    firsts = [graph.number(stage, kind, 0) for stage, kind in kinds]
    tail = np.array([tails[first : first + m] for first in firsts])
    device = np.array([devices.index(graph.device[first]) for first in firsts])
    flat = [each for all_of_line in waits for each in all_of_line]
    return Lines(
        begun=np.array(list(steps)),
        first=np.cumsum([0, *map(len, steps.values())]),
        line=np.array([line for each in steps.values() for line, _ in each]),
        to=np.array([to for each in steps.values() for _, to in each]),
        device=device,
        seconds=np.array([graph.seconds[first] for first in firsts]),
        reach=np.array([max((lag for giver, _, lag in flat if giver == line), default=0.0) for line in place.values()]),
        waits=np.cumsum([0, *map(len, waits)]),
        giver=np.array([giver for giver, _, _ in flat]),
        room=np.array([room for _, room, _ in flat]),
        message=np.array([lag for _, _, lag in flat]),
        head=np.array([heads[first : first + m] for first in firsts]),
        tail=tail,
        drain=np.array([tail[device == d].min() for d in range(len(devices))]),
    )


def _sets(
    waits: Sequence[Sequence[tuple[int, int, float]]], most: int
) -> dict[tuple[int, ...], list[tuple[int, int]]] | None:
    """Passes of each line that have begun, without whole micro-batches; and the steps from there: a line, and to where.

    ``None`` if there are more than ``most``.
    """
    empty = (0,) * len(waits)
    number, steps = {empty: 0}, dict[tuple[int, ...], list[tuple[int, int]]]()
    for begun in (to_do := [empty]):  # grows while it is walked
        steps[begun] = []
        for line, givers in enumerate(waits):
            if all(begun[giver] > begun[line] - room for giver, room, _ in givers):
                more = [count + (other == line) for other, count in enumerate(begun)]
                whole = min(more)
                after = tuple(count - whole for count in more)
                if after not in number:
                    number[after] = len(number)
                    to_do.append(after)
                steps[begun].append((line, number[after]))
        if len(number) > most:
            return None
    return steps
