"""Compiled loop of the pricing of stages: sets of operators along a walk, by what they take and what they are worth."""

# mypy: disallow_untyped_decorators=False

from typing import Any, NamedTuple

import numpy as np

from formulations.compiled.array_types import Floats, Ints, Shorts
from formulations.compiled.numba_kernels import FLAG, FLOAT, INT, compile_kernels, inner, kernel

#: Why the loop gave up: stopped, or too many labels.
STOPPED, FULL = -1, -2


class Labels(NamedTuple):
    """Ways into the states of a walk: those of state s are ``first[s]`` to ``first[s + 1]``; there ``taken`` ascends.

    Each has ``taken`` seconds, ``held`` bytes and ``gained`` worth; ``parent`` is the label before, ``by`` the step.
    """

    first: Ints
    taken: Floats
    held: Floats
    gained: Floats
    parent: Shorts
    by: Shorts


class Steps(NamedTuple):
    """Steps of a walk (`label_order`): the seconds that each takes, the bytes it holds, and what it is worth."""

    start: Ints
    tail: Ints
    takes: Floats
    holds: Floats
    worth: Floats


@inner(error_model="python")
def _enter(stair: Any, size: int, held: float, gained: float) -> int:
    """Enter a label into the stair of those before it that hold less or gain more; -1 if one of these beats it.

    ``stair[:size]`` has bytes and worth, both ascending; the new size is the answer.
    """
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if stair[middle, 0] <= held:
            low = middle + 1
        else:
            high = middle
    if low and stair[low - 1, 1] >= gained:
        return -1
    if low and stair[low - 1, 0] == held:
        low -= 1
    stop = low
    while stop < size and stair[stop, 1] <= gained:
        stop += 1
    if stop == low:
        for x in range(size, low, -1):
            stair[x, 0], stair[x, 1] = stair[x - 1, 0], stair[x - 1, 1]
        size += 1
    elif stop > low + 1:
        for x in range(stop, size):
            stair[x - stop + low + 1, 0], stair[x - stop + low + 1, 1] = stair[x, 0], stair[x, 1]
        size -= stop - low - 1
    stair[low, 0], stair[low, 1] = held, gained
    return size


@kernel(Steps, FLOAT, FLOAT, INT, Labels, FLAG, error_model="python")
def label(steps: Any, capacity: float, room: float, most: int, labels: Any, flag: Any) -> int:
    """Lay out the labels that no other one of their state beats; how many, or `STOPPED` or `FULL`.

    A label takes at most ``capacity`` seconds and holds at most ``room`` bytes. Beyond ``most`` of a state those that
    take about the same become one, which takes and holds the least of what they do and gains the most: nothing is lost
    by that, but a label may take less than its steps.
    """
    start, tail, takes, holds, worth = steps.start, steps.tail, steps.takes, steps.holds, steps.worth
    first, taken, held, gained = labels.first, labels.taken, labels.held, labels.gained
    parent, by = labels.parent, labels.by
    taken[0] = held[0] = gained[0] = 0.0
    parent[0] = by[0] = -1
    first[0], first[1] = 0, 1
    end = 1
    width = 1
    for s in range(1, len(start) - 1):
        width = max(width, start[s + 1] - start[s])
    at = np.zeros(width, np.int64)
    stair = np.zeros((2 * most + 4, 2))
    for s in range(1, len(start) - 1):
        if flag[0]:
            return STOPPED
        begin = start[s]
        for x in range(start[s + 1] - begin):
            at[x] = first[tail[begin + x]]
        size = 0
        bucket = -1
        while True:
            pick = -1
            least = np.inf
            more = 0.0
            for x in range(start[s + 1] - begin):
                if at[x] == first[tail[begin + x] + 1]:
                    continue
                take = taken[at[x]] + takes[begin + x]
                gain = gained[at[x]] + worth[begin + x]
                if take > capacity:
                    at[x] = first[tail[begin + x] + 1]
                elif take < least or (take == least and gain > more):
                    pick, least, more = x, take, gain
            if pick < 0:
                break
            before = at[pick]
            at[pick] += 1
            hold = held[before] + holds[begin + pick]
            if hold > room:
                continue
            entered = _enter(stair, size, hold, more)
            if entered < 0:
                continue
            size = entered
            into = end
            if end - first[s] >= most:
                last = bucket
                bucket = int(least / capacity * most)
                if bucket == last:
                    into = end - 1
            if into == len(taken):
                return FULL
            if into == end:
                taken[into], held[into], gained[into] = least, hold, more
                end += 1
            else:
                held[into], gained[into] = min(held[into], hold), max(gained[into], more)
                entered = _enter(stair, size, held[into], gained[into])
                size = entered if entered >= 0 else size
            parent[into], by[into] = before, begin + pick
        first[s + 1] = end
    return end


compile_kernels(__name__)
