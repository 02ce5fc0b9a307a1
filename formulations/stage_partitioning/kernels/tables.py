"""Tables shared by the combinatorial methods of stage partitioning.

Two layers of arrays, both plain data for compiled loops: a `Profile` restates an instance by position (nodes, degrees,
TMPCs, edges), a `Lattice` adds what is a sum over a downset, so that a stage, being the difference of two downsets,
costs O(1). ``definition/problem.py`` never imports this file.

Source: Piper, section 4 and Appendix D (the precomputation per contiguous set).
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import (
    Flags,
    Floats,
    Floats2,
    Floats3,
    Ints,
    Ints2,
    Ints3,
    Shorts2,
    Words,
    Words2,
)
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, allowed_dp_degrees
from instances.problems.stage_partitioning import CostModel, KeptTensor, StageInstance, Tmpc
from solvers.memory_budget import demand

#: A TMPC this many times slower than the largest data-parallel degree could make up for is of no use.
_FAR = 16.0


class Profile(NamedTuple):
    """An instance as arrays; q indexes tp_degrees, v nodes, x TMPCs of (v, q), e edges.

    ``time``, ``weight``, ``per_microbatch``, ``static``: (q, v, x), padded with 0 beyond ``num_tmpcs[q, v]``.
    ``volume_in[q, e, x]`` is 2 (c + c^fw of TMPC x of the target) / B, in time units; ``volume_out`` likewise with
    c^bw of the source. ``resync[i]`` is d times the synchronisation time per byte of weights at
    ``dp_degrees[i]``. ``uniform[q]`` is 1 if weights and volumes do not differ between the TMPCs of any node, and what
    a node takes in memory does not depend on its stage.
    ``original[q, v, x]`` is the TMPC's position in the instance's own list. ``in_start``/``in_edges`` and
    ``out_start``/``out_edges`` list the edges of a node (CSR). Activations carried from other stages (`problem`), by
    node (``carried_start``): ``carried[q, h, x]`` bytes of a micro-batch in a stage without the nodes
    ``holders[holders_start[h]:holders_start[h + 1]]``.
    """

    tp_degrees: Ints
    dp_degrees: Ints
    resync: Floats
    num_tmpcs: Ints2
    time: Floats3
    weight: Floats3
    per_microbatch: Floats3
    static: Floats3
    volume_in: Floats3
    volume_out: Floats3
    uniform: Ints
    source: Ints
    target: Ints
    in_start: Ints
    in_edges: Ints
    out_start: Ints
    out_edges: Ints
    original: Ints3
    carried: Floats3
    carried_start: Ints
    holders: Ints
    holders_start: Ints
    num_devices: int
    max_s: int
    memory: float


class Lattice(NamedTuple):
    """Downsets in the order the dynamic programs visit them, and their sums.

    ``bits`` (D, words) are the downsets; every downset comes after its subsets. ``work`` (D,) is a lower bound on the
    device-time of the downset's nodes: min over (t, TMPC) of t * time, in exact multiples of a power of two, so that
    it never decreases along the order. The rest is (q, D): sums over the downset of the least time, weight and memory
    over TMPCs, of the memory of the fastest TMPC, of nodes without a TMPC at that degree, and the least cost of edges
    entering the downset, charged to their target (``entering``) or their source (``leaving``). ``crossing_start``/
    ``crossing_source`` list the nodes outside each downset with edges into it (CSR), and ``crossing_both`` (q, place in
    that list) what both ends of these edges are charged. ``least_d``, ``most_d`` (D, D): between which positions in
    ``Profile.dp_degrees`` the degree of stage j minus i lies, and there is no such stage where they cross; (0, 0) where
    nothing limits stages (`exact.required`).
    """

    bits: Words2
    work: Floats
    time: Floats2
    weight: Floats2
    fast_per_microbatch: Floats2
    fast_static: Floats2
    light_per_microbatch: Floats2
    light_static: Floats2
    missing: Ints2
    entering: Floats2
    leaving: Floats2
    crossing_start: Ints
    crossing_source: Ints
    crossing_both: Floats2
    least_d: Shorts2
    most_d: Shorts2


def build_profile(instance: StageInstance, *, prune: bool) -> Profile:
    """Arrays of an instance.

    ``prune`` drops TMPCs that do not fit by themselves or that another one of the same (v, t) dominates in every
    respect.
    """
    degrees = instance.tp_degrees
    n, P, E = len(instance.layers), len(degrees), len(instance.edges)
    memory = instance.memory_bytes * MEMORY_SLACK
    rows = carried_rows(instance)
    carried_by: list[list[KeptTensor]] = [[] for _ in range(n)]
    for row in rows:
        carried_by[row.node].append(row.tensor)
    lists = [
        [_useful(found, carried_by[v], memory) if prune else list(enumerate(found)) for v, found in enumerate(here)]
        for here in ([layer.tmpcs.get(t, ()) for layer in instance.layers] for t in degrees)
    ]
    X = max((len(kept) for row in lists for kept in row), default=1) or 1
    count = np.array([[len(kept) for kept in row] for row in lists], np.int64).reshape(P, n)
    table = np.zeros((4, P, n, X))
    original = np.zeros((P, n, X), np.int64)
    volume_in, volume_out, carried = np.zeros((P, E, X)), np.zeros((P, E, X)), np.zeros((P, len(rows), X))
    for q, here in enumerate(lists):
        for h, (v, tensor, _) in enumerate(rows):
            carried[q, h, : len(here[v])] = [tensor.bytes * (x.id in tensor.tmpcs) for _, x in here[v]]
        for v, kept in enumerate(here):
            for x, (position, tmpc) in enumerate(kept):
                table[:, q, v, x] = tmpc.time, tmpc.weight_bytes, tmpc.activation_bytes, tmpc.static_bytes
                original[q, v, x] = position
        for e, edge in enumerate(instance.edges):
            for x, (_, tmpc) in enumerate(here[instance.index[edge.target]]):
                volume_in[q, e, x] = edge.bytes + tmpc.sync_forward_bytes.get(edge.source, 0.0)
            for x, (_, tmpc) in enumerate(here[instance.index[edge.source]]):
                volume_out[q, e, x] = edge.bytes + tmpc.sync_backward_bytes.get(edge.target, 0.0)
    ends = np.array(instance.edge_indices, np.int64).reshape(E, 2)
    source, target = np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])
    in_start, in_edges = _edges_of(target, n)
    out_start, out_edges = _edges_of(source, n)
    d = np.array(allowed_dp_degrees(instance), np.int64)
    released = instance.cost_model is not CostModel.PAPER
    resync = 4 * (d - 1) / (instance.num_microbatches if released else d) / instance.bandwidth
    return Profile(
        tp_degrees=np.array(degrees, np.int64),
        dp_degrees=d,
        resync=resync.astype(np.float64),
        num_tmpcs=count,
        time=table[0],
        weight=table[1],
        per_microbatch=table[2],
        static=table[3],
        volume_in=2 * volume_in / instance.bandwidth,
        volume_out=2 * volume_out / instance.bandwidth,
        uniform=_uniform(count, table[1], volume_in, volume_out, source, target) * (not rows),
        source=source,
        target=target,
        in_start=in_start,
        in_edges=in_edges,
        out_start=out_start,
        out_edges=out_edges,
        original=original,
        carried=carried,
        carried_start=np.searchsorted([row.node for row in rows], np.arange(n + 1)).astype(np.int64),
        holders=np.array([u for row in rows for u in row.earlier], np.int64),
        holders_start=np.cumsum([0, *(len(row.earlier) for row in rows)]).astype(np.int64),
        num_devices=instance.num_devices,
        max_s=min(instance.num_microbatches, instance.num_devices),
        memory=memory,
    )


class Carried(NamedTuple):
    """A ``node`` that counts a kept tensor where its stage has none of the ``earlier`` layers of it (positions)."""

    node: int
    tensor: KeptTensor
    earlier: tuple[int, ...]


def carried_rows(instance: StageInstance) -> list[Carried]:
    """All nodes but the first of every tensor that several layers keep, by node."""
    found = []
    for tensor in instance.shared_activations:
        nodes = tuple(instance.index[node] for node in tensor.layers)
        found += [Carried(node, tensor, nodes[:place]) for place, node in enumerate(nodes) if place]
    return sorted(found, key=lambda row: row.node)


def carriers(profile: Profile) -> Ints:
    """The node of each row of ``carried``."""
    return np.repeat(np.arange(profile.num_tmpcs.shape[1]), np.diff(profile.carried_start))


def present(profile: Profile) -> Flags:
    """Which entries of the (q, v, x) tables are TMPCs."""
    return np.asarray(np.arange(profile.time.shape[2]) < profile.num_tmpcs[:, :, None])


def usable(profile: Profile, T: float) -> Flags:
    """The TMPCs that stages of time ``T`` may use: those that fit by themselves and are not far slower.

    Leave the others out wherever running sums are compared: profiles that write 1e9 for "impossible" would drown the
    digits of all other numbers.
    """
    fits = profile.per_microbatch + profile.static <= profile.memory
    return np.asarray(present(profile) & fits & (profile.time <= _FAR * T * profile.dp_degrees[-1]))


def heaviest(weights: Floats, limit: float) -> float:
    """What to cut weights to where none above ``limit`` can be synchronised in time; ``inf``: nothing is to be cut.

    Beside 1e18 bytes that only a stage without replicas can hold, running sums lose the digits of all other weights.
    The cut is a power of 2^16, so that it seldom changes with the limit.
    """
    if not 0 < _FAR * limit < math.inf:
        return math.inf
    exponent = 16 * math.ceil(math.log2(_FAR * limit) / 16)
    cut = math.ldexp(1.0, exponent) if exponent < 1000 else math.inf
    return cut if float(weights.max(initial=0.0)) > cut else math.inf


def most_weight(profile: Profile, T: float) -> float:
    """What weights of stages of time ``T`` are cut to (`heaviest`): stages with replicas synchronise less than that."""
    paying = profile.resync > 0
    if not paying.any():
        return math.inf
    return heaviest(profile.weight, T * float((profile.dp_degrees[paying] / profile.resync[paying]).max()))


def restrict(profile: Profile, kept: Flags) -> Profile:
    """The profile with only the TMPCs for which ``kept`` (q, v, x) holds."""
    first = np.argsort(~kept, axis=2, kind="stable")
    there = np.take_along_axis(kept, first, 2)

    def moved(values: NDArray[Any], order: Ints, valid: Flags) -> NDArray[Any]:
        return np.ascontiguousarray(np.where(valid, np.take_along_axis(values, order, 2), 0))

    into, out = first[:, profile.target], first[:, profile.source]
    carrier = carriers(profile)
    return profile._replace(
        num_tmpcs=kept.sum(axis=2),
        time=moved(profile.time, first, there),
        weight=moved(profile.weight, first, there),
        per_microbatch=moved(profile.per_microbatch, first, there),
        static=moved(profile.static, first, there),
        volume_in=moved(profile.volume_in, into, there[:, profile.target]),
        volume_out=moved(profile.volume_out, out, there[:, profile.source]),
        original=moved(profile.original, first, there),
        carried=moved(profile.carried, first[:, carrier], there[:, carrier]),
    )


def build_lattice(profile: Profile, downsets: Words) -> Lattice:
    """Sums over ``downsets`` (shape (D, words), in any order; the order of the result is the visiting order)."""
    n, E, P = profile.num_tmpcs.shape[1], len(profile.source), len(profile.tp_degrees)
    demand(len(downsets) * (17.0 * n + 19.0 * E + 80.0 * P), f"the sums of {len(downsets)} downsets")
    member = np.unpackbits(downsets.view(np.uint8), axis=1, bitorder="little")[:, :n].astype(np.float64)
    work = member @ _integer_work(profile)
    order = np.lexsort((member.sum(axis=1), work))
    member, work, downsets = member[order], work[order], np.ascontiguousarray(downsets[order])
    there = present(profile)

    def least(values: Floats) -> Floats:
        found = np.where(there, values, np.inf).min(axis=2)
        return np.where(np.isfinite(found), found, 0.0)

    def sums(values: Floats) -> Floats:
        return np.ascontiguousarray(values @ member.T)

    fastest = np.where(there, profile.time, np.inf).argmin(axis=2)[:, :, None]
    edge_in = _least_over_edges(profile.volume_in, there[:, profile.target])
    edge_out = _least_over_edges(profile.volume_out, there[:, profile.source])
    crosses = entering_edges(profile, member).astype(np.float64).T
    crossing_start, crossing_source, crossing_both = crossing_sums(profile, member, edge_in + edge_out)
    return Lattice(
        bits=downsets,
        work=work,
        time=sums(least(profile.time)),
        weight=sums(least(profile.weight)),
        fast_per_microbatch=sums(np.take_along_axis(profile.per_microbatch, fastest, 2)[:, :, 0]),
        fast_static=sums(np.take_along_axis(profile.static, fastest, 2)[:, :, 0]),
        light_per_microbatch=sums(least(profile.per_microbatch)),
        light_static=sums(least(profile.static)),
        missing=sums((profile.num_tmpcs == 0).astype(np.float64)).astype(np.int64),
        entering=np.ascontiguousarray(edge_in @ crosses),
        leaving=np.ascontiguousarray(edge_out @ crosses),
        crossing_start=crossing_start,
        crossing_source=crossing_source,
        crossing_both=crossing_both,
        least_d=np.empty((0, 0), np.int32),
        most_d=np.empty((0, 0), np.int32),
    )


def entering_edges(profile: Profile, member: Floats) -> Flags:
    """(D, E): whether an edge enters a downset of ``member`` (D, n)."""
    return np.asarray((member[:, profile.target] > 0) & (member[:, profile.source] == 0))


def crossing_sums(profile: Profile, member: Floats, values: Floats) -> tuple[Ints, Ints, Floats]:
    """``crossing_start``, ``crossing_source`` of a `Lattice`, and the sums of ``values`` (any, E) in that list.

    By source, as a node that all layers read, such as a mask, has hundreds of edges into a downset.
    """
    by_source = np.argsort(profile.source, kind="stable")
    rows, columns = np.nonzero(entering_edges(profile, member)[:, by_source])
    sources = profile.source[by_source][columns]
    new = np.flatnonzero(np.diff(rows * member.shape[1] + sources, prepend=-1))
    starts = np.searchsorted(rows[new], np.arange(len(member) + 1)).astype(np.int64)
    sums = np.add.reduceat(values[:, by_source][:, columns], new, axis=1) if len(new) else np.zeros((len(values), 0))
    return starts, sources[new], np.ascontiguousarray(sums)


def pack(masks: list[int], num_nodes: int) -> Words:
    """Bitsets given as Python integers, as an array of shape (len(masks), words)."""
    words = max(1, -(-num_nodes // 64))
    data = b"".join(mask.to_bytes(words * 8, "little") for mask in masks)
    return np.frombuffer(data, np.uint64).reshape(len(masks), words).copy()


def make_plan(
    instance: StageInstance, profile: Profile, stages: list[tuple[list[int], int, int, list[int]]]
) -> StagePlan:
    """A plan from (nodes, d, q, TMPC of each node) by position, input side first."""
    made = []
    for nodes, d, q, chosen in stages:
        t = int(profile.tp_degrees[q])
        layers = [instance.layers[v] for v in nodes]
        positions = [int(profile.original[q, v, x]) for v, x in zip(nodes, chosen, strict=True)]
        made.append(
            Stage(
                nodes=tuple(layer.id for layer in layers),
                dp_degree=d,
                tp_degree=t,
                tmpcs={
                    layer.id: layer.tmpcs[t][position].id for layer, position in zip(layers, positions, strict=True)
                },
            )
        )
    return StagePlan(tuple(made))


def _useful(tmpcs: tuple[Tmpc, ...], carried: list[KeptTensor], memory: float) -> list[tuple[int, Tmpc]]:
    """The TMPCs that fit ``memory`` by themselves and that none dominates, with their positions."""
    keys = [_vector(tmpc, carried) for tmpc in tmpcs]

    def beaten(i: int) -> bool:
        return any(
            j != i and _covers(keys[j], keys[i]) and (j < i or not _covers(keys[i], keys[j])) for j in range(len(keys))
        )

    return [(i, x) for i, x in enumerate(tmpcs) if x.activation_bytes + x.static_bytes <= memory and not beaten(i)]


def _vector(x: Tmpc, carried: list[KeptTensor]) -> tuple[tuple[float, ...], dict[tuple[str, str], float]]:
    volumes = {("in", str(u)): value for u, value in x.sync_forward_bytes.items()}
    volumes |= {("out", str(w)): value for w, value in x.sync_backward_bytes.items()}
    volumes |= {("held", str(h)): tensor.bytes for h, tensor in enumerate(carried) if x.id in tensor.tmpcs}
    return (x.time, x.weight_bytes, x.activation_bytes, x.static_bytes), volumes


def _covers(
    mine: tuple[tuple[float, ...], dict[tuple[str, str], float]],
    other: tuple[tuple[float, ...], dict[tuple[str, str], float]],
) -> bool:
    """True if ``mine`` is nowhere larger than ``other``."""
    return all(a <= b for a, b in zip(mine[0], other[0], strict=True)) and all(
        mine[1].get(key, 0.0) <= other[1].get(key, 0.0) for key in mine[1].keys() | other[1].keys()
    )


def _uniform(count: Ints, weight: Floats, volume_in: Floats, volume_out: Floats, source: Ints, target: Ints) -> Ints:
    there = np.arange(weight.shape[2]) < count[:, :, None]

    def same(values: Floats, present: Flags) -> NDArray[np.bool_]:
        first = values[:, :, :1]
        return np.asarray(((values == first) | ~present).all(axis=(1, 2)))

    return (same(weight, there) & same(volume_in, there[:, target]) & same(volume_out, there[:, source])).astype(
        np.int64
    )


def _least_over_edges(values: Floats, present: Flags) -> Floats:
    if not values.shape[1]:
        return np.zeros(values.shape[:2])
    found = np.where(present, values, np.inf).min(axis=2)
    return np.ascontiguousarray(np.where(np.isfinite(found), found, 0.0))


def _integer_work(profile: Profile) -> Floats:
    """Least device-time of every node, rounded down to a multiple of a power of two whose sums are exact."""
    there = present(profile)
    work = np.where(there, profile.time * profile.tp_degrees[:, None, None], np.inf).min(axis=(0, 2), initial=np.inf)
    work = np.where(np.isfinite(work), work, 0.0)
    total = work.sum()
    if total <= 0:
        return np.zeros_like(work)
    unit = max(2.0 ** (np.ceil(np.log2(total)) - 52), math.ulp(0.0))
    return np.asarray(np.floor(work / unit) * unit)


def _edges_of(ends: Ints, num_nodes: int) -> tuple[Ints, Ints]:
    starts = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(ends, minlength=num_nodes), out=starts[1:])
    return starts, np.argsort(ends, kind="stable").astype(np.int64)
