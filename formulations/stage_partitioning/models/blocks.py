"""The data of the models of blocks: which stages there may be at which place, and what each may hold.

A block is a stage at its place, (s, t, d): its degrees, and s, the sum of the data-parallel degrees of it and of all
later stages. So y = ceil(s/d) micro-batches are in flight in it, a plan is a path over s, and no position is free.

No stage of the plans that are looked for takes more than ``most``, and none exceeds M. Nodes that exceed either
together are in no stage together, and neither are those that what lies between them keeps apart: what is between two
nodes of a stage is in it. A crossing between such nodes is paid by whoever holds its payer. A neighbour that may be in
the stage is in it, and takes its time and bytes, or is not, and its crossings are paid: the less of both is certain.
These bounds price the memory at several rates (Lagrange), and are no search.

Source: this project; the rows are Piper's, sections 3.1 to 3.6 and 4. Symbols as in `assignment_data`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.modelling.solve_model import check_stop
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import suffix_sums
from formulations.stage_partitioning.models.assignment_data import Chosen, Crossing, Terms
from instances.graph import topological_order
from solvers.outcome import Watch

#: Rates between time (0) and memory (1) at which nodes are found to exceed a stage together.
_RATES = (0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0)

#: Sums taken in another order may differ by this part of themselves; nothing that close to a limit is left out.
_NOISE = 1e-9

#: A crossing that takes more than this part of ``most`` counts as so much: it does not fit, and numbers stay small.
_TOO_MUCH = 2.0


@dataclass(frozen=True)
class Block:
    """A stage with degrees (t, d) whose data-parallel degrees and those of all later stages sum to s.

    ``times`` and ``sizes`` are what the options that may run in it add to its Time-Per-Sample, (X.p + kappa(d) X.w) / d
    and the crossings that it is certain to pay, in the instance's unit, and to its bytes, X.a y + X.b. ``paid`` are the
    times of crossings whose neighbour may be in the block with the payer. Of each group ``apart`` (nodes) it holds one
    at most; its first and its last node are of what ``sides`` say.
    """

    s: int
    tp_degree: int
    dp_degree: int
    in_flight: int
    times: Mapping[int, float]
    sizes: Mapping[int, float]
    paid: Mapping[int, float]
    apart: tuple[tuple[int, ...], ...]
    sides: tuple[Side, Side]

    @property
    def key(self) -> tuple[int, int, int]:
        """(s, t, d)."""
        return self.s, self.tp_degree, self.dp_degree

    @property
    def devices(self) -> int:
        """t d."""
        return self.tp_degree * self.dp_degree

    def may_be(self, stage: Chosen) -> bool:
        """Whether the block has the degrees of a stage and all of its options."""
        own = (self.tp_degree, self.dp_degree) == (stage.tp_degree, stage.dp_degree)
        return own and all(o in self.times for o in stage.options)


@dataclass(frozen=True)
class Side:
    """What a block pays at one side: a paid crossing, the option of a certain one, or it holds one of the free nodes.

    At least one of these, as a stage has a first and a last node.
    """

    crossings: tuple[int, ...]
    options: tuple[int, ...]
    free: tuple[int, ...]


class Blocks:
    """The blocks of all plans in which no stage takes more than ``most``, in the instance's time unit.

    ``whole``: with the options that another of the node beats, which whoever adds rows may ask for.
    """

    def __init__(self, terms: Terms, most: float, watch: Watch, *, whole: bool = False) -> None:
        self.terms, self.most, self.watch, self.whole = terms, most, watch, whole
        self.limit = terms.memory_limit
        #: What else there is to an option that costs something, by position.
        self.weights = [0.0] * len(terms.options)
        self._order = topological_order(len(terms.nodes), terms.instance.edge_indices)
        self._contents: dict[tuple[int, int, int], _Contents | None] = {}

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks that can hold some node; raises `solve_model.Stopped` once the watch is stopped."""
        return tuple(self._blocks())

    def in_flight(self, s: int, d: int) -> int:
        """y, the micro-batches in flight in a stage of degree d at a sum s."""
        return -(-s // d)

    @property
    def largest(self) -> float:
        """What no sum of times in a model exceeds."""
        return 2 * (len(self.terms.options) + len(self.terms.crossings)) * self.most

    @cached_property
    def leaving(self) -> dict[int, list[int]]:
        """For every sum s the blocks that stand before one of that sum: those with s - d = s."""
        return self._at(lambda block: block.s - block.dp_degree)

    @cached_property
    def of_sum(self) -> dict[int, list[int]]:
        """For every sum s its blocks."""
        return self._at(lambda block: block.s)

    def _at(self, key: Callable[[Block], int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {s: [] for s in range(self.terms.max_s + 1)}
        for b, block in enumerate(self.blocks):
            found[key(block)].append(b)
        return found

    def own(self, v: int, b: int) -> list[int]:
        """The options of node v in block b."""
        return [o for o in self.terms.of_node[v] if o in self.blocks[b].times]

    def of_plan(self, plan: StagePlan) -> dict[int, Chosen]:
        """The blocks of a plan's stages; none for a stage that there may not be."""
        place = {block.key: b for b, block in enumerate(self.blocks)}
        stages = zip(suffix_sums(plan), self.terms.decisions_of(plan), strict=True)
        found = ((place.get((s, stage.tp_degree, stage.dp_degree)), stage) for s, stage in stages)
        return {b: stage for b, stage in found if b is not None}

    @cached_property
    def sinks(self) -> tuple[int, ...]:
        """The nodes without successors."""
        sources = {u for u, _ in self.terms.instance.edge_indices}
        return tuple(v for v in self.terms.nodes if v not in sources)

    def _blocks(self) -> Iterator[Block]:
        for t, d in self.terms.configs:
            for s in range(d, self.terms.max_s + 1):
                key = t, d, self.in_flight(s, d)
                if key not in self._contents:
                    check_stop(self.watch)
                    self._contents[key] = self._content(*key)
                found = self._contents[key]
                if found is not None:
                    yield Block(s, t, d, key[2], *found)

    def _content(self, t: int, d: int, y: int) -> _Contents | None:
        times, sizes = self._fit(t, d, y)
        if not times:
            return None
        together = self._together(d, times, sizes)
        here = {self.terms.options[o].node for o in times} & {int(v) for v in np.flatnonzero(together.diagonal())}
        times = {o: time for o, time in times.items() if self.terms.options[o].node in here}
        paid: dict[int, float] = {}
        certain: dict[int, list[int]] = {}
        for c, crossing in enumerate(self.terms.crossings):
            time = min(crossing.time / d, _TOO_MUCH * self.most)
            options = [o for o in crossing.options if o in times]
            if not options or time < _NOISE * self.most:
                continue
            if together[crossing.payer, crossing.other]:
                paid[c] = time
            else:
                certain[c] = options
                for o in options:
                    times[o] += time
        times = {o: time for o, time in times.items() if time <= self.most * (1 + _NOISE)}
        if not times:
            return None
        paid = {c: time for c, time in paid.items() if any(o in times for o in self.terms.crossings[c].options)}
        certain = {c: [o for o in options if o in times] for c, options in certain.items()}
        nodes = {self.terms.options[o].node for o in times}
        sides = self._side(times, paid, certain, before=True), self._side(times, paid, certain, before=False)
        return times, {o: sizes[o] for o in times}, paid, tuple(self._apart(nodes, together)), sides

    def _fit(self, t: int, d: int, y: int) -> tuple[dict[int, float], dict[int, float]]:
        """Time and bytes of the options that alone exceed neither ``most`` nor M."""
        times: dict[int, float] = {}
        sizes: dict[int, float] = {}
        for o, option in enumerate(self.terms.options):
            x = option.tmpc
            if option.tp_degree == t:
                time, size = (
                    (x.time + self.terms.resync(d) * x.weight_bytes) / d,
                    x.activation_bytes * y + x.static_bytes,
                )
                if time <= self.most * (1 + _NOISE) and size <= self.limit * (1 + _NOISE):
                    times[o], sizes[o] = time, size
        kept = (
            set(times) if self.whole else {o for v in self.terms.nodes for o in self._pareto_options(v, times, sizes)}
        )
        return {o: times[o] for o in times if o in kept}, {o: sizes[o] for o in times if o in kept}

    def _pareto_options(self, v: int, times: Mapping[int, float], sizes: Mapping[int, float]) -> Iterator[int]:
        """A node's options that no other beats in time, bytes and crossings; of equal ones the first."""
        kept: list[int] = []
        own = sorted((times[o], sizes[o], o) for o in self.terms.of_node[v] if o in times)
        for _, size, o in own:
            if not any(
                sizes[k] <= size and self.weights[k] <= self.weights[o] and self._crossings[k] <= self._crossings[o]
                for k in kept
            ):
                kept.append(o)
                yield o

    @cached_property
    def _crossings(self) -> tuple[frozenset[int], ...]:
        """The crossings that each option may pay."""
        found: list[set[int]] = [set() for _ in self.terms.options]
        for c, crossing in enumerate(self.terms.crossings):
            for o in crossing.options:
                found[o].add(c)
        return tuple(map(frozenset, found))

    def _together(self, d: int, times: Mapping[int, float], sizes: Mapping[int, float]) -> NDArray[np.bool_]:
        """Which pairs of nodes can be in one stage; of a node with itself: which can be in any.

        A stage with a pair holds its hull, and of any other node w what w takes, at least, or what the hull pays where
        w is missing. All that together is at most ``most``, in bytes at most M, and so at every rate between them.
        """
        pairs, inside = self._hulls
        least = [[o for o in self.terms.of_node[v] if o in times] for v in self.terms.nodes]
        found = np.array([bool(own) for own in least])
        together: NDArray[np.bool_] = np.logical_and.outer(found, found)
        # In parts of what there is; without any memory what is here takes none.
        time_of = {o: time / self.most for o, time in times.items()}
        size_of = {o: size / self.limit if size else 0.0 for o, size in sizes.items()}
        rated = [
            (
                rate,
                np.array([min(((1 - rate) * time_of[o] + rate * size_of[o] for o in own), default=0.0)
                          for own in least]),
            )
            for rate in _RATES
        ]  # fmt: skip
        unless_inside = inside @ self._paid_between(d, times)  # what a hull pays where a node is missing
        exceeds = np.zeros(len(pairs), bool)
        while True:
            possible = (inside @ ~together) == 0  # what may be in a stage with all of a hull
            now = exceeds | ~(possible | (inside == 0)).all(axis=1)
            for rate, per_node in rated:
                missing = (1 - rate) * unless_inside
                others = np.where(possible, np.minimum(missing, per_node), missing)
                now |= np.where(inside > 0, per_node, others).sum(axis=1) > 1 + _NOISE
            if (now == exceeds).all():
                return together
            exceeds = now
            for u, v in pairs[exceeds]:
                together[u, v] = together[v, u] = False
            gone = ~together.diagonal()
            together[gone, :] = together[:, gone] = False

    def _paid_between(self, d: int, times: Mapping[int, float]) -> NDArray[np.float64]:
        """What a node pays for another that is not in its stage, whatever its option: parts of ``most``, (n, n)."""
        found = np.zeros((len(self.terms.nodes), len(self.terms.nodes)))
        for crossing in self.terms.crossings:
            if self._all_pay(crossing, times):
                found[crossing.payer, crossing.other] += crossing.time / (d * self.most)
        return found

    def _all_pay(self, crossing: Crossing, times: Mapping[int, float]) -> bool:
        return all(o in crossing.options for o in self.terms.of_node[crossing.payer] if o in times)

    @cached_property
    def _hulls(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Pairs of nodes, shape (p, 2), and for each 1 for every node that a stage with both holds, shape (p, n)."""
        count = len(self.terms.nodes)
        reach = np.eye(count, dtype=bool)
        successors: list[list[int]] = [[] for _ in range(count)]
        for u, v in self.terms.instance.edge_indices:
            successors[u].append(v)
        for u in reversed(self._order):
            for v in successors[u]:
                reach[u] |= reach[v]
        pairs = [(u, v) for u in range(count) for v in range(count) if reach[u, v] or (u < v and not reach[v, u])]
        inside = np.zeros((len(pairs), count))
        for number, (u, v) in enumerate(pairs):
            inside[number] = reach[u] & reach[:, v]
            inside[number, [u, v]] = 1.0
        return np.array(pairs, np.int64).reshape(-1, 2), inside

    def _side(
        self, times: Mapping[int, float], paid: Mapping[int, float], certain: Mapping[int, list[int]], *, before: bool
    ) -> Side:
        """The crossings from predecessors, or from successors, that all options of their payer pay."""
        edges = set(self.terms.instance.edge_indices)

        def counts(c: int) -> bool:
            crossing = self.terms.crossings[c]
            ends = (crossing.other, crossing.payer) if before else (crossing.payer, crossing.other)
            return ends in edges and self._all_pay(crossing, times)

        crossings = tuple(c for c in paid if counts(c))
        options = tuple(sorted({o for c, own in certain.items() if counts(c) for o in own}))
        paying = {self.terms.crossings[c].payer for c in (*crossings, *(c for c in certain if counts(c)))}
        free = tuple(sorted({self.terms.options[o].node for o in times} - paying))
        return Side(crossings, options, free)

    def _apart(self, nodes: set[int], together: NDArray[np.bool_]) -> Iterator[tuple[int, ...]]:
        """Sets of nodes no two of which can be in one stage; every node is in some."""
        ordered = [v for v in self._order if v in nodes]
        found: list[set[int]] = []
        for place, first in enumerate(ordered):
            group = [first]
            for v in ordered[place + 1 :]:
                if not together[v, group].any():
                    group.append(v)
            if not any(set(group) <= other for other in found):
                found.append(set(group))
                yield tuple(group)


def in_order(taken: Iterable[tuple[Block, list[int]]]) -> tuple[Chosen, ...]:
    """The stages of blocks and the options that run in them, from the input side on."""
    ordered = sorted(taken, key=lambda pair: -pair[0].s)
    return tuple(Chosen(block.tp_degree, block.dp_degree, tuple(options)) for block, options in ordered)


#: Times, sizes, paid crossings, nodes apart, and both sides of a block.
_Contents = tuple[dict[int, float], dict[int, float], dict[int, float], tuple[tuple[int, ...], ...], tuple[Side, Side]]
