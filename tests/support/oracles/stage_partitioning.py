"""Brute force for tiny stage-partitioning instances: every plan, priced by formulas of its own.

Shares no code with the rooms. Source of the formulas: Piper, sections 3.5 and 4; for the released program's cost, its
behaviour (the synchronisation of weights is charged once per batch).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from instances.problems.stage_partitioning import StageInstance
from instances.rules import NodeId


@dataclass(frozen=True)
class Best:
    """A plan of least time: stages (nodes, d, t, TMPC id per node) from the input side on."""

    time: float
    stages: tuple[tuple[tuple[NodeId, ...], int, int, tuple[str, ...]], ...]


class BruteForce:
    """Walks over all ordered partitions into stages from the output side, all degrees and all TMPC choices.

    Only what cannot win is skipped: a stage that is infeasible or not faster than the best plan has no place in a
    better one, and neither the devices nor the micro-batches used ever shrink.
    """

    def __init__(self, instance: StageInstance) -> None:
        self.instance = instance
        self.nodes = [layer.id for layer in instance.layers]
        self.tmpcs = {layer.id: layer.tmpcs for layer in instance.layers}
        self.after = {v: {e.target for e in instance.edges if e.source == v} for v in self.nodes}
        self.best: Best | None = None
        self.priced: dict[tuple[frozenset[NodeId], int, int, int], tuple[float, tuple[str, ...]] | None] = {}

    def solve(self) -> Best | None:
        """A best plan, or ``None`` if no plan is feasible."""
        self._extend(frozenset(), 0, 0, 0.0, ())
        return self.best

    def _extend(self, done: frozenset[NodeId], devices: int, s: int, time: float, stages: tuple) -> None:
        inst = self.instance
        if len(done) == len(self.nodes):
            if not inst.exactly or s == inst.num_microbatches:
                self.best = Best(time, stages)
            return
        for stage in self._last_stages(done):
            for d, t in self._degrees(devices, s):
                found = self._price(stage, d, t, -(-(s + d) // d))
                if found is None or (self.best is not None and max(time, found[0]) >= self.best.time):
                    continue
                entry = (tuple(sorted(stage, key=str)), d, t, found[1])
                self._extend(done | stage, devices + d * t, s + d, max(time, found[0]), (entry, *stages))

    def _last_stages(self, done: frozenset[NodeId]) -> Iterator[frozenset[NodeId]]:
        """Sets of nodes that can be the last stage before the nodes done: all their successors are in them or done."""
        left = [v for v in self.nodes if v not in done]
        for size in range(1, len(left) + 1):
            for chosen in combinations(left, size):
                stage = frozenset(chosen)
                if all(self.after[v] <= stage | done for v in stage):
                    yield stage

    def _degrees(self, devices: int, s: int) -> Iterator[tuple[int, int]]:
        inst = self.instance
        for d in range(1, inst.num_microbatches - s + 1):
            if inst.cost_model != "paper" and inst.num_microbatches % d:
                continue
            if inst.max_dp_degree is not None and d > inst.max_dp_degree:
                continue
            for t in range(1, (inst.num_devices - devices) // d + 1):
                yield d, t

    def _price(self, stage: frozenset[NodeId], d: int, t: int, y: int) -> tuple[float, tuple[str, ...]] | None:
        """Least time of a stage with y micro-batches in flight, and its TMPCs (nodes sorted by text)."""
        key = (stage, d, t, y)
        if key not in self.priced:
            self.priced[key] = self._cheapest(stage, d, t, y)
        return self.priced[key]

    def _cheapest(self, stage: frozenset[NodeId], d: int, t: int, y: int) -> tuple[float, tuple[str, ...]] | None:
        nodes = sorted(stage, key=str)
        best: tuple[float, tuple[str, ...]] | None = None
        for choice in product(*(self.tmpcs[v].get(t, ()) for v in nodes)):
            memory = _memory(self.instance, dict(zip(nodes, choice, strict=True)), y)
            if memory > self.instance.memory_bytes * (1 + 1e-12):
                continue
            time = sum(self._share(stage, v, x, d) for v, x in zip(nodes, choice, strict=True))
            if best is None or time < best[0]:
                best = time, tuple(x.id for x in choice)
        return best

    def _share(self, stage: frozenset[NodeId], v: NodeId, x, d: int) -> float:
        """What node v adds to its stage's time with TMPC x."""
        inst = self.instance
        volume = 0.0
        for edge in inst.edges:
            if edge.target == v and edge.source not in stage:
                volume += 2 * (edge.bytes + x.sync_forward_bytes.get(edge.source, 0.0))
            if edge.source == v and edge.target not in stage:
                volume += 2 * (edge.bytes + x.sync_backward_bytes.get(edge.target, 0.0))
        per_sample = d if inst.cost_model == "paper" else inst.num_microbatches
        weights = 4 * x.weight_bytes * (d - 1) / d / per_sample
        return x.time / d + (volume / d + weights) / inst.bandwidth


def _memory(instance: StageInstance, chosen: dict[NodeId, Any], y: int) -> float:
    """Bytes of a stage with y micro-batches in flight; a tensor of several layers is held once where one of them is."""
    total = sum(x.activation_bytes * y + x.static_bytes for x in chosen.values())
    if instance.cost_model == "runtime":
        for tensor in instance.kept:
            here = [v for v in tensor.layers if v in chosen]
            if tensor.layers[0] not in chosen and here and chosen[here[0]].id in tensor.tmpcs:
                total += tensor.bytes * y
    return total


def brute_force(instance: StageInstance) -> Best | None:
    """An optimal plan of a tiny instance (up to about 6 nodes and 6 devices), or ``None`` if there is none."""
    return BruteForce(instance).solve()


def plans(instance: StageInstance) -> Iterator[dict[str, Any]]:
    """Every plan whose stages fit, in JSON form."""
    walk = BruteForce(instance)

    def extended(done: frozenset[NodeId], devices: int, s: int, stages: list[dict[str, Any]]) -> Iterator[Any]:
        if len(done) == len(walk.nodes):
            if not instance.exactly or s == instance.num_microbatches:
                yield {"stages": stages}
            return
        for stage in walk._last_stages(done):
            for d, t in walk._degrees(devices, s):
                for choice in product(*(walk.tmpcs[v].get(t, ()) for v in stage)):
                    y = -(-(s + d) // d)
                    memory = _memory(instance, dict(zip(stage, choice, strict=True)), y)
                    if memory <= instance.memory_bytes * (1 + 1e-9):
                        tmpcs = {str(v): x.id for v, x in zip(stage, choice, strict=True)}
                        found = {"nodes": list(stage), "dp_degree": d, "tp_degree": t, "tmpcs": tmpcs}
                        yield from extended(done | stage, devices + d * t, s + d, [found, *stages])

    return extended(frozenset(), 0, 0, [])
