"""Compiled walk over all knapsack subproblems of a Piper run.

A call is a stage S = j minus i (downsets by index, i inside j) with degrees t and d, d t <= K; its instances differ in
y = ceil(s/d), the micro-batches in flight, and are numbered y = 1, 2, ... (`last_y`). Memory grows
with y, so the instances of a call fall into three runs: the fastest options fit, they do not, nothing fits.

Source: Piper, section 4, Appendix C and Appendix D (the loops over D, D', t, d, s).
"""

import numpy as np

from formulations.compiled.kernels.bitsets import subset
from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FLOATS2,
    INT,
    INTS,
    INTS2,
    TRUTH,
    TRUTHS,
    WORDS2,
    compile_kernels,
    inner,
    kernel,
)
from formulations.stage_partitioning.kernels.arrays import CallScratch
from formulations.stage_partitioning.kernels.stage import assemble
from formulations.stage_partitioning.kernels.tables import Lattice, Profile
from formulations.tmpc_knapsack.kernels.published import rerank, sort_once, truncating
from formulations.tmpc_knapsack.kernels.relaxation import MEMORY_SLACK
from formulations.tmpc_knapsack.kernels.search import solve_arrays

#: Positions in ``counts``.
PAIRS, CALLS, INSTANCES, REACHABLE, FASTEST, INFEASIBLE, NONTRIVIAL = 0, 1, 2, 3, 4, 5, 6
COUNTS = 7
#: Rows of ``gaps``.
RERANK, SORT_ONCE, TRUNCATING = 0, 1, 2
RULES = 3

#: Relative noise of sums over downsets that are compared with the memory.
_MARGIN = 1e-6
#: A heuristic is sub-optimal if its time exceeds the least one by more than this share of it.
TOLERANCE = 1e-9
#: Recorded for any larger gap, and where the least time is 0.
MAX_GAP = 1e9


@inner(error_model="python")
def _last_fitting(m, capacity, most, lightest, scratch):
    """The largest y <= ``most`` at which the lightest (or the fastest, first among equals) options fit; 0 if none."""
    low, high = 0, most
    while low < high:
        y = (low + high + 1) // 2
        total = 0.0
        for v in range(m):
            best = scratch.start[v]
            held = scratch.per_microbatch[best] * y + scratch.static[best]
            for x in range(best + 1, scratch.start[v + 1]):
                here = scratch.per_microbatch[x] * y + scratch.static[x]
                if (lightest and here < held) or (not lightest and scratch.cost[x] < scratch.cost[best]):
                    best, held = x, here
            total += held
        if total <= capacity * MEMORY_SLACK:
            low = y
        else:
            high = y - 1
    return low


@kernel(Profile, WORDS2, INT, INT, INT, INT, INT, CallScratch, error_model="python")
def open_call(profile, bits, q, i, j, index, m, scratch):
    """Costs of a call's options: their shares of the stage's time per sample, written to ``scratch.cost``.

    ``m`` < 0: the stage is not assembled yet. Returns the number of nodes.
    """
    if m < 0:
        m = assemble(profile, bits, q, i, j, scratch.nodes, scratch.start, scratch.base, scratch.weight,
                     scratch.per_microbatch, scratch.static)  # fmt: skip
    for x in range(scratch.start[m]):
        scratch.cost[x] = (scratch.base[x] + profile.resync[index] * scratch.weight[x]) / profile.dp_degrees[index]
    return m


@kernel(
    Profile, Lattice, FLOAT, FLOATS2, INTS, INT, INT, TRUTH, INT, INTS, INTS2, INTS, CallScratch, error_model="python"
)
def pick(profile, lattice, capacity, heavy, last_y, first, last, nontrivial, seen, ordinals, found, counts, scratch):
    """Write the origins (i, j, q, index of d, y) of the instances numbered ``ordinals`` (ascending) to ``found``.

    The walk is over ``first`` <= j < ``last``; it numbers all instances, or only those where the fastest options do not
    fit but something does, from ``seen`` on. ``heavy[q, i]`` is the most memory that downset i may take at the largest
    y: where that fits, nothing else is examined. ``last_y[index]`` is the last y of a call with that d. It adds to
    ``counts`` (see above; the last three only if ``nontrivial``). Returns how many it numbered, and how many of
    ``ordinals`` it met.
    """
    bits, degrees, tp, K = lattice.bits, profile.dp_degrees, profile.tp_degrees, profile.num_devices
    here, taken = seen, 0
    for j in range(first, last):
        for i in range(j):
            if not subset(bits, i, j):
                continue
            counts[PAIRS] += 1
            for q in range(len(tp)):
                if lattice.missing[q, j] != lattice.missing[q, i]:
                    continue
                m = -1
                all_fit = heavy[q, j] - heavy[q, i] <= capacity * (1 - _MARGIN)
                for index in range(len(degrees)):
                    if degrees[index] * tp[q] > K:
                        break
                    most = last_y[index]
                    begin, end = 0, most
                    if nontrivial and all_fit:
                        begin = most
                        counts[FASTEST] += most
                    elif nontrivial:
                        m = open_call(profile, bits, q, i, j, index, m, scratch)
                        begin = _last_fitting(m, capacity, most, False, scratch)
                        end = max(begin, _last_fitting(m, capacity, most, True, scratch))
                        counts[FASTEST] += begin
                        counts[INFEASIBLE] += most - end
                        counts[NONTRIVIAL] += end - begin
                    counts[CALLS] += 1
                    counts[INSTANCES] += most
                    counts[REACHABLE] += min(most, (profile.max_s + degrees[index] - 1) // degrees[index])
                    while taken < len(ordinals) and ordinals[taken] < here + end - begin:
                        found[taken, 0], found[taken, 1], found[taken, 2], found[taken, 3] = i, j, q, index
                        found[taken, 4] = begin + 1 + ordinals[taken] - here
                        taken += 1
                    here += end - begin
    return here - seen, taken


@inner(wraps=True, error_model="python")
def _fingerprint(m, scratch):
    """A hash of the stage that is assembled: equal stages have equal ones."""
    code = np.uint64(m)
    for x in range(scratch.start[m]):
        for value in (scratch.base[x], scratch.weight[x], scratch.per_microbatch[x], scratch.static[x]):
            code = (code ^ np.uint64(hash(value))) * np.uint64(0x9E3779B97F4A7C15)
            code ^= code >> np.uint64(29)
    return code


@inner(error_model="python")
def _same_stage(m, one, other):
    """Whether two assembled stages of m nodes have the same options in the same order."""
    for v in range(m + 1):
        if one.start[v] != other.start[v]:
            return False
    for x in range(one.start[m]):
        if one.base[x] != other.base[x] or one.weight[x] != other.weight[x]:
            return False
        if one.per_microbatch[x] != other.per_microbatch[x] or one.static[x] != other.static[x]:
            return False
    return True


@kernel(Profile, WORDS2, INTS2, INTS2, INTS, CallScratch, CallScratch, error_model="python")
def twins(profile, bits, origins, groups, table, scratch, other):
    """``groups[g]`` are the first row of a stage (i, j, q) in ``origins`` and that of an equal stage before it, or -1.

    Graphs of repeated layers are full of stages that differ in nothing but the names of their nodes: their instances
    are the same, row by row. ``table`` (a power of two, filled with -1) is a hash table of groups. Returns how many.
    """
    count, mask = 0, np.uint64(len(table) - 1)
    for r in range(len(origins)):
        i, j, q = origins[r, 0], origins[r, 1], origins[r, 2]
        if r > 0 and i == origins[r - 1, 0] and j == origins[r - 1, 1] and q == origins[r - 1, 2]:
            continue
        m = assemble(profile, bits, q, i, j, scratch.nodes, scratch.start, scratch.base, scratch.weight,
                     scratch.per_microbatch, scratch.static)  # fmt: skip
        groups[count, 0], groups[count, 1] = r, -1
        slot = np.int64(_fingerprint(m, scratch) & mask)
        while table[slot] >= 0:
            first = groups[table[slot], 0]
            if origins[first, 2] == q:
                size = assemble(profile, bits, q, origins[first, 0], origins[first, 1], other.nodes, other.start,
                                other.base, other.weight, other.per_microbatch, other.static)  # fmt: skip
                if size == m and _same_stage(m, scratch, other):
                    groups[count, 1] = first
                    break
            slot = (slot + 1) & np.int64(mask)
        if groups[count, 1] < 0:
            table[slot] = count
        count += 1
    return count


@kernel(Profile, Lattice, FLOAT, INTS2, INTS2, TRUTHS, FLOATS2, CallScratch, FLAG, error_model="python")
def compare(profile, lattice, capacity, origins, groups, use, gaps, scratch, flag):
    """Solve the instances ``origins`` exactly and by every rule in ``use``; ``gaps[rule, r]`` is how far it is off.

    Those of the ``groups`` that have a twin (see `twins`) take what was found there.
    0: optimal; infinite: the rule found nothing though something fits; else the share of the least time by which it is
    exceeded, at most MAX_GAP.
    """
    m, g = -1, -1
    for r in range(len(origins)):
        i, j, q, index, y = origins[r, 0], origins[r, 1], origins[r, 2], origins[r, 3], origins[r, 4]
        if g + 1 < len(groups) and groups[g + 1, 0] == r:
            g += 1
        if groups[g, 1] >= 0:
            before = groups[g, 1] + r - groups[g, 0]
            for rule in range(RULES):
                gaps[rule, r] = gaps[rule, before]
            continue
        same = r > 0
        for c in range(4):
            same = same and origins[r, c] == origins[r - 1, c]
        if not same:
            m = open_call(profile, lattice.bits, q, i, j, index, -1, scratch)
        start, choice, options = scratch.start[: m + 1], scratch.choice[:m], scratch.start[m]
        cost, memory = scratch.cost[:options], scratch.memory[:options]
        for x in range(options):
            memory[x] = scratch.per_microbatch[x] * y + scratch.static[x]
        least = solve_arrays(start, cost, memory, capacity, choice, flag)
        for rule in range(RULES):
            if not use[rule]:
                continue
            if rule == RERANK:
                time = rerank(start, cost, memory, capacity, choice, flag)
            elif rule == SORT_ONCE:
                time = sort_once(start, cost, memory, capacity, choice, flag)
            else:
                time = truncating(start, cost, memory, capacity, choice, flag)
            gap = 0.0
            if time == np.inf:
                gap = np.inf if least < np.inf else 0.0
            elif time > least * (1 + TOLERANCE):
                gap = min((time - least) / least, MAX_GAP) if least > 0 else MAX_GAP
            gaps[rule, r] = gap


compile_kernels()
