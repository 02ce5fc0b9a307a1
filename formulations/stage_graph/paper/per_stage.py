"""GraphPipe's recursion with a micro-batch size (and a k of kFkB) for every stage.

Symbols: a configuration c = (b, k) of a stage, with i samples in flight. A cell is what is left to plan, the (i, b, k)
behind it and d devices; for every c of its first stages it keeps the better plan, by peak memory (`kernels.per_stage`).
The first stages of branches side by side share their configuration, as the source that children of a parallel node
share has one in the paper.

Only powers of two are configurations, and of the sizes with which a stage keeps the target only the smallest ones: they
need the least in flight, and a larger one only helps where its neighbours' are larger still.

Source: GraphPipe, Algorithms 1 and 2, with the rule of ``microbatch_schedule.in_flight`` in place of Table 2.
"""

import itertools
import math
from collections.abc import Iterator
from copy import copy
from dataclasses import replace

import numpy as np

from formulations.compiled.array_types import Floats
from formulations.microbatch_schedule.definition.in_flight import ahead
from formulations.stage_graph.costs.costs import Costs, bits, with_in_flight
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import bottleneck_s, data_edges
from formulations.stage_graph.kernels.per_stage import FULL, Cells, Stages, cell
from formulations.stage_graph.paper.program import GROUP, STAGE, Remainder, TooLargeError
from formulations.stage_graph.paper.program_tables import Columns, Tables
from formulations.stage_graph.paper.search import TOLERANCE, Search
from solvers.memory_budget import demand

#: Values of k that are tried.
BLOCKS = (1, 2, 4)
#: Sizes tried for each stage and degree.
_SMALLEST = 2
#: What sums of seconds may lose to rounding.
_ROUNDING = 1e-9
#: Places of the first table, and of the largest: 1.2 GB.
_PLACES = (1 << 14, 1 << 23)


class PerStage:
    """The recursion of an instance whose schedule is ``per-stage`` or ``kfkb``, on the program of a search.

    `below` raises `TooLargeError` where the table of cells gets too large.
    """

    def __init__(self, search: Search) -> None:
        self.search, self.costs, self.watch = search, search.costs, search.watch
        self.transitions = self.rounds = 0
        instance, tables = self.costs.instance, search.tables
        self.sizes = [size for size in instance.microbatch_sizes if size & (size - 1) == 0]
        self.configurations = list(itertools.product(self.sizes, BLOCKS if instance.schedule == "kfkb" else BLOCKS[:1]))
        count = len(self.configurations)
        self._tps = np.array([tables.tps(size) for size in self.sizes])
        more = [ahead(*c, *y, instance.pass_ratio) for c in self.configurations for y in self.configurations]
        self._stages = Stages(
            degrees=tables.degrees,
            base=tables.base,
            kept=tables.kept,
            work=self._work(),
            quick=np.empty((0, 0, 0), np.int64),
            sizes=np.array([(size, instance.minibatch) for size in self.sizes], np.int64).reshape(-1, 2),
            micro=np.array([size for size, _ in self.configurations], np.int64),
            block=np.array([size * k for size, k in self.configurations], np.int64),
            ahead=np.array(more, np.int64).reshape(count, count),
        )

    def below(self, seconds: float) -> Iterator[StagePlan]:
        """Plans with a lower bottleneck than this, better and better (binary search on the target)."""
        if not self.sizes:
            return
        self._make_table(_PLACES[0])
        low, high = self._least_s(), seconds
        if math.isinf(high):
            found = self._plan(high)
            if found is None:
                return
            high = max(self._stage_s(stage) for stage in found.stages)
            yield found
        # `_least_s` leaves as much open as the search ends with, and is rounded.
        while high - low > TOLERANCE * (1 + 1e-9) * high and not self.watch.stopped():
            middle = (low + high) / 2
            found = self._plan(middle)
            if found is None:
                low = middle
            else:
                high = max(self._stage_s(stage) for stage in found.stages)
                yield found

    def _least_s(self) -> float:
        """Seconds per sample that no plan of this space goes below, with any memory.

        Sizes divide each other, so with the largest one each stage of a plan takes the least time on its devices. All
        stages may have it where memory holds everything for the whole mini-batch.
        """
        instance, roomy = self.costs.instance, copy(self.search)
        kept = [each.activation_bytes for each in instance.operators]
        kept += [each.bytes_per_sample for each in instance.edges]
        weights = math.fsum(each.weight_bytes for each in instance.operators)
        memory = instance.weight_copies * weights + instance.minibatch * math.fsum(kept)
        roomy.costs = Costs(replace(instance, memory_bytes=max(instance.memory_bytes, 2 * memory)))
        roomy.columns = Columns(Tables(roomy.costs, roomy.program, roomy.degrees), roomy.degrees)
        plan = roomy.best_at(max(self.sizes))
        return 0.0 if plan is None or self.watch.stopped() else bottleneck_s(instance, plan) * (1 - TOLERANCE)

    def _stage_s(self, stage: Stage) -> float:
        return self.costs.tps(sum(1 << node for node in stage.nodes), stage.microbatch, stage.devices)

    def _work(self) -> Floats:
        """Seconds per sample that all devices of a state are busy at least, rounded down."""
        found = np.zeros(self.search.tables.num_states)
        for state, (move, *_) in enumerate(self.search.program.transitions[1:], start=1):
            own = self.costs.work_s(move.nodes) * (1 - _ROUNDING) if move.nodes else 0.0
            found[state] = own + found[move.first] + found[move.second]
        return found

    def _make_table(self, places: int) -> None:
        """An empty table of cells, with two rows for each place."""
        count, depths = len(self.configurations), 2 * self.costs.instance.num_devices + 2
        keys = len(self._stages.work) * (self.costs.instance.minibatch + 1) * (count + 1) * depths
        if places > _PLACES[1] or keys >= 2**63:
            raise TooLargeError(f"the sizes of each stage need more than {_PLACES[1]} cells")
        demand(136.0 * places, f"{places} cells")
        self._cells = Cells(
            keys=np.empty(places, np.int64),
            start=np.zeros(places + 1, np.int64),
            end=np.zeros(places + 1, np.int64),
            rows=np.empty((2 * places, 6), np.int64),
            memory=np.empty(2 * places),
            used=np.zeros(3, np.int64),
            open=np.empty((depths, count, 6), np.int64),
            open_memory=np.empty((depths, count)),
        )

    def _plan(self, target_s: float) -> StagePlan | None:
        """The better plan that keeps the target, on all devices if possible."""
        stages, row = self._within(target_s), FULL
        while row == FULL:
            self.rounds += 1
            self._cells.keys[:], self._cells.used[:] = -1, 0
            row = self._best(stages, target_s)
            self.transitions += int(self._cells.used[2])
            if row == FULL:
                self._make_table(4 * len(self._cells.keys))
        if row < 0:
            return None
        found = tuple(self._parts(self.search.segment, row))[::-1]
        instance = self.costs.instance
        idle = instance.num_devices - sum(stage.devices for stage in found)
        return with_in_flight(instance, StagePlan(found, data_edges(instance, found), idle))

    def _within(self, target_s: float) -> Stages:
        """What stages take, with the smallest sizes of each that keep the target."""
        fast = (self._tps <= target_s) & np.isfinite(self._tps)
        first = [fast & (np.cumsum(fast, axis=0) == number) for number in range(1, _SMALLEST + 1)]
        quick = [np.where(each.any(axis=0), each.argmax(axis=0), -1) for each in first]
        return self._stages._replace(quick=np.stack(quick, axis=-1))

    def _best(self, stages: Stages, target_s: float) -> int:
        """The row of the plan with the least peak memory on the most devices; negative: none, or no room for more."""
        cells, moves, root = self._cells, self.search.tables.moves, self.search.root
        memory = float(self.costs.instance.memory_bytes)
        for devices in range(self.costs.instance.num_devices, 0, -1):
            at = int(cell(moves, stages, cells, target_s, memory, root, devices, self.search.flag))
            if at < 0:
                return at
            if rows := range(cells.start[at], cells.end[at]):
                return min(rows, key=lambda row: float(cells.memory[row]))
        return -1

    def _parts(self, remainder: Remainder, row: int) -> Iterator[Stage]:
        """The stages of a row of a remainder, last ones first; the table has those of one of its equal branches."""
        _, _, chosen, own, end, other = self._cells.rows[row].tolist()
        number = chosen - int(self.search.tables.moves.start[self.search.program.state(remainder)])
        move = next(itertools.islice(self.search.program.moves(remainder), number, None))
        if end >= 0:
            yield from self._parts(move.first, end)
        if own >= 0:
            column, c = divmod(own, len(self.configurations))
            size, k = self.configurations[c]
            yield Stage(tuple(bits(move.nodes)), int(self._stages.degrees[column]), size, size, k)
        if other >= 0:
            yield from self._parts(move.first if move.kind in (STAGE, GROUP) else move.second, other)
