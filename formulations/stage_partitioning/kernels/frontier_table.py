"""Compiled loops of the frontier: the table of optima over (devices, sum of degrees).

Source: Piper, section 4 (the recursion for dp[D][k][s]); what is skipped here is explained in `fill`.
"""

import numpy as np

from formulations.compiled.kernels.bitsets import subset
from formulations.compiled.numba_kernels import FLAG, FLOAT, FLOATS3, INT, INTS, STOPPED, compile_kernels, inner, kernel
from formulations.stage_partitioning.kernels.arrays import Scratch
from formulations.stage_partitioning.kernels.labels import boundary
from formulations.stage_partitioning.kernels.stage import assemble
from formulations.stage_partitioning.kernels.tables import Lattice, Profile
from formulations.tmpc_knapsack.kernels.search import solve_arrays


@kernel(Profile, Lattice, FLOAT, FLOAT, FLOATS3, INT, INT, INT, INT, INT, INT, Scratch, INTS, FLAG,
        error_model="python")  # fmt: skip
def fill(profile, lattice, capacity, floor, table, first, last, first_later, last_later, part, parts, scratch, stats,
         flag):  # fmt: skip
    """``table[i, s, k]``: least time per sample of downset i on at most k devices, degrees summing to at most s.

    ``table[0]`` is 0, the rest infinite. Entries never grow with k or s, and of a stage with its degrees d ascending:

    - a d that is no faster than a smaller one is never better, since the smaller one leaves more devices and a larger
      s to the rest;
    - nor is it better where the rest takes at least as long as the stage would with a smaller d;
    - where the rest is faster than the stage itself, every k gives the same, so one entry is enough.

    So each d touches only the k whose rest takes between its own stage time and that of the last smaller d, and all of
    them together touch every k about once. A stage below ``floor``, a bound on the whole plan, need not be faster.
    Downsets from ``first_later`` to before ``last_later`` that ``part`` owns (their number modulo ``parts``) get what
    those from ``first`` to before ``last`` give them. Where both begin with the same, each is finished before it gives.
    ``stats``: pairs, knapsacks, updates. Returns 0, or STOPPED.
    """
    S, K = table.shape[1] - 1, table.shape[2] - 1
    cost, known = np.empty(S + 2), np.empty(len(profile.dp_degrees), np.int64)  # by y; the y of each d
    tps = np.empty(len(profile.dp_degrees))
    for j in range(max(first_later, 1), last_later):
        if j % parts != part:
            continue
        for i in range(first, min(last, j)):
            if flag[0] != 0:
                return STOPPED
            if table[i, S, K] == np.inf or not subset(lattice.bits, i, j):
                continue
            stats[0] += 1
            for q in range(len(profile.tp_degrees)):
                if lattice.missing[q, j] == lattice.missing[q, i]:
                    _stages(profile, lattice, capacity, floor, q, i, j, table, cost, known, tps, scratch, stats, flag)
        if first != first_later:
            continue
        for s in range(1, S + 1):
            for k in range(1, K + 1):
                least = min(table[j, s - 1, k], table[j, s, k - 1])
                table[j, s, k] = min(table[j, s, k], least)
    return STOPPED if flag[0] != 0 else 0


@inner(counted=False, error_model="python")
def _stages(profile, lattice, capacity, floor, q, i, j, table, cost, known, tps, scratch, stats, flag):
    """All plans of downset j whose first stage is j minus i at degree q, into the table."""
    degrees, t, S, K = profile.dp_degrees, profile.tp_degrees[q], table.shape[1] - 1, table.shape[2] - 1
    weight = lattice.weight[q, j] - lattice.weight[q, i]
    uniform = profile.uniform[q] != 0
    scratch.size[0] = -1
    for y in range(S + 1):
        cost[y] = -1.0
    for index in range(len(degrees)):
        known[index] = 0
    for s in range(1, S + 1):
        before, first = np.inf, 0
        for index in range(len(degrees)):
            d = degrees[index]
            if d > s or first + d * t > K:
                break
            y = (s + d - 1) // d
            if known[index] != y:
                known[index] = y
                if not uniform:
                    least = _least_cost(profile, lattice, capacity, q, i, j, index, y, scratch, stats, flag)
                    tps[index] = least / d
                else:
                    if cost[y] < 0:
                        cost[y] = _least_cost(profile, lattice, capacity, q, i, j, -1, y, scratch, stats, flag)
                    tps[index] = (cost[y] + profile.resync[index] * weight) / d
            if flag[0] != 0:
                return
            time = tps[index]
            if time >= before:
                continue
            while first + d * t <= K and table[i, s - d, first] >= before:
                first += 1
            while first + d * t <= K and table[i, s - d, first] > time:
                table[j, s, first + d * t] = min(table[j, s, first + d * t], table[i, s - d, first])
                first += 1
                stats[2] += 1
            if first + d * t > K:
                break
            table[j, s, first + d * t] = min(table[j, s, first + d * t], time)
            stats[2] += 1
            if time <= floor:
                break
            before = time


@inner(counted=False, error_model="python")
def _least_cost(profile, lattice, capacity, q, i, j, index, in_flight, scratch, stats, flag):
    """d times the least time of stage j minus i with TMPCs that fit; infinite if none do.

    ``index`` -1 leaves the synchronisation of weights out.
    """
    light = (lattice.light_per_microbatch[q, j] - lattice.light_per_microbatch[q, i]) * in_flight
    if light + lattice.light_static[q, j] - lattice.light_static[q, i] > capacity:
        return np.inf
    fast = (lattice.fast_per_microbatch[q, j] - lattice.fast_per_microbatch[q, i]) * in_flight
    if index < 0 and fast + lattice.fast_static[q, j] - lattice.fast_static[q, i] <= capacity:
        return lattice.time[q, j] - lattice.time[q, i] + boundary(lattice, q, i, j)
    if scratch.size[0] < 0:
        scratch.size[0] = assemble(profile, lattice.bits, q, i, j, scratch.nodes, scratch.start, scratch.base,
                                   scratch.weight, scratch.per_microbatch, scratch.static)  # fmt: skip
    m = scratch.size[0]
    options = scratch.start[m]
    for x in range(options):
        resync = profile.resync[index] * scratch.weight[x] if index >= 0 else 0.0
        scratch.cost[x] = scratch.base[x] + resync
        scratch.memory[x] = scratch.per_microbatch[x] * in_flight + scratch.static[x]
    stats[1] += 1
    return solve_arrays(scratch.start[: m + 1], scratch.cost[:options], scratch.memory[:options], capacity,
                        scratch.choice[:m], flag)  # fmt: skip


compile_kernels()
