"""Compiled loops of the search for the shortest iteration: times of stages, bounds of what is behind."""

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
    compile_kernels,
    inner,
    kernel,
)
from formulations.flushed_partitioning.kernels.arrays import Behind, Stages
from formulations.flushed_partitioning.kernels.depth import _least_time, _weight
from formulations.stage_partitioning.kernels.arrays import Scratch
from formulations.stage_partitioning.kernels.labels import boundary
from formulations.stage_partitioning.kernels.tables import Lattice, Profile

#: Times that differ by less are equal.
_NOISE = 1e-12
#: Shares of a stage's time (`stage_partitioning.definition.batch`).
_FORWARD, _BACKWARD = 1 / 3, 2 / 3


@kernel(Profile, Lattice, Scratch, INT, INTS, FLOAT, FLOATS3, INTS, FLAG)
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


@kernel(Profile, Lattice, Scratch, INT, INT, INT, INT, FLOAT, INTS, FLAG)
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


@kernel(Profile, Lattice, FLOATS, FLOATS2, FLOATS3)
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


@kernel(Stages, Behind, FLOAT, FLAG)
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


@kernel(Stages, Behind, INT, INT, INT, FLOATS, FLOATS3, FLOATS3, FLOATS3)
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


compile_kernels()
