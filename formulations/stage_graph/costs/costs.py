"""What stages cost, shared by the methods: operator sets are bitsets (bit v is operator v), devices are identical.

The formulas are those of ``definition/problem.py``; a sum over a set is computed once and kept.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from formulations.contract.rounding import bytes_text
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import data_edges, held_samples, least_in_flight, replica_samples
from instances.graph import topological_order
from instances.problems.stage_graph import AffineTime, Shard, StageGraph


def bits(nodes: int) -> Iterator[int]:
    """The operators of a bitset, ascending."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


@dataclass(slots=True)
class Sums:
    """Sums over a set of operators.

    ``fixed_s + per_sample_s * n`` are the seconds of both passes of the operators with affine times; ``tables`` the
    others. ``cut_bytes`` per sample and ``cut_edges`` cross the set's border; ``kept_bytes`` per sample stay from the
    forward to the backward pass.
    """

    fixed_s: float
    per_sample_s: float
    tables: tuple[int, ...]
    weight_bytes: float
    kept_bytes: float
    cut_bytes: float
    cut_edges: int
    steps: dict[int, float] = field(default_factory=dict)


class Costs:
    """Costs of the stages of an instance without a device graph.

    ``successors``, ``predecessors``: ``successors[v]`` is the bitset of the operators that take v's output.
    ``above``, ``below``: ``above[v]`` is the bitset of all operators that v leads to, ``below[v]`` of all that lead to
    v; v left out.
    ``everything``: the bitset of all operators.
    ``shards``, ``lacking``: what each of the ``tp_degree`` devices of a replica takes of each operator, and the bitset
    of those that do not declare the degree: no stage of that degree has these. Without ``tp_degree`` everything is of
    degree 1.
    ``affine``: fixed seconds and seconds per sample of both passes of each operator; ``None`` where a table gives them.
    What devices of a replica all-reduce in them is apart (`reduces`).
    """

    def __init__(self, instance: StageGraph, tp_degree: int = 1) -> None:
        if instance.device_graph is not None:
            raise ValueError("devices are declared one by one; expected identical devices")
        self.instance, self.tp_degree = instance, tp_degree
        count = instance.num_operators
        self.everything = (1 << count) - 1
        self.shards = [each.shards.get(tp_degree, each.shards[1]) for each in instance.operators]
        self.lacking = sum(1 << v for v, each in enumerate(instance.operators) if tp_degree not in each.shards)
        self.reduces = [_reduction(instance, shard) for shard in self.shards]
        self.successors, self.predecessors = [0] * count, [0] * count
        self.above, self.below = [0] * count, [0] * count
        self._in: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        self._out: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        for edge in sorted(instance.edges, key=lambda each: each.source):
            self.successors[edge.source] |= 1 << edge.target
            self.predecessors[edge.target] |= 1 << edge.source
            self.below[edge.target] |= self.below[edge.source] | 1 << edge.source
            self._in[edge.target].append((edge.source, edge.bytes_per_sample))
            self._out[edge.source].append((edge.target, edge.bytes_per_sample))
        for edge in sorted(instance.edges, key=lambda each: -each.target):
            self.above[edge.source] |= self.above[edge.target] | 1 << edge.target
        self.affine = [_affine(each.forward, each.backward) for each in self.shards]
        self._sums: dict[int, Sums] = {}

    def sums(self, nodes: int) -> Sums:
        """Sums over a set of operators, computed once."""
        found = self._sums.get(nodes)
        if found is None:
            found = self._sums[nodes] = self._sum(nodes)
        return found

    def _sum(self, nodes: int) -> Sums:
        members = list(bits(nodes))
        shards = self.shards
        affine = [each for v in members for each in (self.affine[v], self.reduces[v]) if each is not None]
        incoming = [(size, shards[v].spread_inputs) for v in members for u, size in self._in[v] if not nodes >> u & 1]
        outgoing = [(size, shards[v].spread_outputs) for v in members for w, size in self._out[v] if not nodes >> w & 1]
        return Sums(
            fixed_s=math.fsum(fixed for fixed, _ in affine),
            per_sample_s=math.fsum(per_sample for _, per_sample in affine),
            tables=tuple(v for v in members if self.affine[v] is None),
            weight_bytes=math.fsum(shards[v].weight_bytes for v in members),
            kept_bytes=math.fsum([*(shards[v].activation_bytes for v in members), *(size for size, _ in incoming)]),
            cut_bytes=math.fsum(size * (1 + spread) for size, spread in [*incoming, *outgoing]),
            cut_edges=len(incoming) + len(outgoing),
        )

    def edges_of(self, node: int) -> list[tuple[str, int, float]]:
        """The operator's edges: ``in`` or ``out``, the other end, bytes per sample."""
        incoming = [("in", other, size) for other, size in self._in[node]]
        return incoming + [("out", other, size) for other, size in self._out[node]]

    def cut(self, nodes: int) -> tuple[float, int]:
        """Bytes per sample on edges with exactly one end in the set, and how many such edges there are."""
        found = self.sums(nodes)
        return found.cut_bytes, found.cut_edges

    def compute_s(self, nodes: int, samples: int) -> float:
        """Seconds of both passes of so many samples on one device."""
        found = self.sums(nodes)
        seconds = found.fixed_s + found.per_sample_s * samples
        for v in found.tables:
            seconds += self.shards[v].forward.at(samples) + self.shards[v].backward.at(samples)
        return seconds

    def step(self, nodes: int, microbatch: int, devices: int) -> float:
        """Seconds of both passes of a micro-batch, and of its tensors that cross the border, in both directions."""
        samples = replica_samples(microbatch, devices)
        found = self.sums(nodes)
        seconds = found.steps.get(samples)
        if seconds is None:
            moved = found.cut_bytes * samples / self.instance.bandwidth_bytes_per_s
            sent = 2 * (moved + found.cut_edges * self.instance.latency_s)
            seconds = found.steps[samples] = self.compute_s(nodes, samples) + sent
        return seconds

    def all_reduce(self, nodes: int, devices: int) -> float:
        """Seconds of the all-reduce of an iteration."""
        if devices == 1:
            return 0.0
        volume = 2 * (devices - 1) / devices * self.sums(nodes).weight_bytes
        bandwidth = self.instance.reduce_bandwidth(devices * self.tp_degree)
        return volume / bandwidth + 2 * devices * self.instance.latency_s

    def tps(self, nodes: int, microbatch: int, devices: int) -> float:
        """Seconds per sample of a stage."""
        share = self.all_reduce(nodes, devices) / self.instance.minibatch
        return self.step(nodes, microbatch, devices) / microbatch + share

    def memory(self, nodes: int, microbatch: int, devices: int, in_flight: int) -> float:
        """Bytes on the fullest device of a stage with so many samples in flight."""
        found = self.sums(nodes)
        held = held_samples(self.instance.minibatch, microbatch, devices, in_flight)
        return self.instance.weight_copies * found.weight_bytes + held * found.kept_bytes

    def need(
        self, nodes: int, microbatch: int, in_flight: int, target_s: float, degrees: Sequence[int] | None = None
    ) -> int | None:
        """Fewest devices with which a stage keeps the target time per sample and fits; ``None`` if none do.

        ``degrees`` are tried in ascending order (default: 1 to D); a replica without a sample is not allowed.
        """
        for devices in degrees or range(1, self.instance.num_devices + 1):
            if devices > microbatch:
                return None
            fits = self.memory(nodes, microbatch, devices, in_flight) <= self.instance.memory_bytes
            if fits and self.tps(nodes, microbatch, devices) <= target_s:
                return devices
        return None

    def work_s(self, nodes: int) -> float:
        """Least seconds per sample that a set of operators takes on one device, at any micro-batch size."""
        largest = max(self.instance.microbatch_sizes)
        return self.compute_s(nodes, largest) / largest


def identical(instance: StageGraph) -> StageGraph:
    """An instance with identical devices on which no plan is slower or needs more memory."""
    graph = instance.device_graph
    if graph is None:
        return instance
    fastest = max(max(row) for row in graph.bandwidth_bytes_per_s) or 1.0
    return replace(
        instance,
        device_graph=None,
        memory_bytes=max(graph.memory_bytes),
        bandwidth_bytes_per_s=fastest,
        inner_bandwidth_bytes_per_s=None,
        devices_per_node=None,
    )


def shortage(instance: StageGraph) -> str:
    """Why no plan fits into memory, whatever its stages; empty where that is not plain to see.

    A device of a stage holds at least one sample of it, so the devices of a replica together hold all shards of the
    weights' copies and of a sample's activations at least; tensors between operators may stay inside the stage.
    """
    rooms = [instance.memory_of(device) for device in range(instance.num_devices)]
    shards = [[each.shards[t] for t in instance.tp_degrees if t in each.shards] for each in instance.operators]
    each_t = [[(s.degree, instance.weight_copies * s.weight_bytes + s.activation_bytes) for s in own] for own in shards]
    held = [min(size for _, size in own) for own in each_t]
    together = [min(t * size for t, size in own) for own in each_t]
    largest = max(range(len(held)), key=held.__getitem__)
    if held[largest] > max(rooms):
        name, need, there = instance.operators[largest].name, bytes_text(held[largest]), bytes_text(max(rooms))
        return f"operator {name} alone needs {need}; the largest device has {there}"
    if math.fsum(together) * (1 - 1e-12) > math.fsum(rooms):
        need, there = bytes_text(math.fsum(together)), bytes_text(math.fsum(rooms))
        return f"the model needs {need} at least; all devices have {there}"
    return ""


def _reduction(instance: StageGraph, shard: Shard) -> tuple[float, float] | None:
    """Fixed seconds and seconds per sample of what devices of a replica all-reduce in both passes, if anything."""
    t = shard.degree
    if not shard.reduced_bytes:
        return None
    return 4 * t * instance.latency_s, 4 * (t - 1) / t * shard.reduced_bytes / instance.reduce_bandwidth(t)


def _affine(*times: object) -> tuple[float, float] | None:
    if not all(isinstance(time, AffineTime) for time in times):
        return None
    both = [time for time in times if isinstance(time, AffineTime)]
    return sum(time.fixed_s for time in both), sum(time.per_sample_s for time in both)


def assemble(
    instance: StageGraph,
    parts: Sequence[tuple[int, int]],
    microbatch: int,
    *,
    sequential: bool = False,
    tp_degrees: Sequence[int] = (),
) -> StagePlan:
    """The plan of these stages (operators as a bitset, devices) at one micro-batch size, with the least in flight.

    ``tp_degrees`` are those of the stages, if not 1.

    ``sequential``: every stage waits for the one before it in the order given, as in a sequential pipeline.

    `ValueError` if the stages wait for each other.
    """
    stages = [
        Stage(tuple(bits(nodes)), devices, microbatch, microbatch, tp_degree=t)
        for (nodes, devices), t in zip(parts, tp_degrees or (1,) * len(parts), strict=True)
    ]
    edges = set(data_edges(instance, stages))
    if sequential:
        edges |= {(index, index + 1) for index in range(len(stages) - 1)}
    idle = instance.num_devices - sum(stage.devices for stage in stages)
    return with_in_flight(instance, StagePlan(tuple(stages), tuple(sorted(edges)), idle))


def with_in_flight(instance: StageGraph, plan: StagePlan) -> StagePlan:
    """The plan with the least samples in flight, from the last stages to the first; `ValueError` if it has a cycle."""

    order = topological_order(len(plan.stages), plan.edges)
    if len(order) < len(plan.stages):
        raise ValueError("the stages wait for each other")
    stages = list(plan.stages)
    for index in order[::-1]:
        least = least_in_flight(instance, replace(plan, stages=tuple(stages)), index)
        stages[index] = replace(stages[index], in_flight=least)
    return replace(plan, stages=tuple(stages))
