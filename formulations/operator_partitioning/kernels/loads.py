"""Compiled parts of families of downsets: sums and borders of rows, loads and memory of stages between them.

A stage is the difference of two rows, ``low`` within ``high``.

Source: Parmesan, Equation 3; memory: reconstructed.
"""

import numpy as np

from formulations.compiled.numba_kernels import FLOATS, INTS, WORDS2, ZERO, compile_kernels, inner, kernel

#: Thresholds are met but for float noise.
NOISE = 1e-12


@kernel(WORDS2, FLOATS)
def sums(bits, values):
    """The sum of ``values`` over each row's members, shape (D,)."""
    total = np.zeros(bits.shape[0])
    for r in range(bits.shape[0]):
        for v in range(len(values)):
            if has(bits, r, v):
                total[r] += values[v]
    return total


@kernel(WORDS2, INTS, INTS, INTS)
def borders(bits, source, start, target):
    """For each row the tensors with their source in it and a target outside, as starts (D + 1,) and indices."""
    first = np.zeros(bits.shape[0] + 1, np.int64)
    for r in range(bits.shape[0]):
        first[r + 1] = first[r]
        for t in range(len(source)):
            if _leaves(bits, r, source, start, target, t):
                first[r + 1] += 1
    found = np.empty(first[bits.shape[0]], np.int64)
    k = ZERO
    for r in range(bits.shape[0]):
        for t in range(len(source)):
            if _leaves(bits, r, source, start, target, t):
                found[k] = t
                k += 1
    return first, found


@inner()
def _leaves(bits, r, source, start, target, t):
    if not has(bits, r, source[t]):
        return False
    for k in range(start[t], start[t + 1]):
        if not has(bits, r, target[k]):
            return True
    return False


@inner()
def has(bits, r, v):
    """True if row r contains operator v."""
    return (bits[r, v >> 6] >> np.uint64(v & 63)) & np.uint64(1) != 0


@inner()
def within(bits, low, high):
    """True if row ``low`` is contained in row ``high``."""
    for w in range(bits.shape[1]):
        if bits[low, w] & ~bits[high, w] != 0:
            return False
    return True


@inner()
def lands(bits, low, high, start, target, t):
    """Whether tensor t has a target in the stage."""
    for k in range(start[t], start[t + 1]):
        if has(bits, high, target[k]) and not has(bits, low, target[k]):
            return True
    return False


@inner()
def load_at_least(rows, low, high):
    """Seconds: a tensor across one of two borders is across the other too, or the stage sends or receives it."""
    return rows.compute[high] - rows.compute[low] + abs(rows.border[high] - rows.border[low]) * (1 - NOISE)


@inner()
def receiving_seconds(rows, graph, low, high):
    """Seconds of the tensors that enter the stage."""
    total = 0.0
    for k in range(rows.edge_start[low], rows.edge_start[low + 1]):
        if lands(rows.bits, low, high, graph.start, graph.target, rows.edge[k]):
            total += graph.seconds[rows.edge[k]]
    return total


@inner()
def _inputs(bits, low, high, feed_start, feed, after_start, after, activation):
    """Bytes of the outputs that enter the stage."""
    total = 0.0
    for k in range(feed_start[low], feed_start[low + 1]):
        if lands(bits, low, high, after_start, after, feed[k]):
            total += activation[feed[k]]
    return total


@inner()
def _peak(bits, low, high, after_start, after, activation, last):
    """Most bytes of live outputs while the stage runs in order; ``last`` is room for (n,) integers."""
    n = len(activation)
    live, peak = 0.0, 0.0
    leaving = np.zeros(n)
    for v in range(n):
        if not has(bits, high, v) or has(bits, low, v):
            continue
        last[v] = v
        for k in range(after_start[v + 1] - 1, after_start[v] - 1, -1):
            if has(bits, high, after[k]):
                last[v] = after[k]
                break
        leaving[last[v]] += activation[v]
        live += activation[v]
        peak = max(peak, live)
        live -= leaving[v]
    return peak


@inner()
def stage_memory(
    bits, low, high, least, computed, feed_start, feed, after_start, after, activation, rules, capacity, last
):
    """Bytes of a stage that keeps no inputs, of one that keeps all of them and all it computes, and of one input.

    ``least`` and ``computed`` are the bytes of its operators, fixed ones and outputs. Where the first result is more
    than ``capacity`` or the second is not, the rest is not computed; the second is infinite where all is kept anyway.
    """
    if not rules.trains or least > capacity:
        return least, np.inf, 0.0
    entering = _inputs(bits, low, high, feed_start, feed, after_start, after, activation)
    if not rules.recompute:
        return least + rules.microbatches * computed, np.inf, entering
    whole = least + computed + rules.microbatches * entering
    if whole > capacity:
        least += _peak(bits, low, high, after_start, after, activation, last)
    return least, whole, entering


@inner()
def room_for(least, whole, entering, capacity):
    """How many inputs a stage with this `stage_memory` can keep in ``capacity``; -1 if not even its work fits."""
    if whole <= capacity:
        return np.inf
    if least > capacity:
        return -1.0
    return np.inf if entering == 0.0 else (capacity - least) / entering


@inner()
def keeps(room, from_end, rules):
    """Whether the inputs that the schedule keeps ``from_end`` stages before the end have room."""
    if not rules.trains:
        return room >= 0
    kept = rules.microbatches
    if not rules.gpipe and from_end < kept:
        kept = np.float64(from_end)
    return room >= kept


compile_kernels()
