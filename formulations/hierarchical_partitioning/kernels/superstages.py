"""Compiled loops of the appendix's recursion over superstages, at a fixed time per sample.

Source: Piper, Appendix E, for L = 2. dp^2[D][k][s] is minimised there; here the time T is given, and a table keeps the
fewest machines with which each state can be reached within T. `kernels.machines` is the level below.
"""

import numpy as np

from formulations.compiled.kernels.bitsets import has, subset
from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FLOATS,
    FLOATS2,
    INTS,
    SHORTS,
    SHORTS2,
    SHORTS3,
    WORDS2,
    compile_kernels,
    inner,
    kernel,
)
from formulations.hierarchical_partitioning.kernels.arrays import Arcs, Links
from formulations.hierarchical_partitioning.kernels.machines import NOTHING, PRECISE, split_machine
from formulations.stage_partitioning.kernels.arrays import Scratch
from formulations.stage_partitioning.kernels.tables import Lattice, Profile

#: Relative slack of the test at T, so that a plan of exactly T is found in spite of float noise in prefix sums.
NOISE = 1e-11


@kernel(WORDS2, INTS)
def count_pairs(bits, starts):
    """Fill ``starts`` (D + 1): the pairs (i, j), downset i within j, number ``starts[i]`` to ``starts[i + 1] - 1``."""
    total = 0
    for i in range(bits.shape[0]):
        starts[i] = total
        for j in range(i + 1, bits.shape[0]):
            if subset(bits, i, j):
                total += 1
    starts[bits.shape[0]] = total


@kernel(Lattice, FLOATS, FLOATS2, SHORTS, FLOATS2, FLOATS)
def fill_pairs(lattice, cut, volume, larger, base, crossed):
    """For every pair: j (``larger``), the least boundary time by q (``base``, times d), bytes across (``crossed``)."""
    bits, entering, leaving, z = lattice.bits, lattice.entering, lattice.leaving, 0
    for i in range(bits.shape[0]):
        for j in range(i + 1, bits.shape[0]):
            if not subset(bits, i, j):
                continue
            larger[z] = j
            crossed[z] = cut[j] + cut[i]
            for q in range(entering.shape[0]):
                base[q, z] = entering[q, j] + leaving[q, i]
            for y in range(lattice.crossing_start[i], lattice.crossing_start[i + 1]):
                if not has(bits, j, lattice.crossing_source[y]):  # its edges jump past the stage
                    crossed[z] -= 2 * volume[0, y]
                    for q in range(entering.shape[0]):
                        base[q, z] -= lattice.crossing_both[q, y]
            z += 1


@inner(counted=False)
def _link_time(weight, crossed, d2, bandwidth):
    """Time per sample of the link of one of d2 machines (the appendix's middle term)."""
    return (4 * (d2 - 1) / d2 * weight + 2 * crossed) / d2 / bandwidth


@inner(counted=False)
def fewest_machines(links, work, limit, rest):
    """``rest[i]``: a lower bound on the machines for all nodes outside downset i; NOTHING if no plan stops at i.

    Superstages need only keep their link within ``limit``, and their work with the transfers over their boundary
    within that of all devices. ``work[i]`` itself bounds the machines behind i.
    """
    K2, full = links.num_machines, len(work) - 1
    machine = links.num_devices * limit
    rest[full] = 0
    for i in range(full - 1, -1, -1):
        most = K2 - (0 if i == 0 else _machines_for(work[i], machine))
        best = most + 1
        for z in range(links.pair_start[i], links.pair_start[i + 1]):
            j = links.larger[z]
            if rest[j] >= best - 1:
                continue
            d2 = _machines_for(work[j] - work[i] + 2 * links.crossed[z] / links.inner_bandwidth, machine)
            weight = links.weight[j] - links.weight[i]
            while d2 + rest[j] < best:
                if _link_time(weight, links.crossed[z], d2, links.bandwidth) <= limit:
                    best = d2 + rest[j]
                d2 += 1
        rest[i] = best if best <= most else NOTHING


@inner(counted=False)
def _machines_for(work, machine):
    """A lower bound on the machines that run a non-empty set of nodes with that much work."""
    if not 0 < work < np.inf:
        return 1
    return np.int64(min(max(1.0, np.ceil(work / machine * (1 - 1e-12) - 1e-9)), NOTHING)) if machine > 0 else NOTHING


@kernel(Profile, Lattice, Links, FLOAT, SHORTS2, SHORTS3, INTS, INTS, SHORTS2, SHORTS3, Arcs, Scratch, INTS, FLAG)
def threshold_test(profile, lattice, links, T, labels, back, rest, ends, reach, inner_back, arcs, scratch, stats,
                   flag):  # fmt: skip
    """Is there a plan with every superstage's time <= T?

    ``labels[j, s]`` becomes the fewest machines that run downset j with degrees (d_1 d_2) summing to s; ``back[j, s]``
    is (i, d_2, x): the superstage j minus i, whose stages' degrees d_1 sum to at most x. Fewer machines and a smaller s
    serve every continuation at least as well. Returns s of a complete plan, -1 if there is none (a proof), -2 if
    stopped. ``rest`` is filled by `fewest_machines`; ``ends`` is work space. ``stats``: splits of machines, stages
    inside them, knapsack searches.
    """
    D, K1, K2, S = lattice.bits.shape[0], links.num_devices, links.num_machines, profile.max_s
    limit, full = T * (1 + NOISE), lattice.bits.shape[0] - 1
    fewest_machines(links, lattice.work, limit, rest)
    if rest[0] > K2:
        return -1
    for j in range(D):
        for s in range(S + 1):
            labels[j, s] = NOTHING
    arcs.size[0] = 0
    for a in range(len(arcs.begin)):
        arcs.begin[a] = -1
    labels[0, 0] = 0
    label_s, label_m, label_b = np.empty(S + 1, np.int64), np.empty(S + 1, np.int64), np.empty(S + 1, np.int64)
    for i in range(full):
        if flag[0] != 0:
            return -2
        count, least = 0, NOTHING
        for s in range(S + 1):
            m = labels[i, s]
            if m < least and m + rest[i] <= K2:
                label_s[count], label_m[count] = s, m
                count += 1
                least = m
        if count == 0:
            continue
        for d2 in range(1, K2 - least + 1):
            last = count - 1
            for z in range(count):
                label_b[z] = -(-label_s[z] // d2) if links.memory_model == PRECISE else 0
            num_ends = _open_ends(links, i, d2, K2 - least - d2, limit, rest, ends)
            while num_ends > 0 and last >= 0 and label_m[last] + d2 <= K2:
                behind = (K2 - label_m[last] - d2) * K1  # devices of later superstages, at most
                tight = split_machine(profile, lattice, links, arcs, i, d2, label_b[last], behind, limit,
                                      ends[num_ends - 1], reach, inner_back, scratch, stats, flag)  # fmt: skip
                if tight < 0:
                    return -2
                first = last  # labels of one b share the split; all do if nothing was too large for this b
                while first > 0 and (not tight or label_b[first - 1] == label_b[last]):
                    first -= 1
                s = _extend(links, i, d2, K1, K2, S, label_s, label_m, first, last, ends, num_ends, rest, reach,
                            labels, back)  # fmt: skip
                if s >= 0:
                    return s
                last = first - 1
    return -1


@inner(counted=False)
def _open_ends(links, i, d2, left, limit, rest, ends):
    """List in ``ends`` the pairs that may be a superstage on d2 machines when ``left`` others are; their number."""
    num_ends = 0
    for z in range(links.pair_start[i], links.pair_start[i + 1]):
        j = links.larger[z]
        weight = links.weight[j] - links.weight[i]
        if rest[j] <= left and _link_time(weight, links.crossed[z], d2, links.bandwidth) <= limit:
            ends[num_ends] = z
            num_ends += 1
    return num_ends


@inner(counted=False)
def _extend(links, i, d2, K1, K2, S, label_s, label_m, first, last, ends, num_ends, rest, reach, labels, back):
    """Labels by superstages from i on d2 machines, for the labels ``first`` to ``last`` of i; s of a complete plan."""
    full = labels.shape[0] - 1
    for e in range(num_ends):
        j = links.larger[ends[e]]
        fewest = NOTHING
        for x in range(1, K1 + 1):
            if reach[j, x] >= fewest:
                continue
            fewest = reach[j, x]
            for z in range(first, last + 1):
                s, m = label_s[z] + d2 * x, label_m[z] + d2
                if s <= S and m < labels[j, s] and m + rest[j] <= K2:
                    labels[j, s] = m
                    back[j, s, 0], back[j, s, 1], back[j, s, 2] = i, d2, x
                    if j == full:
                        return s
    return -1


compile_kernels()
