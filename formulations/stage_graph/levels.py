"""Exact search over all partitions of small models, level by level.

The stages of a plan have depths: 1 without successors, else one more than the deepest successor. Stages of one depth
have no tensor between them, so the operators of a depth are a set whose connected components (over the instance's
edges) each belong to one stage, and all operators up to a depth are an upset (closed under successors). With one
micro-batch size and 1F1B a stage of depth i keeps i micro-batches in flight. So a plan is a chain of upsets, each
difference packed into stages; fewest devices for a target follow by dynamic programming, and the least target from the
finite list of what stages can take. Nothing is left out: the result is the optimum of the declared instance.

Source: made for this project (Piper's downsets, with depths instead of a sequential pipeline).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from formulations.family import Answer
from formulations.stage_graph.costs import Costs, assemble, bits
from formulations.stage_graph.kernels_levels import needed, packed, placed
from formulations.stage_graph.problem import StagePlan, evaluate
from formulations.stage_graph.tables import StageTables
from instances.graph import downsets
from instances.stage_graph import StageGraph
from solvers.outcome import Limits, Stop, Watch

Array = Any
#: Sizes that take a second or so to lay out.
MAX_OPERATORS, MAX_UPSETS, MAX_PAIRS, MAX_SETS, MAX_OPTIONS = 62, 6_000, 3_000_000, 60_000, 1_000_000


class TooManyError(Exception):
    """The model is too wide: too many upsets, sets or ways to pack them."""


class Levels:
    """Upsets, the sets between them and how these fall into stages; all arrays are laid out once.

    Raises
    ------
    TooManyError
        If there are too many.
    """

    def __init__(self, costs: Costs, watch: Watch, most_pairs: int = MAX_PAIRS) -> None:
        self.costs, self.watch, self.most_pairs = costs, watch, most_pairs
        instance = costs.instance
        self._lay_out([(edge.source, edge.target) for edge in instance.edges])
        self.degrees = np.arange(1, instance.num_devices + 1)
        self.tables = StageTables(costs, self.masks, self.degrees)
        # A stage of depth i needs i devices or more together with what is behind it.
        depth = min(instance.num_devices, instance.num_operators)
        self._need = np.empty((len(self.masks), depth + 1), np.int64)
        self._pack, self._choice = np.empty_like(self._need), np.empty_like(self._need)
        self._least = np.empty((len(self.upsets), depth + 1), np.int64)
        self._pick = np.empty_like(self._least)
        self._flag = np.frombuffer(watch.flag, np.uint8)
        self.rounds = 0

    def _lay_out(self, edges: list[tuple[int, int]]) -> None:
        count = self.costs.instance.num_operators
        found = downsets(count, edges, MAX_UPSETS) if count <= MAX_OPERATORS else None
        if found is None:
            raise TooManyError(f"more than {MAX_UPSETS} upsets or {MAX_OPERATORS} operators")
        self.upsets = np.array(sorted(found, key=lambda each: (-each.bit_count(), each)), dtype=np.int64)
        starts, levels, after = [0, 0], [], []  # the set of all operators comes first, nothing follows it
        for index in range(1, len(self.upsets)):
            larger = np.nonzero((self.upsets[:index] & self.upsets[index]) == self.upsets[index])[0]
            levels.append(self.upsets[larger] ^ self.upsets[index])
            after.append(larger)
            starts.append(starts[-1] + len(larger))
            if starts[-1] > self.most_pairs:
                raise TooManyError(f"more than {self.most_pairs} pairs of upsets")
        self.start, self.after = np.array(starts), np.concatenate(after)
        distinct, self.level = np.unique(np.concatenate(levels), return_inverse=True)
        if len(distinct) > MAX_SETS:
            raise TooManyError(f"more than {MAX_SETS} sets between upsets")
        self._lay_out_options(distinct.tolist())

    def _lay_out_options(self, distinct: list[int]) -> None:
        """Sets in an order in which parts come before wholes, and the ways to split each."""
        order = sorted(range(len(distinct)), key=lambda number: distinct[number].bit_count())
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.level = rank[self.level]
        self.masks = [distinct[number] for number in order]
        self.index = {nodes: number for number, nodes in enumerate(self.masks)}
        starts, groups, rests = [0], [], []
        for nodes in self.masks:
            for group in _groups(self._pieces(nodes)):
                groups.append(self.index[group])
                rests.append(self.index[nodes ^ group])
            starts.append(len(groups))
            if len(groups) > MAX_OPTIONS:
                raise TooManyError(f"more than {MAX_OPTIONS} ways to split sets")
        self.option_start = np.array(starts)
        self.group, self.rest = np.array(groups, dtype=np.int64), np.array(rests, dtype=np.int64)

    def _pieces(self, nodes: int) -> list[int]:
        """Connected components of a set."""
        found = []
        while nodes:
            piece = front = nodes & -nodes
            while front:
                node = (front & -front).bit_length() - 1
                front &= front - 1
                fresh = (self.costs.successors[node] | self.costs.predecessors[node]) & nodes & ~piece
                piece |= fresh
                front |= fresh
            found.append(piece)
            nodes &= ~piece
        return found

    def stats(self) -> dict[str, int]:
        """Counts that explain the effort."""
        return {
            "upsets": len(self.upsets),
            "transitions": len(self.after) * self.rounds,
            "sets": len(self.masks),
            "rounds": self.rounds,
        }

    def targets(self, microbatch: int) -> Array:
        """All times per sample that a stage which fits can have, ascending."""
        tps, room = self.tables.at(microbatch)
        return np.unique(tps[(room > 0) & np.isfinite(tps)])

    def plan(self, microbatch: int, target_s: float) -> StagePlan | None:
        """A plan on the fewest devices, with every stage within the target; ``None`` if none has enough devices."""
        self.rounds += 1
        tps, room = self.tables.at(microbatch)
        needed(tps, room, target_s, self.degrees, self._need)
        packed(self.option_start, self.group, self.rest, self._need, self._pack, self._choice)
        if not placed(self.start, self.level, self.after, self._pack, self._least, self._pick, self._flag):
            return None
        if self._least[-1, 1] > self.costs.instance.num_devices:
            return None
        parts = list(self._parts())[::-1]
        return assemble(self.costs.instance, parts, microbatch)

    def _parts(self) -> Iterator[tuple[int, int]]:
        upset, depth = len(self.upsets) - 1, 1
        while upset:
            move = int(self._pick[upset, depth])
            yield from self._stages(int(self.level[move]), depth)
            upset, depth = int(self.after[move]), depth + 1

    def _stages(self, number: int, depth: int) -> Iterator[tuple[int, int]]:
        while (option := int(self._choice[number, depth])) >= 0:
            group = int(self.group[option])
            yield self.masks[group], int(self._need[group, depth])
            number = int(self.rest[option])
        yield self.masks[number], int(self._need[number, depth])

    def best_at(self, microbatch: int, below_s: float = np.inf) -> StagePlan | None:
        """The plan with the least slowest stage at a micro-batch size, if that is below ``below_s``.

        ``None`` is a proof that there is none, unless the watch was stopped.
        """
        targets = self.targets(microbatch)
        targets = targets[targets < below_s]
        low, high = 0, len(targets)  # below low nothing is feasible, from high on everything (if there is a plan)
        best: StagePlan | None = None
        if not len(targets) or (best := self.plan(microbatch, targets[-1])) is None:
            return None
        high -= 1
        while low < high and not self.watch.stopped():
            middle = (low + high) // 2
            found = self.plan(microbatch, targets[middle])
            if found is None:
                low = middle + 1
            else:
                best, high = found, middle
        return best


def _groups(pieces: list[int]) -> Iterator[int]:
    """Unions of pieces with the first of them, all of them left out."""
    first, others = pieces[0], pieces[1:]
    for chosen in range((1 << len(others)) - 1):
        yield first | sum(others[number] for number in bits(chosen))


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:  # noqa: ARG001
    """The optimum of a small instance with one micro-batch size for all stages, by levels of upsets."""
    try:
        search = Levels(Costs(instance), watch)
    except TooManyError as error:
        return Answer(stop=Stop.SIZE_LIMIT, reason=str(error))
    best, objective = None, np.inf
    for microbatch in reversed(instance.microbatch_sizes):
        found = search.best_at(microbatch, objective * (1 - 1e-12))
        if found is not None and (value := evaluate(instance, found)) < objective:
            best, objective = found, value
            watch.plan(found, value)
        if watch.stopped():
            return Answer(best, stop=watch.why(), stats=search.stats())
    if best is None:
        return Answer(infeasible=True, stop=Stop.PROVED, stats=search.stats(), reason="no partition fits into memory")
    return Answer(best, bound=objective * (1 - 1e-11), stop=Stop.PROVED, stats=search.stats())
