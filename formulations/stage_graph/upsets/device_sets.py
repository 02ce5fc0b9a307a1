"""Exact search over all partitions of small models and all devices of a device graph that their stages can have.

Operators, last ones first, join a stage or open one. What a stage takes only grows so: passes, weights, and tensors
between operators that are already in two stages, all on the fastest link. A branch ends where its stages wait for each
other, or take more devices than there are to be faster than the best plan. Of a whole partition, stages get devices one
after another, those that need most first; tensors to stages that have theirs cross the real links, others the fastest.
Devices with equal memory and links are exchanged. Nothing is left out.

Source: made for this project.
"""

import itertools
import math
from collections.abc import Iterator

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.stage_graph.costs.costs import Costs, bits, identical, shortage, with_in_flight
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import data_edges, evaluate, memory_bytes, violations
from formulations.stage_graph.upsets.bounds import simple_bound
from instances.graph import find_cycle
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Limits, Prover, Stop, Watch

#: What sums of seconds or bytes may lose to rounding: so much below the best plan counts as not better.
_ROUNDING = 1e-9


class StoppedError(Exception):
    """The watch is stopped."""


class DeviceSets:
    """The search of an instance at one micro-batch size, for plans that are faster than ``best_s``."""

    def __init__(self, instance: StageGraph, watch: Watch) -> None:
        assert instance.device_graph is not None
        self.instance, self.watch = instance, watch
        #: Costs on the fastest links, whose sums are kept from size to size.
        self.costs = Costs(identical(instance))
        self.best_s, self.nodes = math.inf, 0
        links, devices = instance.device_graph.bandwidth_bytes_per_s, range(instance.num_devices)
        self.rate = [[min(links[u][v], links[v][u]) for v in devices] for u in devices]
        #: The first device that each is equal to.
        self.kind = [next(u for u in devices if self._are_equal(u, v)) for v in devices]

    def _are_equal(self, u: int, v: int) -> bool:
        others = [w for w in range(self.instance.num_devices) if w not in (u, v)]
        equal = self.instance.memory_of(u) == self.instance.memory_of(v)
        return equal and all(self.rate[u][w] == self.rate[v][w] for w in others)

    def search(self, microbatch: int) -> None:
        """Report every plan of this size that is faster than all before; `StoppedError` once the watch is stopped."""
        self.microbatch = microbatch
        self._assign(self.instance.num_operators - 1, [])

    def _poll(self) -> None:
        self.nodes += 1
        if self.watch.stopped():
            raise StoppedError

    def _assign(self, node: int, stages: list[int]) -> None:
        """All stages (bitsets) that the operators up to this one can join."""
        self._poll()
        found = [self._fewest(nodes, stages) for nodes in stages]
        if sum(found) > self.instance.num_devices or self._wait(stages):
            return
        if node < 0:
            self._give(stages, found)
            return
        for number, nodes in enumerate(stages):
            self._assign(node - 1, [*stages[:number], nodes | 1 << node, *stages[number + 1 :]])
        self._assign(node - 1, [*stages, 1 << node])

    def _wait(self, stages: list[int]) -> bool:
        """Whether stages wait for each other."""
        edges = {
            (s, t)
            for s, nodes in enumerate(stages)
            for t, others in enumerate(stages)
            if s != t and any(self.costs.successors[v] & others for v in bits(nodes))
        }
        return bool(find_cycle(len(stages), sorted(edges)))

    def _fewest(self, nodes: int, stages: list[int]) -> float:
        """Devices that a stage takes at least, with what may still join it; ``inf`` if no number is enough."""
        others = sum(stages) & ~nodes
        edges = [e for e in self.instance.edges if self._crosses(e.source, e.target, nodes, others)]
        sent = sum(edge.bytes_per_sample for edge in edges)
        sums, fastest = self.costs.sums(nodes), self.costs.instance
        kept = sum(self.instance.operators[node].activation_bytes for node in bits(nodes))
        for r in range(1, min(self.instance.num_devices, self.microbatch) + 1):
            n = -(-self.microbatch // r)
            moved = 2 * (sent * n / fastest.bandwidth_bytes_per_s + len(edges) * fastest.latency_s)
            seconds = (self.costs.compute_s(nodes, n) + moved) / self.microbatch
            seconds += self.costs.all_reduce(nodes, r) / fastest.minibatch
            held = self.instance.weight_copies * sums.weight_bytes + n * kept
            if seconds < self.best_s * (1 - _ROUNDING) and held * (1 - _ROUNDING) <= fastest.memory_bytes:
                return r
        return math.inf

    @staticmethod
    def _crosses(source: int, target: int, nodes: int, others: int) -> bool:
        return bool(nodes >> source & others >> target & 1 or others >> source & nodes >> target & 1)

    def _give(self, stages: list[int], fewest: list[float]) -> None:
        """All devices that the stages of a partition can have."""
        order = sorted(range(len(stages)), key=lambda s: -fewest[s])
        made = [Stage(tuple(bits(stages[s])), 1, self.microbatch, self.microbatch) for s in order]
        least = [int(fewest[s]) for s in order]
        plan = with_in_flight(self.instance, StagePlan(tuple(made), data_edges(self.instance, made)))
        self._next(plan, [stages[s] for s in order], least, [])

    def _next(self, plan: StagePlan, masks: list[int], least: list[int], held: list[tuple[int, ...]]) -> None:
        """Devices of the stages from the first without any on."""
        self._poll()
        number, instance = len(held), self.instance
        stages = tuple(
            Stage(s.nodes, len(own), s.microbatch, s.in_flight, device_ids=own)
            for s, own in zip(plan.stages, held, strict=False)
        )
        if any(self._takes(s, masks, stages) >= self.best_s * (1 - _ROUNDING) for s in range(number)):
            return
        if number == len(plan.stages):
            found = StagePlan(stages, plan.edges, instance.num_devices - sum(map(len, held)))
            if not violations(instance, found) and (value := evaluate(instance, found)) < self.best_s:
                self.best_s = value
                self.watch.plan(found, value)
            return
        free = [u for u in range(instance.num_devices) if all(u not in own for own in held)]
        most = min(self.microbatch, len(free) - sum(least[number + 1 :]))
        stage = plan.stages[number]
        for r in range(least[number], most + 1):
            bytes_needed = memory_bytes(instance, Stage(stage.nodes, r, stage.microbatch, stage.in_flight))
            fits = [u for u in free if instance.memory_of(u) >= bytes_needed]
            for own in self._distinct(fits, r):
                self._next(plan, masks, least, [*held, own])

    def _distinct(self, free: list[int], r: int) -> Iterator[tuple[int, ...]]:
        """Sets of r devices, of those that differ in equal devices the first one."""
        seen = set()
        for own in itertools.combinations(free, r):
            kinds = tuple(sorted(self.kind[u] for u in own))
            if kinds not in seen:
                seen.add(kinds)
                yield own

    def _takes(self, number: int, masks: list[int], stages: tuple[Stage, ...]) -> float:
        """Seconds per sample of a stage at least; ``inf`` where a link is missing."""
        instance, nodes, own = self.instance, masks[number], stages[number].device_ids
        n = -(-self.microbatch // len(own))
        moved = 0.0
        for edge in instance.edges:
            outside = {edge.source, edge.target} - set(stages[number].nodes)
            if len(outside) != 1:
                continue
            other = next((s for s, each in enumerate(stages) if not outside.isdisjoint(each.nodes)), None)
            rate = self.costs.instance.bandwidth_bytes_per_s
            if other is not None:
                rate = min(self.rate[u][v] for u in own for v in stages[other].device_ids)
            moved += 2 * (instance.latency_s + edge.bytes_per_sample * n / rate) if rate else math.inf
        ring = 0.0
        if len(own) > 1:
            slowest = min(self.rate[u][v] for u, v in itertools.combinations(own, 2))
            volume = 2 * (len(own) - 1) / len(own) * self.costs.sums(nodes).weight_bytes
            ring = volume / slowest + 2 * len(own) * instance.latency_s if slowest else math.inf
        return (self.costs.compute_s(nodes, n) + moved) / self.microbatch + ring / instance.minibatch


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:  # noqa: ARG001
    """The optimum of a small model on a device graph with one micro-batch size."""
    watch.bound(simple_bound(Costs(identical(instance))), Prover.BOUNDS)
    if short := shortage(instance):
        return infeasible_by_counting(short)
    search = DeviceSets(instance, watch)
    try:
        for microbatch in reversed(instance.microbatch_sizes):
            search.search(microbatch)
    except StoppedError:
        return Answer(watch.incumbent()[0], stop=watch.why(), stats={"nodes": search.nodes})
    plan, stats = watch.incumbent()[0], {"nodes": search.nodes}
    if plan is None:
        return Answer(
            infeasible=True, stop=Stop.PROVED, stats=stats, reason="no partition fits into memory on linked devices"
        )
    return Answer(plan, bound=search.best_s * (1 - 2 * _ROUNDING), stop=Stop.PROVED, stats=stats)
