"""Compiled walk over all knapsack subproblems of a Piper run.

A call is a stage S = j minus i (downsets by index, i inside j) with degrees t and d, d t <= K; its instances differ in
y = 1 + ceil(s'/d), the micro-batches in flight, where s' = 0, ..., S is the sum of the later stages' degrees. Memory
grows with y, so the instances of a call fall into three runs: the fastest options fit, they do not, nothing fits.

Source: Piper, section 4, Appendix C and Appendix D (the loops over D, D', t, d, s).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from formulations.stage_partitioning.kernels import assemble, subset
from formulations.tmpc_knapsack.kernels import MEMORY_SLACK, solve_arrays
from formulations.tmpc_knapsack.kernels_paper import rerank, sort_once, truncating

#: Positions in ``counts``.
PAIRS, CALLS, INSTANCES, FASTEST, INFEASIBLE, NONTRIVIAL = 0, 1, 2, 3, 4, 5
#: Columns of ``tally``, a row for each rule: sub-optimal, those among them that a plan can use, no choice found.
SUBOPTIMAL, USABLE, MISSED = 0, 1, 2
#: Rows of ``tally``.
RERANK, SORT_ONCE, TRUNCATING = 0, 1, 2
RULES = 3

#: A heuristic is sub-optimal if its time exceeds the least one by more than this share of it.
TOLERANCE = 1e-9
#: Recorded for any larger gap, and where the least time is 0.
LARGEST_GAP = 1e9


@njit(cache=True, nogil=True)
def _memory(m, start, cost, per_microbatch, static, y, lightest):
    """Bytes of the lightest options, or of the fastest (the first among equals), at y micro-batches in flight."""
    total = 0.0
    for v in range(m):
        best = start[v]
        least = per_microbatch[best] * y + static[best]
        for x in range(start[v] + 1, start[v + 1]):
            here = per_microbatch[x] * y + static[x]
            if (lightest and here < least) or (not lightest and cost[x] < cost[best]):
                best, least = x, here
        total += least
    return total


@njit(cache=True, nogil=True)
def _last_fitting(m, start, cost, per_microbatch, static, limit, most, lightest):
    """The largest y <= ``most`` at which the fastest (or the lightest) options fit; 0 if they never do."""
    low, high = 0, most
    while low < high:
        y = (low + high + 1) // 2
        if _memory(m, start, cost, per_microbatch, static, y, lightest) <= limit:
            low = y
        else:
            high = y - 1
    return low


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def most_in_flight(profile, index):
    """Largest y of a call: 1 + ceil(S/d)."""
    d = profile.dp_degrees[index]
    return 1 + (profile.max_s + d - 1) // d


@njit(cache=True, nogil=True)
def runs(profile, m, capacity, index, scratch):
    """(fast, light, most): the fastest options fit up to y = fast, something does up to light, y ends at most."""
    limit, most = capacity * MEMORY_SLACK, most_in_flight(profile, index)
    fast = _last_fitting(m, scratch.start, scratch.cost, scratch.per_microbatch, scratch.static, limit, most, False)
    light = _last_fitting(m, scratch.start, scratch.cost, scratch.per_microbatch, scratch.static, limit, most, True)
    return fast, max(fast, light), most


@njit(cache=True, nogil=True)
def survey(profile, lattice, capacity, first, last, use, edges, counts, tally, total, histogram, worst_gap,
           worst_origin, scratch, flag):  # fmt: skip
    """Solve all instances of the outer downsets ``first`` <= j < ``last`` exactly and by every rule that ``use``s.

    ``counts``, ``tally[rule]``: see above. ``total[rule]``: the sum of relative gaps; ``histogram[rule]``: how many lie
    in (edges[b-1], edges[b]], the last bin beyond all edges. ``worst_gap[rule]`` (falling, 0 where empty) and
    ``worst_origin[rule]`` (i, j, q, index of d, y): the worst instances.
    """
    bits, degrees, tp, K = lattice.bits, profile.dp_degrees, profile.tp_degrees, profile.num_devices
    for j in range(first, last):
        for i in range(j):
            if not subset(bits, i, j):
                continue
            counts[PAIRS] += 1
            for q in range(len(tp)):
                if lattice.missing[q, j] != lattice.missing[q, i]:
                    continue
                m = -1
                for index in range(len(degrees)):
                    d = degrees[index]
                    if d * tp[q] > K:
                        break
                    m = open_call(profile, bits, q, i, j, index, m, scratch)
                    fast, light, most = runs(profile, m, capacity, index, scratch)
                    counts[CALLS] += 1
                    counts[INSTANCES] += most
                    counts[FASTEST] += fast
                    counts[NONTRIVIAL] += light - fast
                    counts[INFEASIBLE] += most - light
                    for y in range(fast + 1, light + 1):
                        _compare(m, y, y < most, i, j, q, index, capacity, use, edges, tally, total, histogram,
                                 worst_gap, worst_origin, scratch, flag)  # fmt: skip


@njit(cache=True, nogil=True)
def _compare(m, y, usable, i, j, q, index, capacity, use, edges, tally, total, histogram, worst_gap, worst_origin,
             scratch, flag):  # fmt: skip
    """One instance: the exact time, and how far each rule is from it."""
    start, choice, options = scratch.start[: m + 1], scratch.choice[:m], scratch.start[m]
    cost, memory = scratch.cost[:options], scratch.memory[:options]
    for x in range(options):
        memory[x] = scratch.per_microbatch[x] * y + scratch.static[x]
    least = solve_arrays(start, cost, memory, capacity, choice, flag)
    for rule in range(RULES):
        if not use[rule]:
            continue
        if rule == RERANK:
            found = rerank(start, cost, memory, capacity, choice)
        elif rule == SORT_ONCE:
            found = sort_once(start, cost, memory, capacity, choice)
        else:
            found = truncating(start, cost, memory, capacity, choice)
        if found == np.inf:
            if least < np.inf:
                tally[rule, MISSED] += 1
            continue
        if found <= least * (1 + TOLERANCE):
            continue
        gap = min((found - least) / least, LARGEST_GAP) if least > 0 else LARGEST_GAP
        tally[rule, SUBOPTIMAL] += 1
        if usable:
            tally[rule, USABLE] += 1
        total[rule] += gap
        b = 0
        while b < len(edges) and gap > edges[b]:
            b += 1
        histogram[rule, b] += 1
        at = len(worst_gap[rule])
        while at > 0 and worst_gap[rule, at - 1] < gap:
            at -= 1
        for r in range(len(worst_gap[rule]) - 1, at, -1):
            worst_gap[rule, r] = worst_gap[rule, r - 1]
            for c in range(5):
                worst_origin[rule, r, c] = worst_origin[rule, r - 1, c]
        if at < len(worst_gap[rule]):
            worst_gap[rule, at] = gap
            worst_origin[rule, at, 0], worst_origin[rule, at, 1] = i, j
            worst_origin[rule, at, 2], worst_origin[rule, at, 3], worst_origin[rule, at, 4] = q, index, y


@njit(cache=True, nogil=True)
def pick(profile, lattice, capacity, first, last, nontrivial, seen, ordinals, found, scratch):
    """Write the origins (i, j, q, index of d, y) of the instances numbered ``ordinals`` (ascending) to ``found``.

    Instances are numbered in the order of `survey`, all of them or only those where the fastest options do not fit but
    something does; ``seen`` come before outer downset ``first``. Returns how many lie in ``first`` <= j < ``last``, and
    how many of ``ordinals`` were found.
    """
    bits, degrees, tp, K = lattice.bits, profile.dp_degrees, profile.tp_degrees, profile.num_devices
    here, taken = seen, 0
    for j in range(first, last):
        for i in range(j):
            if not subset(bits, i, j):
                continue
            for q in range(len(tp)):
                if lattice.missing[q, j] != lattice.missing[q, i]:
                    continue
                m = -1
                for index in range(len(degrees)):
                    if degrees[index] * tp[q] > K:
                        break
                    begin, end = 0, most_in_flight(profile, index)
                    if nontrivial:
                        m = open_call(profile, bits, q, i, j, index, m, scratch)
                        begin, end, _ = runs(profile, m, capacity, index, scratch)
                    while taken < len(ordinals) and ordinals[taken] < here + end - begin:
                        found[taken, 0], found[taken, 1], found[taken, 2], found[taken, 3] = i, j, q, index
                        found[taken, 4] = begin + 1 + ordinals[taken] - here
                        taken += 1
                    here += end - begin
    return here - seen, taken
