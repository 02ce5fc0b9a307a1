"""The recursion of Piper with the pipeline's depth in its state, which the paper leaves to future work.

At a fixed bottleneck T a downset keeps the labels (s, devices, synchronisation, depths) that no other one beats
(`kernels.depth.extend`), so one pass gives, for every depth L at once, the least synchronisation R(L, T) of a plan
whose steps take at most T. The passes search the Pareto set of bottleneck and synchronisation: for every L they close
intervals of T in which no plan beats the best one (`pareto_set`).

Where replicas fill, depths are S, which a stage adds its t to, and P, the longest time of a replica for all its
micro-batches but one, takes the place of the bottleneck: a pass gives the least S/m + R of plans of at most a P.

Source: this project; the recursion over downsets is Piper's, section 4. Exact for any graph (`reached_sets`) where the
TMPCs of a node have the same weights at one degree t, so that the choice of TMPCs does not affect the synchronisation.
"""

import math

import numpy as np

from formulations.compiled.array_types import Floats, Ints, Words
from formulations.compiled.downsets import all_downsets, too_many
from formulations.compiled.rows_in_threads import Team, counters
from formulations.contract.family import Answer
from formulations.flushed_partitioning.definition.problem import (
    evaluate,
    later_rounds,
    step_time,
    synchronisation_times,
)
from formulations.flushed_partitioning.exact.depth_labels import MAX_REACHED_SETS, find_reached_sets
from formulations.flushed_partitioning.exact.pareto_set import Found, search_pareto_set
from formulations.flushed_partitioning.kernels import depth
from formulations.flushed_partitioning.kernels.arrays import Filling, Pool, ReachedSets
from formulations.flushed_partitioning.methods import MAX_DOWNSETS
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.exact import threshold as flat_exact
from formulations.stage_partitioning.kernels.labels import NOISE
from formulations.stage_partitioning.kernels.tables import build_lattice, build_profile
from formulations.stage_partitioning.kernels.tables import make_plan as plan_of
from instances.graph import adjacency, topological_order
from instances.problems.flushed_partitioning import Fill, FlushedInstance, Schedule
from solvers.memory_budget import SizeError, demand
from solvers.outcome import Limits, Stop, Watch

#: Labels that a pool starts with, and the bytes it may grow to (2.5 GiB): a label takes 64, and 8 for each reached set.
_POOL, _MAX_BYTES = 1 << 14, 5 << 29


def make_pool(size: int, width: int) -> Pool:
    """Room for that many labels of that many reached sets."""

    def ints() -> Ints:
        return np.empty(size, np.int64)

    depth = np.empty((size, max(1, width)))
    return Pool(ints(), ints(), np.empty(size), depth, ints(), ints(), ints(), ints(), ints())


def uniform_weights(instance: FlushedInstance) -> bool:
    """Whether the TMPCs of every node at every degree t have the same weights."""
    lists = (found for layer in instance.flat.layers for found in layer.tmpcs.values())
    return all(len({x.weight_bytes for x in found}) <= 1 for found in lists)


def filling_of(instance: FlushedInstance, degrees: Ints) -> Filling:
    """What stages add to depths, without a cap on the later micro-batches."""
    flat, m = instance.flat, instance.flat.num_microbatches
    if instance.fill is Fill.STAGES:
        return Filling(np.empty(0, np.int64), np.append(np.ones(len(flat.layers)), 0.0), math.inf, m)
    _, before = adjacency(len(flat.layers), flat.edge_indices)
    least = np.zeros(len(flat.layers) + 1)
    for v in topological_order(len(flat.layers), flat.edge_indices):
        fastest = min((x.time for found in flat.layers[v].tmpcs.values() for x in found), default=0.0)
        least[v] = fastest + max((least[u] for u in before[v]), default=0.0)
    return Filling(-(-m // degrees) - 1, least, math.inf, m)


class Search(flat_exact.ThresholdSearch):
    """Passes over the lattice of an instance without synchronisation, and the plans they find."""

    def __init__(self, instance: FlushedInstance, downsets: Words, watch: Watch, team: Team | None = None) -> None:
        flat = instance.flat
        profile = build_profile(flat, prune=True)
        degrees = profile.dp_degrees
        profile = profile._replace(resync=np.zeros(len(degrees)))
        super().__init__(flat, profile, build_lattice(profile, downsets), np.frombuffer(watch.flag, np.uint8), team)
        self.flushed, self.passes = instance, 0
        self.all_in_flight = flat.num_microbatches if instance.schedule is Schedule.GPIPE else 0
        self.filling = filling_of(instance, degrees)
        self.sync = 4 * (degrees - 1) / degrees / flat.bandwidth / flat.num_microbatches
        self.machine = instance.devices_per_machine or 0
        self.near = self.sync * (flat.bandwidth / (instance.inner_bandwidth or flat.bandwidth))
        threads, most = self.team.threads, max(profile.max_s, self.all_in_flight)
        self.scratches = [flat_exact.make_scratch(profile._replace(max_s=most), threads) for _ in range(threads)]
        self.head = np.empty(len(downsets), np.int64)
        self.sets = self._find_reached_sets()
        #: Labels that each thread has room for; where its next one comes, and where its room ends; most in any pass.
        self.size, self.places, self.most_labels = _POOL, counters(threads, 2), 0
        self.pool = make_pool(threads * self.size, self.sets.node.shape[1])

    def _find_reached_sets(self) -> ReachedSets:
        found = find_reached_sets(len(self.instance.layers), self.instance.edge_indices, self.lattice.bits)
        if found is None:
            raise SizeError(f"a downset has more than {MAX_REACHED_SETS} entries of depths of their own")
        return found

    def _leave_out(self, T: float, most_weight: float = math.inf) -> None:
        """As for the flat family; another order of the downsets moves the reached sets, too."""
        before = self.lattice
        super()._leave_out(T, most_weight)
        if self.lattice is not before and not np.array_equal(self.lattice.bits, before.bits):
            self.sets = self._find_reached_sets()

    def labels_at(self, T: float, most_sync: Floats, *, plain: bool, cap: float = math.inf) -> list[int] | None:
        """The labels of all nodes at bottleneck T, see `kernels.depth.extend`; ``None`` if stopped.

        ``cap`` is that of `Filling`.

        `SizeError` if there are too many labels.
        """
        self.passes += 1
        self._leave_out(T)
        begin, threads, filling = self._rest(T * (1 + NOISE)), self.team.threads, self.filling._replace(cap=cap)
        if self.reach[0][0] > self.profile.num_devices:
            return []

        def extend(*rows: int) -> int:
            part = rows[-2]
            return int(
                depth.extend(
                    self.profile, self.lattice, self.sets, filling, T, self.all_in_flight, self.sync, self.near,
                    self.machine, most_sync, plain, self.head, self.pool, *self.reach, *rows, self.places[part],
                    self.scratches[part], self.counts_of[part], self.flag,
                )
            )  # fmt: skip

        self._put_nothing()
        while (found := self.team.fill(begin, len(self.head), extend)) == depth.FULL:
            size, width = 2 * self.size, self.sets.node.shape[1]
            if size * (64 + 8 * width) > _MAX_BYTES:
                raise SizeError(f"more than {self.size} labels of {width} depths")
            demand(threads * size * (64.0 + 8.0 * width), f"more than {self.size} labels of {width} depths")
            self.size, self.pool = size, make_pool(threads * size, width)
            self._put_nothing()
        if found == depth.HALTED:
            return None
        left = int((self.places[:, 1] - self.places[:, 0]).sum())
        self.most_labels = max(self.most_labels, threads * self.size - left)
        labels, label = [], int(self.head[-1])
        while label != depth.NOTHING:
            labels.append(label)
            label = int(self.pool.next[label])
        return labels

    def _put_nothing(self) -> None:
        """The label of the empty downset, and no other."""
        pool = self.pool
        self.head[:] = depth.NOTHING
        self.head[0] = pool.s[0] = pool.devices[0] = pool.sync[0] = 0
        pool.depth[0], pool.next[0], pool.back[0] = 0.0, depth.NOTHING, depth.NOTHING
        self.places[:] = self.size * np.arange(len(self.places))[:, None] + [0, self.size]
        self.places[0, 0] = 1

    def least_bottleneck(self, T: float) -> Found | bool:
        """Some plan of bottleneck at most T whatever its depth; False if there is none, True if stopped."""
        labels = self.labels_at(T, np.empty(0), plain=True)
        if labels is None:
            return True
        return self.plan_of_label(labels[0], T) if labels else False

    def least_synchronisation(
        self, T: float, most_sync: Floats, most_time: float = math.inf
    ) -> dict[int, Found] | None:
        """For every depth the plan of bottleneck at most T that is synchronised fastest; ``None`` if stopped.

        Only plans within ``most_sync`` (by depth), and only where no shallower one is as fast. Where replicas fill, the
        one that takes at most ``most_time``, of P at most T, with the least S/m + R.
        """
        if self.flushed.fill is Fill.REPLICAS:
            return self._least_path(T, most_sync, most_time)
        labels = self.labels_at(T, most_sync, plain=False)
        if labels is None:
            return None
        best: dict[int, int] = {}
        for label in labels:
            depth = int(self.pool.depth[label, 0])
            if depth not in best or self.pool.sync[label] < self.pool.sync[best[depth]]:
                best[depth] = label
        return {depth: self.plan_of_label(label, T) for depth, label in sorted(best.items())}

    def _least_path(self, most_rounds: float, most: Floats, most_time: float) -> dict[int, Found] | None:
        # A step takes no longer than the plan: m t/d is at most t and ceil(m/d) - 1 times t more, which S and P have.
        labels = self.labels_at(most_time, most, plain=False, cap=most_rounds)
        if not labels:
            return None if labels is None else {}
        added = self.pool.depth[labels, 0] / self.filling.microbatches + self.pool.sync[labels]
        least = int(added.argmin())
        plan = self.plan_of_label(labels[least], most_time).plan
        rounds = max(later_rounds(self.flushed, plan))
        return {1: Found(plan, evaluate(self.flushed, plan), rounds, float(added[least]))}

    def plan_of_label(self, label: int, T: float) -> Found:
        """The plan behind a label of all nodes, from a pass at T."""
        pool, stages, j = self.pool, [], len(self.lattice.bits) - 1
        while j > 0:
            i, q, d = int(pool.low[label]), int(pool.tp[label]), int(pool.dp[label])
            in_flight = -(-(self.all_in_flight or int(pool.s[label])) // d)
            nodes, chosen = self._choose(i, j, q, d, in_flight, T)
            stages.append((nodes, d, q, chosen))
            j, label = i, int(pool.back[label])
        plan = plan_of(self.instance, self.profile, stages)
        return Found(
            plan,
            evaluate(self.flushed, plan),
            max(step_time(self.flushed, stage) for stage in plan.stages),
            max(synchronisation_times(self.flushed, plan)),
        )


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """Least time per sample over all plans, with a proof."""
    downsets = all_downsets(instance.flat, MAX_DOWNSETS)
    if downsets is None:
        return Answer(stop=Stop.SIZE_LIMIT, reason=too_many(len(instance.flat.layers), MAX_DOWNSETS))
    try:
        with Team(limits.threads) as team:
            search = Search(instance, downsets, watch, team)
            infeasible = search_pareto_set(search, watch, limits.gap)
    except SizeError as error:
        return Answer(plan=watch.best_plan, bound=watch.best_bound, stop=Stop.SIZE_LIMIT, reason=str(error))
    pairs, relaxed, searches = search.counts_of.sum(axis=0).tolist()
    return Answer(
        plan=watch.best_plan,
        bound=None if infeasible else watch.best_bound,
        infeasible=infeasible,
        stop=watch.why(),
        reason="no plan fits the devices and their memory" if infeasible else "",
        stats={
            "downsets": len(downsets),
            "slots": int(search.sets.width.max()),
            "passes": search.passes,
            "pairs": pairs,
            "labels": search.most_labels,
            "knapsack_relaxations": relaxed,
            "knapsack_searches": searches,
        },
    )
