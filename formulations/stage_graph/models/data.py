"""An instance in whole units, for the CP-SAT model: what stages take, hold and wait is rounded down, limits up.

So every plan stays feasible and no slower. Symbols are those of docs/problems/stage_graph.md.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from formulations.modelling.solve_model import check_stop
from formulations.stage_graph.definition.problem import held_samples, reduce_s, replica_samples
from formulations.stage_graph.models import cardinality_cuts
from formulations.stage_graph.upsets.branches import largest
from instances.problems.stage_graph import Shard, StageGraph
from solvers.outcome import Watch
from solvers.scaling import Scale, size_scale

#: By ``*r``, and ``*b``: the micro-batch size where the model chooses one, else nothing. ``*r`` is the data-parallel
#: degree, and the tensor-parallel one where operators declare some.
Index = tuple[int, ...]
Units = list[int]


@dataclass(frozen=True)
class Data:
    """What the model is about.

    ``groups``: micro-batch sizes. Of several groups, of one size each, a plan takes one. A group of several is a
    relaxation of all their plans together: each cost is the least of theirs, nothing has a depth, and solutions are no
    plans.
    ``scale``, ``high``: units of time per sample; no plan of interest takes more than ``high`` of them.
    ``declared``: whether plans may keep more samples in flight than they must.
    ``is_beaten``: whether ``high`` is that of a known plan.
    """

    instance: StageGraph
    groups: tuple[tuple[int, ...], ...]
    scale: Scale
    high: int
    watch: Watch = field(default_factory=Watch)
    declared: bool = False
    is_beaten: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """Those of all groups."""
        return tuple(itertools.chain(*self.groups))

    @property
    def is_relaxed(self) -> bool:
        """Whether solutions of the model are no plans."""
        return len(self.groups[0]) > 1

    @property
    def choices(self) -> list[Index]:
        """What ``*b`` may be."""
        return [group if len(self.groups) > 1 else () for group in self.groups]

    @property
    def places(self) -> range:
        """Of stages: no plan has more."""
        return range(min(self.instance.num_operators, self.instance.num_devices))

    @cached_property
    def degrees(self) -> list[Index]:
        """What ``*r`` may be: each replica has a sample. A stage has as many devices as their product."""
        instance, most = self.instance, max(self.sizes)
        return [
            (r, t) if self.is_shared else (r,)
            for t in instance.tp_degrees
            for r in range(1, min(instance.num_devices // t, most) + 1)
        ]

    @property
    def is_shared(self) -> bool:
        """Whether some operators declare tensor-parallel degrees."""
        return len(self.instance.tp_degrees) > 1

    @cached_property
    def kinds(self) -> list[tuple[Index, Index]]:
        """Pairs of ``*r`` and ``*b`` at which each replica has a sample."""
        return [(r, b) for b in self.choices for r in self.degrees if r[0] <= max(b or self.sizes)]

    def shards(self, r: Index) -> list[Shard]:
        """What each device has of the operators; of those that do not declare the degree the whole (`lacking`)."""
        return [each.shards.get(math.prod(r[1:]), each.shards[1]) for each in self.instance.operators]

    @cached_property
    def lacking(self) -> list[tuple[int, Index]]:
        """Operators, and degrees that they do not declare."""
        operators = self.instance.operators
        return [(v, r) for r in self.degrees for v, each in enumerate(operators) if math.prod(r[1:]) not in each.shards]

    def deepest(self, size: int) -> int:
        """The largest depth that is of interest at a size: a path of all stages, or the whole mini-batch."""
        whole = -(-self.instance.minibatch // size)
        return 1 if self.is_relaxed else whole if self.declared else min(len(self.places), whole)

    @property
    def depths(self) -> range:
        """Micro-batches in flight at a stage."""
        return range(1, max(map(self.deepest, self.sizes)) + 1)

    @cached_property
    def rates(self) -> dict[tuple[int, int], float]:
        """Bandwidth between two devices in the slower direction, as gradients go back; 0 for no link."""
        graph = self.instance.device_graph
        links = graph.bandwidth_bytes_per_s if graph is not None else ()
        return {(u, v): min(links[u][v], links[v][u]) for u, v in itertools.combinations(range(len(links)), 2)}

    @cached_property
    def bandwidths(self) -> list[float]:
        """Of the classes of links, fastest first; identical devices have one class."""
        if self.instance.device_graph is None:
            return [self.instance.bandwidth_bytes_per_s]
        return sorted({each for each in self.rates.values() if each}, reverse=True) or [1.0]

    def rings(self, r: int) -> list[float]:
        """Bandwidths of an all-reduce among r devices, by the class of its slowest link."""
        return [self.instance.reduce_bandwidth(r)] if self.instance.device_graph is None else self.bandwidths

    def _usable(self, degree: int, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
        """Sizes of which some is the fastest, each with the samples of the fullest of so many replicas."""
        check_stop(self.watch)
        return [(size, replica_samples(size, degree)) for size in largest(sizes) if size >= degree]

    def _passes_s(self, r: Index, sizes: tuple[int, ...]) -> list[float]:
        instance, usable = self.instance, self._usable(r[0], sizes)
        return [
            min((s.forward.at(n) + s.backward.at(n) + 2 * reduce_s(instance, s, n)) / b for b, n in usable)
            for s in self.shards(r)
        ]

    def _sending_s(self, bandwidth: float, degree: int, sizes: tuple[int, ...]) -> list[float]:
        """Twice: the tensor in the forward pass, its gradient in the backward pass."""
        latency, usable = self.instance.latency_s, self._usable(degree, sizes)
        tensors = [edge.bytes_per_sample for edge in self.instance.edges]
        return [min(2 * (latency + size * n / bandwidth) / b for b, n in usable) for size in tensors]

    @cached_property
    def passes(self) -> dict[Index, Units]:
        """``passes[*r, c, *b]``: floor(phi_v(b,r) + rho_r w_v) of each operator, the ring's slowest link of class c."""
        found = {}
        for r, b in self.kinds:
            seconds = self._passes_s(r, b or self.sizes)
            for c, bandwidth in enumerate(self.rings(math.prod(r))):
                reducing = 2 * (r[0] - 1) / r[0] / self.instance.minibatch / bandwidth
                found[*r, c, *b] = [
                    self.scale.floor(each + shard.weight_bytes * reducing)
                    for each, shard in zip(seconds, self.shards(r), strict=True)
                ]
        return found

    @cached_property
    def sending(self) -> dict[Index, Units]:
        """``sending[*r, c, *b]``: floor(psi_e(b,r)) of each edge over a link of class 0, then what class c adds."""
        found = {}
        for r, b in self.kinds:
            before = [0] * len(self.instance.edges)
            for c, bandwidth in enumerate(self.bandwidths):
                units = [*map(self.scale.floor, self._sending_s(bandwidth, r[0], b or self.sizes))]
                found[*r, c, *b] = [here - faster for here, faster in zip(units, before, strict=True)]
                before = units
        return found

    @cached_property
    def spreading(self) -> dict[Index, tuple[Units, Units]]:
        """``spreading[*r, *b]``: what each edge takes besides at its source and at its target, where devices share."""
        found = {}
        for r, b in self.kinds if self.is_shared else ():
            shards, edges = self.shards(r), self.instance.edges
            usable = self._usable(r[0], b or self.sizes)
            once = min(2 * n / size for size, n in usable) / self.instance.bandwidth_bytes_per_s
            left = [self.scale.floor(e.bytes_per_sample * shards[e.source].spread_outputs * once) for e in edges]
            entered = [self.scale.floor(e.bytes_per_sample * shards[e.target].spread_inputs * once) for e in edges]
            found[*r, *b] = left, entered
        return found

    def waiting(self, r: Sequence[int], times: int = 1) -> int:
        """floor(times lambda_r): an all-reduce of r replicas waits for 2 r latencies once in a mini-batch."""
        seconds = 2 * times * r[0] * self.instance.latency_s / self.instance.minibatch
        return self.scale.floor(seconds) if r[0] > 1 else 0

    @cached_property
    def work(self) -> tuple[int, Units, int]:
        """What all devices do at least: all passes, what a cut edge adds, and units that rounding takes off a stage."""
        # A tensor between stages is sent at both its ends; less than a unit is lost of each term of a stage's row.
        cut = [self.scale.floor(2 * each) for each in self._sending_s(self.bandwidths[0], 1, self.sizes)]
        lost = self.instance.num_operators + 3 * len(self.instance.edges) + 2
        alone = {r: self._passes_s(r, self.sizes) for r in self.degrees if r[0] == 1}
        lacking = set(self.lacking)
        least = [min(math.prod(r) * each[v] for r, each in alone.items() if (v, r) not in lacking)
                 for v in range(self.instance.num_operators)]  # fmt: skip
        return self.scale.floor(math.fsum(least)), cut, lost

    def _bytes(self, r: Index) -> tuple[list[float], list[float], list[float]]:
        instance, shards = self.instance, self.shards(r)
        return (
            [instance.weight_copies * each.weight_bytes for each in shards],
            [each.activation_bytes for each in shards],
            [edge.bytes_per_sample for edge in instance.edges],
        )

    @cached_property
    def _byte(self) -> Scale:
        instance, every = self.instance, [self._bytes(r) for r in self.degrees if r[0] == 1]
        rooms = {instance.memory_of(device) for device in range(instance.num_devices)}
        sizes = [size for kinds in every for sizes in kinds for size in sizes]
        most = max(math.fsum(copies) + instance.minibatch * math.fsum([*kept, *sent]) for copies, kept, sent in every)
        return size_scale([*sizes, *rooms], max(rooms), most)

    @cached_property
    def byte_units(self) -> dict[Index, tuple[Units, Units, Units]]:
        """By ``*r``, of operators: copies of the weights, and what a sample keeps; of edges: a sample's tensor."""
        found = {}
        for r in self.degrees:
            copies, kept, sent = ([*map(self._byte.floor, each)] for each in self._bytes(r))
            found[r] = copies, kept, sent
        return found

    @cached_property
    def rooms(self) -> dict[Index, int]:
        """``rooms[*u]``: memory of device u; of every one, as ``rooms[()]``, where devices are identical."""
        graph = self.instance.device_graph
        memory = (
            {(): self.instance.memory_bytes} if graph is None else {(u,): m for u, m in enumerate(graph.memory_bytes)}
        )
        return {u: self._byte.ceil(each) for u, each in memory.items()}

    @cached_property
    def samples(self) -> dict[Index, int]:
        """``samples[*r, d, *b]``: samples at least on the fullest of r replicas at depth d, unless all fits."""
        instance, found = self.instance, {}
        room = min(instance.memory_of(device) for device in range(instance.num_devices))
        for r, b in self.kinds:
            copies, kept, sent = self._bytes(r)
            sizes = [size for size in b or self.sizes if size >= r[0]]
            for d in range(1, self.deepest(b[0] if b else self.sizes[0]) + 1):
                samples = min(held_samples(instance.minibatch, size, r[0], d * size) for size in sizes)
                if math.fsum(copies) + samples * math.fsum([*kept, *sent]) > room:
                    found[*r, d, *b] = samples
        return found

    @cached_property
    def capacities(self) -> list[tuple[list[int], dict[int, int]]]:
        """Sets of operators, and how many of them a stage of r devices has at most within a known plan's time."""
        if not self.is_beaten or len(self.groups) > 1 or self.instance.device_graph is not None or self.is_shared:
            return []
        stages = {
            r[0]: cardinality_cuts.Stage(self.passes[*r, 0], self.sending[*r, 0], self.waiting(r)) for r in self.degrees
        }
        return cardinality_cuts.capacities(self.instance, stages, self.high, self.watch)


def longest_s(instance: StageGraph) -> float:
    """Seconds per sample that no stage exceeds, if it has links and samples for all of its devices."""
    slowest = min(instance.bandwidth_bytes_per_s, instance.inner_bandwidth_bytes_per_s or math.inf)
    if instance.device_graph is not None:
        slowest = min((b for row in instance.device_graph.bandwidth_bytes_per_s for b in row if b), default=1.0)
    shards = [each.shards.values() for each in instance.operators]
    passes = math.fsum(
        max(s.forward.at(1) + s.backward.at(1) + 2 * reduce_s(instance, s, 1) for s in own) for own in shards
    )
    spread = 1 + max(max(s.spread_inputs, s.spread_outputs) for own in shards for s in own)
    sent = math.fsum(2 * (instance.latency_s + edge.bytes_per_sample * spread / slowest) for edge in instance.edges)
    reduced = 2 * math.fsum(max(s.weight_bytes for s in own) for own in shards) / slowest
    return passes + sent + reduced + 2 * instance.num_devices * instance.latency_s
