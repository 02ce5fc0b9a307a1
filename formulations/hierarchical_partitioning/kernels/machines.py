"""Compiled loops of one machine: sets of nodes split into stages among its devices, at a fixed time per sample.

Source: Piper, Appendix E: dp^1[D, D'][k][s, x], as "fewest devices within T". The symbols are the appendix's: D' is
``start``, b = ceil(s / d_2) - x the degrees behind D' as one machine sees them.
"""

import numpy as np

from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FOUND,
    INT,
    INTS,
    NONE,
    SHORTS2,
    SHORTS3,
    STOPPED,
    ZERO,
    compile_kernels,
    inner,
    kernel,
)
from formulations.hierarchical_partitioning.kernels.arrays import Arcs, Links
from formulations.stage_partitioning.kernels.arrays import Scratch
from formulations.stage_partitioning.kernels.labels import first_degree, new_slot, saving_cost, search_choice
from formulations.stage_partitioning.kernels.tables import Lattice, Profile

#: No label.
NOTHING = 1 << 30

#: Memory is not counted; with the largest s; with s itself.
UNCOUNTED, CRUDE, PRECISE = 0, 1, 2


@inner(counted=False)
def _fits(profile, lattice, q, i, j, index, in_flight, slack, limit, scratch, stats, flag):
    """Whether a choice of TMPCs keeps stage j minus i within memory and time: FOUND, NONE or STOPPED.

    ``slack`` is what is left of d times ``limit`` beside the fastest choice.
    """
    need = (lattice.light_per_microbatch[q, j] - lattice.light_per_microbatch[q, i]) * in_flight - profile.memory
    if need + lattice.light_static[q, j] - lattice.light_static[q, i] > 0:
        return NONE
    if profile.uniform[q]:
        need = (lattice.fast_per_microbatch[q, j] - lattice.fast_per_microbatch[q, i]) * in_flight - profile.memory
        need += lattice.fast_static[q, j] - lattice.fast_static[q, i]
        if need <= 0:
            return FOUND
        most = slack + 1e-12 * profile.dp_degrees[index] * limit
        slot = scratch.slot_of[q, in_flight]
        if slot < 0:
            slot = new_slot(profile, q, in_flight, scratch)
        extra, greedy = saving_cost(lattice.bits, i, j, need, most, slot, scratch.runs, scratch.place, scratch.members,
                                    scratch.rise, scratch.saving)  # fmt: skip
        if extra == np.inf or extra > most:  # also if slack is infinite
            return NONE
        if greedy <= slack:
            return FOUND
    stats[2] += 1
    scratch.size[0] = -1  # the stage is not assembled
    return search_choice(profile, lattice.bits, q, i, j, index, in_flight, limit, scratch, flag)


@inner(counted=False)
def _list_stages(profile, lattice, links, arcs, i, d2, behind, limit, scratch, stats, flag):
    """List in ``arcs`` the stages that begin at downset i on one of d2 machines, by rising j; False if stopped.

    They take at most the time ``limit``; degrees d_1 of what is behind i sum to ``behind``. Of a pair and t, only the
    least d_1 that fits is listed: fewer devices and a smaller s serve every continuation at least as well, and a larger
    s never allows a smaller d_1.
    """
    K1, S, precise, tp = links.num_devices, profile.max_s, links.memory_model == PRECISE, profile.tp_degrees
    degrees, resync, work, pair_start = profile.dp_degrees, profile.resync, lattice.work, links.pair_start
    top, row = (S + d2 - 1) // d2, i * arcs.first[links.num_machines] + arcs.first[d2 - 1]
    at = arcs.size[0]
    if at + (pair_start[i + 1] - pair_start[i]) * len(tp) > len(arcs.to):  # full: start over
        for a in range(len(arcs.begin)):
            arcs.begin[a] = -1
        at = 0
    begin, refused, free, cut, largest = at, False, True, False, 0
    for z in range(pair_start[i], pair_start[i + 1]):
        j = np.int64(links.larger[z])
        if work[j] > work[i] + K1 * limit:
            break
        for q in range(len(tp)):
            most_d = min(K1 // tp[q], len(degrees))
            if most_d < 1:
                break
            base = lattice.time[q, j] - lattice.time[q, i]
            if lattice.missing[q, j] != lattice.missing[q, i] or base > most_d * limit:
                continue
            base += links.base[q, z]
            weight = lattice.weight[q, j] - lattice.weight[q, i]
            index = first_degree(degrees, resync, ZERO, base, weight, limit)
            while index < most_d:
                d = degrees[index]
                if behind + d > top:
                    refused, cut = True, True
                    break
                in_flight = (behind + 2 * d - 1) // d if precise else (S + d - 1) // d
                slack = d * limit - base - resync[index] * weight
                fits = _fits(profile, lattice, q, i, j, index, in_flight, slack, limit, scratch, stats, flag)
                if fits == STOPPED:
                    return False
                if fits == FOUND:
                    arcs.to[at], arcs.degree[at], arcs.tensor[at] = j, d, q
                    at += 1
                    largest = max(largest, d)
                    fast = lattice.fast_per_microbatch[q, j] - lattice.fast_per_microbatch[q, i]
                    fast = fast * ((top + d - 1) // d) + lattice.fast_static[q, j] - lattice.fast_static[q, i]
                    free = free and profile.uniform[q] != 0 and fast <= profile.memory
                    break
                refused = True
                index = first_degree(degrees, resync, index + 1, base, weight, limit)
    arcs.size[0] = at
    first, last = behind, behind
    if not cut and (not precise or (free and not refused)):  # the same with anything behind that leaves room for them
        first, last = 0, max(behind, top - largest)
    for s in range(first, last + 1):
        arcs.begin[row + s], arcs.end[row + s], arcs.refused[row + s] = begin, at, refused
    return True


@kernel(Profile, Lattice, Links, Arcs, INT, INT, INT, INT, FLOAT, INT, SHORTS2, SHORTS3, Scratch, INTS, FLAG,
        counted=False)  # fmt: skip
def split_machine(profile, lattice, links, arcs, start, d2, b, behind, T, farthest, reach, back, scratch, stats,
                  flag):  # fmt: skip
    """Which downsets j can one of d2 machines reach from ``start``: is j minus ``start`` split within its devices?

    ``reach[j, x]`` becomes the fewest devices of the machine, for stages of time <= d2 * ``T`` whose degrees d_1 sum to
    x; ``back[j, x]`` is (i, q, d_1), the stage that got there. ``behind`` devices at most are left for what comes after
    this superstage; j of pairs beyond ``farthest`` are of no interest. Stages depend on i, d2 and the sum of degrees
    behind them, not on ``start``: they are listed once in a test.

    Returns 1 if a stage was refused that a smaller b might admit, 0 if none was, -1 if stopped.
    """
    work, K1, larger = lattice.work, links.num_devices, links.larger
    full, limit, tight, goal = lattice.bits.shape[0] - 1, d2 * T, 0, larger[farthest]
    first, most, row = links.pair_start[start], work[start] + K1 * limit, arcs.first[d2 - 1]
    tp, width, top = profile.tp_degrees, arcs.first[links.num_machines], (profile.max_s + d2 - 1) // d2
    stats[0] += 1
    for r in range(first - 1, farthest + 1):
        j = start if r < first else larger[r]
        for x in range(K1 + 1):
            reach[j, x] = NOTHING
    reach[start, 0] = 0
    for r in range(first - 1, farthest):
        i = start if r < first else np.int64(larger[r])
        if work[i] > most:
            break
        if flag[0] != 0:
            return -1
        least = K1
        for x in range(K1):
            k = reach[i, x]
            if x >= top - b:  # no degree is left at this b; a smaller one may leave some
                tight = 1 if k < NOTHING else tight
                continue
            # No smaller x comes with as few devices, and what is not done yet fits on the devices that are left.
            if k >= least or work[full] - work[i] > (behind + (K1 - k) * d2) * T:
                continue
            least = k
            key = i * width + row + b + x
            if arcs.begin[key] < 0:
                if not _list_stages(profile, lattice, links, arcs, i, d2, b + x, limit, scratch, stats, flag):
                    return -1
            tight = 1 if arcs.refused[key] else tight
            farthest_work = work[i] + (K1 - k) * limit
            for a in range(arcs.begin[key], arcs.end[key]):
                j = arcs.to[a]
                if j > goal or work[j] > farthest_work:
                    break
                d, q = arcs.degree[a], arcs.tensor[a]
                m = k + d * tp[q]
                if m <= K1 and m < reach[j, x + d]:
                    reach[j, x + d] = m
                    back[j, x + d, 0], back[j, x + d, 1], back[j, x + d, 2] = i, q, d
            stats[1] += arcs.end[key] - arcs.begin[key]
    return tight


compile_kernels()
