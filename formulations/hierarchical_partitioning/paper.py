"""The appendix's recursion on two levels, decided at a fixed time per sample that is bisected.

Source: Piper, Appendix E: superstages over downsets, each split inside a machine by the single-level recursion, with
the parameters s and x of the precise memory accounting. Deviations, none of which changes the optimum: the recursion's
minimum over times is a threshold test (fewest machines and devices within T, as in the flat family's exact method), a
split of D \\ D' is computed once for each D', d_2 and b = ceil(s / d_2) - x, and TMPCs are chosen by exact knapsacks.
The appendix prints a maximum over the number of machines where a minimum is meant.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import Floats, Words
from formulations.compiled.downsets import all_downsets, chain_downsets, linear_orders, too_many
from formulations.contract.family import Answer
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.problem import evaluate, whole_weight
from formulations.hierarchical_partitioning.kernels import machines, superstages
from formulations.hierarchical_partitioning.kernels.arrays import Arcs, Links
from formulations.modelling.bisection import minimise
from formulations.stage_partitioning.definition.plan import Stage
from formulations.stage_partitioning.exact import threshold as flat_exact
from formulations.stage_partitioning.kernels.tables import (
    Lattice,
    Profile,
    build_lattice,
    build_profile,
    crossing_sums,
    entering_edges,
    heaviest,
    make_plan,
    most_weight,
)
from formulations.stage_partitioning.methods import MAX_DOWNSETS
from formulations.stage_partitioning.models.assignment_data import Terms
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel
from solvers.memory_budget import SizeError, demand
from solvers.outcome import Limits, Prover, Stop, Watch

#: A lattice of more downsets than this many per node gets its first upper bound from single linear orders.
_CHAIN_FIRST = 20

#: Most stages that are listed at a time, 12 bytes each, unless those of one downset are more.
_ARCS = 1 << 23

#: Most pairs of nested downsets (12 bytes each and 8 for every degree t), and most lists of stages (17 bytes each).
MAX_PAIRS = 80_000_000
MAX_LISTS = 60_000_000

_MODELS = {
    MemoryModel.NONE: machines.UNCOUNTED,
    MemoryModel.CRUDE: machines.CRUDE,
    MemoryModel.PRECISE: machines.PRECISE,
}

Incumbent = tuple[HierarchicalPlan, float]


class Search(flat_exact.ThresholdTables):
    """Threshold tests over one lattice of an instance, and the plans they find."""

    def __init__(self, cluster: HierarchicalInstance, downsets: Words, flag: NDArray[np.uint8]) -> None:
        profile = inner_profile(cluster)
        super().__init__(cluster.inner, profile, build_lattice(profile, downsets), flag)
        self.cluster, self.links = cluster, make_links(cluster, self.profile, self.lattice)
        self.weights, self.most_linked = whole_weights(cluster), math.inf
        D, K1, S = len(downsets), cluster.devices_per_machine, profile.max_s
        demand(16.0 * D * (S + K1 + 2), f"labels of {D} downsets at {S} sums of degrees")
        self.rest, self.ends = np.empty(D, np.int64), np.empty(D, np.int64)
        self.labels = np.empty((D, S + 1), np.int32)
        self.superstage = np.empty((D, S + 1, 3), np.int32)
        self.fewest = np.empty((D, K1 + 1), np.int32)
        self.stage = np.empty((D, K1 + 1, 3), np.int32)
        self.arcs = make_arcs(self.links, profile)

    def test(self, T: float) -> int:
        """Sum of degrees of a plan with every superstage <= T; -1: there is none; -2: stopped."""
        self.tests += 1
        slowest = T * self.links.num_machines
        self._leave_out(slowest, most_weight(self.whole, slowest))
        self._cut_links(T)
        return int(
            superstages.threshold_test(
                self.profile, self.lattice, self.links, T, self.labels, self.superstage, self.rest, self.ends,
                self.fewest, self.stage, self.arcs, self.scratch, self.counts, self.flag,
            )
        )  # fmt: skip

    def _leave_out(self, T: float, most_weight: float = math.inf) -> None:
        before = self.lattice
        super()._leave_out(T, most_weight)
        if self.lattice is not before:
            self.links, self.most_linked = make_links(self.cluster, self.profile, self.lattice), math.inf

    def _cut_links(self, T: float) -> None:
        """Cut weights to what two machines or more cannot synchronise within T (`costs.heaviest`)."""
        K2, weights = self.links.num_machines, self.weights
        most = heaviest(weights, T * self.links.bandwidth * K2 * K2 / (4 * (K2 - 1))) if K2 > 1 else math.inf
        if most != self.most_linked:
            self.most_linked = most
            self.links = self.links._replace(weight=members(self.profile, self.lattice) @ np.minimum(weights, most))

    def evaluate(self, plan: HierarchicalPlan) -> float:
        """Time per sample of a plan."""
        return evaluate(self.cluster, plan)

    def plan(self, s: int, T: float) -> HierarchicalPlan:
        """The plan behind label (all nodes, s) of the last test, which was at T."""
        found: list[Superstage] = []
        j = len(self.lattice.bits) - 1
        while j > 0:
            i, d2, x = self.superstage[j, s].tolist()
            s -= d2 * x
            found.append(Superstage(d2, self._inner(i, j, d2, x, s, T)))
            j = i
        return HierarchicalPlan(tuple(found))

    def _inner(self, i: int, j: int, d2: int, x: int, s: int, T: float) -> tuple[Stage, ...]:
        """The split of j minus i inside a machine, found again; s are the degrees behind it."""
        links, precise = self.links, self.cluster.memory_model is MemoryModel.PRECISE
        b = -(-s // d2) if precise else 0
        first, last = links.pair_start[i : i + 2].tolist()
        pair = first + int(np.searchsorted(links.larger[first:last], j))
        machines.split_machine(
            self.profile, self.lattice, links, self.arcs, i, d2, b, links.num_machines * links.num_devices,
            T * (1 + superstages.NOISE), pair, self.fewest, self.stage, self.scratch, self.counts,
            np.zeros(1, np.uint8),
        )  # fmt: skip
        # With all of the cluster behind it nothing is cut off, and a smaller sum may do as well.
        x = next(y for y in range(1, x + 1) if self.fewest[j, y] <= links.num_devices)
        stages = []
        while j != i:
            before, q, d = self.stage[j, x].tolist()
            s1 = b + x if precise else self.profile.max_s
            nodes, chosen = self._choose(before, j, q, d, -(-s1 // d), d2 * T)
            stages.append((nodes, d, q, chosen))
            j, x = before, x - d
        return make_plan(self.cluster.flat, self.profile, stages).stages


def inner_profile(instance: HierarchicalInstance) -> Profile:
    """The flat tables at the inner bandwidth, with degrees that fit a machine; ``max_s`` is that of the cluster."""
    inner, K1 = instance.inner, instance.devices_per_machine
    if instance.memory_model is MemoryModel.NONE:
        inner = replace(inner, memory_bytes=math.inf)
    profile = build_profile(inner, prune=True)
    return profile._replace(dp_degrees=profile.dp_degrees[:K1], resync=profile.resync[:K1])


def members(profile: Profile, lattice: Lattice) -> Floats:
    """(D, n): 1 where a downset holds a node."""
    n = profile.num_tmpcs.shape[1]
    return np.unpackbits(lattice.bits.view(np.uint8), axis=1, bitorder="little")[:, :n].astype(np.float64)


def whole_weights(instance: HierarchicalInstance) -> Floats:
    """(n,): w_v of every node."""
    return np.array([whole_weight(layer) for layer in instance.flat.layers])


def make_links(instance: HierarchicalInstance, profile: Profile, lattice: Lattice) -> Links:
    """What crosses the boundary of every set of nodes that a machine or a stage may hold."""
    D, P, member = len(lattice.bits), len(profile.tp_degrees), members(profile, lattice)
    demand(8.0 * D * (member.shape[1] + len(profile.source)), f"what {D} downsets hold and cut")
    volume = np.array([edge.bytes for edge in instance.flat.edges], np.float64)
    starts = np.zeros(D + 1, np.int64)
    superstages.count_pairs(lattice.bits, starts)
    pairs = int(starts[-1])
    if pairs > MAX_PAIRS:
        raise SizeError(f"the graph has {pairs} pairs of nested downsets; try --linearize")
    demand((12.0 + 8.0 * P) * pairs, f"{pairs} pairs of nested downsets")
    larger, base, crossed = np.empty(pairs, np.int32), np.empty((P, pairs)), np.empty(pairs)
    cut, by_source = entering_edges(profile, member) @ volume, crossing_sums(profile, member, volume[None])[2]
    superstages.fill_pairs(lattice, cut, by_source, larger, base, crossed)
    return Links(
        weight=member @ whole_weights(instance),
        pair_start=starts,
        larger=larger,
        base=base,
        crossed=crossed,
        num_devices=instance.devices_per_machine,
        num_machines=instance.num_machines,
        inner_bandwidth=float(instance.inner_bandwidth),
        bandwidth=float(instance.outer_bandwidth),
        memory_model=_MODELS[instance.memory_model],
    )


def make_arcs(links: Links, profile: Profile) -> Arcs:
    """Room for the stages of a test; those of one downset always find room."""
    S, K2 = profile.max_s, links.num_machines
    first = np.zeros(K2 + 1, np.int64)
    np.cumsum([-(-S // d2) + 1 for d2 in range(1, K2 + 1)], out=first[1:])
    keys = len(links.weight) * int(first[-1])
    if keys > MAX_LISTS:
        raise SizeError(f"{keys} lists of stages do not fit; try --microbatches or --linearize")
    size = max(_ARCS, len(profile.tp_degrees) * int(np.diff(links.pair_start).max(initial=1)))
    demand(17.0 * keys + 12.0 * size, f"{keys} lists of stages")
    to, degree, tensor = (np.empty(size, np.int32) for _ in range(3))
    return Arcs(
        first, np.empty(keys, np.int64), np.empty(keys, np.int64), np.empty(keys, np.bool_), to, degree, tensor,
        np.zeros(1, np.int64),
    )  # fmt: skip


def solve(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Answer[HierarchicalPlan]:
    """Least time per sample over all hierarchical plans, with a proof.

    Returns: ``bound`` is within 1e-9 of the plan's objective unless the run was stopped. ``infeasible`` is proved by an
    unlimited test. More than ``MAX_DOWNSETS`` downsets end with ``Stop.SIZE_LIMIT`` and no plan, more than
    ``MAX_PAIRS`` or ``MAX_LISTS`` with the best plan of linear orders and the work of all devices as a bound.
    """
    flag = np.frombuffer(watch.flag, np.uint8)
    downsets = all_downsets(instance.flat, MAX_DOWNSETS)
    if downsets is None:
        return Answer(stop=Stop.SIZE_LIMIT, reason=too_many(len(instance.flat.layers), MAX_DOWNSETS))
    best: Incumbent | None = None
    if len(downsets) > _CHAIN_FIRST * len(instance.flat.layers):
        for order in linear_orders(instance.flat):
            chain = Search(instance, chain_downsets(order), flag)
            best = minimise(chain, watch, limits.gap, start=best, chain=True)[0]
    try:
        search = Search(instance, downsets, flag)
        best, bound, infeasible = minimise(search, watch, limits.gap, start=best)
    except SizeError as error:  # of the first tables, or of those for shorter times
        watch.bound(Terms(instance.inner).lower_bound / instance.num_machines, Prover.BOUNDS)
        plan = best[0] if best else watch.best_plan
        return Answer(plan=plan, bound=watch.best_bound, stop=Stop.SIZE_LIMIT, reason=str(error))
    splits, stages, knapsacks = search.counts.tolist()
    return Answer(
        plan=best[0] if best else None,
        bound=bound,
        infeasible=infeasible,
        stop=watch.why(),
        stats={
            "downsets": len(downsets),
            "tests": search.tests,
            "machine_splits": splits,
            "stages": stages,
            "knapsack_searches": knapsacks,
        },
    )
