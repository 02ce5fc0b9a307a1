"""Compiled loops of the exact method: the threshold test over downsets.

Source: reconstructed (the paper's recursion turned into a feasibility test; README, "The exact method").
"""

import numpy as np

from formulations.compiled.kernels.bitsets import has, subset
from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FOUND,
    HALVES2,
    INT,
    INTS,
    NONE,
    SHORTS2,
    STOPPED,
    TRUTH,
    ZERO,
    compile_kernels,
    inner,
    kernel,
)
from formulations.stage_partitioning.kernels.arrays import Scratch
from formulations.stage_partitioning.kernels.stage import assemble
from formulations.stage_partitioning.kernels.tables import Lattice, Profile
from formulations.tmpc_knapsack.kernels.decision import decide, ratio_order

#: No label: more devices than any cluster has.
NO_DEVICES = 1 << 30

#: No plan has been found yet; a sum of degrees is at least 1.
NO_LABEL = 0

#: Not settled by the relaxation.
UNKNOWN = -2

#: A second pass from the other end pays up to so many downsets a node: on chains, where there are hardly more than one.
#: With two branches of 40 nodes (20 a node) it takes three quarters of the time (measured).
_THOROUGH = 4

#: Relative slack of the test at T, so that a plan of exactly T is found in spite of float noise in prefix sums.
NOISE = 1e-11


@inner(counted=False)
def boundary(lattice, q, i, j):
    """Least time of the transfers over the boundary of stage j minus i (times d)."""
    return _boundary(lattice.entering, lattice.leaving, lattice.crossing_start, lattice.crossing_source,
                     lattice.crossing_both, lattice.bits, q, i, j)  # fmt: skip


@inner(counted=False)
def _boundary(entering, leaving, crossing_start, crossing_source, crossing_both, bits, q, i, j):
    """As `boundary`, on the arrays it needs: handing over whole tuples costs more than the sum itself."""
    total = entering[q, j] + leaving[q, i]
    for z in range(crossing_start[i], crossing_start[i + 1]):
        if not has(bits, j, crossing_source[z]):  # its edges jump past the stage
            total -= crossing_both[q, z]
    return total


@inner()
def saving_order(profile, q, y, owner, rise, saving):
    """Hull increments of all nodes at degree q and y micro-batches in flight, best ratio first; their number.

    Only for uniform degrees, where a TMPC's extra cost does not depend on the stage.
    """
    n, X = profile.num_tmpcs.shape[1], profile.time.shape[2]
    node, extra, saved = np.empty(n * X, np.int64), np.empty(n * X), np.empty(n * X)
    taken = np.empty(X, np.bool_)
    m = ZERO
    for v in range(n):
        count = profile.num_tmpcs[q, v]
        if count < 2:
            continue
        at = 0
        for x in range(1, count):
            if profile.time[q, v, x] < profile.time[q, v, at]:
                at = x
        # the fastest; `fast_*` sums take the same one, so ties in time stay on the hull with rise 0
        taken[:] = False
        while True:
            best, best_ratio = -1, np.inf
            here = profile.per_microbatch[q, v, at] * y + profile.static[q, v, at]
            for x in range(count):
                down = here - (profile.per_microbatch[q, v, x] * y + profile.static[q, v, x])
                up = profile.time[q, v, x] - profile.time[q, v, at]
                if down <= 0 or taken[x] or up < 0:
                    continue
                ratio = up / down
                if ratio < best_ratio:
                    best, best_ratio = x, ratio
            if best < 0:
                break
            there = profile.per_microbatch[q, v, best] * y + profile.static[q, v, best]
            node[m], extra[m], saved[m] = v, profile.time[q, v, best] - profile.time[q, v, at], here - there
            taken[best] = True
            at = best
            m += 1
    order = ratio_order(node, extra, saved, m)
    for r in range(m):
        owner[r], rise[r], saving[r] = node[order[r]], extra[order[r]], saved[order[r]]
    return m


@inner(counted=False)
def saving_cost(bits, i, j, need, most, slot, runs, place, members, rise, saving):
    """(relaxed, greedy) extra cost of saving ``need`` bytes in stage j minus i; infinite if it cannot be done.

    Where it is more than ``most``, the first is a lower bound that is, too. ``slot`` is that of `new_slot`, what
    follows those arrays of the `Scratch`: to hand over all of it takes longer than the walk.
    """
    spent = 0.0
    for r in range(runs[slot]):
        up, down, at = rise[slot, r], saving[slot, r], place[slot, r]
        here = _count(members[slot, r] & bits[j, at] & ~bits[i, at])
        if (here > 0 or r == 0) and up * need > (most - spent) * down:  # no later step costs less a byte
            return spent + up * (need / down), np.inf
        if here * down >= need:
            return spent + up * (need / down), spent + up * np.ceil(need / down)
        need -= here * down
        spent += here * up
    return np.inf, np.inf


@inner(counted=False)
def _first_at_least(degrees, wanted):
    """Least index of a degree >= ``wanted`` (np.searchsorted takes a second to compile)."""
    low, high = ZERO, np.int64(min(float(len(degrees)), np.ceil(wanted)))  # degrees are distinct integers from 1 on
    middle = high - 2 if high > 2 else ZERO  # where none is left out, that is all
    while low < high:
        if degrees[middle] < wanted:
            low = middle + 1
        else:
            high = middle
        middle = (low + high) >> 1
    return low


@inner(counted=False)
def first_degree(degrees, resync, index, base, weight, limit):
    """Least index >= ``index`` whose d satisfies base + resync[d] weight <= d limit; len(degrees) if there is none.

    The left side does not fall with d, so raising d to what it requires never jumps over a solution.
    """
    while index < len(degrees):
        cost = base + resync[index] * weight
        if cost <= degrees[index] * limit:
            return index
        wanted = cost / limit * (1 - 1e-12) if limit > 0 else np.inf
        if not wanted <= degrees[-1]:
            return len(degrees)
        index += 1
        if degrees[index - 1] + 1 < wanted:
            index = max(index, _first_at_least(degrees, wanted))
    return index


@kernel(Profile, Lattice, FLOAT, INTS, INTS, INT, INT, INT, INT, INT, INT, counted=False)
def rest_of_rows(profile, lattice, limit, rest, useful, first, last, begin, end, part, parts):
    """``rest[i]``: a lower bound on the devices for all nodes outside downset i in stages of time <= ``limit``.

    The downsets that some plan may pass through end ``useful``, ascending; the result is where they begin. Where one
    tensor-parallel degree leaves one label a downset, or the graph branches, the work bound is all that pays;
    else the recursion of the threshold test runs from the other end, as if micro-batches in flight cost no memory.

    ``rest`` starts as `NO_DEVICES`. This is for the downsets from ``first`` to ``last`` - 1, by stages to
    ``useful[begin:end]``. With ``parts`` only for those that ``part`` owns (their number modulo ``parts``). With 0 they
    are finished: the stages between them count, and the useful ones are put in front of ``begin``.
    """
    bits, work, D, K = lattice.bits, lattice.work, lattice.bits.shape[0], profile.num_devices
    full = D - 1
    thorough = len(profile.tp_degrees) > 1 and D <= _THOROUGH * profile.num_tmpcs.shape[1]
    for i in range(last - 1, first - 1, -1):
        if i == full:
            rest[full] = 0
            begin -= 1
            useful[begin] = full
            continue
        if parts > 0 and i % parts != part:
            continue
        before = 0 if i == 0 else _devices_for(work[i], limit)
        behind = _devices_for(work[full] - work[i], limit)
        if before + behind > K:
            continue
        if thorough:
            most = work[i] + (K - before) * limit
            for z in range(begin, end):
                j = useful[z]
                if work[j] > most or rest[i] <= behind:  # no plan has fewer
                    break
                most_k = min(K - before, rest[i] - 1) - rest[j]
                if most_k > 0 and work[j] - work[i] <= most_k * limit and subset(bits, i, j):
                    rest[i] = min(rest[i], rest[j] + _stage_devices(profile, lattice, i, j, limit, most_k))
        else:
            rest[i] = behind
        if parts == 0 and rest[i] < NO_DEVICES:
            begin -= 1
            useful[begin] = i
    return begin


@inner(counted=False)
def _stage_devices(profile, lattice, i, j, limit, most_k):
    """Fewest devices, up to ``most_k``, that run stage j minus i in time ``limit``, at the least memory it may need."""
    degrees, tp = profile.dp_degrees, profile.tp_degrees
    in_flight = 1 if i == 0 else 2
    fewest = NO_DEVICES
    for q in range(len(tp)):
        most_d = most_k // tp[q]
        if most_d < 1:
            break
        base = lattice.time[q, j] - lattice.time[q, i]
        if base > most_d * limit or lattice.missing[q, j] != lattice.missing[q, i]:
            continue
        light_a = lattice.light_per_microbatch[q, j] - lattice.light_per_microbatch[q, i]
        if light_a * in_flight + lattice.light_static[q, j] - lattice.light_static[q, i] > profile.memory:
            continue
        index = first_degree(degrees, profile.resync, ZERO, base + boundary(lattice, q, i, j),
                             lattice.weight[q, j] - lattice.weight[q, i], limit)  # fmt: skip
        if index < len(degrees) and degrees[index] <= most_d:
            fewest = degrees[index] * tp[q]
            most_k = fewest - 1
    return fewest


@inner(counted=False)
def _devices_for(work, limit):
    """A lower bound on the devices that run a non-empty set of nodes with that much work."""
    if not 0 < work < np.inf:
        return 1
    return np.int64(min(max(1.0, np.ceil(work / limit * (1 - 1e-12) - 1e-9)), NO_DEVICES)) if limit > 0 else NO_DEVICES


@kernel(Profile, Lattice, FLOAT, TRUTH, TRUTH, INTS, INTS, SHORTS2, SHORTS2, HALVES2, SHORTS2, INT, INT, INT, INT, INT,
        INT, Scratch, INTS, FLAG, counted=False)  # fmt: skip
def extend(profile, lattice, T, exactly, fewest, rest, useful, labels, back_set, back_q, back_d, first_row, last_row,
           first_later, last_later, part, parts, scratch, stats, flag):  # fmt: skip
    """Stages of time <= T from the downsets ``useful[first_row:last_row]`` to ``useful[first_later:last_later]``.

    ``labels[i, s]`` becomes the fewest devices that run downset i in stages of time <= T whose data-parallel degrees
    sum to s or less; where it is s, ``back_*`` is the stage that got there; ``rest`` and ``useful`` are those of
    `rest_of_rows`. A label with more devices and a larger s than another is dropped before it is priced: fewer devices
    and less memory serve every continuation at least as well. For the same reason only the least feasible d of a stage
    is tried, unless ``exactly`` requires one given sum (then every s and d counts, and none is for less). Limits of the
    stages between downsets (`Lattice`) change none of this.

    Only downsets that ``part`` owns are reached (their place modulo ``parts``): threads share the others' labels.
    Returns ``s`` of a complete plan as soon as there is one, NO_LABEL if there is none yet, STOPPED. ``fewest`` goes on
    for the plan with the fewest devices. ``stats``: pairs, knapsack relaxations, knapsack searches.
    """
    bits, work, D = lattice.bits, lattice.work, lattice.bits.shape[0]
    degrees, resync, K, S, M = profile.dp_degrees, profile.resync, profile.num_devices, profile.max_s, profile.memory
    tp, P, full = profile.tp_degrees, len(profile.tp_degrees), D - 1
    limit = T * (1 + NOISE)
    limited, low, high = lattice.least_d.shape[0] > 0, ZERO, np.int64(len(degrees) - 1)
    label_s, label_k = scratch.sums, scratch.fewest
    for a in range(first_row, min(last_row, full)):
        i = useful[a]
        if flag[0] != 0:
            return STOPPED
        count, least = 0, NO_DEVICES
        for s in range(S + 1):
            k = labels[i, s]
            if k + rest[i] <= K and (k < least or exactly):
                label_s[count], label_k[count] = s, k
                count += 1
                least = min(least, k)
        if count == 0:
            continue
        most = work[i] + (K - least) * limit  # a stage of d t <= K - least devices does at most that much more
        for b in range(max(a + 1, first_later), last_later):
            j = useful[b]
            if work[j] > most:
                break
            if b % parts != part:
                continue
            most_k = K - rest[j] - least
            if most_k < 1 or work[j] - work[i] > most_k * limit or not subset(bits, i, j):
                continue
            if limited:
                low, high = np.int64(lattice.least_d[i, j]), np.int64(lattice.most_d[i, j])
                if low > high:
                    continue
            stats[0] += 1
            for q in range(P):
                most_d = most_k // tp[q]
                if most_d < 1:
                    break
                if limited:
                    most_d = min(most_d, degrees[high])
                if lattice.missing[q, j] != lattice.missing[q, i]:
                    continue
                base = lattice.time[q, j] - lattice.time[q, i]
                if base > most_d * limit:
                    continue
                base += _boundary(lattice.entering, lattice.leaving, lattice.crossing_start, lattice.crossing_source,
                                  lattice.crossing_both, bits, q, i, j)  # fmt: skip
                weight = lattice.weight[q, j] - lattice.weight[q, i]
                light_a = lattice.light_per_microbatch[q, j] - lattice.light_per_microbatch[q, i]
                light_b = lattice.light_static[q, j] - lattice.light_static[q, i]
                fast_a = lattice.fast_per_microbatch[q, j] - lattice.fast_per_microbatch[q, i]
                fast_b = lattice.fast_static[q, j] - lattice.fast_static[q, i]
                uniform = profile.uniform[q] != 0
                scratch.size[0] = -1  # the stage is not assembled yet
                first = low
                last_index, last_y, last_fits, last_extra = -1, 0, FOUND, 0.0
                for z in range(count):
                    s0, k0 = label_s[z], label_k[z]
                    index = first
                    while True:
                        index = first_degree(degrees, resync, index, base, weight, limit)
                        if index == len(degrees) or degrees[index] > most_d:
                            break
                        d = degrees[index]
                        k, s = k0 + d * tp[q], s0 + d
                        if s > S or k + rest[j] > K or (labels[j, s] <= k and not exactly):  # nor does a larger d help
                            break
                        in_flight = 1 + (s0 + d - 1) // d
                        fits, extra = FOUND, 0.0
                        if index == last_index and in_flight == last_y:  # neighbouring labels often ask the same
                            fits, extra = last_fits, last_extra
                        elif light_a * in_flight + light_b > M:
                            fits, extra = NONE, np.inf
                        elif not uniform or fast_a * in_flight + fast_b > M:
                            fits = UNKNOWN
                            if uniform:
                                stats[1] += 1
                                need = fast_a * in_flight + fast_b - M
                                slack = d * limit - base - resync[index] * weight
                                most_extra = slack + 1e-12 * d * limit
                                slot = scratch.slot_of[q, in_flight]
                                if slot < 0:
                                    slot = new_slot(profile, q, in_flight, scratch)
                                extra, greedy = saving_cost(
                                    bits, i, j, need, most_extra, slot, scratch.runs, scratch.place, scratch.members,
                                    scratch.rise, scratch.saving,
                                )  # fmt: skip
                                if extra == np.inf or extra > most_extra:  # also if slack is infinite
                                    fits = NONE
                                elif greedy <= slack:
                                    fits = FOUND
                            if fits == UNKNOWN:
                                stats[2] += 1
                                fits = search_choice(profile, bits, q, i, j, index, in_flight, limit, scratch, flag)
                                if fits == STOPPED:
                                    return STOPPED
                            last_index, last_y, last_fits, last_extra = index, in_flight, fits, extra
                        if fits == FOUND:
                            if k < labels[j, s]:
                                labels[j, s], back_set[j, s], back_q[j, s], back_d[j, s] = k, i, q, d
                                if j == full and not fewest and (not exactly or s == S):
                                    return s
                                while not exactly and s < S and labels[j, s + 1] > k:
                                    s += 1
                                    labels[j, s] = k
                            if not exactly:
                                break
                            index += 1
                            continue
                        index = _next_degree(degrees, resync, index, s0, in_flight, base + extra, weight, limit)
                    if not exactly:
                        first = index  # a larger s never allows a smaller d
                        if index == len(degrees) or degrees[index] > most_d or s0 + degrees[index] > S:
                            break
    return NO_LABEL


@inner(counted=False)
def _next_degree(degrees, resync, index, s0, in_flight, base, weight, limit):
    """The next degree worth trying after ``index`` ran out of memory: fewer in flight, or time for a lighter choice."""
    if in_flight <= 2:
        fewer = len(degrees)  # no d brings it down: 1 + ceil(s0 / d) is 1 if s0 = 0 and at least 2 otherwise
    else:
        fewer = _first_at_least(degrees, np.float64((s0 + in_flight - 3) // (in_flight - 2)))
    slower = first_degree(degrees, resync, index + 1, base, weight, limit) if base < np.inf else len(degrees)
    return max(index + 1, min(fewer, slower))


@inner(counted=False)
def _count(word):
    """How many bits of a word are set (LLVM makes one instruction of it)."""
    count = ZERO
    while word != 0:
        word &= word - np.uint64(1)
        count += 1
    return count


@inner(counted=False)
def new_slot(profile, q, in_flight, scratch):
    """Make the saving order at (q, y); the row that holds it."""
    slot = scratch.next_slot[0]
    if slot == len(scratch.runs):  # full: start over
        scratch.slot_of[:, :] = -1
        slot = 0
    scratch.next_slot[0] = slot + 1
    scratch.slot_of[q, in_flight] = slot
    owner, rise, saving = scratch.owner, scratch.rise[slot], scratch.saving[slot]
    place, members, runs = scratch.place[slot], scratch.members[slot], ZERO
    for r in range(saving_order(profile, q, in_flight, owner, rise, saving)):
        v = owner[r]
        new = runs == 0 or rise[r] != rise[runs - 1] or saving[r] != saving[runs - 1]
        if new or v >> 6 != place[runs - 1] or v <= owner[r - 1]:
            place[runs], members[runs], rise[runs], saving[runs] = v >> 6, np.uint64(0), rise[r], saving[r]
            runs += 1
        members[runs - 1] |= np.uint64(1) << np.uint64(v & 63)
    scratch.runs[slot] = runs
    return slot


@inner(counted=False)
def search_choice(profile, bits, q, i, j, index, in_flight, limit, scratch, flag):
    """Whether a choice of TMPCs keeps stage j minus i within memory and time: FOUND, NONE or STOPPED."""
    if scratch.size[0] < 0:
        scratch.size[0] = assemble(profile, bits, q, i, j, scratch.nodes, scratch.start, scratch.base,
                                   scratch.weight, scratch.per_microbatch, scratch.static)  # fmt: skip
    m = scratch.size[0]
    for x in range(scratch.start[m]):
        scratch.cost[x] = scratch.base[x] + profile.resync[index] * scratch.weight[x]
        scratch.memory[x] = scratch.per_microbatch[x] * in_flight + scratch.static[x]
    budget = profile.dp_degrees[index] * limit
    return decide(m, scratch.start, scratch.cost, scratch.memory, profile.memory, budget, scratch.choice, flag)


compile_kernels()
