"""The appendix's recursion on two levels, decided at a fixed time per sample that is bisected.

Source: Piper, Appendix E: superstages over downsets, each split inside a machine by the single-level recursion, with
the parameters s and x of the precise memory accounting. Deviations, none of which changes the optimum: the recursion's
minimum over times is a threshold test (fewest machines and devices within T, as in the flat family's exact method), a
split of D \\ D' is computed once for each D', d_2 and b = ceil(s / d_2) - x, and TMPCs are chosen by exact knapsacks.
The appendix prints a maximum over the number of machines where a minimum is meant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.family import Answer
from formulations.hierarchical_partitioning import kernels
from formulations.hierarchical_partitioning.problem import HierarchicalPlan, Superstage, evaluate, whole_weight
from formulations.stage_partitioning import exact as flat_exact
from formulations.stage_partitioning import kernels as flat_kernels
from formulations.stage_partitioning.bisection import PRECISION, minimise
from formulations.stage_partitioning.costs import (
    Floats,
    Ints,
    Lattice,
    Profile,
    Words,
    build_lattice,
    build_profile,
    make_plan,
)
from formulations.stage_partitioning.downsets import all_downsets, chain_downsets, linear_orders
from formulations.stage_partitioning.effort import MAX_DOWNSETS
from formulations.stage_partitioning.problem import Stage
from formulations.tmpc_knapsack.decision import FOUND, decide
from instances.hierarchical_partitioning import HierarchicalInstance, MemoryModel, on_machines
from instances.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Limits, Stop, Watch

#: A lattice of more downsets than this many per node gets its first upper bound from single linear orders.
_CHAIN_FIRST = 20

#: What savings cost is kept for 2^20 stages at a time, 24 bytes each.
_SLOT_BITS = 20

_MODELS = {MemoryModel.NONE: kernels.NONE, MemoryModel.CRUDE: kernels.CRUDE, MemoryModel.PRECISE: kernels.PRECISE}

Incumbent = tuple[HierarchicalPlan, float]


class Links(NamedTuple):
    """The cluster, and the sets of nodes that are differences of downsets, for compiled loops.

    ``num_devices`` is K_1, ``num_machines`` K_2, ``bandwidth`` B_2. ``weight`` (D,) sums w_v over each downset. Pairs
    of nested downsets, by the smaller one: from ``pair_start[i]`` on, ``larger`` is the other, ``base[q]`` the least
    time of transfers over the boundary at the inner bandwidth (times d), ``crossed`` the bytes over it.
    """

    weight: Floats
    pair_start: Ints
    larger: NDArray[np.int32]
    base: Floats
    crossed: Floats
    num_devices: int
    num_machines: int
    bandwidth: float
    memory_model: int


class Scratch(NamedTuple):
    """Work space of one search.

    ``open`` are the labels of the downset that is being extended; ``num_steps``, ``owner``, ``rise``, ``saving`` the
    orders of savings by (q, micro-batches in flight); ``key``, ``relaxed``, ``greedy`` what savings cost whole stages;
    the rest is one stage's nodes and options.
    """

    open: Ints
    num_steps: Ints
    owner: NDArray[np.int32]
    rise: Floats
    saving: Floats
    key: Ints
    relaxed: Floats
    greedy: Floats
    size: Ints
    nodes: Ints
    start: Ints
    base: Floats
    weight: Floats
    per_microbatch: Floats
    static: Floats
    cost: Floats
    memory: Floats
    choice: Ints


class Search:
    """Threshold tests over one lattice of an instance, and the plans they find."""

    def __init__(self, instance: HierarchicalInstance, downsets: Words, flag: NDArray[np.uint8]) -> None:
        self.instance, self.flag = instance, flag
        self.profile = inner_profile(instance)
        self.lattice = build_lattice(self.profile, downsets)
        self.links = make_links(instance, self.profile, self.lattice)
        D, K1, S = len(downsets), instance.devices_per_machine, self.profile.max_s
        self.labels = np.empty((D, S + 1), np.int32)
        self.back = np.empty((D, S + 1, 3), np.int32)
        self.reach = np.empty((D, K1 + 1), np.int32)
        self.inner_back = np.empty((D, K1 + 1, 3), np.int32)
        self.scratch = make_scratch(self.profile, K1)
        self.counts = np.zeros(3, np.int64)
        self.tests = 0

    @property
    def work_bound(self) -> float:
        """Total device-time over all devices: no plan is faster."""
        return float(self.lattice.work[-1]) / self.instance.flat.num_devices

    def test(self, T: float) -> int:
        """Sum of degrees of a plan with every superstage <= T; -1: there is none; -2: stopped."""
        self.tests += 1
        return int(
            kernels.threshold_test(
                self.profile, self.lattice, self.links, T, self.labels, self.back, self.reach, self.inner_back,
                self.scratch, self.counts, self.flag,
            )
        )  # fmt: skip

    def plan(self, s: int, T: float) -> HierarchicalPlan:
        """The plan behind label (all nodes, s) of the last test, which was at T."""
        found: list[Superstage] = []
        j = len(self.lattice.bits) - 1
        while j > 0:
            i, d2, x = self.back[j, s].tolist()
            s -= d2 * x
            found.append(Superstage(d2, self._inner(i, j, d2, x, s, T)))
            j = i
        return HierarchicalPlan(tuple(found))

    def price(self, plan: HierarchicalPlan) -> float:
        """Time per sample of a plan."""
        return evaluate(self.instance, plan)

    def _inner(self, i: int, j: int, d2: int, x: int, s: int, T: float) -> tuple[Stage, ...]:
        """The split of j minus i inside a machine, found again; s are the degrees behind it."""
        precise = self.instance.memory_model is MemoryModel.PRECISE
        behind = (self.links.num_machines - int(self.labels[i, s]) - d2) * self.links.num_devices
        b = -(-s // d2) if precise else 0
        kernels.split_machine(
            self.profile, self.lattice, self.links, i, d2, b, behind, T * (1 + 1e-11), self.reach, self.inner_back,
            self.scratch, np.zeros(3, np.int64), np.zeros(1, np.uint8),
        )  # fmt: skip
        stages = []
        while j != i:
            before, q, d = self.inner_back[j, x].tolist()
            s1 = b + x if precise else self.profile.max_s
            nodes, chosen = self._choose(before, j, q, d, -(-s1 // d), d2 * T)
            stages.append((nodes, d, q, chosen))
            j, x = before, x - d
        return make_plan(self.instance.flat, self.profile, stages).stages

    def _choose(self, i: int, j: int, q: int, d: int, in_flight: int, T: float) -> tuple[list[int], list[int]]:
        """A choice of TMPCs of stage j minus i within the memory, as fast as a few bisections make it."""
        work = self.scratch
        m = flat_kernels.assemble(
            self.profile, self.lattice.bits, q, i, j, work.nodes, work.start, work.base, work.weight,
            work.per_microbatch, work.static,
        )  # fmt: skip
        z = int(work.start[m])
        cost = work.base[:z] + self.profile.resync[d - 1] * work.weight[:z]
        memory = work.per_microbatch[:z] * in_flight + work.static[:z]
        capacity = math.inf if self.instance.memory_model is MemoryModel.NONE else self.profile.memory
        budget, best = d * T * (1 + 1e-10), None
        while decide(m, work.start, cost, memory, capacity, budget, work.choice, np.zeros(1, np.uint8)) == FOUND:
            best = work.choice[:m].tolist()
            attained = math.fsum(float(cost[work.start[v] + x]) for v, x in enumerate(best))
            if attained <= 0:
                break
            budget = attained * (1 - PRECISION)
        if best is None:
            raise AssertionError("the threshold test found a stage that has no choice of TMPCs")
        return work.nodes[:m].tolist(), best


def inner_profile(instance: HierarchicalInstance) -> Profile:
    """The flat tables at the inner bandwidth, with degrees that fit a machine; ``max_s`` is that of the cluster."""
    inner, K1 = instance.inner, instance.devices_per_machine
    if instance.memory_model is MemoryModel.NONE:
        inner = replace(inner, memory_bytes=math.inf)
    profile = build_profile(inner, prune=True)
    return profile._replace(dp_degrees=profile.dp_degrees[:K1], resync=profile.resync[:K1])


def make_links(instance: HierarchicalInstance, profile: Profile, lattice: Lattice) -> Links:
    """What crosses the boundary of every set of nodes that a machine or a stage may hold."""
    n, D, P = len(instance.flat.layers), len(lattice.bits), len(profile.tp_degrees)
    member = np.unpackbits(lattice.bits.view(np.uint8), axis=1, bitorder="little")[:, :n].astype(np.float64)
    volume = np.array([edge.bytes for edge in instance.flat.edges])
    enters = (member[:, profile.target] > 0) & (member[:, profile.source] == 0)
    there = np.arange(profile.time.shape[2]) < profile.num_tmpcs[:, :, None]
    both = _least(profile.volume_in, there[:, profile.target]) + _least(profile.volume_out, there[:, profile.source])
    starts = np.zeros(D + 1, np.int64)
    kernels.count_pairs(lattice.bits, starts)
    pairs = int(starts[-1])
    larger, base, crossed = np.empty(pairs, np.int32), np.empty((P, pairs)), np.empty(pairs)
    kernels.fill_pairs(
        lattice.bits, profile.source, lattice.crossing_start, lattice.crossing_edges, lattice.entering,
        lattice.leaving, both, enters.astype(np.float64) @ volume, volume, larger, base, crossed,
    )  # fmt: skip
    return Links(
        weight=member @ np.array([whole_weight(layer) for layer in instance.flat.layers]),
        pair_start=starts,
        larger=larger,
        base=base,
        crossed=crossed,
        num_devices=instance.devices_per_machine,
        num_machines=instance.num_machines,
        bandwidth=instance.outer_bandwidth,
        memory_model=_MODELS[instance.memory_model],
    )


def _least(values: Floats, there: NDArray[np.bool_]) -> Floats:
    """Least value over the TMPCs that there are; 0 where there is none."""
    found = np.where(there, values, np.inf).min(axis=2, initial=np.inf)
    return np.where(np.isfinite(found), found, 0.0)


def make_scratch(profile: Profile, devices_per_machine: int) -> Scratch:
    """Work space for one profile."""
    n, X = profile.num_tmpcs.shape[1], profile.time.shape[2]
    floats = (np.empty(n * X) for _ in range(6))
    base, weight, per_microbatch, static, cost, memory = floats
    orders = len(profile.tp_degrees), profile.max_s + 2
    steps = np.zeros(orders, np.int64)
    owner, rise, saving = np.empty((*orders, n * X), np.int32), np.empty((*orders, n * X)), np.empty((*orders, n * X))
    kernels.fill_savings(profile, steps, owner, rise, saving)
    return Scratch(
        open=np.empty(devices_per_machine + 1, np.int64),
        num_steps=steps,
        owner=owner,
        rise=rise,
        saving=saving,
        key=np.full(1 << _SLOT_BITS, -1, np.int64),
        relaxed=np.empty(1 << _SLOT_BITS),
        greedy=np.empty(1 << _SLOT_BITS),
        size=np.zeros(1, np.int64),
        nodes=np.empty(n, np.int64),
        start=np.empty(n + 1, np.int64),
        base=base,
        weight=weight,
        per_microbatch=per_microbatch,
        static=static,
        cost=cost,
        memory=memory,
        choice=np.empty(n, np.int64),
    )


def solve(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Answer[HierarchicalPlan]:
    """Least time per sample over all hierarchical plans, with a proof.

    Returns
    -------
    Answer
        ``bound`` is within 1e-9 of the plan's objective unless the run was stopped. ``infeasible`` is proved by an
        unlimited test. More than ``MAX_DOWNSETS`` downsets end with ``Stop.SIZE_LIMIT`` and no plan.
    """
    flag = np.frombuffer(watch.flag, np.uint8)
    downsets = all_downsets(instance.flat, MAX_DOWNSETS)
    if downsets is None:
        return Answer(stop=Stop.SIZE_LIMIT, reason=f"the graph has more than {MAX_DOWNSETS} downsets")
    best: Incumbent | None = None
    if len(downsets) > _CHAIN_FIRST * len(instance.flat.layers):
        for order in linear_orders(instance.flat):
            chain = Search(instance, chain_downsets(order), flag)
            best = minimise(chain, watch, limits.gap, start=best, chain=True)[0]
    search = Search(instance, downsets, flag)
    lower = flat_bound(instance, limits, watch)
    best, bound, infeasible = minimise(search, watch, limits.gap, start=best, lower=lower)
    splits, pairs, knapsacks = search.counts.tolist()
    return Answer(
        plan=best[0] if best else None,
        bound=bound,
        infeasible=infeasible,
        stop=watch.why(),
        stats={
            "downsets": len(downsets),
            "tests": search.tests,
            "machine_splits": splits,
            "pairs": pairs,
            "knapsack_searches": knapsacks,
        },
    )


def flat_bound(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> float:
    """A lower bound: the optimum of the flat problem at the inner bandwidth, without weights to synchronise.

    A plan flattens to one that takes no longer there: its stages are the same, its memory is counted as exactly, and
    more pairs of degrees are allowed. 0 if the flat search ends without a bound.
    """
    layers = tuple(
        replace(layer, tmpcs={t: tuple(replace(x, weight_bytes=0.0) for x in xs) for t, xs in layer.tmpcs.items()})
        for layer in instance.flat.layers
    )
    unlimited = instance.memory_model is MemoryModel.NONE
    memory = math.inf if unlimited else instance.flat.memory_bytes
    own = Watch(Limits(time_s=watch.remaining_s()))
    own.flag = watch.flag
    bound = flat_exact.solve(replace(instance.inner, layers=layers, memory_bytes=memory), limits, own).bound
    return 0.0 if bound is None else bound * (1 - PRECISION)


def why_infeasible(instance: HierarchicalInstance, _limits: Limits, watch: Watch) -> tuple[str, Mapping[str, Any]]:
    """The least memory per device that would make an infeasible instance feasible, up to 1e-6."""
    downsets = all_downsets(instance.flat, MAX_DOWNSETS)
    if downsets is None:
        return "infeasible: no plan fits the machines and their memory", {}
    lower, upper = instance.flat.memory_bytes, _enough_memory(instance)
    roomy = replace(instance, flat=replace(instance.flat, memory_bytes=upper))
    search = Search(roomy, downsets, np.frombuffer(watch.flag, np.uint8))

    def feasible(memory: float) -> bool:
        search.profile = search.profile._replace(memory=memory)
        search.scratch.key[:] = -1
        return search.test(math.inf) >= 0

    if not feasible(upper):
        if watch.stopped():
            return "infeasible: no time was left to find what would make it feasible", {}
        return f"infeasible: no memory would do with {instance.num_machines} machines", {}
    while upper - lower > 1e-6 * upper and not watch.stopped():
        middle = (lower + upper) / 2
        lower, upper = (lower, middle) if feasible(middle) else (middle, upper)
    return f"infeasible: devices of {upper:.17g} bytes would do", {"least_memory_bytes": upper}


def _enough_memory(instance: HierarchicalInstance) -> float:
    """Bytes that no stage exceeds."""
    S = min(instance.flat.num_microbatches, instance.flat.num_devices)
    return math.fsum(
        max((x.activation_bytes * S + x.static_bytes for tmpcs in layer.tmpcs.values() for x in tmpcs), default=0.0)
        for layer in instance.flat.layers
    )


def tiny() -> HierarchicalInstance:
    """An instance that reaches every kernel."""
    layers = tuple(
        Layer(v, {1: (Tmpc("fast", 1.0, 1.0, 2.0, 1.0), Tmpc("light", 2.0, 1.0, 1.0, 1.0 + v))}) for v in range(3)
    )
    flat = StageInstance("tiny", layers, (Edge(0, 1, 1.0), Edge(1, 2, 1.0)), 4, 8.0, 1.0, 4)
    return on_machines(flat, 2, 2, 2.0, 1.0)


def prepare() -> None:
    """Compile the kernels, or load them from the cache."""
    solve(tiny(), Limits(), Watch())
