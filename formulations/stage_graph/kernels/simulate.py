"""A compiled simulation of stages that follow fixed orders, for methods that compare thousands of plans.

Stage s handles micro-batches of ``size[s]`` samples in the order F^l (B^k F^k)* B^rest with l = ``room[s]`` and
k = ``block[s]``. A pass waits for the passes of its neighbours that cover its last sample; ``before`` and ``after``
list the neighbours, those of stage s at ``before_start[s]:before_start[s + 1]``.

Source: GraphPipe, section 6 and its footnote 2.
"""

# mypy: disallow_untyped_decorators=False

from typing import Any

import numpy as np

from formulations.compiled.numba_kernels import FLOATS, INT, INTS, compile_kernels, kernel


@kernel(INTS, INTS, INTS, FLOATS, FLOATS, INTS, INTS, INTS, INTS, INT, error_model="python")
def makespan(
    size: Any,
    room: Any,
    block: Any,
    forward: Any,
    backward: Any,
    before_start: Any,
    before: Any,
    after_start: Any,
    after: Any,
    minibatch: int,
) -> float:
    """Seconds until the last pass ends; -1 if the stages wait for each other."""
    stages = len(size)
    most = 0
    total = 0
    for s in range(stages):
        most = max(most, minibatch // size[s])
        total += 2 * (minibatch // size[s])
    ends = np.zeros((2, stages, most))
    done = np.zeros((2, stages), np.int64)  # passes done, forward and backward
    left = np.zeros(stages, np.int64)  # passes left of the current block
    way = np.zeros(stages, np.int64)  # direction of the current block
    free = np.zeros(stages)
    for s in range(stages):
        left[s] = min(room[s], minibatch // size[s])
    finished = 0
    while finished < total:
        moved = False
        for s in range(stages):
            count = minibatch // size[s]
            while done[1, s] < count:
                if left[s] == 0:  # the other direction's turn
                    way[s] = 1 - way[s]
                    left[s] = min(block[s], count - done[way[s], s])
                    if left[s] == 0:
                        way[s] = 1
                        left[s] = count - done[1, s]
                direction = way[s]
                m = done[direction, s]
                when = free[s]
                last = (m + 1) * size[s] - 1
                low = after_start[s] if direction else before_start[s]
                high = after_start[s + 1] if direction else before_start[s + 1]
                ready = direction == 0 or done[0, s] > m
                for x in range(low, high):
                    other = after[x] if direction else before[x]
                    needed = last // size[other]
                    if done[direction, other] <= needed:
                        ready = False
                        break
                    when = max(when, ends[direction, other, needed])
                if not ready:
                    break
                free[s] = when + (backward[s] if direction else forward[s])
                ends[direction, s, m] = free[s]
                done[direction, s] += 1
                left[s] -= 1
                finished += 1
                moved = True
        if not moved:
            return -1.0
    longest = 0.0
    for s in range(stages):
        longest = max(longest, free[s])
    return longest


compile_kernels()
