"""Chains of upsets: what the exact search by levels and Piper's program have in common.

An upset is a set of operators closed under successors. A chain of them from nothing to everything cuts the model into
sets, last ones first; what a set may be is up to the search (one stage, or several on one level). The i-th set has i
micro-batches in flight.

Source: Piper, section 4 (downsets; here closed under successors, as in ``instances.graph``).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from formulations.contract.family import Answer
from formulations.stage_graph.costs.costs import Costs, assemble, bits
from formulations.stage_graph.costs.tables import StageTables
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import evaluate
from formulations.stage_graph.definition.quantities import required_sizes
from formulations.stage_graph.kernels.levels import needed, place_levels
from formulations.stage_graph.upsets.bounds import simple_bound
from instances.graph import downsets
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Prover, Stop, Watch

Array = Any
#: Sizes that take a second or two to lay out.
MAX_NODES, MAX_UPSETS, MAX_PAIRS, MAX_SETS = 62, 6_000, 3_000_000, 60_000
#: Costs of sets on degrees: a tenth of a gigabyte for each array.
MAX_CELLS = 10_000_000


class TooManyError(Exception):
    """The model is too wide: too many upsets, sets or ways to split them."""


class Chains:
    """Upsets and the sets between them; all arrays are laid out once.

    ``groups``: operators (as bitsets, in a topological order) that stay together; each operator by itself for an exact
    search.
    ``most_pairs``: more pairs of nested upsets are not laid out.
    `TooManyError` if there are too many upsets, pairs or sets.
    """

    #: Every set waits for the one before it.
    sequential = True

    def __init__(
        self, costs: Costs, watch: Watch, groups: Sequence[int], degrees: Sequence[int], most_pairs: int = MAX_PAIRS
    ) -> None:
        self.costs, self.watch, self.groups, self.most_pairs = costs, watch, groups, most_pairs
        self._lay_out()
        self.lay_out_sets()
        instance = costs.instance
        # A column of the arrays is r replicas of t devices; those of fewer devices come first.
        columns = sorted((r * t, t, r) for t in instance.tp_degrees for r in degrees if r * t <= instance.num_devices)
        if len(self.masks) * len(columns) > MAX_CELLS:
            raise TooManyError(f"{len(self.masks)} sets times {len(columns)} degrees; expected at most {MAX_CELLS}")
        self.degrees, self.tp_degrees = (np.array([each[k] for each in columns], dtype=np.int64) for k in range(2))
        self._columns = [np.nonzero(self.tp_degrees == t)[0] for t in instance.tp_degrees]
        self.tables = [
            StageTables(costs if t == 1 else Costs(instance, t), self.masks, self.degrees[own] // t)
            for t, own in zip(instance.tp_degrees, self._columns, strict=True)
        ]
        deepest = min(costs.instance.num_devices, len(groups))
        self.need = np.empty((len(self.masks), deepest + 1), np.int32)
        self._least = np.empty((len(self.upsets), deepest + 1), np.int32)
        self._pick = np.empty_like(self._least)
        self._flag = np.frombuffer(watch.flag, np.uint8)
        self.rounds = 0

    def _lay_out(self) -> None:
        found = downsets(len(self.groups), self._edges(), MAX_UPSETS) if len(self.groups) <= MAX_NODES else None
        if found is None:
            raise TooManyError(f"more than {MAX_UPSETS} upsets or {MAX_NODES} operators")
        self.upsets = np.array(sorted(found, key=lambda each: (-each.bit_count(), each)), dtype=np.int64)
        starts, levels, after = [0, 0], [], []  # the set of all operators comes first, nothing follows it
        for index in range(1, len(self.upsets)):
            larger = np.nonzero((self.upsets[:index] & self.upsets[index]) == self.upsets[index])[0]
            levels.append(self.upsets[larger] ^ self.upsets[index])
            after.append(larger)
            starts.append(starts[-1] + len(larger))
            if starts[-1] > self.most_pairs:
                raise TooManyError(f"more than {self.most_pairs} pairs of upsets")
            self.poll()
        self.start, self.after = np.array(starts), np.concatenate(after)
        distinct, self.level = np.unique(np.concatenate(levels), return_inverse=True)
        if len(distinct) > MAX_SETS:
            raise TooManyError(f"more than {MAX_SETS} sets between upsets")
        # Sets come in an order in which parts come before wholes.
        order = sorted(range(len(distinct)), key=lambda number: int(distinct[number]).bit_count())
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.level = rank[self.level]
        self.masks = [sum(self.groups[node] for node in bits(int(distinct[number]))) for number in order]

    def poll(self) -> None:
        """`TooManyError` once the time is up."""
        if self.watch.stopped():
            raise TooManyError("time was up before all sets were known")

    def _edges(self) -> list[tuple[int, int]]:
        place = {node: number for number, group in enumerate(self.groups) for node in bits(group)}
        pairs = {(place[edge.source], place[edge.target]) for edge in self.costs.instance.edges}
        return sorted((source, target) for source, target in pairs if source != target)

    def lay_out_sets(self) -> None:
        """Prepare how sets fall into stages; here each is one."""

    def pack(self) -> Array:
        """Fewest devices of each set (and micro-batches in flight), given ``need`` of each set as one stage."""
        return self.need

    def stages(self, number: int, depth: int) -> Iterator[int]:  # noqa: ARG002
        """Stages of a set with so many micro-batches in flight, as ``pack`` chose them: indices of their sets."""
        yield number

    def stats(self) -> dict[str, int]:
        """Counts that explain the effort."""
        return {
            "upsets": len(self.upsets),
            "transitions": len(self.after) * self.rounds,
            "sets": len(self.masks),
            "rounds": self.rounds,
        }

    def costs_at(self, microbatch: int) -> tuple[Array, Array]:
        """``tps`` and ``room`` (`StageTables.at`) of all columns."""
        if len(self.tables) == 1:
            return self.tables[0].at(microbatch)
        tps, room = np.empty((2, len(self.masks), len(self.degrees)))
        for table, own in zip(self.tables, self._columns, strict=True):
            tps[:, own], room[:, own] = table.at(microbatch)
        return tps, room.astype(np.int64)

    def plan(self, microbatch: int, target_s: float) -> StagePlan | None:
        """A plan on the fewest devices, with every stage within the target; ``None`` if none has enough devices."""
        self.rounds += 1
        tps, room = self.costs_at(microbatch)
        needed(tps, room, target_s, self.degrees, self.need)
        if not place_levels(self.start, self.level, self.after, self.pack(), self._least, self._pick, self._flag):
            return None
        if self._least[-1, 1] > self.costs.instance.num_devices:
            return None
        parts, tp_degrees = [], []
        for number, depth in list(self._parts())[::-1]:
            count = self.need[number, depth]
            fitting = (self.degrees == count) & (tps[number] <= target_s) & (room[number] >= depth)
            parts.append((self.masks[number], int(count)))
            tp_degrees.append(int(self.tp_degrees[fitting.argmax()]))
        instance = self.costs.instance
        return assemble(instance, parts, microbatch, sequential=self.sequential, tp_degrees=tp_degrees)

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Stages, as indices of their sets, and their depths."""
        upset, depth = len(self.upsets) - 1, 1
        while upset:
            move = int(self._pick[upset, depth])
            yield from ((number, depth) for number in self.stages(int(self.level[move]), depth))
            upset, depth = int(self.after[move]), depth + 1

    def best_at(self, microbatch: int, below_s: float = np.inf) -> StagePlan | None:
        """The plan with the least slowest stage at a micro-batch size, if that is below ``below_s``.

        ``None`` says that there is none in this search's space, unless the watch was stopped.
        """
        tps, room = self.costs_at(microbatch)
        targets = np.unique(tps[(room > 0) & (tps < below_s) & np.isfinite(tps)])
        best: StagePlan | None = None
        if not len(targets) or (best := self.plan(microbatch, targets[-1])) is None:
            return None
        low, high = 0, len(targets) - 1  # below low nothing is feasible, at high there is a plan
        while low < high and not self.watch.stopped():
            middle = (low + high) // 2
            found = self.plan(microbatch, targets[middle])
            if found is None:
                low = middle + 1
            else:
                best, high = found, middle
        return best


def best_of_sizes(
    instance: StageGraph, search: Chains, watch: Watch, known: StagePlan | None = None
) -> Answer[StagePlan]:
    """The best plan over all micro-batch sizes, of a search that leaves nothing out; ``known`` need not be found."""
    best, objective = known, np.inf if known is None else evaluate(instance, known)
    watch.bound(simple_bound(search.costs), Prover.BOUNDS)
    for microbatch in reversed(required_sizes(instance)):
        found = search.best_at(microbatch, objective * (1 - 1e-12))
        if found is not None and (value := evaluate(instance, found)) < objective:
            best, objective = found, value
            watch.plan(found, value)
        if watch.stopped():
            return Answer(best, stop=watch.why(), stats=search.stats())
    if best is None:
        return Answer(infeasible=True, stop=Stop.PROVED, stats=search.stats(), reason="no partition fits into memory")
    return Answer(best, bound=objective * (1 - 1e-11), stop=Stop.PROVED, stats=search.stats())
