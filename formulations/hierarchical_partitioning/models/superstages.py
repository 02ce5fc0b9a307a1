"""What every possible superstage costs, for the model of columns: its link, or the slowest stage of its best split.

A superstage is the difference of two nested downsets on d_2 machines. Inside a machine its nodes are split into stages,
each the difference of two downsets again, with the least time that a knapsack gives it (`Prices`). How many
micro-batches a stage has in flight depends on d_1, on the degrees x behind it in its machine, and on b = ceil(s / d_2),
where s sums the degrees of all later superstages. So for every d_2, b, x and number of devices there is a best split,
found stage by stage from the output side.

Source: Piper, Appendix E; symbols as in the package's README. Made for this project, it shares no code with ``paper``.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from formulations.hierarchical_partitioning.definition.plan import Superstage
from formulations.hierarchical_partitioning.definition.problem import whole_weight
from formulations.modelling.solve_model import check_stop
from formulations.stage_partitioning.models.assignment_data import Chosen, Terms
from formulations.stage_partitioning.models.stage_costs import SAME, Block, Prices
from instances.graph import downsets
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel
from solvers.outcome import Watch

Floats = NDArray[np.float64]

#: Bytes of a table of splits.
_TABLE = 1 << 26


def inner_terms(instance: HierarchicalInstance) -> Terms:
    """The terms of the flat problem inside the machines; without a limit on memory if that is not counted."""
    unlimited = instance.memory_model is MemoryModel.NONE
    return Terms(replace(instance.inner, memory_bytes=math.inf) if unlimited else instance.inner)


def largest_time(instance: HierarchicalInstance, terms: Terms) -> float:
    """A time that no superstage exceeds, feasible or not."""
    flat = instance.flat
    weights = 4 * math.fsum(map(whole_weight, flat.layers))
    volume = 2 * math.fsum(edge.bytes for edge in flat.edges)
    return max(terms.largest_time, (weights + volume) / instance.outer_bandwidth, 1e-9)


class Superstages:
    """Prices of the superstages over an instance's downsets, each with its limit on time.

    `ValueError` if there are more than ``most`` downsets.
    `formulations.modelling.solve_model.Stopped`: once the watch is, as all methods do.
    """

    def __init__(self, instance: HierarchicalInstance, most: int, watch: Watch) -> None:
        self.instance, self.watch = instance, watch
        self.terms = inner_terms(instance)
        found = downsets(len(instance.flat.layers), instance.flat.edge_indices, most)
        if found is None:
            raise ValueError(f"the graph has more than {most} downsets")
        self.prices = Prices(self.terms, found, watch)
        self.downsets = self.prices.downsets
        self.K1, self.K2, self.S = instance.devices_per_machine, instance.num_machines, self.terms.max_s
        self.d2s = range(1, min(self.K2, self.S) + 1)
        self.configs = [(t, d) for t, d in self.terms.configs if t * d <= self.K1]
        self._weights = [whole_weight(layer) for layer in instance.flat.layers]
        self._known: dict[int, tuple[float, float]] = {}
        self._stages: dict[float, dict[int, list[tuple[Block, int, int, Floats]]]] = {}

    def behind(self, s: int, d2: int) -> int:
        """b: the micro-batches that later superstages add to what a stage on d_2 machines has in flight."""
        return -(-s // d2) if self.instance.memory_model is MemoryModel.PRECISE else 0

    def _in_flight(self, sums: int, d1: int) -> int:
        """y of a stage of degree d_1, if so many degrees are from it on, those behind its machine divided by d_2."""
        if self.instance.memory_model is MemoryModel.CRUDE:
            return -(-self.S // d1)
        return -(-sums // d1) if self.instance.memory_model is MemoryModel.PRECISE else 1

    def _stages_within(self, target: float) -> dict[int, list[tuple[Block, int, int, Floats]]]:
        """By inner downset the stages of at most ``target`` times all machines, with t, d_1 and their times by sums."""
        if target in self._stages:
            return self._stages[target]
        limit = target * self.d2s[-1] if self.d2s else 0.0
        self._stages = {target: {}}
        for inner, blocks in enumerate(self.prices.blocks):
            found = self._stages[target].setdefault(inner, [])
            for block in blocks:
                check_stop(self.watch)
                fitting = set(self.prices.configs(block, limit))
                for t, d1 in self.configs:
                    if (t, d1) in fitting:
                        times = self._times(block, t, d1, limit)
                        if np.isfinite(times).any():
                            found.append((block, t, d1, times))
        return self._stages[target]

    def _times(self, block: Block, t: int, d1: int, limit: float) -> Floats:
        """Times of a stage by the sums from it on, from 0 to S + 1; infinite if none, too many, or beyond the limit."""
        by_flight = self.prices.times(block, t, d1, self._in_flight(self.S, d1), limit)
        if self.instance.memory_model is not MemoryModel.PRECISE:
            last = self._in_flight(self.S, d1) - 1
            by_flight = [by_flight[last]] if last < len(by_flight) else []
            found = np.full(self.S + 2, by_flight[0] if by_flight else math.inf)
        else:
            flights = -(-np.arange(self.S + 2) // d1) - 1
            padded = np.array([*by_flight, math.inf])
            found = padded[np.clip(flights, 0, len(by_flight))]
        found[0] = found[-1] = math.inf
        return found

    def _splits(self, starts: list[int], behind: NDArray[np.int64], d2: int, target: float) -> dict[int, Floats]:
        """By last downset: the slowest stage of the best split, by start, b, sum of d_1 and devices of a machine."""
        most_x, slowest = min(self.K1, self.S // d2), target * d2 * (1 + SAME)
        shape = len(starts), len(behind), most_x + 1, self.K1 + 1
        found: dict[int, Floats] = {}
        for place, start in enumerate(starts):
            found.setdefault(start, np.full(shape, math.inf))[place, :, 0, 0] = 0.0
        stages = self._stages_within(target)
        for inner in range(starts[0], len(self.downsets)):
            if inner not in found:
                continue
            check_stop(self.watch)
            before = found[inner]
            for block, t, d1, times in stages[inner]:
                if d1 > most_x:
                    continue
                own = times[np.minimum(behind[:, None] + np.arange(d1, most_x + 1), self.S + 1)]
                own = np.where(own <= slowest, own, math.inf)
                if not np.isfinite(own).any():
                    continue
                split = np.maximum(before[:, :, : most_x + 1 - d1, : self.K1 + 1 - t * d1], own[:, :, None])
                after = found.setdefault(block.outer, np.full(shape, math.inf))[:, :, d1:, t * d1 :]
                np.minimum(after, split, out=after)
        return found

    def within(self, target: float) -> Iterator[tuple[int, int, int, Floats]]:
        """Inner and outer downset, d_2, and the times of the superstage by b and sum of d_1, for all within the target.

        Times beyond it are infinite.
        """
        last = len(self.downsets) - 1
        for d2 in self.d2s:
            behind = np.arange(self.behind(self.S, d2) + 1)
            cells = len(behind) * (min(self.K1, self.S // d2) + 1) * (self.K1 + 1)
            step = max(1, _TABLE // (8 * cells * (last + 1)))
            for first in range(0, last, step):
                starts = list(range(first, min(first + step, last)))
                for outer, found in self._splits(starts, behind, d2, target).items():
                    best = found.min(axis=3) / d2
                    for place, inner in enumerate(starts):
                        if outer == inner or not np.isfinite(best[place]).any():
                            continue
                        times = np.maximum(best[place], self._link(inner, outer, d2))
                        times[times > target * (1 + SAME)] = math.inf
                        if np.isfinite(times).any():
                            yield inner, outer, d2, times

    def _link(self, inner: int, outer: int, d2: int) -> float:
        """Time of a machine's link; Piper, Appendix E."""
        weight, volume = self._link_load(self.downsets[outer] & ~self.downsets[inner])
        return (4 * (d2 - 1) / d2 * weight + volume) / d2 / self.instance.outer_bandwidth

    def _link_load(self, bits: int) -> tuple[float, float]:
        """Weights of these nodes, and twice the bytes over their boundary."""
        if bits not in self._known:
            flat = self.instance.flat
            edges = zip(flat.edge_indices, flat.edges, strict=True)
            weight = math.fsum(weight for v, weight in enumerate(self._weights) if bits >> v & 1)
            crossing = math.fsum(2 * edge.bytes for (u, v), edge in edges if (bits >> u ^ bits >> v) & 1)
            self._known[bits] = weight, crossing
        return self._known[bits]

    def superstage(self, inner: int, outer: int, s: int, d2: int, x: int, target: float) -> Superstage:
        """A superstage that has a price, with its best split; s are the degrees behind it."""
        b = self.behind(s, d2)
        found = self._splits([inner], np.array([b]), d2, target)
        stages = self._stages_within(target)
        devices = int(np.argmin(found[outer][0, 0, x]))
        chosen: list[Chosen] = []
        while outer != inner:
            slowest = found[outer][0, 0, x, devices]
            block, t, d1 = next(
                (block, t, d1)
                for between, before in found.items()
                for block, t, d1, times in stages.get(between, ())
                if block.outer == outer
                and d1 <= x
                and t * d1 <= devices
                and max(before[0, 0, x - d1, devices - t * d1], times[b + x]) <= slowest
            )
            limit = target * self.d2s[-1]
            chosen.append(self.prices.decisions_of(block, t, d1, self._in_flight(b + x, d1), limit))
            outer, x, devices = block.inner, x - d1, devices - t * d1
        return Superstage(d2, self.terms.plan(chosen).stages)
