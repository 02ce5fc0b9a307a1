"""A compiled lower bound on an iteration under 1F1B, whatever warm-ups within given ones its stages have.

Stages have one micro-batch size. With l forward passes in its warm-up, forward pass j + l of a stage comes after its
backward pass j, and backward pass j after its forward pass j + l - 1. With l from a to c both hold of pass j + c and of
pass j + a - 1: what is left out makes nothing longer, and where a = c nothing is left out.
"""

# mypy: disallow_untyped_decorators=False

from __future__ import annotations

from typing import Any

import numpy as np

from formulations.compiled.numba_kernels import FLOATS, INT, INTS, compile_kernels, kernel


@kernel(INTS, INTS, FLOATS, FLOATS, INTS, INTS, INTS, INTS, INT, error_model="python")
def least_makespan(
    fewest: Any,
    most: Any,
    forward: Any,
    backward: Any,
    before_start: Any,
    before: Any,
    after_start: Any,
    after: Any,
    rounds: int,
) -> float:
    """Seconds until the last pass ends, at least; that time itself where ``fewest`` are ``most``.

    Stages come in a topological order; the neighbours of s are ``before[before_start[s]:before_start[s + 1]]``, and
    those of ``after`` too. Also what each stage alone takes: of the passes that start late all run before its last
    backward pass, and the backward passes of the stages before come after that.
    """
    stages = len(forward)
    starts, ends = np.zeros((2, stages, rounds)), np.zeros((2, stages, rounds))
    done = np.zeros((2, stages), np.int64)
    left = 2 * stages * rounds
    while left:
        left_before = left
        for direction in range(2):
            for place in range(stages):
                s = place if direction == 0 else stages - 1 - place
                start, neighbours = (after_start, after) if direction else (before_start, before)
                seconds = backward[s] if direction else forward[s]
                while done[direction, s] < rounds:
                    j = done[direction, s]
                    when = ends[direction, s, j - 1] if j else 0.0
                    # The pass of the other direction that comes first, and how many of them have to be done.
                    other = min(j + fewest[s], rounds) if direction else j - most[s] + 1
                    if done[1 - direction, s] < other:
                        break
                    if other > 0:
                        when = max(when, ends[1 - direction, s, other - 1])
                    ready = True
                    for x in range(start[s], start[s + 1]):
                        if done[direction, neighbours[x]] <= j:
                            ready = False
                            break
                        when = max(when, ends[direction, neighbours[x], j])
                    if not ready:
                        break
                    starts[direction, s, j], ends[direction, s, j] = when, when + seconds
                    done[direction, s] += 1
                    left -= 1
        if left == left_before:
            return np.inf  # never where the warm-ups are possible: all ends that are sought are in them
    longest = 0.0
    tail = np.zeros(stages)
    for s in range(stages):
        for x in range(before_start[s], before_start[s + 1]):
            tail[s] = max(tail[s], tail[before[x]] + backward[before[x]])
        longest = max(longest, ends[1, s, rounds - 1])
        a = c = 0
        while a < rounds or c < rounds:
            is_forward = c == rounds or (a < rounds and starts[0, s, a] <= starts[1, s, c])
            since = starts[0, s, a] if is_forward else starts[1, s, c]
            longest = max(longest, since + (rounds - a) * forward[s] + (rounds - c) * backward[s] + tail[s])
            if is_forward:
                a += 1
            else:
                c += 1
    return longest


compile_kernels(__name__)
