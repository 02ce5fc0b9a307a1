"""The table of Equation 2, compiled.

Stages as in loads.py.

Source: Parmesan, Equations 2 and 3.
"""

import numpy as np

from formulations.compiled.numba_kernels import FLAG, FLOAT, FLOATS2, INTS2, ZERO, compile_kernels, kernel
from formulations.operator_partitioning.costs.arrays import Counts, Graph, MemoryRules, Rows
from formulations.operator_partitioning.kernels.loads import (
    NOISE,
    has,
    keeps,
    load_at_least,
    receiving_seconds,
    room_for,
    stage_memory,
    within,
)


@kernel(Rows, Graph, Counts, MemoryRules, FLOAT, FLOATS2, FLOATS2, INTS2, FLAG)
def fill_table(rows, graph, counts, rules, ceiling, least, best, before, flag):
    """Equation 2 with d - d' = R for every stage.

    ``best[F, s]``: least slowest stage of row F in s stages; ``before[F, s]``: the row in front of stage s. Both of
    shape (D, S + 1), as is ``least``. Stages above ``ceiling`` are skipped, and what ``least`` has above it. A tensor
    that leaves a stage counts once, whatever stages it goes to: where tensors have one target, as in Equation 3, that
    is a matter of the stage alone; elsewhere the values are lower bounds. Returns the steps done, negative if the
    flag ended it.
    """
    bits, compute, edge_start, edge = rows.bits, rows.compute, rows.edge_start, rows.edge
    fixed, computed, feed_start, feed = rows.fixed, rows.activation, rows.feed_start, rows.feed
    after_start, after, activation = graph.after_start, graph.after, graph.activation
    source, seconds, num_stages, replicas = graph.source, graph.seconds, counts.stages, counts.replicas
    capacity = rules.limit * (replicas if rules.pooled else 1)
    last = np.empty(len(activation), np.int64)
    steps = ZERO
    reached = np.empty(bits.shape[0], np.int64)  # rows that some stages make up, ascending
    count = ZERO + 1
    for r in range(bits.shape[0]):
        for s in range(num_stages + 1):
            best[r, s] = np.inf
            before[r, s] = -1
    for s in range(num_stages + 1 if counts.at_most else 1):
        best[0, s] = 0.0
    reached[0] = 0
    most = ceiling * replicas * (1 + NOISE)
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
            if load_at_least(rows, low, high) > most or not within(bits, low, high):
                continue
            steps += 1
            load = spent + receiving_seconds(rows, graph, low, high)
            for j in range(sent_start, sent_end):
                if not has(bits, low, source[edge[j]]):
                    load += seconds[edge[j]]
            load /= replicas
            if load > ceiling:
                continue
            room = np.inf
            if capacity < np.inf:
                fixed_bytes, whole, entering = stage_memory(
                    bits, low, high, fixed[high] - fixed[low], computed[high] - computed[low], feed_start, feed,
                    after_start, after, activation, rules, capacity, last,
                )  # fmt: skip
                room = room_for(fixed_bytes, whole, entering, capacity)
            for s in range(1, num_stages + 1):
                value = max(best[low, s - 1], load)
                if value >= best[high, s] or least[high, s] > ceiling:
                    continue
                if keeps(room, num_stages - s + 1, rules):
                    best[high, s] = value
                    before[high, s] = low
                    if is_new:
                        reached[count] = high
                        count += 1
                        is_new = False
    return steps


compile_kernels()
