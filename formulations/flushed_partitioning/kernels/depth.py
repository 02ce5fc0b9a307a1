"""Compiled loops of the recursion with depth: all labels of every downset at one bottleneck T.

Source: this project; the recursion over downsets is Piper's, section 4, its tests of memory are the flat family's.
"""

from typing import Any

import numpy as np

from formulations.compiled.kernels.bitsets import has, subset
from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FLOATS,
    FOUND,
    INT,
    INTS,
    NONE,
    STOPPED,
    TRUTH,
    ZERO,
    compile_kernels,
    inner,
    kernel,
)
from formulations.flushed_partitioning.kernels.arrays import Filling, Pool, ReachedSets
from formulations.stage_partitioning.kernels.arrays import Scratch
from formulations.stage_partitioning.kernels.labels import (
    NO_DEVICES,
    UNKNOWN,
    boundary,
    first_degree,
    new_slot,
    saving_cost,
    search_choice,
)
from formulations.stage_partitioning.kernels.tables import Lattice, Profile

#: What `extend` returns instead of a number of labels.
HALTED, FULL = -2, -3

#: No label, no memo.
NOTHING = -1

#: Relative slack of the bottleneck T, for float noise in prefix sums.
_NOISE = 1e-11

_ONE: Any = np.uint64(1)


@kernel(Profile, Lattice, ReachedSets, Filling, FLOAT, INT, FLOATS, FLOATS, INT, FLOATS, TRUTH, INTS, Pool, INTS, INTS,
        INT, INT, INT, INT, INT, INT, INTS, Scratch, INTS, FLAG)  # fmt: skip
def extend(profile, lattice, sets, filling, T, whole, sync, near, machine, most_sync, plain, head, pool, rest, useful,
           first_row, last_row, first_later, last_later, part, parts, places, scratch, stats, flag):  # fmt: skip
    """Every label of later downsets that no other one beats, by stages from these rows whose steps take at most T.

    Rows and later downsets are places in ``useful``, shared as in `stage_partitioning.kernels.labels.extend`.
    A label is (s, devices, longest synchronisation, depth of every reached set); ``head[i]``: the newest of downset i.
    ``whole`` micro-batches are in flight at every stage; 0: s of them. ``sync[x]``: synchronisation per byte at the
    x-th degree d; ``near[x]``: where all its replicas lie in one machine of ``machine`` devices (0: no machines).
    Devices are counted up to the last one taken, with those that stay idle at ends of machines: as some may stay idle,
    a label of fewer devices can do what one of more can. Labels that synchronise longer than ``most_sync`` of the
    least depth they may end with are dropped; with ``plain``, neither synchronisation nor depth counts. Of a stage only
    the least feasible d is tried: it has the fewest devices, the least s and the shortest synchronisation, and lies in
    one machine where a larger one does. Where replicas fill, larger d with fewer micro-batches in flight are tried up
    to the first at which a stage is as fast as without a limit on memory; ``most_sync`` (1,) then limits what depth and
    synchronisation add to the time per sample.

    Labels are put into the pool from ``places[0]`` on, which rises, to before ``places[1]``. Returns 0, HALTED, or FULL
    if there is no place left. ``stats``: pairs, relaxed knapsacks, searches.
    """
    S = profile.max_s
    sums, fewest, degree_at = np.empty(S + 1, np.int64), np.empty(S + 1, np.int64), np.empty(S + 1, np.int64)
    into = np.empty(sets.node.shape[1], np.uint64)
    reaches = np.empty(sets.node.shape[1], np.bool_)
    depths = np.empty(sets.node.shape[1])
    own_time, priced = np.empty(max(S, whole) + 2), np.zeros(max(S, whole) + 2, np.int64)  # by micro-batches in flight
    return _rows(profile, lattice, sets, filling, T, whole, sync, near, machine, most_sync, plain, head, pool, rest,
                 useful, first_row, last_row, first_later, last_later, part, parts, places, scratch, stats, flag, sums,
                 fewest, degree_at, into, reaches, depths, own_time, priced)  # fmt: skip


@inner(counted=False)
def _rows(profile, lattice, sets, filling, T, whole, sync, near, machine, most_sync, plain, head, pool, rest, useful,
          first_row, last_row, first_later, last_later, part, parts, places, scratch, stats, flag, sums, fewest,
          degree_at, into, reaches, depths, own_time, priced):  # fmt: skip
    """As `extend`, in its work space."""
    bits, work, D = lattice.bits, lattice.work, lattice.bits.shape[0]
    degrees, tp, K, S = profile.dp_degrees, profile.tp_degrees, profile.num_devices, profile.max_s
    n = profile.num_tmpcs.shape[1]
    limit, cap, by_replicas = T * (1 + _NOISE), filling.cap * (1 + _NOISE), len(filling.later) > 0 and not plain
    stage = ZERO
    for a in range(first_row, min(last_row, D - 1)):
        i = useful[a]
        if flag[0] != 0:
            return HALTED
        count, least = _sums(pool, head[i], sums, fewest)
        if least + rest[i] > K:
            continue
        most = work[i] + (K - least) * limit  # a stage of d t <= K - least devices does at most that much more
        for b in range(max(a + 1, first_later), last_later):
            j = useful[b]
            if work[j] > most:
                break
            if b % parts != part:
                continue
            if K - rest[j] - least < 1 or not subset(bits, i, j):
                continue
            stats[0] += 1
            below = _reached_by_stage(sets, bits, i, j, n, into, reaches)
            for q in range(len(tp)):
                if tp[q] > K - rest[j] - least or (machine > 0 and tp[q] > machine):
                    break
                if lattice.missing[q, j] != lattice.missing[q, i]:
                    continue
                most_k = K - rest[j]
                if not _least_degrees(profile, lattice, scratch, q, i, j, whole, most_k, limit, count, sums, fewest,
                                      degree_at, stats, flag):  # fmt: skip
                    continue
                weight = _weight(profile, bits, q, i, j)
                own, first_index, fastest, stage = 1.0, ZERO, 0.0, stage + 1
                if by_replicas:
                    fastest = lattice.time[q, j] - lattice.time[q, i] + boundary(lattice, q, i, j)
                    first_index = _enough_replicas(profile, filling, ZERO, cap, fastest)
                label = head[i]
                while label != NOTHING:
                    index = max(degree_at[pool.s[label]], first_index)
                    while index < len(degrees):
                        s, d, t, k = pool.s[label] + degrees[index], degrees[index], tp[q], pool.devices[label]
                        if s > S or k + d * t + rest[j] > K:
                            break
                        if by_replicas:
                            y = ((whole if whole > 0 else s) + d - 1) // d
                            if priced[y] != stage:
                                priced[y] = stage
                                own_time[y] = _least_time(profile, lattice, scratch, q, i, j, y, fastest, stats, flag)
                            own = own_time[y]
                            if own < 0:
                                return HALTED
                            if filling.later[index] * own > cap:
                                fewer = _next_degree(
                                    degrees, profile.resync, index, pool.s[label], whole, y, np.inf, limit
                                )
                                index = min(fewer, _enough_replicas(profile, filling, index + 1, cap, own))
                                continue
                        for way in range(2):  # behind the others, or at the begin of the next machine
                            if way == 1 and (
                                plain or machine == 0 or d * t > machine or k % machine + d * t <= machine
                            ):
                                break
                            first = k if way == 0 else -(-k // machine) * machine
                            end = _end(first, d, t, machine)
                            rate = sync[index]
                            if machine > 0 and d * t <= machine and first % machine + d * t <= machine:
                                rate = near[index]
                            longest = max(pool.sync[label], rate * weight)
                            if end + rest[j] > K:
                                continue
                            at_least = _depths_behind(sets, j, own, pool.depth[label], below, into, reaches, depths,
                                                      filling.least)  # fmt: skip
                            if plain or _may_end(at_least, longest, most_sync, by_replicas, filling.microbatches):
                                used = places[0]
                                if used == places[1]:
                                    return FULL
                                if _insert(pool, head, j, used, s, end, longest, depths, sets.width[j], plain):
                                    pool.back[used], pool.low[used] = label, i
                                    pool.tp[used], pool.dp[used] = q, d
                                    places[0] += 1
                        if not by_replicas or own <= fastest * (1 + _NOISE):
                            break
                        index = _next_degree(degrees, profile.resync, index, pool.s[label], whole, y, np.inf, limit)
                    label = pool.next[label]
    return HALTED if flag[0] != 0 else 0


@inner(counted=False)
def _enough_replicas(profile, filling, index, cap, own):
    """Least index >= ``index`` of a degree at which later micro-batches that take ``own`` each are within the cap."""
    rounds = np.floor(cap / own) + 1 if own > 0 else np.inf
    return first_degree(profile.dp_degrees, profile.resync, index, float(filling.microbatches), 0.0, rounds)


@inner(counted=False)
def _least_time(profile, lattice, scratch, q, i, j, y, fastest, stats, flag):
    """The least time of stage j minus i for a micro-batch, up to `_NOISE`, with y in flight; negative if stopped.

    Only for a stage that fits the memory; no choice takes less than ``fastest``.
    """
    low, high, tight = fastest, np.inf, True
    if profile.uniform[q] != 0:
        needed = (lattice.fast_per_microbatch[q, j] - lattice.fast_per_microbatch[q, i]) * y
        needed += lattice.fast_static[q, j] - lattice.fast_static[q, i]
        if needed <= profile.memory:
            return fastest
        extra, greedy = _extra_cost(profile, lattice, scratch, q, i, j, y, needed, stats)
        low, high = fastest + extra, fastest + greedy
    while low < high * (1 - _NOISE):
        # Just below the best choice, and halfway to what none is below: few sums differ, or many.
        budget = high * (1 - _NOISE) if tight or high == np.inf else (low + high) / 2
        tight = not tight
        stats[2] += 1
        fits = search_choice(profile, lattice.bits, q, i, j, ZERO, y, budget, scratch, flag)
        if fits == STOPPED:
            return -1.0
        if fits == NONE:
            low = budget
            continue
        high = 0.0
        for v in range(scratch.size[0]):
            high += scratch.cost[scratch.start[v] + scratch.choice[v]]
    return min(low, high)


@inner(counted=False)
def _may_end(at_least, longest, most_sync, by_replicas, m):
    """Whether a label may still end in a plan that is looked for."""
    if by_replicas:
        return at_least / m + longest <= most_sync[0]
    return at_least < len(most_sync) and longest <= most_sync[int(at_least)]


@inner(counted=False)
def _end(first, d, t, machine):
    """Behind the last device of d replicas from device ``first`` on, the t devices of each in one machine."""
    if machine == 0 or (machine % t == 0 and first % t == 0):
        return first + d * t
    end = first
    for _ in range(d):
        if end % machine + t > machine:
            end = -(-end // machine) * machine
        end += t
    return end


@inner(counted=False)
def _sums(pool, label, sums, fewest):
    """(number of different s among the labels from ``label`` on, fewest devices); ``sums``: each s, ascending.

    ``fewest[s]``: the fewest devices of a label with that s.
    """
    fewest[:] = NO_DEVICES
    while label != NOTHING:
        fewest[pool.s[label]] = min(fewest[pool.s[label]], pool.devices[label])
        label = pool.next[label]
    count, least = 0, NO_DEVICES
    for s in range(len(fewest)):
        if fewest[s] < NO_DEVICES:
            sums[count] = s
            count += 1
            least = min(least, fewest[s])
    return count, least


@inner(counted=False)
def _reached_by_stage(sets, bits, i, j, n, into, reaches):
    """The reached sets of downset i that stage j minus i reaches; ``into`` and ``reaches`` for every reached set of j.

    ``into[u]``: the sets of i that set u is made of; ``reaches[u]``: whether it also holds nodes of the stage.
    """
    below = np.uint64(0)
    for v in range(n):
        if has(bits, j, v) and not has(bits, i, v):
            below |= sets.mask[i, v]
    for u in range(sets.width[j]):
        v = sets.node[j, u]
        into[u], reaches[u] = sets.mask[i, v], False
        for w in range(bits.shape[1]):
            if sets.reach[v, w] & bits[j, w] & ~bits[i, w] != 0:
                reaches[u] = True
                break
    return below


@inner(counted=False)
def _weight(profile, bits, q, i, j):
    """Bytes of weights of stage j minus i, node by node: a difference of sums would drown light ones in heavy ones."""
    total = 0.0
    for v in range(profile.num_tmpcs.shape[1]):
        if has(bits, j, v) and not has(bits, i, v):
            total += profile.weight[q, v, 0]
    return total


@inner(counted=False)
def _deepest(depth, chosen):
    """The largest depth of the chosen reached sets (bits)."""
    found, u = 0.0, 0
    while chosen != 0:
        if chosen & _ONE != 0:
            found = max(found, depth[u])
        chosen >>= _ONE
        u += 1
    return found


@inner(counted=False)
def _depths_behind(sets, j, own, depth, below, into, reaches, depths, in_front):
    """``depths``: those of the reached sets of downset j; returns the least that a path of the whole adds up to."""
    own, least = own + _deepest(depth, below), 0.0
    for u in range(sets.width[j]):
        depths[u] = _deepest(depth, into[u])
        if reaches[u]:
            depths[u] = max(depths[u], own)
        least = max(least, depths[u] + in_front[sets.node[j, u]])
    return least


@inner(counted=False)
def _insert(pool, head, j, new, s, k, longest, depths, count, plain):
    """Put a label into the list of downset j unless one there beats it; those that it beats are taken out."""
    before, label = NOTHING, head[j]
    while label != NOTHING:
        after = pool.next[label]
        lower, higher = pool.s[label] <= s and pool.devices[label] <= k, pool.s[label] >= s and pool.devices[label] >= k
        if not plain and (lower or higher):
            lower, higher = lower and pool.sync[label] <= longest, higher and pool.sync[label] >= longest
            for u in range(count):
                lower, higher = (
                    lower and pool.depth[label, u] <= depths[u],
                    higher and pool.depth[label, u] >= depths[u],
                )
        if lower:
            return False
        if higher and before == NOTHING:
            head[j] = after
        elif higher:
            pool.next[before] = after
        else:
            before = label
        label = after
    pool.s[new], pool.devices[new], pool.sync[new], pool.next[new] = s, k, longest, head[j]
    for u in range(count):
        pool.depth[new, u] = depths[u]
    head[j] = new
    return True


@inner(counted=False)
def _least_degrees(
    profile, lattice, scratch, q, i, j, whole, most_k, limit, count, sums, fewest, degree_at, stats, flag
):
    """``degree_at[s]``: index of the least d at which stage j minus i fits memory and T, in front of stages of sum s.

    Beyond all degrees where none does, or takes more than ``most_k`` devices. False if there is none for any s.
    """
    degrees, none = profile.dp_degrees, len(profile.dp_degrees)
    base = lattice.time[q, j] - lattice.time[q, i]
    if base > most_k * limit:
        return False
    base += boundary(lattice, q, i, j)
    light_a = lattice.light_per_microbatch[q, j] - lattice.light_per_microbatch[q, i]
    light_b = lattice.light_static[q, j] - lattice.light_static[q, i]
    fast_a = lattice.fast_per_microbatch[q, j] - lattice.fast_per_microbatch[q, i]
    fast_b = lattice.fast_static[q, j] - lattice.fast_static[q, i]
    uniform, M, some = profile.uniform[q] != 0, profile.memory, False
    scratch.size[0] = -1  # the stage is not assembled yet
    index = first_degree(degrees, profile.resync, ZERO, base, 0.0, limit)
    last_index, last_y, last_fits, last_extra = -1, 0, FOUND, 0.0
    for z in range(count):
        s0 = sums[z]
        most_d = (most_k - fewest[s0]) // profile.tp_degrees[q]
        while index < none and degrees[index] <= most_d:
            d = degrees[index]
            y = ((whole if whole > 0 else s0 + d) + d - 1) // d
            fits, extra = FOUND, 0.0
            if index == last_index and y == last_y:  # neighbouring labels often ask the same
                fits, extra = last_fits, last_extra
            elif light_a * y + light_b > M:
                fits, extra = NONE, np.inf
            elif not uniform or fast_a * y + fast_b > M:
                fits = UNKNOWN
                if uniform:
                    extra, greedy = _extra_cost(profile, lattice, scratch, q, i, j, y, fast_a * y + fast_b, stats)
                    slack = d * limit - base
                    if extra == np.inf or extra > slack + 1e-12 * d * limit:  # also if slack is infinite
                        fits = NONE
                    elif greedy <= slack:
                        fits = FOUND
                if fits == UNKNOWN:
                    stats[2] += 1
                    fits = search_choice(profile, lattice.bits, q, i, j, index, y, limit, scratch, flag)
                    if fits == STOPPED:
                        return False
            last_index, last_y, last_fits, last_extra = index, y, fits, extra
            if fits == FOUND:
                break
            index = _next_degree(degrees, profile.resync, index, s0, whole, y, base + extra, limit)
        found = index < none and degrees[index] <= most_d
        degree_at[s0] = index if found else none
        some = some or found
    return some


@inner(counted=False)
def _next_degree(degrees, resync, index, s0, whole, y, base, limit):
    """The next degree worth trying after ``index`` ran out of memory: fewer in flight, or time for a lighter choice."""
    most, own = (whole, 0) if whole > 0 else (s0, 1)  # y = own + ceil(most / d)
    fewer = len(degrees)
    if y - own > 1:
        fewer = first_degree(degrees, resync, index, float(-(-most // (y - own - 1))), 0.0, 1.0)
    slower = first_degree(degrees, resync, index + 1, base, 0.0, limit) if base < np.inf else len(degrees)
    return max(index + 1, min(fewer, slower))


@inner(counted=False)
def _extra_cost(profile, lattice, scratch, q, i, j, y, needed, stats):
    """(relaxed, greedy) extra cost of bringing stage j minus i from ``needed`` bytes within the memory."""
    stats[1] += 1
    slot = scratch.slot_of[q, y]
    if slot < 0:
        slot = new_slot(profile, q, y, scratch)
    return saving_cost(lattice.bits, i, j, needed - profile.memory, np.inf, slot, scratch.runs, scratch.place,
                       scratch.members, scratch.rise, scratch.saving)  # fmt: skip


compile_kernels()
