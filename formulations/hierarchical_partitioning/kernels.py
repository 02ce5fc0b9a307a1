"""Compiled loops of the appendix's recursion on two levels, at a fixed time per sample.

Source: Piper, Appendix E, for L = 2. dp^2[D][k][s] and dp^1[D, D'][k][s, x] are minimised there; here the time T is
given, and a table keeps the fewest devices (machines) with which each state can be reached within T. The symbols are
the appendix's: D' is ``start``, b = ceil(s / d_2) - x the degrees behind D' as one machine sees them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from formulations.stage_partitioning.kernels import assemble, first_degree, saving_order
from formulations.stage_partitioning.kernels_downsets import has, subset
from formulations.tmpc_knapsack.decision import FOUND, STOPPED, decide

#: No label.
NOTHING = 1 << 30

#: Neither bound on what savings cost settles it.
UNKNOWN = 2

#: Memory is not counted; with the largest s; with s itself.
NONE, CRUDE, PRECISE = 0, 1, 2

#: Relative slack of the test at T, so that a plan of exactly T is found in spite of float noise in prefix sums.
_NOISE = 1e-11


@njit(cache=True, nogil=True)
def count_pairs(bits, starts):
    """Fill ``starts`` (D + 1): the pairs (i, j), downset i within j, number ``starts[i]`` to ``starts[i + 1] - 1``."""
    total = 0
    for i in range(bits.shape[0]):
        starts[i] = total
        for j in range(i + 1, bits.shape[0]):
            if subset(bits, i, j):
                total += 1
    starts[bits.shape[0]] = total


@njit(cache=True, nogil=True)
def fill_pairs(bits, source, crossing_start, crossing_edges, entering, leaving, edge_both, cut, volume, larger, base,
               crossed):  # fmt: skip
    """For every pair: j (``larger``), the least boundary time by q (``base``, times d), bytes across (``crossed``)."""
    z = 0
    for i in range(bits.shape[0]):
        for j in range(i + 1, bits.shape[0]):
            if not subset(bits, i, j):
                continue
            larger[z] = j
            crossed[z] = cut[j] + cut[i]
            for q in range(entering.shape[0]):
                base[q, z] = entering[q, j] + leaving[q, i]
            for y in range(crossing_start[i], crossing_start[i + 1]):
                e = crossing_edges[y]
                if not has(bits, j, source[e]):  # jumps past the stage
                    crossed[z] -= 2 * volume[e]
                    for q in range(entering.shape[0]):
                        base[q, z] -= edge_both[q, e]
            z += 1


@njit(cache=True, nogil=True)
def threshold_test(profile, lattice, links, T, labels, back, reach, inner_back, scratch, stats, flag):
    """Is there a plan with every superstage's time <= T?

    ``labels[j, s]`` becomes the fewest machines that run downset j with degrees (d_1 d_2) summing to s; ``back[j, s]``
    is (i, d_2, x): the superstage j minus i, whose stages' degrees d_1 sum to x. Fewer machines and a smaller s serve
    every continuation at least as well. Returns s of a complete plan, -1 if there is none (a proof), -2 if stopped.
    ``stats``: splits of machines, pairs inside them, knapsack searches.
    """
    work, D, K1, K2, S = lattice.work, lattice.bits.shape[0], links.num_devices, links.num_machines, profile.max_s
    limit, full = T * (1 + _NOISE), lattice.bits.shape[0] - 1
    for j in range(D):
        for s in range(S + 1):
            labels[j, s] = NOTHING
    labels[0, 0] = 0
    label_s, label_m, label_b = np.empty(S + 1, np.int64), np.empty(S + 1, np.int64), np.empty(S + 1, np.int64)
    for i in range(full):
        count, least = 0, NOTHING
        for s in range(S + 1):
            m = labels[i, s]
            if m < least and work[full] - work[i] <= (K2 - m) * K1 * limit:
                label_s[count], label_m[count] = s, m
                count += 1
                least = m
        if count == 0:
            continue
        for d2 in range(1, K2 - least + 1):
            for z in range(count):
                label_b[z] = -(-label_s[z] // d2) if links.memory_model == PRECISE else 0
            first = 0
            while first < count:
                last = first  # labels with the same b share the split of the machine
                while last + 1 < count and label_b[last + 1] == label_b[first]:
                    last += 1
                behind = (K2 - label_m[last] - d2) * K1  # devices of later superstages, at most
                if behind >= 0:
                    end = split_machine(profile, lattice, links, i, d2, label_b[first], behind, limit, reach,
                                        inner_back, scratch, stats, flag)  # fmt: skip
                    if end < 0:
                        return -2
                    for z in range(links.pair_start[i], links.pair_start[i + 1]):
                        j = links.larger[z]
                        if j >= end:
                            break
                        _extend(work, links.weight[j] - links.weight[i], links.crossed[z], K1, K2, S, links.bandwidth,
                                i, j, d2, limit, label_s, label_m, first, last, reach, labels, back)  # fmt: skip
                first = last + 1
    for s in range(S + 1):
        if labels[full, s] <= K2:
            return s
    return -1


@njit(cache=True, nogil=True)
def _extend(work, pair_weight, crossed, K1, K2, S, bandwidth, i, j, d2, limit, label_s, label_m, first, last, reach,
            labels, back):  # fmt: skip
    """Labels of j by the superstage j minus i on d2 machines, from the labels ``first`` to ``last`` of i."""
    if (4 * (d2 - 1) / d2 * pair_weight + 2 * crossed) / d2 / bandwidth > limit:
        return
    fewest, rest = NOTHING, work[len(work) - 1] - work[j]
    for x in range(1, K1 + 1):
        if reach[j, x] >= fewest:
            continue
        fewest = reach[j, x]
        for z in range(first, last + 1):
            s, m = label_s[z] + d2 * x, label_m[z] + d2
            if s <= S and m < labels[j, s] and (m < K2 or j == len(work) - 1) and not rest > (K2 - m) * K1 * limit:
                labels[j, s] = m
                back[j, s, 0], back[j, s, 1], back[j, s, 2] = i, d2, x


@njit(cache=True, nogil=True)
def split_machine(profile, lattice, links, start, d2, b, behind, limit, reach, back, scratch, stats, flag):
    """Which downsets j can one of d2 machines reach from ``start``: is j minus ``start`` split within its devices?

    ``reach[j, x]`` becomes the fewest devices of the machine, for stages of time <= d2 * ``limit`` whose degrees d_1
    sum to x; ``back[j, x]`` is (i, q, d_1), the stage that got there. ``behind`` devices at most are left for what
    comes after this superstage. Of each stage only the least feasible d_1 is tried: fewer devices and a smaller x
    serve every continuation at least as well, and a larger s never allows a smaller d_1.

    Returns the end of the range of rows that were filled, or -1 if stopped.
    """
    work, K1, S, model, M = lattice.work, links.num_devices, profile.max_s, links.memory_model, profile.memory
    degrees, resync, tp, uniform = profile.dp_degrees, profile.resync, profile.tp_degrees, profile.uniform
    time, weights, missing, bits = lattice.time, lattice.weight, lattice.missing, lattice.bits
    fast_y, fast_0 = lattice.fast_per_microbatch, lattice.fast_static
    light_y, light_0 = lattice.light_per_microbatch, lattice.light_static
    pair_start, larger, pair_base, open_k = links.pair_start, links.larger, links.base, scratch.open
    full, budget = bits.shape[0] - 1, d2 * limit
    stats[0] += 1
    end = start
    while end <= full and work[end] <= work[start] + K1 * budget:
        for x in range(K1 + 1):
            reach[end, x] = NOTHING
        end += 1
    reach[start, 0] = 0
    for i in range(start, end):
        if flag[0] != 0:
            return -1
        least, first_x = NOTHING, K1
        for x in range(K1 + 1):
            k = reach[i, x]
            # No smaller x comes with as few devices, and what is not done yet fits on the devices that are left.
            if k >= min(least, K1) or work[full] - work[i] > (behind + (K1 - k) * d2) * limit:
                k = NOTHING
            open_k[x] = k
            if k < NOTHING:
                least, first_x = min(least, k), min(first_x, x)
        if least == NOTHING:
            continue
        for z in range(pair_start[i], pair_start[i + 1]):
            j = larger[z]
            if work[j] > work[i] + (K1 - least) * budget:
                break
            stats[1] += 1
            for q in range(len(tp)):
                t = tp[q]
                most_d = min((K1 - least) // t, len(degrees))
                if most_d < 1:
                    break
                base = time[q, j] - time[q, i]
                if missing[q, j] != missing[q, i] or base > most_d * budget:
                    continue
                light_a, light_b = light_y[q, j] - light_y[q, i], light_0[q, j] - light_0[q, i]
                fewest = (b + first_x + 2 * most_d - 1) // most_d if model == PRECISE else (S + most_d - 1) // most_d
                if model != NONE and light_a * fewest + light_b > M:
                    continue
                base += pair_base[q, z]
                weight = weights[q, j] - weights[q, i]
                first = first_degree(degrees, resync, 0, base, weight, budget)
                if first >= most_d:
                    continue
                fast_a, fast_b = fast_y[q, j] - fast_y[q, i], fast_0[q, j] - fast_0[q, i]
                scratch.size[0] = -1  # the stage is not assembled yet
                for x in range(first_x, K1 + 1):
                    k = open_k[x]
                    index = first
                    while index < most_d and k + (index + 1) * t <= K1 and b + x + index + 1 <= S:
                        d = index + 1
                        in_flight = (b + x + 2 * d - 1) // d if model == PRECISE else (S + d - 1) // d
                        fits = UNKNOWN
                        if uniform[q] and (model == NONE or fast_a * in_flight + fast_b <= M):
                            fits = 1
                        elif model != NONE and light_a * in_flight + light_b > M:
                            fits = 0
                        elif uniform[q]:
                            slot = _savings(bits, scratch.num_steps,
                                            scratch.owner, scratch.rise, scratch.saving, scratch.key, scratch.relaxed,
                                            scratch.greedy, q, i, j, in_flight, S,
                                            fast_a * in_flight + fast_b - M)  # fmt: skip
                            slack = d * budget - base - resync[index] * weight
                            if scratch.relaxed[slot] == np.inf:  # also when the slack is infinite
                                fits = 0
                            elif scratch.greedy[slot] <= slack:
                                fits = 1
                            elif scratch.relaxed[slot] > slack + _NOISE * d * budget:
                                fits = 0
                        if fits == UNKNOWN:
                            stats[2] += 1
                            fits = _search(profile, bits, q, i, j, index, in_flight, np.inf if model == NONE else M,
                                           d * budget, scratch, flag)  # fmt: skip
                            if fits == STOPPED:
                                return -1
                        if fits:
                            if k + d * t < reach[j, x + d]:
                                reach[j, x + d] = k + d * t
                                back[j, x + d, 0], back[j, x + d, 1], back[j, x + d, 2] = i, q, d
                            break
                        index = first_degree(degrees, resync, index + 1, base, weight, budget)
    return end


@njit(cache=True, nogil=True)
def _search(profile, bits, q, i, j, index, in_flight, capacity, budget, scratch, flag):
    """1 if a choice of TMPCs keeps stage j minus i within memory and time; 0 if none does; STOPPED."""
    if scratch.size[0] < 0:
        scratch.size[0] = assemble(profile, bits, q, i, j, scratch.nodes, scratch.start, scratch.base, scratch.weight,
                                   scratch.per_microbatch, scratch.static)  # fmt: skip
    for x in range(scratch.start[scratch.size[0]]):
        scratch.cost[x] = scratch.base[x] + profile.resync[index] * scratch.weight[x]
        scratch.memory[x] = scratch.per_microbatch[x] * in_flight + scratch.static[x]
    verdict = decide(scratch.size[0], scratch.start, scratch.cost, scratch.memory, capacity, budget, scratch.choice,
                     flag)  # fmt: skip
    if verdict == STOPPED:
        return STOPPED
    return 1 if verdict == FOUND else 0


@njit(cache=True, nogil=True)
def fill_savings(profile, num_steps, owner, rise, saving):
    """Orders of savings (`saving_order`) for every uniform q and every number of micro-batches in flight."""
    for q in range(num_steps.shape[0]):
        for y in range(1, num_steps.shape[1]):
            if profile.uniform[q]:
                num_steps[q, y] = saving_order(profile, q, y, owner[q, y], rise[q, y], saving[q, y])


@njit(cache=True, nogil=True)
def _savings(bits, num_steps, owner, rise, saving, keys, relaxed, greedy, q, i, j, in_flight, S,
             need):  # fmt: skip
    """The slot that holds what saving ``need`` bytes costs stage j minus i: at least ``relaxed``, at most ``greedy``.

    Neither depends on T, on the degrees or on where the machine's split begins, so they are kept: one slot for a key,
    the last one wins.
    """
    key = ((np.int64(i) * bits.shape[0] + j) * num_steps.shape[0] + q) * (S + 2) + in_flight
    slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) & np.int64(len(keys) - 1)
    if keys[slot] == key:
        return slot
    keys[slot] = key
    spent = 0.0
    relaxed[slot], greedy[slot] = np.inf, np.inf
    for r in range(num_steps[q, in_flight]):
        v = owner[q, in_flight, r]
        if not has(bits, j, v) or has(bits, i, v):
            continue
        extra, saved = rise[q, in_flight, r], saving[q, in_flight, r]
        if saved >= need:
            relaxed[slot], greedy[slot] = spent + extra * (need / saved), spent + extra
            break
        need -= saved
        spent += extra
    return slot
