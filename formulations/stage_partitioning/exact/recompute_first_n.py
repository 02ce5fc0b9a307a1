"""The best cut of a chain into stages of one pair of degrees, where leading layers decide what is recomputed.

The first n layers of every stage are recomputed, for an n that is the same for all stages (or is 0 or all of them), so
a stage has one cost. With r stages left from piece i on,

    f(r, i) = min over j > i of max(time(i, j), f(r - 1, j)),  memory: A(i, j) r + B(i, j) <= M

is the least time of the slowest of them. Sums are taken from i on, never as differences: profiles that write 1e30 for
"impossible" would drown the digits of all others.

Source: this project.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.trainers import Kind, Recompute
from formulations.stage_partitioning.exact.trainer_chain import PLAIN, RECOMPUTED, Chain
from instances.problems.stage_partitioning import CostModel, StageInstance, Tmpc
from instances.rules import NodeId
from solvers.memory_budget import demand
from solvers.outcome import Watch

Floats = NDArray[np.float64]

#: A stage fits if its memory is at most M times this: below the slack of the definition by more than sums can err.
_SLACK = 1 + 5e-13


class Cuts:
    """The cuts of a chain at degrees t, d into so many stages; ``flat`` is the chain at t (`Chain.at`)."""

    def __init__(self, chain: Chain, flat: StageInstance, t: int, d: int, stages: int) -> None:
        self._table, self._stages = _Table(chain, flat, t, d), stages
        self._memory = flat.memory_bytes * _SLACK
        self._only_all = chain.trainer.recompute is Recompute.ALL
        self._fits = True
        #: Dynamic programs that ran.
        self.programs = 0

    def recompute_all(self, limit: float) -> tuple[float, StagePlan] | None:
        """The best plan below the limit that recomputes all layers, with its time: this fits if anything does."""
        if self._table.least / self._stages >= limit:
            return None
        value, ends = self._best_cuts(*self._table.stages(self._table.most))
        self._fits = bool(ends) or not self._table.saves
        return (value, self._table.plan(ends, self._table.most)) if value < limit else None

    def others(self, limit: float, watch: Watch) -> Iterator[tuple[float, StagePlan]]:
        """Better and better plans below the limit with fewer layers recomputed, and their times; it ends if stopped.

        Where recomputing costs time, no stage gets faster with more of it, and an n that no stage below the limit has
        more layers than is as good as all of them.
        """
        table = self._table
        if not self._fits or table.least / self._stages >= limit:
            return
        kept = table.stages(0)[0]
        for n in [0] if self._only_all else range(table.most):
            if watch.stopped():
                return
            times, held, fixed = table.stages(n)
            if table.recomputing_costs:
                longest = table.most_layers(kept < limit)
                if n > longest or _least(times, self._stages)[0] >= limit:
                    return
            value, ends = self._best_cuts(times, held, fixed)
            if value < limit:
                limit = value
                yield value, table.plan(ends, n)

    def _best_cuts(self, times: Floats, held: Floats, fixed: Floats) -> tuple[float, list[int]]:
        self.programs += 1
        return _best_cuts(times, held, fixed, self._memory, self._stages)


class _Table:
    """What the pieces of a chain cost at one pair of degrees, without and with recomputation: shape (2, pieces)."""

    def __init__(self, chain: Chain, flat: StageInstance, t: int, d: int) -> None:
        self.t, self.d, self.size = t, d, len(flat.layers)
        demand(64.0 * self.size * (self.size + 1), f"the stages between all cuts of {self.size} pieces")
        self.counts = np.array([piece.kind is Kind.DECODER for piece in chain.pieces])
        choices = [{x.id: x for x in layer.tmpcs[t]} for layer in flat.layers]
        paper = flat.cost_model is CostModel.PAPER
        resync = 4 * (d - 1) / d / (d if paper else flat.num_microbatches) / flat.bandwidth
        share = 2 / d / flat.bandwidth
        rows = [[choice.get(name) for choice in choices] for name in (PLAIN, RECOMPUTED)]
        self.time = _table_of(rows, lambda x: x.time / d + resync * x.weight_bytes)
        self.held, self.fixed = _table_of(rows, lambda x: x.activation_bytes), _table_of(rows, lambda x: x.static_bytes)
        ends = np.array(flat.edge_indices, np.int64).reshape(-1, 2)
        self.source, self.target = ends[:, 0], ends[:, 1]
        self.into, self.out = np.zeros((2, len(ends))), np.zeros((2, len(ends)))
        for e, edge in enumerate(flat.edges):
            for flag in (0, 1):
                into, out = rows[flag][self.target[e]], rows[flag][self.source[e]]
                if into is not None:
                    self.into[flag, e] = share * (edge.bytes + into.sync_forward_bytes.get(edge.source, 0.0))
                if out is not None:
                    self.out[flag, e] = share * (edge.bytes + out.sync_backward_bytes.get(edge.target, 0.0))
        self.most = int(self.counts.sum())
        self.least = float(self.time.min(axis=0).sum())
        #: The cuts that each edge crosses, one entry for each: a cut at j lies in front of piece j.
        self.crossing = np.repeat(np.arange(len(ends)), self.target - self.source)
        self.at = np.concatenate([np.arange(u + 1, v + 1) for u, v in ends] or [np.zeros(0, np.int64)])
        self.recomputing_costs = bool(
            (self.time[1] >= self.time[0])[self.counts].all()
            and (self.into[1] >= self.into[0])[self.counts[self.target]].all()
            and (self.out[1] >= self.out[0])[self.counts[self.source]].all()
        )
        lighter = (self.held[1] <= self.held[0]) & (self.held[1] + self.fixed[1] <= self.held[0] + self.fixed[0])
        self.saves = bool(lighter[self.counts].all())

    def most_layers(self, admitted: NDArray[np.bool_]) -> int:
        """The most layers that count in one of the admitted stages of pieces i..j-1, shape (pieces, pieces + 1)."""
        so_far = np.append(0, np.cumsum(self.counts))
        return int((so_far[None, :] - so_far[:-1, None])[admitted].max(initial=0))

    def flags(self, first: int, n: int) -> NDArray[np.int64]:
        """For a stage that begins at ``first``: which pieces from there on are recomputed; 0 in front of it."""
        counted = self.counts & (np.arange(self.size) >= first)
        return (counted & (np.cumsum(counted) <= n)).astype(np.int64)

    def stages(self, n: int) -> tuple[Floats, Floats, Floats]:
        """Time, bytes per micro-batch and bytes besides of stages of pieces i..j-1, each shape (pieces, pieces + 1)."""
        times, held, fixed = (np.full((self.size, self.size + 1), np.inf) for _ in range(3))
        every = np.arange(self.size)
        for i in range(self.size):
            flags = self.flags(i, n)
            entering = (self.source < i) & (self.target >= i)
            own = self.time[flags, every]
            own = own + np.bincount(
                self.target[entering],
                self.into[flags[self.target[entering]], np.flatnonzero(entering)],
                minlength=self.size,
            )
            inside = self.source[self.crossing] >= i
            edges = self.crossing[inside]
            leaving = np.bincount(self.at[inside], self.out[flags[self.source[edges]], edges], minlength=self.size + 1)
            times[i, i + 1 :] = np.cumsum(own[i:]) + leaving[i + 1 :]
            held[i, i + 1 :] = np.cumsum(self.held[flags, every][i:])
            fixed[i, i + 1 :] = np.cumsum(self.fixed[flags, every][i:])
        return times, held, fixed

    def plan(self, ends: list[int], n: int) -> StagePlan:
        """The plan of the chain whose stages end in front of these pieces."""
        found = []
        for start, end in zip([0, *ends], ends, strict=False):
            flags = self.flags(start, n)
            tmpcs: dict[NodeId, str] = {place: RECOMPUTED if flags[place] else PLAIN for place in range(start, end)}
            found.append(Stage(tuple(range(start, end)), self.d, self.t, tmpcs))
        return StagePlan(tuple(found))


def _table_of(rows: list[list[Tmpc | None]], value: object) -> Floats:
    """A number of each TMPC; infinite where there is none."""
    assert callable(value)
    return np.array([[np.inf if x is None else value(x) for x in row] for row in rows])


def _least(times: Floats, stages: int) -> Floats:
    """Least time of the slowest of so many stages from each piece on, were there memory enough."""
    least = _no_stages(len(times))
    for _ in range(stages):
        least = np.append(np.maximum(times, least).min(axis=1), np.inf)
    return least


def _best_cuts(times: Floats, held: Floats, fixed: Floats, memory: float, stages: int) -> tuple[float, list[int]]:
    """Least time of the slowest stage, and in front of which pieces the stages end."""
    rows, least = np.arange(len(times)), _no_stages(len(times))
    picks: list[NDArray[np.int64]] = []
    for left in range(1, stages + 1):
        with np.errstate(invalid="ignore"):
            fits = held * left + fixed <= memory
        slowest = np.maximum(np.where(fits, times, np.inf), least)
        picks.append(slowest.argmin(axis=1))
        least = np.append(slowest[rows, picks[-1]], np.inf)
    ends: list[int] = []
    if np.isfinite(least[0]):
        for pick in reversed(picks):
            ends.append(int(pick[ends[-1] if ends else 0]))
    return float(least[0]), ends


def _no_stages(size: int) -> Floats:
    """No stage is left: all pieces must be behind."""
    return np.append(np.full(size, np.inf), 0.0)
