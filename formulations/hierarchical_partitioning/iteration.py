"""The shortest simulated iteration on machines: plans in the order of a lower bound, each of them simulated.

Plans grow stage by stage from the output side, those of the least bound first; the least bound of all that are not
grown is one of the instance. From that side what a stage has in flight is known, so its TMPCs are an exact knapsack:
longer passes never make an iteration of fixed orders shorter. A stage of t, d replicas and k = ceil(s/d) in flight
bounds an iteration by what comes in front of its first pass and behind its last one, together at least ``head``, and by

    r t,   and   (q - 1) D + max(D, (r - (q - 1) k) t),   r = ceil(m/d), q = ceil(r/k), D = its t and those behind it

*Proof of the second.* A backward pass ends at least D after its forward pass has started: the micro-batch runs down
and up a path of the stages behind. So the n-th of a replica's backward passes to end does that at least D after its
n-th forward pass starts, and forward pass n + k waits for n of them. Hence forward pass (q - 1) k + 1 starts at least
(q - 1) D after the first one; from there on the replica still runs r - (q - 1) k micro-batches, and one of them takes
D. Both need no more of the orders than the number in flight. Of a path of stages the bounds add up:
M = max(own, t + M behind).

Stages that are still to come take, on the devices that are left, at least what `Search._tables` have for every downset
and sum of degrees; it splits them in the best way without what links between machines send. Source: this project.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import count, product
from typing import NamedTuple

import numpy as np

from formulations.compiled.array_types import Floats3, Words
from formulations.compiled.downsets import all_downsets, position_masks, too_many
from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.contract.quantities import judge
from formulations.hierarchical_partitioning import paper
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.problem import (
    evaluate,
    flatten,
    most_in_flight,
    replica_times,
    violations,
)
from formulations.hierarchical_partitioning.methods import MAX_DOWNSETS
from formulations.simulation.kernels import COMPILED
from formulations.simulation.one_batch import end_of_batch
from formulations.stage_partitioning.definition.batch import stage_edges
from formulations.stage_partitioning.exact.threshold import make_scratch
from formulations.stage_partitioning.kernels import published
from formulations.stage_partitioning.kernels.tables import build_lattice, make_plan
from formulations.stage_partitioning.paper.piper import no_orders
from instances.graph import adjacency, topological_order
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel, Objective
from solvers.memory_budget import SizeError, demand
from solvers.outcome import OPTIMAL_GAP, Limits, Stop, Watch

#: What rounding may take from a bound.
PRECISION = 1e-9
#: Most numbers in the table of what is in front (8 bytes each); beyond, it leaves out sums of degrees.
_MOST_CELLS = 4_000_000
#: So many beginnings of plans are kept (each takes about a kilobyte); beyond, the search ends.
_MOST_OPEN = 300_000
#: So many beginnings of each downset are grown for a plan to begin with.
_BEAM = 32
#: The share of a time limit, and seconds, for the plan that the search begins with.
_FIRST_SHARE, _FIRST_S = 0.3, 60.0


class _Stage(NamedTuple):
    """Stage j minus i (downsets, from the output side on) at the q-th t, ``d1`` in each machine; ``y`` in flight."""

    i: int
    j: int
    q: int
    d1: int
    y: int
    after: float  # M: its own bound, and what those behind it add
    trip: float  # D
    inside: int  # its nodes, as bits


class Beginning(NamedTuple):
    """The last superstages of a plan, from the output side on, the last of them maybe open to more stages."""

    superstages: tuple[tuple[int, tuple[_Stage, ...]], ...]  # d_2, and stages from the output side on
    machines: int  # left
    devices: int  # left in each machine of the open superstage; -1: it is closed
    degrees: int  # s
    gradients: float  # of the superstages that are closed
    rings: float  # the longest inside the last superstage

    @property
    def held(self) -> int:
        """The downset that the stages hold."""
        return self.superstages[-1][1][-1].j if self.superstages else 0


class Search:
    """All plans by the least of their bounds; times are those of a batch."""

    def __init__(self, instance: HierarchicalInstance, downsets: Words, watch: Watch, best: float) -> None:
        self.instance, self.watch, self.m = instance, watch, instance.flat.num_microbatches
        self.best, self.grown, self.simulated = best * self.m, 0, 0
        profile = paper.inner_profile(instance)
        self.profile, self.lattice = profile, build_lattice(profile, downsets)
        self.masks, self.tp = position_masks(self.lattice.bits), profile.tp_degrees.tolist()
        self.scratch, self.orders = make_scratch(profile), no_orders(profile)
        self.flag = np.frombuffer(watch.flag, np.uint8)
        flat, n = instance.flat, len(instance.flat.layers)
        self.successors, self.predecessors = adjacency(n, flat.edge_indices)
        own = [[next((x.weight_bytes for x in layer.tmpcs.get(t, ())), 0.0) for layer in flat.layers] for t in self.tp]
        self.weights = [*own, paper.whole_weights(instance).tolist()]
        self.weight = cache(self._weight)
        # The knapsack has its own slack, as the profile's memory has.
        self.memory = math.inf if instance.memory_model is MemoryModel.NONE else flat.memory_bytes
        self.lost = math.inf  # the least bound of plans whose choice only rounding admitted
        least = [
            min((x.time for found in layer.tmpcs.values() for x in found), default=math.inf) for layer in flat.layers
        ]
        self.reach = [0.0] * n  # the least time of a path of nodes that ends with this one
        for v in topological_order(n, flat.edge_indices):
            self.reach[v] = least[v] + max((self.reach[u] for u in self.predecessors[v]), default=0.0)
        self.s_max, K = most_in_flight(instance), flat.num_devices
        cells = len(self.masks) * (K + 1.0)
        self.counts_degrees = instance.memory_model is MemoryModel.PRECISE and cells * (self.s_max + 1) <= _MOST_CELLS
        rows = self.s_max + 1 if self.counts_degrees else 1
        demand(8.0 * cells * rows, f"plans of {len(self.masks)} downsets on {K} devices")
        self.time, self.leaving = cache(self._time), cache(self._leaving)
        self.head, self.next_to = cache(self._head), cache(self._next_to)
        ends = [[v for v in range(n) if not mask >> v & 1 and not self.next_to(1 << v) & ~mask] for mask in self.masks]
        self.last = [found[0] if len(found) == 1 else -1 for found in ends]  # of what a downset does not hold
        self.ahead, self.path = self._tables(rows)

    def _time(self, i: int, j: int, q: int, y: int) -> float:
        """The least time of a micro-batch on a replica of stage j minus i within a machine, with y in flight."""
        if self.lattice.missing[q, j] != self.lattice.missing[q, i]:
            return math.inf
        self.scratch.size[0] = -1
        found = published.stage_tps(
            self.profile, self.lattice, self.memory, published.EXACT, q, i, j, 0, y, self.orders, self.scratch, False,
            self.flag,
        )  # fmt: skip
        return float(found) if found != published.STOPPED else 0.0

    def _leaving(self, i: int, j: int, last: int, closes: bool) -> float:
        """Bytes, both ways, that leave the machine of stage j minus i in a superstage in front of downset ``last``.

        What comes from in front does so if the stage closes its superstage; else that is not known, and not counted.
        """
        inside, index = self.masks[j] & ~self.masks[i], self.instance.flat.index
        return math.fsum(
            2 * edge.bytes
            for edge in self.instance.flat.edges
            if (inside >> index[edge.source] & 1 and self.masks[last] >> index[edge.target] & 1)
            or (closes and inside >> index[edge.target] & 1 and not self.masks[j] >> index[edge.source] & 1)
        )

    def _head(self, i: int, j: int, held: int) -> float:
        """The least time of a path of nodes outside of downset ``held`` that ends in front of a node of j minus i."""
        inside, outside = self.masks[j] & ~self.masks[i], ~self.masks[held]
        return max(
            (self.reach[u] for v in _bits(inside) for u in self.predecessors[v] if outside >> u & 1), default=0.0
        )

    def _next_to(self, inside: int) -> int:
        """The nodes, as bits, that take something from these."""
        return sum(1 << w for w in {w for v in _bits(inside) for w in self.successors[v]})

    def _joins(self, j: int, inside: int) -> bool:
        """Whether all that is not in downset j ends in one node, and that hands on to these nodes."""
        last = self.last[j]
        return last >= 0 and bool(self.next_to(1 << last) & inside)

    def _in_flight(self, s: int, d1: int, d: int) -> int:
        """Micro-batches that memory holds on a replica of a stage in front of which degrees sum to s."""
        model = self.instance.memory_model
        return 1 if model is MemoryModel.NONE else -(-self.s_max // d1) if model is MemoryModel.CRUDE else -(-s // d)

    def _tables(self, rows: int) -> tuple[Floats3, Floats3]:
        """(downset, s, devices) of the stages of all other nodes on so many devices, with degrees s behind them.

        The least bound of them all, where a stage takes what comes in front of it, r t and the sum of its own
        gradients; and the least sum of t on a path of stages to the one node that hands on what all of them make, 0
        where there is no such node. Links send nothing here but for stages that fill a machine; with one row s is 0.
        Stages that alone take longer than the best plan are left out.
        """
        D, K1, K = len(self.masks), self.instance.devices_per_machine, self.instance.flat.num_devices
        ways = [
            (q, d1, d2)
            for q, t in enumerate(self.tp)
            for d1, d2 in product(range(1, K1 // t + 1), range(1, self.instance.num_machines + 1))
            if d1 * d2 <= self.s_max
        ]
        bound, path = np.full((2, D, rows, K + 1), math.inf)
        bound[D - 1], path[D - 1] = 0.0, 0.0
        for i in reversed(range(D - 1)):
            for j in range(i + 1, D):
                if self.masks[i] & ~self.masks[j]:
                    continue
                if self.watch.stopped():
                    return bound, path
                head, joins = self.head(i, j, j), self._joins(j, self.masks[j] & ~self.masks[i])
                for q, d1, d2 in ways:
                    d, t = d1 * d2, self.tp[q]
                    ys = [self._in_flight(s + d, d1, d) for s in range(rows - d if rows > 1 else 1)]
                    known = {y: self.time(i, j, q, y) for y in dict.fromkeys(ys)}
                    times = np.array([known[y] for y in ys])[:, None]
                    if d1 * t == K1:  # a superstage of its own
                        times += self.leaving(i, j, i, True) * d1 / self.instance.outer_bandwidth
                    sums = self._ring(i, j, q, d1) + self._link(d2, i, j)
                    here = (j, slice(d if rows > 1 else 0, None), slice(K + 1 - d * t))
                    front = path[here] if joins else np.where(path[here] < math.inf, 0.0, math.inf)
                    took = np.maximum(front, head) + times * -(-self.m // d) + sums
                    took = np.maximum(np.where(took < self.best, took, math.inf), bound[here])
                    into = (i, slice(len(ys)), slice(d * t, None))
                    np.minimum(bound[into], took, out=bound[into])
                    np.minimum(path[into], np.where(took < math.inf, front + times, math.inf), out=path[into])
        return bound, path

    def bound(self, beginning: Beginning) -> float:
        """What a batch of every plan with this beginning takes at least."""
        j, own, gradients = beginning.held, self.instance, beginning.gradients
        devices = beginning.machines * own.devices_per_machine
        if beginning.devices >= 0:
            d2, stages = beginning.superstages[-1]
            devices += beginning.devices * d2
            gradients = max(gradients, beginning.rings + self._link(d2, stages[0].i, j))
        here = (j, beginning.degrees if self.counts_degrees else 0, devices)
        longest = 0.0
        for stage in (stage for _, stages in beginning.superstages for stage in stages):
            front = float(self.path[here]) if self._joins(j, stage.inside) else 0.0
            longest = max(longest, stage.after + max(front, self.head(stage.i, stage.j, j)))
        return max(float(self.ahead[here]), longest + gradients)

    def _ring(self, i: int, j: int, q: int, d1: int) -> float:
        """Time to sum the gradients of stage j minus i inside a machine."""
        weight = self.weight(q, self.masks[j] & ~self.masks[i])
        return 4 * (d1 - 1) / d1 * weight * (1 - PRECISION) / self.instance.inner_bandwidth

    def _link(self, d2: int, i: int, j: int) -> float:
        """Time to sum the gradients of j minus i between so many machines."""
        weight = self.weight(-1, self.masks[j] & ~self.masks[i])
        return 4 * (d2 - 1) / d2 * weight * (1 - PRECISION) / self.instance.outer_bandwidth

    def _weight(self, q: int, nodes: int) -> float:
        """Bytes of the weights of nodes at the q-th t; -1: of whole nodes. No difference of sums, which would round."""
        return math.fsum(self.weights[q][v] for v in _bits(nodes))

    def grow(self, beginning: Beginning) -> Iterator[Beginning]:
        """Beginnings with one stage more, which joins the open superstage or opens one, and closes it or does not."""
        K1, i = self.instance.devices_per_machine, beginning.held
        is_open = beginning.devices >= 0
        for d2 in (beginning.superstages[-1][0],) if is_open else range(1, beginning.machines + 1):
            last = beginning.superstages[-1][1][0].i if is_open else i
            for j in range(i + 1, len(self.masks)):
                if self.masks[i] & ~self.masks[j]:
                    continue
                for q, t in enumerate(self.tp):
                    for d1 in range(1, (beginning.devices if is_open else K1) // t + 1):
                        s = beginning.degrees + d1 * d2
                        if s > self.s_max:
                            break
                        yield from self._with(beginning, (i, j, last), q, (d1, d2, s), is_open=is_open)

    def _with(
        self, beginning: Beginning, nodes: tuple[int, int, int], q: int, degrees: tuple[int, int, int], *, is_open: bool
    ) -> Iterator[Beginning]:
        (i, j, last), (d1, d2, s) = nodes, degrees
        y, own = self._in_flight(s, d1, d1 * d2), self.instance
        base = self.time(i, j, q, y)
        if base == math.inf:
            return
        inside = self.masks[j] & ~self.masks[i]
        ring = self._ring(i, j, q, d1)
        for closes in (True, False) if j < len(self.masks) - 1 else (True,):
            time = base + self.leaving(i, j, last, closes) * d1 / own.outer_bandwidth
            behind = [
                stage for _, stages in beginning.superstages for stage in stages if stage.inside & self.next_to(inside)
            ]
            trip = time + max((stage.trip for stage in behind), default=0.0)
            rounds, k = -(-self.m // (d1 * d2)), -(-s // (d1 * d2))
            turns = -(-rounds // k) - 1
            after = max(rounds * time, turns * trip + max(trip, (rounds - turns * k) * time),
                        time + max((stage.after for stage in behind), default=0.0))  # fmt: skip
            stage = _Stage(i, j, q, d1, y, after, trip, inside)
            rings = max(ring, beginning.rings) if is_open else ring
            gradients = beginning.gradients
            if closes:
                gradients = max(gradients, rings + self._link(d2, last, j))
            done, held = beginning.superstages, tuple[_Stage, ...]()
            if is_open:
                done, held = done[:-1], done[-1][1]
            machines = beginning.machines - (0 if is_open else d2)
            devices = (beginning.devices if is_open else own.devices_per_machine) - d1 * self.tp[q]
            yield Beginning((*done, (d2, (*held, stage))), machines, -1 if closes else devices, s, gradients, rings)

    def run(self, gap: float) -> tuple[float, str]:
        """Search until no plan is left that can be better by more than ``gap``; a bound, and why there is no more."""
        serial, root = count(), Beginning((), self.instance.num_machines, -1, 0, 0.0, 0.0)
        least = 0.0 if self.watch.stopped() else self.bound(root)  # tables that were cut short bound nothing
        self._begin(root)
        self.ahead, self.path = self._tables(self.ahead.shape[1])  # fewer stages are left below a better plan
        queue: list[tuple[float, int, int, Beginning]] = [(least, 0, next(serial), root)]
        while queue and not self.watch.stopped():
            low = queue[0][0]
            self.watch.bound(min(low, self.best, self.lost) * (1 - PRECISION) / self.m)
            if low >= self.best * (1 - max(gap, PRECISION)):
                break
            if len(queue) > _MOST_OPEN:
                return min(low, self.lost), f"more than {_MOST_OPEN:,} beginnings of plans that may be better"
            beginning = heapq.heappop(queue)[-1]
            found = self._next(low, beginning)
            if self.watch.stopped():  # what was cut short is no bound
                return min(low, self.lost), ""
            self.grown += 1
            for bound, grown in found:
                if bound < self.best * (1 - PRECISION):
                    heapq.heappush(queue, (bound, -grown.held, next(serial), grown))
        return min(self.best, self.lost, queue[0][0] if queue else math.inf), ""

    def _next(self, low: float, beginning: Beginning) -> list[tuple[float, Beginning]]:
        """What comes of a beginning, with bounds; of a plan nothing."""
        if beginning.held == len(self.masks) - 1:
            if not self._simulate(beginning):
                self.lost = min(self.lost, low)
            return []
        limit = self.best * (1 - PRECISION)
        grown = ((max(low, self.bound(each)), each) for each in self.grow(beginning))
        return [(bound, each) for bound, each in grown if bound < limit]

    def _begin(self, root: Beginning) -> None:
        """Plans to begin with: of every downset a few of the best beginnings are grown."""
        found: list[list[tuple[float, Beginning]]] = [[] for _ in self.masks]
        found[0].append((0.0, root))
        for here in found:
            for low, beginning in heapq.nsmallest(_BEAM, here, key=lambda entry: entry[0]):
                if self.watch.stopped():
                    return
                for bound, grown in self._next(low, beginning):
                    found[grown.held].append((bound, grown))
            here.clear()

    def _simulate(self, beginning: Beginning) -> bool:
        """Simulate a plan, and take it if it is better; whether it keeps the rules, if it were."""
        plan = self.plan(beginning)
        flat = flatten(plan)
        degrees = [stage.dp_degree for stage in flat.stages]
        edges, times = stage_edges(self.instance.flat, flat), replica_times(self.instance, plan)
        end = end_of_batch("1f1b", degrees, self.m, edges, times, COMPILED)
        self.simulated += 1
        if end + beginning.gradients >= self.best * (1 - PRECISION):
            return True
        if broken := judge(violations, self.instance, plan):  # requirements are of stages: of no choice of TMPCs
            return any(each.rule != "memory" for each in broken)
        time = evaluate(self.instance, plan)
        self.watch.plan(plan, time)
        self.best = min(self.best, time * self.m)
        return True

    def plan(self, beginning: Beginning) -> HierarchicalPlan:
        """The plan of a beginning that holds all nodes, with the fastest TMPCs that fit."""
        found = []
        for d2, stages in reversed(beginning.superstages):
            made = []
            for stage in reversed(stages):
                self.scratch.size[0] = -1
                published.stage_tps(
                    self.profile, self.lattice, self.memory, published.EXACT, stage.q, stage.i, stage.j, 0,
                    stage.y, self.orders, self.scratch, True, np.zeros(1, np.uint8),
                )  # fmt: skip
                size = int(self.scratch.size[0])
                made.append(
                    (self.scratch.nodes[:size].tolist(), stage.d1, stage.q, self.scratch.choice[:size].tolist())
                )
            found.append(Superstage(d2, make_plan(self.instance.flat, self.profile, made).stages))
        return HierarchicalPlan(tuple(found))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def solve(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Answer[HierarchicalPlan]:
    """The plan of the shortest iteration, with a proof, or the best so far and a bound.

    It begins with the best plan of a pipeline that is never flushed (`paper.solve`), which has the same rules.
    """
    downsets = all_downsets(instance.flat, MAX_DOWNSETS)
    if downsets is None:
        return Answer(stop=Stop.SIZE_LIMIT, reason=too_many(len(instance.flat.layers), MAX_DOWNSETS))
    steady = replace(instance, objective=Objective.STEADY, requirements=())
    time_s = _FIRST_S if limits.time_s is None else min(_FIRST_S, _FIRST_SHARE * limits.time_s)
    with alarm(part := watch.part(time_s, silent=True)):
        first = paper.solve(steady, limits, part)
    if first.infeasible:
        return Answer(infeasible=True, stop=Stop.PROVED)
    best, stats = math.inf, dict[str, float]()
    plan = first.plan or part.best_plan
    if plan is not None and not judge(violations, instance, plan):
        best = stats["first_plan"] = evaluate(instance, plan)
        watch.plan(plan, best)
    try:
        with alarm(watch):
            search = Search(instance, downsets, watch, best)
            bound, reason = search.run(limits.gap if limits.gap > OPTIMAL_GAP else 0.0)
    except SizeError as error:
        return Answer(watch.best_plan, watch.best_bound, stop=Stop.SIZE_LIMIT, reason=str(error))
    stats |= {"grown": search.grown, "simulated": search.simulated}
    if bound == math.inf:
        return Answer(infeasible=True, stop=Stop.PROVED, stats=stats)
    watch.bound(bound * (1 - PRECISION) / search.m)
    stop = Stop.SIZE_LIMIT if reason else watch.why()
    return Answer(watch.best_plan, watch.best_bound, stop=stop, reason=reason, stats=stats)
