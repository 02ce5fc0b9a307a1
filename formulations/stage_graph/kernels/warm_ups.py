"""A compiled lower bound on an iteration under 1F1B, whatever warm-ups within given ones its stages have.

Stages have one micro-batch size. With l forward passes in its warm-up, forward pass j + l of a stage comes after its
backward pass j, and backward pass j after its forward pass j + l - 1. With l from a to c both hold of pass j + c and of
pass j + a - 1: what is left out makes nothing longer, and where a = c nothing is left out.
"""

# mypy: disallow_untyped_decorators=False

from typing import Any, NamedTuple

import numpy as np

from formulations.compiled.array_types import Floats, Ints
from formulations.compiled.numba_kernels import FLAG, FLOAT, INTS, compile_kernels, inner, kernel


class Stages(NamedTuple):
    """Stages in a topological order, seconds of their passes, and ``rounds`` micro-batches.

    The neighbours of s are ``before[before_start[s]:before_start[s + 1]]``, and those of ``after`` too.
    """

    forward: Floats
    backward: Floats
    before_start: Ints
    before: Ints
    after_start: Ints
    after: Ints
    rounds: int


@kernel(INTS, INTS, Stages, error_model="python")
def least_makespan(fewest: Any, most: Any, model: Any) -> float:
    """Seconds until the last pass ends, at least; that time itself where ``fewest`` are ``most``."""
    return float(_least(fewest, most, model))


@kernel(INTS, INTS, Stages, FLOAT, FLAG, error_model="python")
def narrow(fewest: Any, most: Any, model: Any, target: float, flag: Any) -> int:
    """Take warm-ups off the ends of ranges with which no iteration takes less than the target; how many were bounded.

    If nothing is left, ``fewest[0]`` is more than ``most[0]``. Ends early if the flag is raised.
    """
    low, high = fewest.copy(), most.copy()
    bounded, narrower = 0, True
    while narrower and not flag[0]:
        narrower = False
        bounded += 1
        if not _in_order(fewest, most, model) or not _least(fewest, most, model) < target:
            fewest[0] = most[0] + 1
            break
        for s in range(len(fewest)):
            for end in range(2):
                while fewest[s] < most[s] and not flag[0]:
                    low[:], high[:] = fewest, most
                    if end:
                        low[s] = most[s]
                    else:
                        high[s] = fewest[s]
                    bounded += 1
                    if _in_order(low, high, model) and _least(low, high, model) < target:
                        break
                    if end:
                        most[s] -= 1
                    else:
                        fewest[s] += 1
                    narrower = True
    return bounded


@inner(error_model="python")
def _in_order(fewest: Any, most: Any, model: Any) -> bool:
    """Leave out what is no more than the warm-ups behind; whether something is left."""
    stages = len(fewest)
    for s in range(stages - 1, -1, -1):
        for x in range(model.after_start[s], model.after_start[s + 1]):
            fewest[s] = max(fewest[s], min(model.rounds, fewest[model.after[x]] + 1))
    for s in range(stages):
        if most[s] < model.rounds:
            for x in range(model.after_start[s], model.after_start[s + 1]):
                most[model.after[x]] = min(most[model.after[x]], most[s] - 1)
    for s in range(stages):
        if fewest[s] > most[s]:
            return False
    return True


@inner(error_model="python")
def _least(fewest: Any, most: Any, model: Any) -> float:
    """Seconds until the last pass ends, at least.

    Also what each stage alone takes: of the passes that start late all run before its last
    backward pass, and the backward passes of the stages before come after that.

    From the start of one pass of a stage to the end of another of its passes there is time for all that come between
    them with any warm-up of the range, one after the other. With l from a to c these are, from forward pass i:
    backward passes from i - a + 1 on; from backward pass i: forward passes from i + c on; up to forward pass j: the
    backward passes to j - c; up to backward pass j: the forward passes to j + a - 1.
    """
    forward, backward, rounds = model.forward, model.backward, model.rounds
    before_start, before, after_start, after = model.before_start, model.before, model.after_start, model.after
    stages = len(forward)
    starts, ends = np.zeros((2, stages, rounds)), np.zeros((2, stages, rounds))
    # Starts less all that has to come before them from the stage's first pass on; the largest so far.
    since_forward, since_backward = np.zeros((stages, rounds)), np.zeros((stages, rounds))
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
                    forwards = j + 1 if direction == 0 else min(j + fewest[s], rounds)
                    backwards = j + 1 if direction else j - most[s] + 1
                    both = forwards * forward[s] + backwards * backward[s]
                    if direction == 0:
                        if j:
                            when = max(when, since_forward[s, j - 1] + both - seconds)
                        if backwards > 0:
                            passed = backwards * (forward[s] + backward[s])
                            when = max(when, since_backward[s, backwards - 1] + passed - seconds)
                        own = when - j * forward[s] - max(0, j - fewest[s] + 1) * backward[s]
                        since_forward[s, j] = max(own, since_forward[s, j - 1]) if j else own
                    else:
                        when = max(when, since_forward[s, forwards - 1] + both - seconds)
                        own = when - j * (forward[s] + backward[s])
                        if j:
                            passed = (j + 1) * backward[s] + (forwards - most[s]) * forward[s]
                            when = max(when, since_backward[s, j - 1] + passed - seconds)
                            own = max(when - j * (forward[s] + backward[s]), since_backward[s, j - 1])
                        since_backward[s, j] = own
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


compile_kernels()
