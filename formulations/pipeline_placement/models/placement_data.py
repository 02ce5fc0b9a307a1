"""The numbers that both solvers' models of placement are made of, as the instance declares them."""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import NamedTuple

from formulations.operator_partitioning.models import assignment_data
from instances.problems.pipeline_placement import PlacementInstance
from solvers.outcome import Watch


class Link(NamedTuple):
    """From replica ``r`` of stage ``s`` to replica ``i`` of stage ``q``, which is a later one, or ``s`` in a ring."""

    s: int
    r: int
    q: int
    i: int

    @property
    def ends(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The stage replicas."""
        return (self.s, self.r), (self.q, self.i)

    @property
    def is_ring(self) -> bool:
        """Whether it is between replicas of a stage."""
        return self.s == self.q


@dataclass(frozen=True)
class Data:
    """An instance: operators v, tensors t, stages s and q, R replicas r, devices d and e.

    ``partition``: its first phase.
    ``levels``: the distinct bandwidths, fastest first.
    ``level``: the place in ``levels`` of the link between two devices (d, e), in this order.
    ``volumes``, ``gradients``: bytes of tensors between stages, and of the all-reduce on each link of a ring for
    operators; empty where the objective does not count them.
    ``sent``, ``rings``: links that these cross: by (s, q, r), and by (s, r) of their first end.
    ``top_s``: no stage of interest takes longer, and no step.
    ``earlier``: by (s, r) the replica whose device comes before that of replica r of stage s, without loss of
    generality.
    """

    instance: PlacementInstance
    partition: assignment_data.Data
    levels: list[float]
    level: Mapping[tuple[int, int], int]
    volumes: Mapping[int, float]
    gradients: Mapping[int, float]
    sent: Mapping[tuple[int, ...], Link]
    rings: Mapping[tuple[int, ...], Link]
    top_s: float
    earlier: Mapping[tuple[int, int], int]

    @property
    def stages(self) -> range:
        """All s."""
        return range(self.instance.num_stages)

    @property
    def replicas(self) -> range:
        """All r."""
        return range(self.instance.operators.replicas)

    @property
    def devices(self) -> range:
        """All d."""
        return range(self.instance.num_devices)

    @property
    def links(self) -> list[Link]:
        """All that something may cross."""
        return [*self.sent.values(), *self.rings.values()]


def data_of(instance: PlacementInstance, watch: Watch | None, room: float, *, complete: bool) -> Data:
    """The numbers; plans slower than the watch's best one and ``room`` are of no interest, unless ``complete``.

    Nor are plans that number the replicas of a stage otherwise, which no requirement can tell apart.
    """
    graph, stages, count = instance.operators, range(instance.num_stages), instance.operators.replicas
    speeds, matrix = levels(instance), instance.bandwidth_bytes_per_s
    level = {(d, e): speeds.index(matrix[d][e]) for d, e in permutations(range(len(matrix)), 2)}
    known = None if complete or watch is None else watch.best_objective
    tensors = graph.tensors if instance.objective != "allreduce" else ()
    volumes = {t: tensor.volume_bytes for t, tensor in enumerate(tensors) if tensor.volume_bytes}
    reducing = graph.operators if instance.objective != "p2p" and count > 1 else ()
    share = 2 * (count - 1) / count
    gradients = {v: share * each.parameter_bytes for v, each in enumerate(reducing) if each.parameter_bytes}
    # A ring of two is one link.
    around = range(count if count > 2 else 1) if gradients else ()
    # Where nothing is sent between stages, replicas may be numbered at will in all of them, else in the first one.
    renumbered = () if complete else stages if instance.objective == "allreduce" else stages[:1]
    # Where longer rings go by number, only a rotation keeps each replica's neighbours: then 0 is the first of all.
    by_one = instance.objective == "p2p" or count <= 3
    return Data(
        instance,
        assignment_data.data_of(graph),
        speeds,
        dict(sorted(level.items(), key=operator.itemgetter(1))),
        volumes,
        gradients,
        {(s, q, r): Link(s, r, q, r) for s, q in combinations(stages, 2) if volumes for r in range(count)},
        {(s, r): Link(s, r, s, (r + 1) % count) for s in stages for r in around},
        _largest_time(instance) if known is None else known * (1 + room),
        {(s, r): r - 1 if by_one else 0 for s in renumbered for r in range(1, count)},
    )


def levels(instance: PlacementInstance) -> list[float]:
    """Distinct bandwidths between devices, fastest first."""
    matrix = instance.bandwidth_bytes_per_s
    return sorted({matrix[d][e] for d in range(len(matrix)) for e in range(d)}, reverse=True)


def _largest_time(instance: PlacementInstance) -> float:
    """No stage takes longer than this, and no step, whatever the plan."""
    graph, slowest = instance.operators, 1.0 / min(levels(instance), default=1.0)
    sent = math.fsum(tensor.volume_bytes * max(1, len(tensor.targets)) for tensor in graph.tensors)
    reduced = 2 * math.fsum(operator.parameter_bytes for operator in graph.operators)
    rounds = instance.num_stages + instance.microbatches if instance.objective == "step" else 1
    return (graph.total_compute_s + (2 * sent + reduced) * slowest) * rounds * (1 + 1e-9)
