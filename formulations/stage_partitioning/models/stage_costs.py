"""What every possible stage costs, for the column model: the least time per degrees and micro-batches in flight.

A stage is the difference of two nested downsets (Piper, Fact 4.2). Choosing its TMPCs is a multiple-choice knapsack,
solved here exactly by merging Pareto lists of (time, bytes) node by node; identical nodes merge into few points, and
identical stages are solved once. Symbols as in `terms`; y micro-batches are in flight.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.modelling.solve_model import check_stop
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK
from formulations.stage_partitioning.models.assignment_data import Chosen, Crossing, Terms
from solvers.outcome import Watch

#: Sums taken in another order may differ by this part of themselves; nothing that close to a limit is dropped.
NOISE = 1e-12

#: Times that differ by this part of themselves are the same: the sums of one stage in two orders.
SAME = 1e-9

#: A TMPC in a stage, as time, weights and bytes: (X.p and what only this TMPC pays at the boundary, X.w, X.a, X.b).
Row = tuple[float, float, float, float]


@dataclass(frozen=True)
class Block:
    """The nodes between the downsets at positions ``inner`` and ``outer``; the crossings that they pay and the kept
    tensors that they have as a stage.
    """

    inner: int
    outer: int
    nodes: tuple[int, ...]
    paid: tuple[int, ...]
    held: tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """A stage at one t: its nodes by kind (identical nodes have one), and the crossings' time whatever is chosen."""

    kinds: tuple[int, ...]
    nodes: tuple[int, ...]
    boundary: float


class Item(NamedTuple):
    """A node of some kind in a knapsack: its TMPCs as (time, bytes), the fastest one's position, the least bytes."""

    choices: tuple[tuple[float, float], ...]
    fastest: int
    least_size: float


class Prices:
    """Prices of all stages over the downsets of an instance (bitsets, in any order)."""

    def __init__(self, terms: Terms, downsets: list[int], watch: Watch) -> None:
        self.terms = terms
        self.watch = watch
        #: Every downset comes after its subsets: the empty one is first, the whole graph last.
        self.downsets = sorted(downsets, key=lambda bits: (bits.bit_count(), bits))
        self._limit = terms.instance.memory_bytes * MEMORY_SLACK
        self._members = np.array([[bits >> v & 1 for v in terms.nodes] for bits in self.downsets], dtype=bool)
        self._kinds: dict[tuple[Row, ...], int] = {}
        self._kind_of: dict[tuple[int, int, tuple[int, ...], tuple[int, ...]], int] = {}
        self._rows: list[tuple[Row, ...]] = []
        self._items: dict[tuple[int, int, int], Item] = {}
        self._shapes: dict[tuple[int, int, int], Shape | None] = {}
        self._solved: dict[tuple[int, int, tuple[int, ...]], tuple[float, tuple[float, list[int]] | None]] = {}

    @cached_property
    def blocks(self) -> tuple[tuple[Block, ...], ...]:
        """For every downset, the stages that may come right before it (on its outer side)."""
        return tuple(
            tuple(self._block(i, j) for j in range(i + 1, len(self.downsets)) if not inner & ~self.downsets[j])
            for i, inner in enumerate(self.downsets)
        )

    def _block(self, inner: int, outer: int) -> Block:
        check_stop(self.watch)
        bits = self.downsets[outer] & ~self.downsets[inner]
        paid = (c for c, x in enumerate(self.terms.crossings) if bits >> x.payer & 1 and not bits >> x.other & 1)
        held = (
            h
            for h, x in enumerate(self.terms.carried)
            if bits >> x.node & 1 and not any(bits >> v & 1 for v in x.earlier)
        )
        return Block(inner, outer, tuple(v for v in self.terms.nodes if bits >> v & 1), tuple(paid), tuple(held))

    @cached_property
    def work(self) -> NDArray[np.float64]:
        """A lower bound on the device-time of every downset's nodes."""
        return self._sum_members([min(map(self.terms.work, found), default=0.0) for found in self.terms.of_node])

    def _sum_members(self, per_node: list[float]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.where(self._members, np.array(per_node), 0.0).sum(axis=1)
        return found

    @cached_property
    def _fastest(self) -> dict[tuple[int, int], NDArray[np.float64]]:
        """Per (t, d): the least compute and synchronisation of every downset, times d."""

        def least(node: int, t: int, d: int) -> float:
            return min((self._time(row, d) for row in self._at(node, t)), default=0.0)

        return {(t, d): self._sum_members([least(v, t, d) for v in self.terms.nodes]) for t, d in self.terms.configs}

    @cached_property
    def _nodes_without_tmpc(self) -> dict[int, NDArray[np.float64]]:
        """Per t: how many nodes of every downset have no TMPC at t."""
        return {
            t: self._sum_members([float(not self._options[v, t]) for v in self.terms.nodes])
            for t in self.terms.instance.tp_degrees
        }

    def _time(self, row: Row, d: int) -> float:
        return row[0] + self.terms.resync(d) * row[1]

    def _at(self, node: int, t: int, paid: tuple[int, ...] = (), held: tuple[int, ...] = ()) -> tuple[Row, ...]:
        """The TMPCs of a node at t; ``paid`` are the uneven crossings that some pay, ``held`` its kept tensors."""
        crossings, tensors = [self.terms.crossings[c] for c in paid], [self.terms.carried[h].tensor for h in held]
        rows = []
        for o in self._options[node, t]:
            x = self.terms.options[o].tmpc
            more = math.fsum(each.time for each in crossings if o in each.options)
            kept = math.fsum(each.bytes for each in tensors if x.id in each.tmpcs)
            rows.append((x.time + more, x.weight_bytes, x.activation_bytes + kept, x.static_bytes))
        return tuple(rows)

    @cached_property
    def _options(self) -> dict[tuple[int, int], list[int]]:
        """Per node and t: its options' positions."""
        found: dict[tuple[int, int], list[int]] = {
            (v, t): [] for v in self.terms.nodes for t in self.terms.instance.tp_degrees
        }
        for position, option in enumerate(self.terms.options):
            found[option.node, option.tp_degree].append(position)
        return found

    @cached_property
    def _common(self) -> dict[int, NDArray[np.float64]]:
        """Per t: the time of each crossing that all TMPCs of its payer pay, else 0."""
        return {
            t: np.array([x.time if self._all_pay(x, t) else 0.0 for x in self.terms.crossings])
            for t in self.terms.instance.tp_degrees
        }

    @cached_property
    def _uneven_crossings(self) -> dict[tuple[int, int], frozenset[int]]:
        """Per node and t: the crossings that not all of its TMPCs pay."""
        crossings = list(enumerate(self.terms.crossings))
        return {
            (v, t): frozenset(c for c, x in crossings if x.payer == v and not self._all_pay(x, t))
            for v, t in self._options
        }

    def _all_pay(self, crossing: Crossing, t: int) -> bool:
        return set(self._options[crossing.payer, t]) <= set(crossing.options)

    def configs(self, block: Block, limit: float) -> Iterator[tuple[int, int]]:
        """The degrees with which a stage could take at most ``limit``, were there memory enough."""
        boundary = {t: common[list(block.paid)].sum() for t, common in self._common.items()}
        complete = {t: missing[block.outer] == missing[block.inner] for t, missing in self._nodes_without_tmpc.items()}
        for (t, d), fastest in self._fastest.items():
            least = fastest[block.outer] - fastest[block.inner] + boundary[t]
            if complete[t] and least <= (limit + self._slack) * d:
                yield t, d

    @cached_property
    def _slack(self) -> float:
        """The time that differences of sums may be wrong by."""
        return NOISE * self.terms.largest_time

    def price(self, block: Block, t: int, d: int, in_flight: int, limit: float) -> tuple[float, Chosen] | None:
        """The least time of a stage and its TMPCs, or ``None`` if it does not fit or takes more than ``limit``."""
        shape = self._shape(block, t)
        if shape is None:
            return None
        found = self._solve(d, in_flight, shape.kinds, (limit + self._slack) * d - shape.boundary)
        if found is None:
            return None
        options = (self._options[v, t][pick] for v, pick in zip(shape.nodes, found[1], strict=True))
        return (found[0] + shape.boundary) / d, Chosen(t, d, tuple(options))

    def times(self, block: Block, t: int, d: int, most: int, limit: float) -> list[float]:
        """Times for 1, 2, ... at most ``most`` micro-batches in flight, as far as the limit on time allows.

        They never decrease, so equal ends have nothing else between them.
        """

        def time(in_flight: int) -> float:
            found = self.price(block, t, d, in_flight, limit)
            return math.inf if found is None or found[0] > most_s else found[0]

        most_s = limit * (1 + SAME)  # prices are searched with room for the rounding of far larger sums
        times = [0.0] * (most + 1)
        times[1], times[most] = time(1), time(most)
        ranges = [(1, most)]
        while ranges:
            low, high = ranges.pop()
            if times[low] == times[high]:
                times[low:high] = [times[low]] * (high - low)
            elif high - low > 1:
                middle = (low + high) // 2
                times[middle] = time(middle)
                ranges += [(low, middle), (middle, high)]
        return [found for found in times[1:] if math.isfinite(found)]

    def _shape(self, block: Block, t: int) -> Shape | None:
        """``None`` if a node has no TMPC at t."""
        key = block.inner, block.outer, t
        if key not in self._shapes:
            by_kind = sorted((self._kind(v, t, block), v) for v in block.nodes)
            boundary = math.fsum(self._common[t][list(block.paid)])
            shape = Shape(tuple(kind for kind, _ in by_kind), tuple(v for _, v in by_kind), boundary)
            self._shapes[key] = shape if all(self._rows[kind] for kind, _ in by_kind) else None
        return self._shapes[key]

    def decisions_of(self, block: Block, t: int, d: int, in_flight: int, limit: float) -> Chosen:
        """The TMPCs of a stage that has a price."""
        found = self.price(block, t, d, in_flight, limit)
        if found is None:
            raise ValueError(f"the stage with nodes {block.nodes} has no price below {limit}")
        return found[1]

    def _kind(self, node: int, t: int, block: Block) -> int:
        uneven = self._uneven_crossings[node, t]
        own = tuple(c for c in block.paid if c in uneven) if uneven else ()
        held = tuple(h for h in block.held if self.terms.carried[h].node == node) if block.held else ()
        key = node, t, own, held
        if key not in self._kind_of:
            rows = self._at(node, t, own, held)
            self._kind_of[key] = self._kinds.setdefault(rows, len(self._rows))
            if len(self._kinds) > len(self._rows):
                self._rows.append(rows)
        return self._kind_of[key]

    def _item(self, kind: int, d: int, in_flight: int) -> Item:
        key = kind, d, in_flight
        if key not in self._items:
            choices = tuple((self._time(row, d), row[2] * in_flight + row[3]) for row in self._rows[kind])
            fastest = min(range(len(choices)), key=choices.__getitem__)
            self._items[key] = Item(choices, fastest, min(size for _, size in choices))
        return self._items[key]

    def _solve(self, d: int, in_flight: int, kinds: tuple[int, ...], budget: float) -> tuple[float, list[int]] | None:
        """The least time (times d) of nodes of these kinds and their picks, or ``None`` above ``budget``."""
        key = d, in_flight, kinds
        known = self._solved.get(key)
        if known is None or (known[1] is None and known[0] < budget):
            check_stop(self.watch)
            items = [self._item(kind, d, in_flight) for kind in kinds]
            known = self._solved[key] = budget, self._cheapest(items, budget)
        return known[1] if known[1] is not None and known[1][0] <= budget else None

    def _cheapest(self, items: list[Item], budget: float) -> tuple[float, list[int]] | None:
        """Knapsack: the least time of one TMPC of each item within the memory limit."""
        fastest = [item.choices[item.fastest] for item in items]
        if math.fsum(size for _, size in fastest) <= self._limit:
            return math.fsum(time for time, _ in fastest), [item.fastest for item in items]
        least_time = _from_the_end([time for time, _ in fastest])
        least_size = _from_the_end([item.least_size for item in items])
        return self._merge(items, least_time, least_size, budget)

    def _merge(
        self, items: list[Item], least_time: list[float], least_size: list[float], budget: float
    ) -> tuple[float, list[int]] | None:
        """Pareto lists of (time, bytes), item by item; the least of the rest prunes what cannot end well."""
        room = self._limit * (1 + NOISE)
        points: list[tuple[float, float, list[int]]] = [(0.0, 0.0, [])]
        for position, item in enumerate(items, start=1):
            time_left, size_left = budget - least_time[position], room - least_size[position]
            points = _pareto_points(
                (time + more, size + bytes_, [*picks, pick])
                for time, size, picks in points
                for pick, (more, bytes_) in enumerate(item.choices)
                if time + more <= time_left and size + bytes_ <= size_left
            )
            if not points:
                return None
        return next(
            (
                (time, picks)
                for time, _, picks in points
                if math.fsum(item.choices[pick][1] for item, pick in zip(items, picks, strict=True)) <= self._limit
            ),
            None,
        )


def _from_the_end(values: list[float]) -> list[float]:
    """Sums of the values from each position on, and 0 behind the last."""
    sums = [0.0]
    for value in reversed(values):
        sums.append(sums[-1] + value)
    return sums[::-1]


def _pareto_points(points: Iterator[tuple[float, float, list[int]]]) -> list[tuple[float, float, list[int]]]:
    """The points that no other beats in time and bytes both, by ascending time."""
    kept: list[tuple[float, float, list[int]]] = []
    for point in sorted(points, key=lambda point: point[:2]):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept
