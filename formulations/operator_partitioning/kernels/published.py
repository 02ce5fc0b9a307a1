"""The table of Equation 2, compiled.

Rows, tensors and memory rules as in costs.py, stages as in loads.py.

Source: Parmesan, Equations 2 and 3.
"""

from __future__ import annotations

import numpy as np

from formulations.compiled import FLAG, FLOAT, FLOATS, FLOATS2, INT, INTS, INTS2, TRUTH, WORDS2, compile_kernels, kernel
from formulations.operator_partitioning.kernels.loads import (
    NOISE,
    has,
    keeps,
    load_at_least,
    received,
    room_for,
    within,
)
from formulations.tmpc_knapsack.kernels.decision import ZERO


@kernel(
    WORDS2,
    FLOATS,
    FLOATS,
    FLOATS,
    FLOATS,
    INTS,
    INTS,
    INTS,
    INTS,
    INTS,
    INTS,
    INTS,
    FLOATS,
    FLOATS,
    INTS,
    INTS,
    INT,
    INT,
    TRUTH,
    FLOATS,
    FLOAT,
    FLOATS2,
    INTS2,
    FLAG,
)
def fill_table(
    bits, compute, fixed, activity, border, edge_start, edge, feed_start, feed, source, start, target, seconds,
    activation, after_start, after, num_stages, replicas, at_most, rules, ceiling, best, before, flag
):  # fmt: skip
    """Equation 2 with d - d' = R for every stage.

    ``best[F, s]``: least slowest stage of row F in s stages; ``before[F, s]``: the row in front of stage s. Both of
    shape (D, S + 1). Stages above ``ceiling`` are skipped. A tensor that leaves a stage counts once, whatever
    stages it goes to: where tensors have one target, as in Equation 3, that is a matter of the stage alone; elsewhere
    the values are lower bounds. Returns the steps done, negative if the flag ended it.
    """
    limit = rules[0] * (replicas if rules[1] != 0 else 1)
    last = np.empty(len(activation), np.int64)
    steps = ZERO
    reached = np.empty(bits.shape[0], np.int64)  # rows that some stages make up, ascending
    count = ZERO + 1
    for r in range(bits.shape[0]):
        for s in range(num_stages + 1):
            best[r, s] = np.inf
            before[r, s] = -1
    for s in range(num_stages + 1 if at_most else 1):
        best[0, s] = 0.0
    reached[0] = 0
    most = ceiling * replicas * (1 + NOISE)
    end = compute[bits.shape[0] - 1]
    for high in range(1, bits.shape[0]):
        if flag[0]:
            return -1 - steps
        sent_start, sent_end = edge_start[high], edge_start[high + 1]
        is_new = True
        for k in range(count - 1, -1, -1):
            low = reached[k]
            spent = compute[high] - compute[low]
            if spent > most:
                break
            if load_at_least(compute, border, low, high) > most or not within(bits, low, high):
                continue
            steps += 1
            load = spent + received(bits, low, high, edge_start, edge, start, target, seconds)
            for j in range(sent_start, sent_end):
                if not has(bits, low, source[edge[j]]):
                    load += seconds[edge[j]]
            load /= replicas
            if load > ceiling:
                continue
            room = np.inf
            if limit < np.inf:
                room = room_for(
                    bits, low, high, fixed[high] - fixed[low], activity[high] - activity[low], feed_start, feed,
                    after_start, after, activation, rules, limit, last,
                )  # fmt: skip
            for s in range(1, num_stages + 1):
                value = max(best[low, s - 1], load)
                # What is left behind must fit the stages that are left.
                if value >= best[high, s] or (s < num_stages and end - compute[high] > (num_stages - s) * most):
                    continue
                if keeps(room, num_stages - s + 1, rules):
                    best[high, s] = value
                    before[high, s] = low
                    if is_new:
                        reached[count] = high
                        count += 1
                        is_new = False
    return steps


compile_kernels(__name__)
