"""Compiled loop of the pricing of stages: sets of operators along a walk, by what they take and what they are worth."""

# mypy: disallow_untyped_decorators=False

from __future__ import annotations

from typing import Any

import numpy as np

from formulations.compiled import FLAG, FLOAT, FLOATS, INT, INTS, SHORTS, compile_kernels, kernel

#: Why the loop gave up: stopped, or too many labels.
STOPPED, FULL = -1, -2


@kernel(INTS, INTS, FLOATS, FLOATS, FLOAT, INT, INTS, FLOATS, FLOATS, SHORTS, SHORTS, FLAG, error_model="python")
def label(
    start: Any,
    tail: Any,
    takes: Any,
    worth: Any,
    capacity: float,
    most: int,
    first: Any,
    taken: Any,
    gained: Any,
    parent: Any,
    by: Any,
    flag: Any,
) -> int:
    """The labels of all states of a walk that no other label of their state beats; how many, or `STOPPED` or `FULL`.

    ``takes`` and ``worth`` are those of each step. A label is a way into a state: what it has ``taken`` of the
    ``capacity``, what it has ``gained``, the label before it (``parent``) and the step between (``by``). Those of state
    s are ``first[s]`` to ``first[s + 1]``; taken and gained both ascend. Beyond ``most`` of a state those that take
    about the same become one, which takes what the least of them takes and gains the most: then no label is beaten by
    what is not there, but what a label takes may be less than what its steps take.
    """
    taken[0] = gained[0] = 0.0
    parent[0] = by[0] = -1
    first[0], first[1] = 0, 1
    end = 1
    width = 1
    for s in range(1, len(start) - 1):
        width = max(width, start[s + 1] - start[s])
    at = np.zeros(width, np.int64)
    for s in range(1, len(start) - 1):
        if flag[0]:
            return -1
        steps = start[s + 1] - start[s]
        for x in range(steps):
            at[x] = first[tail[start[s] + x]]
        best = -1.0
        bucket = -1
        while True:
            pick = -1
            least = np.inf
            more = 0.0
            for x in range(steps):
                step = start[s] + x
                stop = first[tail[step] + 1]
                while at[x] < stop and gained[at[x]] + worth[step] <= best:
                    at[x] += 1
                if at[x] == stop:
                    continue
                take = taken[at[x]] + takes[step]
                gain = gained[at[x]] + worth[step]
                if take > capacity:
                    at[x] = stop
                elif take < least or (take == least and gain > more):
                    pick, least, more = x, take, gain
            if pick < 0:
                break
            into = end
            if end - first[s] >= most:
                before = bucket
                bucket = int(least / capacity * most)
                if bucket == before:
                    into = end - 1
            if into == len(taken):
                return -2
            if into == end:
                taken[into] = least
                end += 1
            gained[into] = best = more
            parent[into], by[into] = at[pick], start[s] + pick
            at[pick] += 1
        first[s + 1] = end
    return end


compile_kernels(__name__)
