"""Compiled loops of the appendix's recursion as it is printed: the least times of one split, for any level.

Source: Piper, Appendix E: dp^l[D, D'][k][s, x]. D' is ``start``, b the degrees behind D' as one device of the next
level sees them; the appendix's s is b + x. ``best[j, k, x]`` is the least time in which at most k devices of the level
run downset j minus ``start`` with degrees that sum to x.
"""

import numpy as np

from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FLOATS2,
    FLOATS3,
    INT,
    INTS,
    INTS2,
    SHORTS,
    TRUTH,
    compile_kernels,
    inner,
    kernel,
)
from formulations.hierarchical_partitioning.kernels.arrays import Links
from formulations.hierarchical_partitioning.kernels.machines import CRUDE, PRECISE
from formulations.stage_partitioning.kernels.arrays import Scratch, SwapOrders
from formulations.stage_partitioning.kernels.published import STOPPED, stage_tps
from formulations.stage_partitioning.kernels.tables import Lattice, Profile


@inner(counted=False)
def _begin(start, best):
    for j in range(start, best.shape[0]):
        best[j, :, :] = np.inf
    best[start, :, 0] = 0.0


@kernel(Profile, Lattice, Links, FLOAT, INT, SwapOrders, Scratch, INTS2, FLOATS2, INT, INT, FLOATS3, FLAG,
        counted=False)  # fmt: skip
def split_machine(profile, lattice, links, capacity, rule, orders, scratch, column, times, start, b, best, flag):
    """Level 1: ``best`` for the devices of one machine; False if stopped.

    Stages are priced when they are needed first, TMPCs by the knapsack ``rule``: ``times[z, column[q, d] + y]`` is the
    time of the z-th pair of downsets at degrees t and d with y micro-batches in flight, NaN where it is not known.
    """
    _begin(start, best)
    K1, X, S, tp = best.shape[1] - 1, best.shape[2] - 1, profile.max_s, profile.tp_degrees
    for r in range(links.pair_start[start] - 1, links.pair_start[start + 1]):
        i = start if r < links.pair_start[start] else np.int64(links.larger[r])
        for z in range(links.pair_start[i], links.pair_start[i + 1]):
            j = np.int64(links.larger[z])
            for q in range(len(tp)):
                if lattice.missing[q, j] != lattice.missing[q, i]:
                    continue
                for index in range(len(profile.dp_degrees)):
                    d = profile.dp_degrees[index]
                    if d * tp[q] > K1:
                        break
                    for x in range(min(X, S - b) - d + 1):
                        if best[i, K1 - d * tp[q], x] == np.inf:
                            continue
                        y = np.int64(1)
                        if links.memory_model == PRECISE:
                            y = (b + x + 2 * d - 1) // d
                        elif links.memory_model == CRUDE:
                            y = (S + d - 1) // d
                        at = column[q, d] + y
                        if np.isnan(times[z, at]):
                            scratch.size[0] = -1
                            times[z, at] = stage_tps(profile, lattice, capacity, rule, q, i, j, index, y, orders,
                                                     scratch, False, flag)  # fmt: skip
                            if flag[0] != 0 or times[z, at] == STOPPED:
                                return False
                        _improve(best, i, j, d * tp[q], x, d, times[z, at])
    return True


@kernel(INTS, SHORTS, FLOATS2, FLOATS3, TRUTH, INT, INT, INT, FLOATS3, counted=False)
def split_level(pair_start, larger, link, inside, precise, S, start, b, best):
    """Level 2 or above: ``best`` for the devices of this level in one of the next.

    ``link[z, d]`` is the time of the link of each of d devices that hold the z-th pair of downsets, ``inside[z, b, x]``
    the best of the level below on all its devices, b being 0 for all unless memory is counted ``precise``-ly.
    """
    _begin(start, best)
    K, X, Y = best.shape[1] - 1, best.shape[2] - 1, inside.shape[2] - 1
    for r in range(pair_start[start] - 1, pair_start[start + 1]):
        i = start if r < pair_start[start] else np.int64(larger[r])
        for z in range(pair_start[i], pair_start[i + 1]):
            j = np.int64(larger[z])
            for d in range(1, K + 1):
                for x in range(min(X, S - b) - d + 1):
                    if best[i, K - d, x] == np.inf:
                        continue
                    behind = (b + x + d - 1) // d if precise else 0
                    for y in range(1, min(Y, (min(X, S - b) - x) // d) + 1):
                        _improve(best, i, j, d, x, d * y, max(link[z, d], inside[z, behind, y] / d))


@inner(counted=False)
def _improve(best, i, j, devices, x, degrees, time):
    """Whatever runs downset i leaves ``devices`` to the stage or superstage behind it, which takes ``time``."""
    for k in range(devices, best.shape[1]):
        before = max(best[i, k - devices, x], time)
        if before < best[j, k, x + degrees]:
            best[j, k, x + degrees] = before


compile_kernels()
