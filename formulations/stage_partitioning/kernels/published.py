"""Compiled loops of the published dynamic program over downsets.

Source: Piper, section 4 (the recursion for dp[D][k][s]) and Appendix D.
"""

import numpy as np

from formulations.compiled.kernels.bitsets import subset
from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    SHORTS2,
    TRUTH,
    ZERO,
    compile_kernels,
    inner,
    kernel,
)
from formulations.stage_partitioning.kernels.arrays import Scratch, SwapOrders
from formulations.stage_partitioning.kernels.labels import NOISE, boundary, first_degree, saving_order
from formulations.stage_partitioning.kernels.stage import assemble
from formulations.stage_partitioning.kernels.tables import Lattice, Profile
from formulations.tmpc_knapsack.kernels.published import rerank, sort_once, truncating
from formulations.tmpc_knapsack.kernels.search import solve_arrays

RERANK, SORT_ONCE, TRUNCATING, EXACT = 0, 1, 2, 3

STOPPED = -1.0
#: The knapsack is not solved (yet).
UNPRICED = -2.0
HALTED = -1


@inner(counted=False)
def _swaps(bits, i, j, q, in_flight, excess, order, scratch):
    """The row of ``scratch.rise`` with what swaps add that bring ``excess`` bytes of stage j minus i down to none.

    ``scratch.runs`` has how many they are; -1: all of them do not. They are the same for all data-parallel degrees.
    """
    slot, count = scratch.next_slot[0] % len(scratch.runs), ZERO
    if slot == 0:  # full: start over
        scratch.slot_of[q, :] = -1
    scratch.next_slot[0], scratch.slot_of[q, in_flight] = slot + 1, slot
    for r in range(order.length[q, in_flight]):
        if excess <= 0:
            break
        v = np.uint64(order.owner[q, in_flight, r])
        word = bits[j, v >> np.uint64(6)] & ~bits[i, v >> np.uint64(6)]
        # Of nodes outside the stage 0 bytes and no place: a branch is guessed wrong as often as not.
        inside = np.int64((word >> (v & np.uint64(63))) & np.uint64(1))
        excess -= np.float64(inside) * order.saving[q, in_flight, r]
        scratch.rise[slot, count] = order.rise[q, in_flight, r]
        count += inside
    scratch.runs[slot] = count if excess <= 0 else -1
    return slot


@inner(counted=False)
def _plus(cost, rises, slot, count):
    """``cost`` and what so many swaps add; infinite where there are not enough (-1)."""
    for r in range(count):
        cost += rises[slot, r]
    return cost if count >= 0 else np.inf


@kernel(Profile, Lattice, FLOAT, INT, INT, INT, INT, INT, INT, SwapOrders, Scratch, TRUTH, FLAG, counted=False)
def stage_tps(profile, lattice, capacity, rule, q, i, j, index, in_flight, order, scratch, choose, flag):
    """TPS(S, t, d, s) of stage S = j minus i: time per sample with TMPCs chosen by ``rule``; inf if none fits.

    ``order[q, y]`` holds the swaps of pairs of TMPCs sorted once (`swap_orders`), which serves the first two rules
    where no node has a third TMPC and their order does not depend on the stage. With ``choose``, the choice is left
    in ``scratch`` (nodes, choice; ``size[0]`` nodes). STOPPED if ``flag`` was raised.
    """
    d, resync = profile.dp_degrees[index], profile.resync[index]
    if not choose and order.use[q] and rule <= SORT_ONCE:
        cost = lattice.time[q, j] - lattice.time[q, i] + boundary(lattice, q, i, j)
        cost += resync * (lattice.weight[q, j] - lattice.weight[q, i])
        excess = (lattice.fast_per_microbatch[q, j] - lattice.fast_per_microbatch[q, i]) * in_flight
        excess += lattice.fast_static[q, j] - lattice.fast_static[q, i] - profile.memory
        slot = _swaps(lattice.bits, i, j, q, in_flight, excess, order, scratch)
        return _plus(cost, scratch.rise, slot, scratch.runs[slot]) / d
    if scratch.size[0] < 0:
        scratch.size[0] = assemble(profile, lattice.bits, q, i, j, scratch.nodes, scratch.start, scratch.base,
                                   scratch.weight, scratch.per_microbatch, scratch.static)  # fmt: skip
    m = scratch.size[0]
    options = scratch.start[m]
    for x in range(options):
        scratch.cost[x] = scratch.base[x] + resync * scratch.weight[x]
        scratch.memory[x] = scratch.per_microbatch[x] * in_flight + scratch.static[x]
    start, choice = scratch.start[: m + 1], scratch.choice[:m]
    cost, memory = scratch.cost[:options], scratch.memory[:options]
    if rule == RERANK:
        found = rerank(start, cost, memory, capacity, choice, flag)
    elif rule == SORT_ONCE:
        found = sort_once(start, cost, memory, capacity, choice, flag)
    elif rule == TRUNCATING:
        found = truncating(start, cost, memory, capacity, choice, flag)
    else:
        found = solve_arrays(start, cost, memory, capacity, choice, flag)
    return STOPPED if flag[0] != 0 else found / d


@kernel(Profile, SwapOrders)
def swap_orders(profile, order):
    """Fill ``order``: for every degree whose nodes have at most two TMPCs, the swaps by ratio, for every y."""
    for q in range(len(profile.tp_degrees)):
        if not order.use[q]:
            continue
        for y in range(1, order.length.shape[1]):
            order.length[q, y] = saving_order(profile, q, y, order.owner[q, y], order.rise[q, y], order.saving[q, y])


@kernel(Profile, Lattice, FLOAT, INT, FLOAT, INTS, INTS, INTS, FLOATS, INTS, INTS, SHORTS2, SwapOrders, INT, INT, INT,
        INT, INT, INT, Scratch, INTS, FLAG, counted=False)  # fmt: skip
def fill_table(profile, lattice, capacity, rule, cutoff, low, width, offset, table, smallest, largest, fewest, order,
               first_row, last_row, first_later, last_later, part, parts, scratch, stats, flag):  # fmt: skip
    """dp[D][k][s] for all downsets D, as far as plans of time <= ``cutoff`` need it.

    dp[i][k][s] is ``table[offset[i] + s * width[i] + k - low[i]]`` for low[i] <= k < low[i] + width[i]: fewer devices
    cannot run downset i within the cutoff, more would be missing for the rest. ``smallest[i]``, ``largest[i]``: the
    range of s with a finite entry; ``fewest[i, s]``: with fewer devices there is none. Order of the loops: D, D', t, d,
    s, k. ``stats``: pairs, knapsacks, updates (entries that the recursion takes the least of), all of them the
    recursion's: without a cutoff no knapsack is solved whose fastest choice would improve no entry.
    A call does D' from ``first_row`` to ``last_row`` - 1 and those D from ``first_later`` to ``last_later`` - 1 that
    ``part`` owns (their number modulo ``parts``). Returns 0, or HALTED.
    """
    bits, work = lattice.bits, lattice.work
    degrees, resync, tp, S = profile.dp_degrees, profile.resync, profile.tp_degrees, profile.max_s
    falling = cutoff == np.inf
    for j in range(first_later, last_later):
        if j % parts != part or width[j] <= 0:
            continue
        high_j = low[j] + width[j] - 1
        least, most = smallest[j], largest[j]  # not written at each step: they lie beside those of other threads
        for i in range(first_row, min(last_row, j)):
            if flag[0] != 0:
                return HALTED
            if largest[i] < 0 or work[j] - work[i] > (high_j - low[i]) * cutoff or not subset(bits, i, j):
                continue
            stats[0] += 1
            for q in range(len(tp)):
                t = tp[q]
                if lattice.missing[q, j] != lattice.missing[q, i]:
                    continue
                base = lattice.time[q, j] - lattice.time[q, i] + boundary(lattice, q, i, j)
                weight = lattice.weight[q, j] - lattice.weight[q, i]
                light_a = lattice.light_per_microbatch[q, j] - lattice.light_per_microbatch[q, i]
                light_b = lattice.light_static[q, j] - lattice.light_static[q, i]
                fast_a = lattice.fast_per_microbatch[q, j] - lattice.fast_per_microbatch[q, i]
                fast_b = lattice.fast_static[q, j] - lattice.fast_static[q, i] - profile.memory
                around = lattice.time[q, j] + lattice.entering[q, j] + lattice.leaving[q, i]
                sorted_once = order.use[q] != 0 and rule <= SORT_ONCE
                scratch.size[0], scratch.next_slot[0] = -1, 0
                scratch.slot_of[q, :] = -1
                index = 0
                while True:
                    index = first_degree(degrees, resync, index, base, weight, cutoff)
                    if index == len(degrees) or degrees[index] * t > high_j - low[i]:
                        break
                    d, in_flight, tps = degrees[index], 0, UNPRICED
                    cost = base + resync[index] * weight
                    cheapest = cost / d
                    if not sorted_once:  # other rules sum over nodes: no difference of sums over downsets
                        cheapest -= NOISE * (around + resync[index] * lattice.weight[q, j]) / d
                    first, last = max(low[j], low[i] + d * t), high_j
                    if i > 0:
                        last = min(last, low[i] + width[i] - 1 + d * t)
                    for s in range(smallest[i] + d, min(largest[i] + d, S) + 1):
                        if s > in_flight * d:
                            in_flight = (s + d - 1) // d
                            if light_a * in_flight + light_b > profile.memory:
                                break
                            stats[1] += 1
                            tps = UNPRICED
                        begin, to = max(first, fewest[i, s - d] + d * t), offset[j] + s * width[j] - low[j]
                        beaten = falling and (begin > last or table[to + begin] <= max(cheapest, tps))
                        if tps == UNPRICED and not beaten:
                            if sorted_once:
                                slot = scratch.slot_of[q, in_flight]
                                if slot < 0:
                                    slot = _swaps(bits, i, j, q, in_flight, fast_a * in_flight + fast_b, order, scratch)
                                tps = _plus(cost, scratch.rise, slot, scratch.runs[slot]) / d
                            else:
                                tps = stage_tps(profile, lattice, capacity, rule, q, i, j, index, in_flight, order,
                                                scratch, False, flag)  # fmt: skip
                            if tps == STOPPED:
                                return HALTED
                        if tps > cutoff or first > last:
                            continue
                        stats[2] += last - first + 1
                        least, most = min(least, s), max(most, s)
                        if not beaten and begin <= last and tps < np.inf:
                            fewest[j, s] = min(fewest[j, s], begin)
                            behind = -1 if i == 0 else offset[i] + (s - d) * width[i] - low[i] - d * t + begin
                            _update(table, to + begin, behind, last - begin + 1, tps, falling)
                    index += 1
        smallest[j], largest[j] = least, most
    return 0


@kernel(Profile, Lattice, FLOAT, INT, INTS, INTS, INTS, FLOATS, SwapOrders, INT, INT, INT, INTS, Scratch, FLAG)
def find_origin(profile, lattice, capacity, rule, low, width, offset, table, order, j, k, s, found, scratch, flag):
    """``found``: the first (D', position of t, position of d) that gives dp[j][k][s] its value; False: none does."""
    degrees, tp = profile.dp_degrees, profile.tp_degrees
    value = table[offset[j] + s * width[j] + k - low[j]]
    for i in range(j):
        if not subset(lattice.bits, i, j):
            continue
        for q in range(len(tp)):
            if lattice.missing[q, j] != lattice.missing[q, i]:
                continue
            scratch.size[0] = -1
            for index in range(len(degrees)):
                d = degrees[index]
                at = k - d * tp[q] - low[i]
                if d > s or at < 0 or (i > 0 and at >= width[i]) or (i == 0 and s != d):
                    continue
                before = 0.0 if i == 0 else table[offset[i] + (s - d) * width[i] + at]
                if before > value:
                    continue
                tps = stage_tps(profile, lattice, capacity, rule, q, i, j, index, (s + d - 1) // d, order, scratch,
                                False, flag)  # fmt: skip
                if max(before, tps) == value:
                    found[0], found[1], found[2] = i, q, index
                    return True
    return False


@inner(counted=False)
def _update(table, to, behind, end, tps, falling):
    """The ``end`` entries from ``to`` on become the least of themselves and the larger of ``tps`` and those ``behind``.

    ``behind`` < 0: the stage is the first. Where entries are ``falling``, those from the first on that ``tps`` does not
    improve are left alone. Without the + 0.0, LLVM masks the stores, which take AMD's cores three times as long.
    """
    mine, begin = table[to : to + end], 0
    while falling and begin < end:
        middle = (begin + end) >> 1
        if mine[middle] <= tps:
            end = middle
        else:
            begin = middle + 1
    if behind < 0:
        for k in range(end):
            mine[k] = min(mine[k], tps) + 0.0
    else:
        before = table[behind : behind + end]
        for k in range(end):
            mine[k] = min(mine[k], max(before[k], tps)) + 0.0


compile_kernels()
