"""What the TMPCs of a stage between two downsets take: time with the boundary, weights and memory.

Source: Piper, sections 3.5 and 4 ("TPS of a fixed configuration").
"""

from formulations.compiled.kernels.bitsets import has
from formulations.compiled.numba_kernels import FLOATS, INT, INTS, WORDS2, compile_kernels, inner, kernel
from formulations.stage_partitioning.kernels.tables import Profile


@inner(counted=False)
def _has_any(profile, bits, i, j, h):
    """Whether stage j minus i has one of the nodes that count a carried tensor before its holder h."""
    for y in range(profile.holders_start[h], profile.holders_start[h + 1]):
        v = profile.holders[y]
        if has(bits, j, v) and not has(bits, i, v):
            return True
    return False


@kernel(Profile, WORDS2, INT, INT, INT, INTS, INTS, FLOATS, FLOATS, FLOATS, FLOATS, counted=False)
def assemble(profile, bits, q, i, j, nodes, start, base, weight, per_microbatch, static):
    """Nodes of stage j minus i and the options of each: time with boundary transfers, weight, memory a and b.

    Returns the number of nodes. ``base + resync[d] * weight`` is d times an option's share of the stage's time.
    """
    m, z = 0, 0
    start[0] = 0
    for v in range(profile.num_tmpcs.shape[1]):
        if not has(bits, j, v) or has(bits, i, v):
            continue
        nodes[m] = v
        for x in range(profile.num_tmpcs[q, v]):
            share = profile.time[q, v, x]
            for y in range(profile.in_start[v], profile.in_start[v + 1]):
                e = profile.in_edges[y]
                if not has(bits, j, profile.source[e]):
                    share += profile.volume_in[q, e, x]
            for y in range(profile.out_start[v], profile.out_start[v + 1]):
                e = profile.out_edges[y]
                if has(bits, i, profile.target[e]):
                    share += profile.volume_out[q, e, x]
            held = profile.per_microbatch[q, v, x]
            for h in range(profile.carried_start[v], profile.carried_start[v + 1]):
                if profile.carried[q, h, x] > 0 and not _has_any(profile, bits, i, j, h):
                    held += profile.carried[q, h, x]
            base[z], weight[z] = share, profile.weight[q, v, x]
            per_microbatch[z], static[z] = held, profile.static[q, v, x]
            z += 1
        m += 1
        start[m] = z
    return m


compile_kernels()
