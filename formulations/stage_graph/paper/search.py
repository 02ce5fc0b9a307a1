"""The published planner and its sequential baseline: binary search on the target, a dynamic program for each.

Symbols: t_m the target (seconds per sample), B the mini-batch, b the micro-batch size, C the configurations (here the
micro-batch sizes, as all stages have the same and run 1F1B), d devices.

Source: GraphPipe, Algorithm 1; with a chain of all operators, PipeDream's planner as the paper describes it (7.1).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from formulations.stage_graph.costs.costs import Costs, assemble
from formulations.stage_graph.costs.series_parallel import Segment
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.kernels.program import Best, StageCosts, exactly
from formulations.stage_graph.paper.program import (
    CHAIN,
    EMPTY,
    FORK,
    GROUP,
    SPLIT,
    STAGE,
    Program,
    Reach,
    Remainder,
    TooLargeError,
)
from formulations.stage_graph.paper.program_tables import Columns, Tables
from solvers.memory_budget import demand
from solvers.outcome import Watch

#: The binary search ends when its interval is shorter than this, relative to its upper end.
TOLERANCE = 1e-4
#: More transitions are not built.
MAX_TRANSITIONS = 400_000
#: Cells of an array of the recursion: half a gigabyte in all.
MAX_CELLS = 20_000_000

#: Operators of a stage as a bitset, and its devices; and how many of these share an operator.
Part = tuple[int, int]
SharedPart = tuple[int, int, int]


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, ... up to ``most``."""
    return [1 << power for power in range(most.bit_length())]


def room_for(states: int, most: int) -> tuple[int, int, int]:
    """The shape of an array over states and two counts from 0 to ``most``; `TooLargeError` if it would be too large."""
    if states * (most + 1) ** 2 > MAX_CELLS:
        raise TooLargeError(f"{states} states times {most + 1} squared; expected at most {MAX_CELLS}")
    demand(40.0 * states * (most + 1) ** 2, f"{states} states times {most + 1} squared")
    return states, most + 1, most + 1


@dataclass
class Search:
    """The dynamic program of an instance, and what it took."""

    costs: Costs
    segment: Segment
    reach: Reach
    degrees: Sequence[int]
    by_memory: bool
    sequential: bool
    watch: Watch
    transitions: int = 0
    rounds: int = 0
    tables: Tables = field(init=False)
    columns: Columns = field(init=False)
    root: int = field(init=False)
    flag: Any = field(init=False)

    def __post_init__(self) -> None:
        self.program = Program(self.reach, MAX_TRANSITIONS, self.watch)
        self.root = self.program.enter(self.segment)
        self.tables = Tables(self.costs, self.program, self.degrees)
        self.columns = Columns(self.tables, self.degrees)
        instance = self.costs.instance
        shape = room_for(self.tables.num_states, instance.num_devices)
        self._best = Best(
            np.empty(shape, np.int64), np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.int64)
        )
        self.flag = np.frombuffer(self.watch.flag, np.uint8)

    def best_at(self, microbatch: int) -> StagePlan | None:
        """The plan at one micro-batch size that the binary search ends with (Algorithm 1, lines 2 to 11)."""
        instance = self.costs.instance
        tps, room = self.columns.at(microbatch)
        usable = tps[(room > 0) & np.isfinite(tps)]
        if not len(usable):
            return None
        best: StagePlan | None = None
        low = self.costs.compute_s(self.costs.everything, microbatch) / microbatch / instance.num_devices
        if len(instance.tp_degrees) > 1:
            low = 0.0  # devices that share an operator may take less than their part of its time
        middle = high = float(usable.max())
        while not self.watch.stopped():
            found = self._stages(np.where(tps <= middle, room, -1), microbatch)
            if found is None:
                if best is None:
                    return None
                low = middle
            else:
                parts, shared = [each[:2] for each in found], [each[2] for each in found]
                best = assemble(instance, parts, microbatch, sequential=self.sequential, tp_degrees=shared)
                slowest = (self.columns.costs[t].tps(own, microbatch, taken // t) for own, taken, t in found)
                high = min(middle, max(slowest))
            if high - low <= TOLERANCE * high:
                break
            middle = (low + high) / 2
        return best

    def _stages(self, fits: Any, microbatch: int) -> list[SharedPart] | None:
        """The stages of the better plan that keeps the target, from the first on; all devices if possible."""
        columns, instance = self.columns, self.costs.instance
        sizes = np.array([microbatch, instance.minibatch])
        costs = StageCosts(fits, columns.devices, columns.replicas, columns.base, columns.kept, sizes)
        looked = exactly(self.tables.moves, costs, self.by_memory, self._best, self.flag)
        if looked < 0:
            return None
        self.transitions += looked
        self.rounds += 1
        for devices in range(instance.num_devices, 0, -1):
            if self._best.flight[self.root, 0, devices] >= 0:
                return list(self._parts(self.segment, 0, devices))[::-1]
        return None

    def _parts(self, remainder: Remainder, j: int, devices: int) -> Iterator[SharedPart]:
        """The stages that the last run chose for a remainder, last ones first."""
        state = self.program.state(remainder)
        if state == EMPTY:
            return
        chosen = int(self._best.pick[state, j, devices] - self.tables.moves.start[state])
        left, column = divmod(int(self._best.share[state, j, devices]), len(self.columns.devices))
        move = next(move for number, move in enumerate(self.program.moves(remainder)) if number == chosen)
        between = int(self._best.flight[self.program.state(move.first), j, left]) if move.kind in (CHAIN, FORK) else j
        if move.kind in (CHAIN, SPLIT, FORK):
            yield from self._parts(move.first, j, left)
        rest = devices - left
        if move.kind in (STAGE, GROUP, FORK):
            taken = int(self.columns.devices[column])
            rest -= taken
            yield move.nodes, taken, int(self.columns.tp_degrees[column])
        if move.kind == STAGE:
            yield from self._parts(move.first, j + 1, rest)
        elif move.kind == GROUP:
            yield from self._parts(move.first, j, rest)
        elif move.kind == SPLIT:
            yield from self._parts(move.second, j, rest)
        else:
            yield from self._parts(move.second, between + (move.kind == FORK), rest)
