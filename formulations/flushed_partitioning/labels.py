"""The recursion of Piper with the pipeline's depth in its state, which the paper leaves to future work.

A downset keeps every label (l, s, k, C, R) that no other one beats: l stages, degrees summing to s, k devices, slowest
step C and longest synchronisation R. All five only grow, and the objective and all limits only grow with them, so a
label that is nowhere smaller than another one is never needed. For each depth this is the Pareto set of bottleneck and
synchronisation. Labels that cannot beat the best plan known are dropped, too.

Source: this project; the recursion over downsets is Piper's, section 4. Exact where the TMPCs of a node have the same
weights at one degree t, so that the fastest choice within the memory is also the best one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from formulations.family import Answer
from formulations.flushed_partitioning.problem import evaluate, objective, violations
from formulations.stage_partitioning import exact as flat_exact
from formulations.stage_partitioning.problem import MEMORY_SLACK, Stage, StagePlan, allowed_dp_degrees
from formulations.tmpc_knapsack.kernels import solve_arrays
from instances.flushed_partitioning import FlushedInstance, Schedule
from instances.graph import downsets
from instances.stage_partitioning import Tmpc
from solvers.outcome import Limits, Stop, Watch

#: More downsets than this make more pairs than Python walks over in minutes.
MOST_DOWNSETS = 400

#: A label must beat the best plan by this, relatively.
PRECISION = 1e-9


@dataclass(frozen=True)
class _Label:
    depth: int
    s: int
    devices: int
    bottleneck: float
    synchronisation: float
    stage: Stage | None = None
    rest: _Label | None = None

    def beats(self, other: _Label) -> bool:
        """Nowhere larger."""
        return (
            self.depth <= other.depth
            and self.s <= other.s
            and self.devices <= other.devices
            and self.bottleneck <= other.bottleneck
            and self.synchronisation <= other.synchronisation
        )


def uniform_weights(instance: FlushedInstance) -> bool:
    """Whether the TMPCs of every node at every degree t have the same weights."""
    lists = (found for layer in instance.flat.layers for found in layer.tmpcs.values())
    return all(len({x.weight_bytes for x in found}) <= 1 for found in lists)


class _Search:
    def __init__(self, instance: FlushedInstance, masks: list[int], watch: Watch) -> None:
        self.instance, self.flat, self.watch = instance, instance.flat, watch
        self.masks = sorted(masks, key=int.bit_count)
        self.full = self.masks[-1]
        self.degrees = allowed_dp_degrees(self.flat)
        self.prices: dict[tuple[int, int, int], tuple[float, tuple[str, ...]] | None] = {}
        self.best: StagePlan | None = None
        self.best_time = math.inf
        self.count = 0
        least = [
            min((t * x.time for t, found in layer.tmpcs.items() for x in found), default=math.inf)
            for layer in self.flat.layers
        ]
        self.work = {mask: math.fsum(least[v] for v in _members(mask)) for mask in masks}
        self.lower = self.work[self.full] / self.flat.num_devices * (1 - 1e-12)

    def offer(self, plan: StagePlan | None) -> None:
        """A plan from anywhere: it counts if it is feasible here and better."""
        if plan is None or violations(self.instance, plan):
            return
        time = evaluate(self.instance, plan)
        if time < self.best_time:
            self.best, self.best_time = plan, time
            self.watch.plan(plan, time)

    def run(self) -> bool:
        """Extend all labels; False if stopped."""
        labels: dict[int, list[_Label]] = {mask: [] for mask in self.masks}
        labels[0] = [_Label(0, 0, 0, 0.0, 0.0)]
        for low in self.masks[:-1]:
            larger = [high for high in self.masks if high != low and not low & ~high]
            for label in labels[low]:
                if self.watch.stopped():
                    return False
                for high in larger:
                    for found in self._extensions(label, low, high):
                        self.count += 1
                        if high == self.full:
                            self.offer(_plan(found))
                        else:
                            _insert(labels[high], found)
        return True

    def _extensions(self, label: _Label, low: int, high: int) -> Iterator[_Label]:
        """The label extended by the stage high minus low in front, in every way that may still beat the best plan."""
        flat, stage = self.flat, high & ~low
        for t in flat.tp_degrees:
            for d in self.degrees:
                devices, s = label.devices + d * t, label.s + d
                if devices > flat.num_devices or s > flat.num_microbatches:
                    break
                whole = flat.num_microbatches if self.instance.schedule is Schedule.GPIPE else s
                price = self._price(stage, t, -(-whole // d))
                if price is None:
                    continue
                weight = math.fsum(flat.layers[v].tmpcs[t][0].weight_bytes for v in _members(stage))
                synchronisation = 4 * (d - 1) / d * weight / flat.bandwidth / flat.num_microbatches
                nodes = tuple(flat.layers[v].id for v in _members(stage))
                found = _Label(
                    label.depth + 1,
                    s,
                    devices,
                    max(label.bottleneck, price[0] / d),
                    max(label.synchronisation, synchronisation),
                    Stage(nodes, d, t, dict(zip(nodes, price[1], strict=True))),
                    label,
                )
                if self._promises(found, high):
                    yield found

    def _promises(self, label: _Label, mask: int) -> bool:
        """Whether the label's best completion, if all left devices share all work left, beats the best plan."""
        left, devices = self.work[self.full] - self.work[mask], self.flat.num_devices - label.devices
        more = mask != self.full
        if more and devices < 1:
            return False
        slowest = max(label.bottleneck, self.lower, left / devices * (1 - 1e-12) if more else 0.0)
        time = objective(self.instance, label.depth + more, slowest, label.synchronisation)
        return time < self.best_time * (1 - PRECISION)

    def _price(self, stage: int, t: int, in_flight: int) -> tuple[float, tuple[str, ...]] | None:
        """d times the least step time of a stage within the memory, and its TMPCs; ``None`` if nothing fits."""
        key = (stage, t, in_flight)
        if key not in self.prices:
            self.prices[key] = self._knapsack(stage, t, in_flight)
        return self.prices[key]

    def _knapsack(self, stage: int, t: int, in_flight: int) -> tuple[float, tuple[str, ...]] | None:
        members = _members(stage)
        found = [self.flat.layers[v].tmpcs.get(t, ()) for v in members]
        if not all(found):
            return None
        start = np.cumsum([0, *map(len, found)]).astype(np.int64)
        cost = np.array([self._cost(stage, v, x) for v, own in zip(members, found, strict=True) for x in own], float)
        memory = np.array([x.activation_bytes * in_flight + x.static_bytes for own in found for x in own], float)
        choice = np.zeros(len(members), np.int64)
        limit = self.flat.memory_bytes * MEMORY_SLACK
        time = solve_arrays(start, cost, memory, limit, choice, np.zeros(1, np.uint8))
        if not math.isfinite(time):
            return None
        chosen = [own[int(x)] for own, x in zip(found, choice, strict=True)]
        exact = math.fsum(self._cost(stage, v, x) for v, x in zip(members, chosen, strict=True))
        return exact, tuple(x.id for x in chosen)

    def _cost(self, stage: int, v: int, x: Tmpc) -> float:
        """Time of node v and of its transfers over the stage's boundary."""
        volume = 0.0
        for (u, w), edge in zip(self.flat.edge_indices, self.flat.edges, strict=True):
            if w == v and not stage >> u & 1:
                volume += edge.bytes + x.sync_forward_bytes.get(edge.source, 0.0)
            if u == v and not stage >> w & 1:
                volume += edge.bytes + x.sync_backward_bytes.get(edge.target, 0.0)
        return x.time + 2 * volume / self.flat.bandwidth


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """Least time per sample over all plans, with a proof; starts from the plan that is best without flushes."""
    masks = downsets(len(instance.flat.layers), instance.flat.edge_indices, MOST_DOWNSETS)
    if masks is None:
        return Answer(stop=Stop.SIZE_LIMIT, reason=f"the graph has more than {MOST_DOWNSETS} downsets")
    search = _Search(instance, masks, watch)
    if math.isfinite(search.lower):
        watch.bound(search.lower)
    without = Watch(Limits(time_s=watch.remaining_s()))
    without.flag = watch.flag
    search.offer(flat_exact.solve(instance.flat, limits, without).plan)
    complete = search.run()
    return Answer(
        plan=search.best,
        bound=search.best_time * (1 - PRECISION) if complete and search.best else watch.best_bound,
        infeasible=complete and search.best is None,
        stop=watch.why(),
        reason="no plan fits the devices and their memory" if complete and search.best is None else "",
        stats={"downsets": len(masks), "labels": search.count, "knapsacks": len(search.prices)},
    )


def prepare() -> None:
    """Compile the kernels, or load them from the cache."""
    flat_exact.prepare()
    one = np.ones(1)
    solve_arrays(np.array([0, 1]), one, one, 1.0, np.zeros(1, np.int64), np.zeros(1, np.uint8))


def _members(mask: int) -> list[int]:
    found = []
    while mask:
        bit = mask & -mask
        found.append(bit.bit_length() - 1)
        mask ^= bit
    return found


def _insert(labels: list[_Label], new: _Label) -> None:
    if any(label.beats(new) for label in labels):
        return
    labels[:] = [label for label in labels if not new.beats(label)]
    labels.append(new)


def _plan(label: _Label) -> StagePlan:
    stages, at = [], label
    while at.stage is not None and at.rest is not None:
        stages.append(at.stage)
        at = at.rest
    return StagePlan(tuple(stages))
