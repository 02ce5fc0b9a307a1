"""The exact method: threshold search over downsets with Pareto labels and exact knapsacks.

Source: reconstructed. The paper minimises over a table dp[D][k][s]; here the time per sample is fixed to T, the table
shrinks to "fewest devices for downset D with degrees summing to s", and T is bisected between a proved lower bound and
the best plan. README, "The exact method", says why the labels lose nothing.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import Floats
from formulations.compiled.downsets import all_downsets, chain_downsets, linear_orders
from formulations.compiled.numba_kernels import FOUND, STOPPED
from formulations.compiled.rows_in_threads import Team, counters
from formulations.contract.family import Answer
from formulations.modelling.bisection import PRECISION, minimise
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, evaluate
from formulations.stage_partitioning.exact.required import Required, limits_of_requirements
from formulations.stage_partitioning.kernels import labels
from formulations.stage_partitioning.kernels.arrays import Scratch
from formulations.stage_partitioning.kernels.stage import assemble
from formulations.stage_partitioning.kernels.tables import (
    Lattice,
    Profile,
    build_lattice,
    build_profile,
    most_weight,
    present,
    restrict,
    usable,
)
from formulations.stage_partitioning.kernels.tables import make_plan as plan_of
from formulations.stage_partitioning.methods import MAX_DOWNSETS, MAX_LABELS
from formulations.tmpc_knapsack.kernels.decision import decide
from instances.problems.stage_partitioning import StageInstance
from solvers.memory_budget import demand, room
from solvers.outcome import Limits, Stop, Watch

#: A lattice of more downsets than this many per node gets its first upper bound from single linear orders.
_CHAIN_FIRST = 20

#: Bytes of saving orders that are held at once, or a part of what is free: with too few of them (512 layers on 4,096
#: devices want 2,000) they are sorted again and again.
_SAVING_ORDERS, _PART = 256e6, 0.125


#: Rows of a block (`Team.fill`): most knapsacks are those of short stages.
ROWS = 4


def make_scratch(profile: Profile, threads: int = 1) -> Scratch:
    """Work space for one profile, of one of so many threads."""
    P, S = len(profile.tp_degrees), profile.max_s
    n, X = profile.num_tmpcs.shape[1], profile.time.shape[2]
    options = n * X
    slots = max(1, min(int(min(_SAVING_ORDERS, _PART * room()) / (28 * options * threads)), P * (S + 2)))
    demand(28.0 * slots * options, "the orders in which memory is saved")
    return Scratch(
        slot_of=np.full((P, S + 2), -1, np.int64),
        next_slot=counters(1, 1)[0],
        owner=np.empty(options, np.int32),
        runs=np.zeros(slots, np.int64),
        place=np.empty((slots, options), np.int32),
        members=np.empty((slots, options), np.uint64),
        rise=np.empty((slots, options)),
        saving=np.empty((slots, options)),
        size=counters(1, 1)[0],
        sums=np.empty(S + 1, np.int64),
        fewest=np.empty(S + 1, np.int64),
        nodes=np.empty(n, np.int64),
        start=np.empty(n + 1, np.int64),
        base=np.empty(options),
        weight=np.empty(options),
        per_microbatch=np.empty(options),
        static=np.empty(options),
        cost=np.empty(options),
        memory=np.empty(options),
        choice=np.empty(n, np.int64),
    )


class ThresholdTables:
    """The tables of one lattice of an instance, for tests at any time per sample; what all threshold searches share.

    ``work_bound`` is total device-time over K: no plan is faster. ``counts`` explain the effort. A ``team`` shares the
    rows of tables; each of its threads has work space and counts of its own.
    """

    def __init__(
        self,
        instance: StageInstance,
        profile: Profile,
        lattice: Lattice,
        flag: NDArray[np.uint8],
        team: Team | None = None,
    ) -> None:
        self.instance, self.profile, self.lattice, self.flag = instance, profile, lattice, flag
        self.whole, self.kept = profile, present(profile)
        self.capacities: tuple[float, ...] = (profile.memory,)  # of a choice of TMPCs, the later ones if need be
        self.most_weight = math.inf
        self.work_bound = float(lattice.work[-1]) / profile.num_devices
        self.team = team or Team()
        self.scratches = [make_scratch(profile, self.team.threads) for _ in range(self.team.threads)]
        self.counts_of = counters(self.team.threads, 3)
        self.counts = self.counts_of[0]
        self.tests = 0
        #: What limits the stages between two downsets, if anything does.
        self.required: Required | None = None

    @property
    def scratch(self) -> Scratch:
        """The work space of the caller's thread."""
        return self.scratches[0]

    def limit_memory(self, memory: float) -> None:
        """Run further tests as if the instance declared this memory per device (bytes).

        Where a stage fits by float noise alone, its choice of TMPCs may exceed it by that.
        """
        most = memory * MEMORY_SLACK
        self.whole = self.whole._replace(memory=most)
        self.profile, self.capacities = self.profile._replace(memory=most), (most, most * MEMORY_SLACK)
        self._forget_savings()

    def limit_cluster(self, num_devices: int, max_s: int) -> None:
        """Run further tests on that many devices, with degrees that sum to at most ``max_s``.

        Neither may be more than the tables were made for; both may rise again.
        """
        self.whole = self.whole._replace(num_devices=num_devices, max_s=max_s)
        self.profile = self.profile._replace(num_devices=num_devices, max_s=max_s)
        self.work_bound = float(self.lattice.work[-1]) / num_devices

    def _leave_out(self, T: float, most_weight: float = math.inf) -> None:
        """Restrict the tables to the TMPCs that a plan of time T may use, and cut their weights to ``most_weight``."""
        kept = usable(self.whole, T)
        if np.array_equal(kept, self.kept) and most_weight == self.most_weight:
            return
        self.kept, self.profile, self.most_weight = kept, restrict(self.whole, kept), most_weight
        if most_weight < math.inf:
            self.profile = self.profile._replace(weight=np.minimum(self.profile.weight, most_weight))
        self.lattice = build_lattice(self.profile, self.lattice.bits)
        if self.required is not None:
            self.lattice = self.required.limit_degrees(self.profile, self.lattice)
        self._forget_savings()

    def _forget_savings(self) -> None:
        for scratch in self.scratches:
            scratch.slot_of[:, :] = -1
            scratch.next_slot[0] = 0

    def _choose(self, i: int, j: int, q: int, d: int, in_flight: int, T: float) -> tuple[list[int], list[int]]:
        """A choice of TMPCs of stage j minus i within the memory, as fast as a few bisections make it."""
        work = self.scratch
        m = assemble(
            self.profile, self.lattice.bits, q, i, j, work.nodes, work.start, work.base, work.weight,
            work.per_microbatch, work.static,
        )  # fmt: skip
        z = int(work.start[m])
        resync = self.profile.resync[int(np.searchsorted(self.profile.dp_degrees, d))]
        cost = work.base[:z] + resync * work.weight[:z]
        memory = work.per_microbatch[:z] * in_flight + work.static[:z]
        for capacity in self.capacities:
            best = self._fastest(m, cost, memory, capacity, d * T)
            if best is not None:
                return work.nodes[:m].tolist(), best
        raise AssertionError("the threshold test found a stage that has no choice of TMPCs")

    def _fastest(self, m: int, cost: Floats, memory: Floats, capacity: float, most: float) -> list[int] | None:
        """A choice for each of ``m`` assembled nodes within the capacity and a cost of ``most``, if there is one."""
        work = self.scratch
        least = math.fsum(float(cost[work.start[v] : work.start[v + 1]].min()) for v in range(m))
        budget = most * (1 + 1e-10)
        best: list[int] | None = None
        while True:
            # The flag is not passed on: the test has already found that a choice exists.
            verdict = decide(m, work.start, cost, memory, capacity, budget, work.choice, np.zeros(1, np.uint8))
            if verdict != FOUND:
                return best
            best = work.choice[:m].tolist()
            attained = math.fsum(float(cost[work.start[v] + x]) for v, x in enumerate(best))
            if attained <= least * (1 + PRECISION) or math.isinf(most):
                return best
            budget = attained * (1 - PRECISION)


class ThresholdSearch(ThresholdTables):
    """Threshold tests over one lattice of an instance, and the plans they find."""

    def __init__(
        self,
        instance: StageInstance,
        profile: Profile,
        lattice: Lattice,
        flag: NDArray[np.uint8],
        team: Team | None = None,
    ) -> None:
        super().__init__(instance, profile, lattice, flag, team)
        D, S = len(lattice.bits), profile.max_s
        demand(14.0 * D * (S + 1), f"labels of {D} downsets at {S} sums of degrees")
        self.reach = tuple(np.empty(D, np.int64) for _ in range(2))
        self.labels = np.empty((D, S + 1), np.int32)
        self.back_set = np.empty((D, S + 1), np.int32)
        self.back_q = np.empty((D, S + 1), np.int16)
        self.back_d = np.empty((D, S + 1), np.int32)

    def test(self, T: float, *, fewest: bool = False) -> int:
        """Sum of degrees of a plan with every stage <= T; -1: there is none; -2: stopped."""
        self.tests += 1
        self._leave_out(T, most_weight(self.whole, T))
        if self.instance.exactly and self.profile.max_s < self.instance.num_microbatches:
            return -1  # degrees that sum to N take at least N devices
        full, least = len(self.lattice.bits) - 1, self.instance.exactly and self.profile.max_s
        begin = self._rest(T * (1 + labels.NOISE))
        if self.reach[0][0] > self.profile.num_devices:
            return -1
        self.labels[:] = labels.NO_DEVICES
        self.labels[0, 0] = 0

        def extend(*rows: int) -> int:
            part = rows[-2]
            return int(
                labels.extend(
                    self.profile, self.lattice, T, self.instance.exactly, fewest, *self.reach, self.labels,
                    self.back_set, self.back_q, self.back_d, *rows, self.scratches[part], self.counts_of[part],
                    self.flag,
                )
            )  # fmt: skip

        found = self.team.fill(begin, full + 1, extend, ROWS)
        if found != labels.NO_LABEL:
            return -2 if found == STOPPED else found
        s = int(self.labels[full, least:].argmin()) + least
        return s if self.labels[full, s] <= self.profile.num_devices else -1

    def _rest(self, limit: float) -> int:
        """Fill ``reach`` by `labels.rest_of_rows`, from the last row on; where the useful downsets begin."""
        begin = end = D = len(self.lattice.bits)
        self.reach[0][:] = labels.NO_DEVICES

        def pull(first: int, _: int, later: int, behind: int, part: int, parts: int) -> int:
            nonlocal begin, end
            is_own = later == first
            if is_own:
                end = begin
            found = labels.rest_of_rows(self.profile, self.lattice, limit, *self.reach, D - behind, D - later, begin,
                                        end, part, 0 if is_own else parts)  # fmt: skip
            begin = int(found) if is_own else begin
            return 0

        self.team.fill(0, D, pull)
        return begin

    def plan(self, s: int, T: float) -> StagePlan:
        """The plan behind label (all nodes, s) of the last test, which was at T."""
        stages = []
        j = len(self.lattice.bits) - 1
        while j > 0:
            i, q, d = int(self.back_set[j, s]), int(self.back_q[j, s]), int(self.back_d[j, s])
            nodes, chosen = self._choose(i, j, q, d, -(-s // d), T)
            stages.append((nodes, d, q, chosen))
            j, s = i, s - d
        return plan_of(self.instance, self.profile, stages)

    def evaluate(self, plan: StagePlan) -> float:
        """Time per sample of a plan."""
        return evaluate(self.instance, plan)


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """Least time per sample over all plans, with a proof.

    Returns: ``bound`` is within 1e-9 of the plan's objective unless the run was stopped. ``infeasible`` is proved by an
    unlimited test. More than ``MAX_DOWNSETS`` downsets end with ``Stop.SIZE_LIMIT`` and no plan.
    """
    flag = np.frombuffer(watch.flag, np.uint8)
    downsets, limited = all_downsets(instance, MAX_DOWNSETS), None
    if instance.requirements and downsets is not None:
        limited = limits_of_requirements(instance)
        instance, downsets = limited.instance, limited.downsets(downsets)
    profile = build_profile(instance, prune=True)
    if downsets is None or len(downsets) * (profile.max_s + 1) > MAX_LABELS:
        return Answer(stop=Stop.SIZE_LIMIT, reason="the graph has too many downsets for the exact method")
    upper: tuple[StagePlan, float] | None = None
    if len(downsets) > _CHAIN_FIRST * len(instance.layers) and limited is None:
        for order in linear_orders(instance):
            chain = ThresholdSearch(instance, profile, build_lattice(profile, chain_downsets(order)), flag)
            upper = better(upper, minimise(chain, watch, limits.gap, start=upper, chain=True)[0])
    with Team(limits.threads) as team:
        search = ThresholdSearch(instance, profile, build_lattice(profile, downsets), flag, team)
        if limited is not None:
            search.required, search.lattice = limited, limited.limit_degrees(profile, search.lattice)
        best, bound, infeasible = minimise(search, watch, limits.gap, start=upper)
    return Answer(
        plan=best[0] if best else None, bound=bound, infeasible=infeasible, stop=watch.why(), stats=statistics(search)
    )


def better(
    one: tuple[StagePlan, float] | None, other: tuple[StagePlan, float] | None
) -> tuple[StagePlan, float] | None:
    """The plan with the smaller objective."""
    if one is None or other is None:
        return one or other
    return one if one[1] <= other[1] else other


def statistics(search: ThresholdSearch) -> dict[str, Any]:
    """Counts that explain the effort."""
    pairs, relaxations, knapsacks = search.counts_of.sum(axis=0).tolist()
    return {
        "downsets": len(search.lattice.bits),
        "tests": search.tests,
        "pairs": pairs,
        "knapsack_relaxations": relaxations,
        "knapsack_searches": knapsacks,
    }
