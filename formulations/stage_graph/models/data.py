"""An instance in whole units, for the CP-SAT model: what stages take, hold and wait is rounded down, limits up.

So every plan stays feasible and no slower. Symbols are those of docs/problems/stage_graph.md.
"""

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property

from formulations.modelling.solve_model import check_stop
from formulations.stage_graph.definition.problem import held_samples, replica_samples
from formulations.stage_graph.models import cardinality_cuts
from formulations.stage_graph.upsets.branches import largest
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Watch
from solvers.scaling import Scale, size_scale

#: By degree r, and ``*b``: the micro-batch size where the model chooses one, else nothing.
Index = tuple[int, ...]
Units = list[int]


@dataclass(frozen=True)
class Data:
    """What the model is about.

    Parameters
    ----------
    groups
        Micro-batch sizes. Of several groups, of one size each, a plan takes one. A group of several is a relaxation of
        all their plans together: each cost is the least of theirs, nothing has a depth, and solutions are no plans.
    scale, high
        Units of time per sample; no plan of interest takes more than ``high`` of them.
    declared
        Whether plans may keep more samples in flight than they must.
    is_beaten
        Whether ``high`` is that of a known plan.
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

    @property
    def degrees(self) -> range:
        """Numbers of devices of a stage, each of which has a sample."""
        return range(1, min(self.instance.num_devices, max(self.sizes)) + 1)

    @cached_property
    def kinds(self) -> list[Index]:
        """Pairs ``(r, *b)`` of a degree and a size at which each replica has a sample."""
        return [(r, *b) for b in self.choices for r in self.degrees if r <= max(b or self.sizes)]

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

    def _passes_s(self, degree: int, sizes: tuple[int, ...]) -> list[float]:
        usable = self._usable(degree, sizes)
        return [min((o.forward_s(n) + o.backward_s(n)) / b for b, n in usable) for o in self.instance.operators]

    def _sending_s(self, bandwidth: float, degree: int, sizes: tuple[int, ...]) -> list[float]:
        """Twice: the tensor in the forward pass, its gradient in the backward pass."""
        latency, usable = self.instance.latency_s, self._usable(degree, sizes)
        tensors = [edge.bytes_per_sample for edge in self.instance.edges]
        return [min(2 * (latency + size * n / bandwidth) / b for b, n in usable) for size in tensors]

    @cached_property
    def passes(self) -> dict[Index, Units]:
        """``passes[r, c, *b]``: floor(phi_v(b,r) + rho_r w_v) of each operator, the ring's slowest link of class c."""
        found = {}
        for r, *b in self.kinds:
            seconds = self._passes_s(r, tuple(b) or self.sizes)
            for c, bandwidth in enumerate(self.rings(r)):
                reducing = 2 * (r - 1) / r / self.instance.minibatch / bandwidth
                found[r, c, *b] = [
                    self.scale.floor(each + operator.weight_bytes * reducing)
                    for each, operator in zip(seconds, self.instance.operators, strict=True)
                ]
        return found

    @cached_property
    def sending(self) -> dict[Index, Units]:
        """``sending[r, c, *b]``: floor(psi_e(b,r)) of each edge over a link of class 0, then what class c adds."""
        found = {}
        for r, *b in self.kinds:
            before = [0] * len(self.instance.edges)
            for c, bandwidth in enumerate(self.bandwidths):
                units = [*map(self.scale.floor, self._sending_s(bandwidth, r, tuple(b) or self.sizes))]
                found[r, c, *b] = [here - faster for here, faster in zip(units, before, strict=True)]
                before = units
        return found

    def waiting(self, r: int, times: int = 1) -> int:
        """floor(times lambda_r): an all-reduce waits for 2 r latencies once in a mini-batch."""
        seconds = 2 * times * r * self.instance.latency_s / self.instance.minibatch
        return self.scale.floor(seconds) if r > 1 else 0

    @cached_property
    def work(self) -> tuple[int, Units, int]:
        """What all devices do at least: all passes, what a cut edge adds, and units that rounding takes off a stage."""
        # A tensor between stages is sent at both its ends; less than a unit is lost of each term of a stage's row.
        cut = [self.scale.floor(2 * each) for each in self._sending_s(self.bandwidths[0], 1, self.sizes)]
        lost = self.instance.num_operators + 3 * len(self.instance.edges) + 2
        return self.scale.floor(math.fsum(self._passes_s(1, self.sizes))), cut, lost

    @property
    def _bytes(self) -> tuple[list[float], list[float], list[float], set[float]]:
        instance = self.instance
        return (
            [instance.weight_copies * each.weight_bytes for each in instance.operators],
            [each.activation_bytes for each in instance.operators],
            [edge.bytes_per_sample for edge in instance.edges],
            {instance.memory_of(device) for device in range(instance.num_devices)},
        )

    @cached_property
    def _byte(self) -> Scale:
        instance = self.instance
        copies, kept, sent, rooms = self._bytes
        most = math.fsum(copies) + instance.minibatch * math.fsum([*kept, *sent])
        return size_scale([*copies, *kept, *sent, *rooms], max(rooms), most)

    @cached_property
    def byte_units(self) -> tuple[Units, Units, Units]:
        """Of operators: copies of the weights, and what a sample keeps; of edges: a sample's tensor."""
        copies, kept, sent, _ = ([*map(self._byte.floor, each)] for each in self._bytes)
        return copies, kept, sent

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
        """``samples[r, d, *b]``: samples at least on the fullest of r replicas at depth d, unless all fits."""
        copies, kept, sent, rooms = self._bytes
        found = {}
        for r, *b in self.kinds:
            sizes = [size for size in b or self.sizes if size >= r]
            for d in range(1, self.deepest(b[0] if b else self.sizes[0]) + 1):
                samples = min(held_samples(self.instance.minibatch, size, r, d * size) for size in sizes)
                if math.fsum(copies) + samples * math.fsum([*kept, *sent]) > min(rooms):
                    found[r, d, *b] = samples
        return found

    @cached_property
    def capacities(self) -> list[tuple[list[int], dict[int, int]]]:
        """Sets of operators, and how many of them a stage of r devices has at most within a known plan's time."""
        if not self.is_beaten or len(self.groups) > 1 or self.instance.device_graph is not None:
            return []
        stages = {
            r: cardinality_cuts.Stage(self.passes[r, 0], self.sending[r, 0], self.waiting(r)) for r in self.degrees
        }
        return cardinality_cuts.capacities(self.instance, stages, self.high, self.watch)


def longest_s(instance: StageGraph) -> float:
    """Seconds per sample that no stage exceeds, if it has links and samples for all of its devices."""
    slowest = min(instance.bandwidth_bytes_per_s, instance.inner_bandwidth_bytes_per_s or math.inf)
    if instance.device_graph is not None:
        slowest = min((b for row in instance.device_graph.bandwidth_bytes_per_s for b in row if b), default=1.0)
    passes = math.fsum(each.forward_s(1) + each.backward_s(1) for each in instance.operators)
    sent = math.fsum(2 * (instance.latency_s + edge.bytes_per_sample / slowest) for edge in instance.edges)
    reduced = 2 * math.fsum(each.weight_bytes for each in instance.operators) / slowest
    return passes + sent + reduced + 2 * instance.num_devices * instance.latency_s
