"""Compiled loops of the search for the shortest iteration: times of stages, bounds of what is behind, fixed orders."""

import numpy as np

from formulations.compiled.kernels.bitsets import has, subset
from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FLOATS,
    FLOATS2,
    FLOATS3,
    INT,
    INTS,
    TRUTH,
    compile_kernels,
    inner,
    kernel,
)
from formulations.flushed_partitioning.kernels.arrays import BEHIND, STAGES
from formulations.flushed_partitioning.kernels.depth import _least_time, _weight
from formulations.stage_partitioning.kernels.arrays import LATTICE, PROFILE, SCRATCH
from formulations.stage_partitioning.kernels.labels import boundary

#: Times that differ by less are equal.
_NOISE = 1e-12
#: Shares of a stage's time (`stage_partitioning.definition.batch`).
_FORWARD, _BACKWARD = 1 / 3, 2 / 3


@kernel(PROFILE, LATTICE, SCRATCH, INT, INTS, FLOAT, FLOATS3, INTS, FLAG)
def least_times(profile, lattice, scratch, q, ys, most, found, stats, flag):
    """``found[x, i, j]``: `least_time` of every stage with ``ys[x]`` in flight (ascending); False if stopped.

    More in flight take no less time: between two equal times all are equal.
    """
    D, Y = lattice.bits.shape[0], len(ys)
    found[:, :, :] = np.inf
    lows, highs = np.empty(Y + 1, np.int64), np.empty(Y + 1, np.int64)
    for i in range(D):
        if flag[0] != 0:
            return False
        for j in range(i + 1, D):
            for x in (0, Y - 1):
                found[x, i, j] = _least_of_stage(profile, lattice, scratch, q, i, j, ys[x], most, stats, flag)
            lows[0], highs[0], open_ = 0, Y - 1, 1
            while open_ > 0:
                open_ -= 1
                low, high = lows[open_], highs[open_]
                if high - low < 2:
                    continue
                if found[low, i, j] == np.inf or found[high, i, j] <= found[low, i, j] * (1 + _NOISE):
                    for x in range(low + 1, high):
                        found[x, i, j] = found[low, i, j]
                    continue
                middle = (low + high) // 2
                found[middle, i, j] = _least_of_stage(profile, lattice, scratch, q, i, j, ys[middle], most, stats, flag)
                lows[open_], highs[open_], lows[open_ + 1], highs[open_ + 1] = low, middle, middle, high
                open_ += 2
            for x in range(Y):
                if found[x, i, j] < 0:
                    return False
    return True


@kernel(PROFILE, LATTICE, SCRATCH, INT, INT, INT, INT, FLOAT, INTS, FLAG)
def least_time(profile, lattice, scratch, q, i, j, y, most, stats, flag):
    """The least time of stage j minus i for a micro-batch at the q-th t, with y of them in flight.

    Infinite where there is no such stage, it does not fit, or takes more than ``most``; negative if stopped.
    """
    return _least_of_stage(profile, lattice, scratch, q, i, j, y, most, stats, flag)


@inner()
def _least_of_stage(profile, lattice, scratch, q, i, j, y, most, stats, flag):
    if lattice.missing[q, j] != lattice.missing[q, i] or not subset(lattice.bits, i, j):
        return np.inf
    fastest = lattice.time[q, j] - lattice.time[q, i] + boundary(lattice, q, i, j)
    light = (lattice.light_per_microbatch[q, j] - lattice.light_per_microbatch[q, i]) * y
    light += lattice.light_static[q, j] - lattice.light_static[q, i]
    if fastest > most or light > profile.memory:
        return np.inf
    scratch.size[0] = -1  # the stage is not assembled yet
    time = _least_time(profile, lattice, scratch, q, i, j, y, fastest, stats, flag)
    return np.inf if time > most else time


@kernel(PROFILE, LATTICE, FLOATS, FLOATS2, FLOATS3)
def stage_tables(profile, lattice, least, heads, weights):
    """``heads[i, j]``: the most of ``least`` of nodes in front of stage j minus i with an edge into it.

    ``weights[q, i, j]``: its bytes of weights at the q-th t.
    """
    D = lattice.bits.shape[0]
    heads[:, :] = 0.0
    weights[:, :, :] = 0.0
    for i in range(D):
        for j in range(i + 1, D):
            if not subset(lattice.bits, i, j):
                continue
            for q in range(len(profile.tp_degrees)):
                weights[q, i, j] = _weight(profile, lattice.bits, q, i, j)
            for e in range(len(profile.source)):
                v = profile.target[e]
                if has(lattice.bits, j, v) and not has(lattice.bits, i, v):
                    u = profile.source[e]
                    if not has(lattice.bits, j, u):
                        heads[i, j] = max(heads[i, j], least[u])


@inner()
def _own(t, m, k, trip, follows):
    """The least time from the first pass of a replica to its last, of m micro-batches with at most k in flight.

    ``trip``: the time of a micro-batch in all stages behind. With ``follows`` no backward pass begins before the last
    forward pass has come to the end of the pipeline.
    """
    if follows:
        return m * t + trip
    f, b = t * _FORWARD, t * _BACKWARD
    # When the first B starts, a micro-batch has come back, and at most k F are done; when the last F ends, m - k B are
    # done, and its micro-batch is still to come back.
    own = max(m * t, max(f + trip + (m - k) * f + m * b, m * f + (m - k) * b + trip + b))
    return max(own, f + trip + (m - k) * t + trip + b) if m > k else own


@inner()
def _in_flight(stages, a, s, i):
    """Micro-batches in flight on a replica of a stage of the a-th degree, and how many of them memory is to hold."""
    m = stages.rounds[a]
    if stages.gpipe:
        return m, m
    if not stages.counts_degrees:
        return m, 1 if i == 0 else 2  # behind it is a stage at least
    y = (s + stages.degrees[a] - 1) // stages.degrees[a]
    return min(m, y), y


@kernel(STAGES, BEHIND, FLOAT, FLAG)
def fill_behind(stages, behind, most, flag):
    """The tables of what is behind a stage (`Behind`), of plans that take at most ``most``; False if stopped."""
    trip, span, sync, levels = behind
    D, S, K = trip.shape
    P, X = len(stages.tp), len(levels)
    trip[:, :, :], span[:, :, :], sync[:, :, :] = np.inf, np.inf, np.inf
    trip[0, 0], sync[0, 0] = 0.0, 0.0
    for x in range(X):
        span[x, 0] = 0.0
    for i in range(D):
        for j in range(i + 1, D):
            if flag[0] != 0:
                return False
            if stages.fastest[i, j] == np.inf:
                continue
            for s in range(S):
                if trip[i, s, K - 1] == np.inf:
                    continue
                for a in range(len(stages.degrees)):
                    after = s + stages.degrees[a] if stages.counts_degrees else 0
                    if after >= S:
                        break
                    m = stages.rounds[a]
                    k, y = _in_flight(stages, a, after, i)
                    for q in range(P):
                        t, used = stages.times[stages.row[y] * P + q, i, j], stages.degrees[a] * stages.tp[q]
                        longest = stages.weights[q, i, j] * stages.rate[a, q]
                        if t == np.inf or used >= K or m * t + longest > most:
                            continue
                        to, at = j * S + after, i * S + s
                        for n in range(used, K):
                            come = trip[i, s, n - used]
                            if come == np.inf:
                                continue
                            come = come if stages.joined[i, j] == 1 else 0.0
                            own = _own(t, m, k, come, stages.follows) + (0.0 if stages.linked else stages.heads[i, j])
                            least = max(longest, sync[i, s, n - used])
                            if own + least > most:
                                continue
                            trip[j, after, n] = min(trip[j, after, n], t + come)
                            sync[j, after, n] = min(sync[j, after, n], least)
                            for x in range(X):
                                if longest <= levels[x]:
                                    whole = max(own, span[x, at, n - used] + (t if stages.begins[j] else 0.0))
                                    span[x, to, n] = min(span[x, to, n], whole)
    return True


@kernel(STAGES, BEHIND, INT, INT, INT, FLOATS, FLOATS3, FLOATS3, FLOATS3)
def branch(stages, behind, j, s, n, begun, times, owns, bounds):
    """``bounds[q, a, i]``: the least time of plans of which stage j minus i is the next one, of the a-th degree.

    Degrees from it on sum to s, and n devices are left. ``begun`` (3,): of the stages in front a micro-batch's time in
    those that all others come after, the span of the pipeline, the longest synchronisation. ``owns``: the span as far
    as that stage bounds it; ``times``: its time for a micro-batch.
    """
    trip, span, sync, levels = behind
    S, P = trip.shape[1], len(stages.tp)
    bounds[:, :, :] = np.inf
    for a in range(len(stages.degrees)):
        left, m = s - stages.degrees[a] if stages.counts_degrees else 0, stages.rounds[a]
        if left < 0:
            break
        for i in range(j):
            if stages.fastest[i, j] == np.inf:
                continue
            k, y = _in_flight(stages, a, s, i)
            for q in range(P):
                t, rest = stages.times[stages.row[y] * P + q, i, j], n - stages.degrees[a] * stages.tp[q]
                if rest < 0 or t == np.inf or trip[i, left, rest] == np.inf:
                    continue
                come = trip[i, left, rest] if stages.joined[i, j] == 1 else 0.0
                own = max(begun[0], stages.heads[i, j]) + _own(t, m, k, come, stages.follows)
                front = begun[0] + (t if stages.begins[j] else 0.0)
                times[q, a, i], owns[q, a, i] = t, own
                least = max(begun[2], max(stages.weights[q, i, j] * stages.rate[a, q], sync[i, left, rest]))
                for x in range(len(levels)):
                    whole = max(max(own, begun[1]), front + span[x, i * S + left, rest])
                    # What synchronises within the level before has its bound there.
                    whole += max(least, levels[x - 1]) if x > 0 else least
                    bounds[q, a, i] = min(bounds[q, a, i], whole)


@kernel(INTS, INT, TRUTH, INTS, INTS, INTS, INTS)
def write_orders(degrees, m, gpipe, starts, stages, kinds, batches):
    """The definition's orders (`simulation.orders.replicated`) of all replicas, in the arrays of `run_orders`.

    Where all degrees are the same they are to be 1: the first replica of each stage has the most micro-batches.
    """
    p, at, replica = len(degrees), 0, 0
    uniform = degrees.min() == degrees.max()
    for s in range(p):
        for r in range(degrees[s]):
            starts[replica] = at
            own = (m - r + degrees[s] - 1) // degrees[s] if r < m else 0
            stages[at : at + 2 * own] = s
            warm_up = own if gpipe else min(own, p - 1 - s)
            for n in range(own):
                forward = n if n < warm_up else 2 * n - warm_up
                backward = warm_up + 2 * n + 1 if n < own - warm_up else own + n
                kinds[at + forward], batches[at + forward] = 0, r + n * degrees[s]
                kinds[at + backward], batches[at + backward] = 1, r + n * degrees[s]
            at, replica = at + 2 * own, replica + 1
    starts[replica] = at
    if not gpipe and not uniform:
        _write_paced(degrees, m, starts, kinds, batches)


@inner()
def _write_paced(degrees, m, starts, kinds, batches):
    """What backward passes first with ceil(s/d) in flight do where a forward pass takes d, a backward pass 2 d.

    Times are whole numbers: at each of them all that ends does so before anything starts.
    """
    p, replicas = len(degrees), len(starts) - 1
    position = starts[:replicas].copy()
    held, until = np.zeros(replicas, np.int64), np.full(replicas, -1, np.int64)
    first = np.zeros(p + 1, np.int64)
    first[1:] = np.cumsum(degrees)
    # Of both kinds of passes: whether they wait, 1, or have started, 2; how many of a replica wait; none of its below
    # ``lowest`` is still to start.
    state, waiting = np.zeros((2, p, m), np.int64), np.zeros((2, replicas), np.int64)
    lowest = np.zeros((2, replicas), np.int64)
    for j in range(m):
        state[0, 0, j] = 1
        waiting[0, j % degrees[0]] += 1
    left, now = starts[replicas], 0
    while left > 0:
        for s in range(p):
            for r in range(first[s], first[s + 1]):
                if until[r] != now:
                    continue
                kind, j = kinds[position[r] - 1], batches[position[r] - 1]
                until[r] = -1
                held[r] -= kind
                after = kind  # the pass that waits from now on, and its stage
                stage = s - 1 if kind == 1 else s + 1
                if stage == p:
                    after, stage = 1, s
                if stage >= 0:
                    state[after, stage, j] = 1
                    waiting[after, first[stage] + j % degrees[stage]] += 1
        for s in range(p):
            room = (first[p] - first[s] + degrees[s] - 1) // degrees[s]
            for r in range(first[s], first[s + 1]):
                kind = 1 if waiting[1, r] > 0 else 0
                if until[r] >= 0 or waiting[kind, r] == 0 or (kind == 0 and held[r] == room):
                    continue
                j = r - first[s] + lowest[kind, r] * degrees[s]
                while state[kind, s, j] == 2:
                    lowest[kind, r] += 1
                    j += degrees[s]
                while state[kind, s, j] != 1:
                    j += degrees[s]
                state[kind, s, j] = 2
                waiting[kind, r] -= 1
                held[r] += 1 - kind
                kinds[position[r]], batches[position[r]] = kind, j
                position[r] += 1
                left -= 1
                until[r] = now + degrees[s] * (1 + kind)
        now += 1


@kernel(INTS, INTS, INTS, INTS, INTS, INTS, INTS, INTS, INT, FLOATS, FLOATS2, FLOATS)
def run_orders(starts, stages, kinds, batches, into_start, into, out_start, out, m, times, end, free):
    """The end of the last of all actions in fixed orders (`simulation.iteration`); negative if they get stuck.

    The actions of the r-th replica are ``starts[r]`` to before ``starts[r + 1]``: its stage, a kind (0: F, 1: B) and a
    micro-batch each. Stage s takes from ``into[into_start[s]:into_start[s + 1]]`` and hands to those of ``out``.
    ``end`` (2, stages * m) and ``free`` (replicas,) are room to work in.
    """
    replicas = len(starts) - 1
    position = starts[:replicas].copy()
    end[:, :] = -1.0
    free[:] = 0.0
    left, latest, sweep = starts[replicas], 0.0, 0
    while left > 0:
        before = left
        for r in range(replicas):
            device = r if sweep % 2 == 0 else replicas - 1 - r  # forward passes run up the stages, others down
            while position[device] < starts[device + 1]:
                at = position[device]
                s, kind, j = stages[at], kinds[at], batches[at]
                ready = free[device] if kind == 0 else max(free[device], end[0, s * m + j])
                is_ready = kind == 0 or end[0, s * m + j] >= 0
                first, last = (into_start[s], into_start[s + 1]) if kind == 0 else (out_start[s], out_start[s + 1])
                for x in range(first, last):
                    other = end[kind, (into[x] if kind == 0 else out[x]) * m + j]
                    is_ready = is_ready and other >= 0
                    ready = max(ready, other)
                if not is_ready:
                    break
                now = ready + times[s] * (_FORWARD if kind == 0 else _BACKWARD)
                end[kind, s * m + j], free[device] = now, now
                latest = max(latest, now)
                position[device] += 1
                left -= 1
        if left == before:
            return -1.0
        sweep += 1
    return latest


compile_kernels(__name__)
