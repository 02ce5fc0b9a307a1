"""What the direct assignment models share: the instance as flat terms, and the way back to a plan.

A direct model decides for every stage position j (0 is the input side) its degrees (t, d), and for every node its
position and TMPC. Multiplied by d, the time of a stage is linear in those decisions::

    sum p + sum (boundary volume) / B + kappa(d) * sum w  <=  d * T

Source: Piper, sections 3.5 and 4 ("TPS of a fixed configuration"); the models are this project's own.

Symbols: K devices, N micro-batches, S = largest sum of data-parallel degrees, L stage positions, X.p time, X.w weight.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, allowed_dp_degrees
from formulations.stage_partitioning.kernels.tables import Carried, carried_rows
from instances.problems.stage_partitioning import CostModel, StageInstance, Tmpc


@dataclass(frozen=True)
class Option:
    """A TMPC of a node (by position) at a tensor-parallel degree."""

    node: int
    tp_degree: int
    tmpc: Tmpc


@dataclass(frozen=True)
class Crossing:
    """A step of what a node pays for a neighbour outside its stage.

    A stage that runs ``payer`` with one of ``options`` (positions in ``Terms.options``) and does not hold ``other``
    pays ``time / d``. Steps add up, so TMPCs with different synchronisation volumes differ in their number of steps.
    """

    payer: int
    other: int
    options: tuple[int, ...]
    time: float


@dataclass(frozen=True)
class Chosen:
    """A decided stage: its degrees and one option (position in ``Terms.options``) per node."""

    tp_degree: int
    dp_degree: int
    options: tuple[int, ...]


class Terms:
    """The terms of an instance's direct models; times in the instance's unit, sizes in bytes."""

    def __init__(self, instance: StageInstance) -> None:
        self.instance = instance
        K, N = instance.num_devices, instance.num_microbatches
        self.nodes = range(len(instance.layers))
        self.options = tuple(
            Option(node, t, tmpc)
            for node, layer in enumerate(instance.layers)
            for t in instance.tp_degrees
            for tmpc in layer.tmpcs.get(t, ())
        )
        self.max_s = min(N, K)
        self.configs = tuple((t, d) for t in instance.tp_degrees for d in allowed_dp_degrees(instance) if t * d <= K)
        self.dp_degrees = tuple(sorted({d for _, d in self.configs}))
        self.stages = range(min(len(instance.layers), self.max_s))

    @cached_property
    def of_node(self) -> tuple[tuple[int, ...], ...]:
        """Positions of every node's options."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for position, option in enumerate(self.options):
            found[option.node].append(position)
        return tuple(map(tuple, found))

    @cached_property
    def crossings(self) -> tuple[Crossing, ...]:
        """All steps of all boundary costs."""
        found: list[Crossing] = []
        B = self.instance.bandwidth
        for (u, v), edge in zip(self.instance.edge_indices, self.instance.edges, strict=True):
            forward = {o: self.options[o].tmpc.sync_forward_bytes.get(edge.source, 0.0) for o in self.of_node[v]}
            backward = {o: self.options[o].tmpc.sync_backward_bytes.get(edge.target, 0.0) for o in self.of_node[u]}
            found += _steps(v, u, {o: 2 * (edge.bytes + sync) / B for o, sync in forward.items()})
            found += _steps(u, v, {o: 2 * (edge.bytes + sync) / B for o, sync in backward.items()})
        return tuple(found)

    @cached_property
    def carried(self) -> list[Carried]:
        """The activations that layers of several stages keep."""
        return carried_rows(self.instance)

    def resync(self, d: int) -> float:
        """kappa(d): d times the synchronisation time per byte of weights."""
        per = self.instance.num_microbatches if self.instance.cost_model is not CostModel.PAPER else d
        return 4 * (d - 1) / per / self.instance.bandwidth

    def in_flight(self, d: int) -> range:
        """The numbers of micro-batches that a stage of data-parallel degree d may have in flight."""
        return range(1, -(-self.max_s // d) + 1)

    def work(self, option: int) -> float:
        """Device-time t p of an option: no stage runs it in less than work / (t d)."""
        return self.options[option].tp_degree * self.options[option].tmpc.time

    def largest_memory(self, in_flight: int) -> float:
        """Bytes that no stage exceeds with so many micro-batches in flight."""
        most = [
            max((x.activation_bytes * in_flight + x.static_bytes for x in self._tmpcs(v)), default=0.0)
            for v in self.nodes
        ]
        return math.fsum([*most, *(tensor.bytes * in_flight for tensor in self.instance.shared_activations)])

    @cached_property
    def memory_limit(self) -> float:
        """Bytes that fit on a device; no more than any stage takes, as memory may be without a limit."""
        most = self.largest_memory(max(1, self.instance.num_microbatches))
        return min(self.instance.memory_bytes, most) * MEMORY_SLACK

    @cached_property
    def largest_weight(self) -> float:
        """Bytes of weights that no stage exceeds."""
        return math.fsum(max((x.weight_bytes for x in self._tmpcs(v)), default=0.0) for v in self.nodes)

    @cached_property
    def largest_time(self) -> float:
        """A time that no stage of any plan exceeds, feasible or not."""
        compute = math.fsum(max((x.time for x in self._tmpcs(v)), default=0.0) for v in self.nodes)
        volume = math.fsum(crossing.time for crossing in self.crossings)
        return max(
            ((compute + volume + self.resync(d) * self.largest_weight) / d for d in self.dp_degrees), default=0.0
        )

    @cached_property
    def lower_bound(self) -> float:
        """A time that no plan beats: all work spread evenly over all devices, or the slowest node alone.

        Lowered by what sums in another order may differ by.
        """
        if not self.configs or not all(self.of_node):
            return 0.0
        spread = math.fsum(min(map(self.work, found)) for found in self.of_node) / self.instance.num_devices
        return max(spread, *(min(map(self._alone, found)) for found in self.of_node)) * (1 - 1e-12)

    def _alone(self, option: int) -> float:
        x, t = self.options[option].tmpc, self.options[option].tp_degree
        return min((x.time + self.resync(d) * x.weight_bytes) / d for tp, d in self.configs if tp == t)

    def _tmpcs(self, node: int) -> Iterable[Tmpc]:
        return (self.options[option].tmpc for option in self.of_node[node])

    def plan(self, stages: Iterable[Chosen]) -> StagePlan:
        """The plan of decided stages, from the input side on."""
        layers = self.instance.layers
        return StagePlan(
            tuple(
                Stage(
                    nodes=tuple(layers[self.options[o].node].id for o in stage.options),
                    dp_degree=stage.dp_degree,
                    tp_degree=stage.tp_degree,
                    tmpcs={layers[self.options[o].node].id: self.options[o].tmpc.id for o in stage.options},
                )
                for stage in stages
            )
        )

    def decisions_of(self, plan: StagePlan) -> tuple[Chosen, ...]:
        """The decisions that make up a plan; the inverse of ``plan``."""
        position = {
            (self.instance.layers[option.node].id, option.tp_degree, option.tmpc.id): index
            for index, option in enumerate(self.options)
        }
        return tuple(
            Chosen(
                stage.tp_degree,
                stage.dp_degree,
                tuple(position[node, stage.tp_degree, stage.tmpcs[node]] for node in stage.nodes),
            )
            for stage in plan.stages
        )


def _steps(payer: int, other: int, times: Mapping[int, float]) -> list[Crossing]:
    """The payer's boundary times by option, as steps from one distinct time up to the next."""
    found, below = [], 0.0
    for time in sorted(set(times.values())):
        if time > below:
            options = tuple(option for option, own in times.items() if own >= time)
            found.append(Crossing(payer, other, options, time - below))
            below = time
    return found
