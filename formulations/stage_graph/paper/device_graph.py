"""Planners of identical devices on a device graph: which devices does a stage get?

Section 3 gives every device a memory M_v and every link a bandwidth C_e. Algorithm 1 has none of them: its input is
"Computation graph G_C, number of devices |V_D|", Equation 2 has one M, and the partitioner "determines how many devices
to assign to each stage" (section 4). It does not say which. Choices of this project:

- Algorithm 1 sees |V_D| devices of the least memory with the slowest link, so that its stages fit on any devices, and
  they take these in the order of the instance, the first stage the first ones (`in_order`).
- ``graphpipe-plus`` plans for several identical machines, and then looks for better devices (`Placer`).
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from formulations.stage_graph.costs.costs import Costs, identical, with_in_flight
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import (
    all_reduce_s,
    data_edges,
    memory_bytes,
    replica_samples,
    room_bytes,
    violations,
)
from instances.graph import find_cycle
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Watch


def _machine(instance: StageGraph, least_bytes: float, share: float) -> StageGraph:
    """The devices with at least so much memory, as identical ones of the least of it, on links of one bandwidth.

    ``share``: how many of the links between them are slower than that.
    """
    graph = instance.device_graph
    assert graph is not None
    links, devices = (
        graph.bandwidth_bytes_per_s,
        [u for u, each in enumerate(graph.memory_bytes) if each >= least_bytes],
    )
    rates = sorted(each for u, v in itertools.combinations(devices, 2) if (each := min(links[u][v], links[v][u])))
    return replace(
        identical(instance),
        num_devices=len(devices),
        memory_bytes=min(graph.memory_bytes[u] for u in devices),
        bandwidth_bytes_per_s=rates[int(share * (len(rates) - 1))] if rates else 1.0,
    )


def least_machine(instance: StageGraph) -> StageGraph:
    """What Algorithm 1 sees: devices of the least memory, with the slowest link; the instance if they are identical."""
    return instance if instance.device_graph is None else _machine(instance, 0.0, 0.0)


def machines(instance: StageGraph) -> list[StageGraph]:
    """Identical machines that a device graph resembles: least, middle and most of memory, and of bandwidth."""
    assert instance.device_graph is not None
    rooms = sorted(instance.device_graph.memory_bytes)
    shares = (0.0, 0.5, 1.0)
    found = [_machine(instance, rooms[int(share * (len(rooms) - 1))], part) for share in shares for part in shares]
    found += [replace(_machine(instance, 0.0, part), memory_bytes=math.fsum(rooms)) for part in shares]
    return [each for number, each in enumerate(found) if each not in found[:number]]


def in_order(instance: StageGraph, plan: StagePlan | None) -> StagePlan | None:
    """A plan for identical devices with its stages on the devices in order, ``None`` if it breaks a rule so."""
    if plan is None or instance.device_graph is None:
        return plan
    return on_devices(instance, plan, _deal(plan, range(instance.num_devices)))


def _deal(plan: StagePlan, devices: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Devices in this order, by stage, to one stage after another."""
    ends = list(itertools.accumulate(stage.devices for stage in plan.stages))
    return tuple(
        tuple(sorted(devices[end - stage.devices : end])) for stage, end in zip(plan.stages, ends, strict=True)
    )


def on_devices(instance: StageGraph, plan: StagePlan, held: Sequence[tuple[int, ...]]) -> StagePlan | None:
    """The plan with these devices of its stages, ``None`` if it breaks a rule."""
    found = with_in_flight(instance, _hold(instance, plan, held))
    return None if violations(instance, found) else found


def _hold(instance: StageGraph, plan: StagePlan, held: Sequence[tuple[int, ...]]) -> StagePlan:
    stages = [replace(each, devices=len(own), device_ids=own) for each, own in zip(plan.stages, held, strict=True)]
    return replace(plan, stages=tuple(stages), idle_devices=instance.num_devices - sum(map(len, held)))


class Placer:
    """A local search for the devices of a plan's stages, and for operators that move from stage to stage."""

    def __init__(self, instance: StageGraph, watch: Watch) -> None:
        self.instance, self.watch = instance, watch
        self.costs = Costs(identical(instance))
        self._rates: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}

    def place(self, plan: StagePlan) -> StagePlan | None:
        """A plan from these stages on, ``None`` if none of those tried keeps all rules.

        It begins with the devices in order, and with most memory for the stages that need most.
        """
        instance, count = self.instance, len(plan.stages)
        by_memory = sorted(range(instance.num_devices), key=lambda u: (-instance.memory_of(u), u))
        hungry = sorted(range(count), key=lambda s: (-memory_bytes(instance, plan.stages[s]), s))
        dealt = _deal(replace(plan, stages=tuple(plan.stages[s] for s in hungry)), by_memory)
        starts = [_deal(plan, range(instance.num_devices)), tuple(dealt[hungry.index(s)] for s in range(count))]
        begun = [_hold(instance, plan, held) for held in dict.fromkeys(starts)]
        _, best = min((self._descend(each) for each in begun), key=lambda found: found[0])
        return None if violations(instance, best) else best

    def _descend(self, plan: StagePlan) -> tuple[tuple[float, ...], StagePlan]:
        """A local optimum and its score."""
        score, better = self.score(plan), True
        while better:
            better = False
            for other in itertools.chain(self._other_devices(plan), self._other_stages(plan)):
                if self.watch.stopped():
                    return score, plan
                if (value := self.score(other)) < score:
                    score, plan, better = value, other, True
                    break
        return score, plan

    def _rate(self, one: tuple[int, ...], other: tuple[int, ...]) -> float:
        """Bytes per second of the slowest link between two sets of devices; 0 if one is missing."""
        found = self._rates.get((one, other))
        if found is None:
            assert self.instance.device_graph is not None
            links = self.instance.device_graph.bandwidth_bytes_per_s
            pairs = [(u, v) for u in one for v in other if u != v]
            found = self._rates[one, other] = min((min(links[u][v], links[v][u]) for u, v in pairs), default=math.inf)
        return found

    def score(self, plan: StagePlan) -> tuple[float, ...]:
        """Less is better: links that are missing, bytes that do not fit, then times per sample, slowest first."""
        instance, stages, apart, over = self.instance, plan.stages, 0, 0.0
        place = {node: number for number, stage in enumerate(stages) for node in stage.nodes}
        moved = [0.0] * len(stages)
        for edge in instance.edges:
            u, v = place[edge.source], place[edge.target]
            if u != v:
                rate = self._rate(stages[u].device_ids, stages[v].device_ids)
                apart += not rate
                for s in (u, v):
                    samples = replica_samples(stages[s].microbatch, stages[s].devices)
                    moved[s] += 2 * (instance.latency_s + edge.bytes_per_sample * samples / (rate or 1.0))
        times = []
        for stage, sent in zip(stages, moved, strict=True):
            over += max(0.0, memory_bytes(instance, stage) - room_bytes(instance, stage))
            if stage.devices > 1 and not self._rate(stage.device_ids, stage.device_ids):
                apart += 1
                continue
            nodes = sum(1 << node for node in stage.nodes)
            passes = self.costs.compute_s(nodes, replica_samples(stage.microbatch, stage.devices))
            times.append((passes + sent) / stage.microbatch + all_reduce_s(instance, stage) / instance.minibatch)
        return apart, over, *sorted(times, reverse=True)

    def _other_devices(self, plan: StagePlan) -> Iterator[StagePlan]:
        """Two devices change places, or one goes to another stage or idles."""
        owner = {u: s for s, stage in enumerate(plan.stages) for u in stage.device_ids}
        devices, stages = range(self.instance.num_devices), range(len(plan.stages))
        for u, v in itertools.combinations(devices, 2):
            if owner.get(u) != owner.get(v):
                yield self._owned(plan, owner | {u: owner.get(v), v: owner.get(u)})
        for u, s in itertools.product(devices, [*stages, None]):
            mine = owner.get(u)
            spares = mine is None or plan.stages[mine].devices > 1
            if s != mine and spares and (s is None or plan.stages[s].devices < plan.stages[s].microbatch):
                yield self._owned(plan, owner | {u: s})

    def _owned(self, plan: StagePlan, owner: Mapping[int, int | None]) -> StagePlan:
        held = [tuple(sorted(u for u, s in owner.items() if s == stage)) for stage in range(len(plan.stages))]
        return _hold(self.instance, plan, held)

    def _other_stages(self, plan: StagePlan) -> Iterator[StagePlan]:
        """An operator goes to the stage at the other end of one of its tensors, or to a new one on an idle device."""
        used = {u for stage in plan.stages for u in stage.device_ids}
        place = {node: number for number, stage in enumerate(plan.stages) for node in stage.nodes}
        ends = [
            pair for edge in self.instance.edges for pair in ((edge.source, edge.target), (edge.target, edge.source))
        ]
        for node, other in ends:
            if place[node] != place[other]:
                yield from self._moved(plan, node, plan.stages[place[other]])
        for node, u in itertools.product(place, sorted(set(range(self.instance.num_devices)) - used)):
            alone = replace(plan.stages[place[node]], nodes=(), devices=1, device_ids=(u,))
            if len(plan.stages[place[node]].nodes) > 1:
                yield from self._moved(plan, node, alone)

    def _moved(self, plan: StagePlan, node: int, target: Stage) -> Iterator[StagePlan]:
        """The plan with an operator in another stage, unless stages wait for each other then."""
        stages = [
            replace(each, nodes=tuple(sorted({*each.nodes, node} if each is target else {*each.nodes} - {node})))
            for each in (plan.stages if target in plan.stages else (*plan.stages, target))
        ]
        left = tuple(stage for stage in stages if stage.nodes)
        idle = self.instance.num_devices - sum(stage.devices for stage in left)
        edges = data_edges(self.instance, left)
        if not find_cycle(len(left), edges):
            yield with_in_flight(self.instance, StagePlan(left, edges, idle))
