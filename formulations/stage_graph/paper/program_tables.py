"""A dynamic program's arrays: its transitions, and what every stage of them costs."""

from collections.abc import Sequence

import numpy as np

from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.costs.tables import Array, StageTables
from formulations.stage_graph.kernels.program import Transitions
from formulations.stage_graph.paper.program import Program


class Tables(StageTables):
    """Arrays over a program as ``kernels`` take them.

    ``moves``: Transitions of each state; their stages are indices into ``masks``.
    """

    def __init__(self, costs: Costs, program: Program, degrees: Sequence[int]) -> None:
        flat = [move for moves in program.transitions for move in moves]
        masks = list(dict.fromkeys(move.nodes for move in flat if move.nodes))
        super().__init__(costs, masks, np.array(degrees, dtype=np.int64))
        index = {0: -1} | {nodes: number for number, nodes in enumerate(masks)}
        self.moves = Transitions(
            start=np.cumsum([0, *(len(moves) for moves in program.transitions)]),
            kind=np.array([move.kind for move in flat], dtype=np.int64),
            stage=np.array([index[move.nodes] for move in flat], dtype=np.int64),
            first=np.array([move.first for move in flat], dtype=np.int64),
            second=np.array([move.second for move in flat], dtype=np.int64),
        )

    @property
    def num_states(self) -> int:
        """States, the empty one among them."""
        return len(self.moves.start) - 1


class Columns:
    """The same by columns: r replicas of t devices, those of fewer devices first; ``degrees`` are r.

    ``devices``, ``replicas``, ``tp_degrees``: of each column.
    ``base``, ``kept``, ``costs``: As of `StageTables`, for each stage and column; what stages cost at each
    tensor-parallel degree.
    """

    def __init__(self, tables: StageTables, degrees: Sequence[int]) -> None:
        instance = tables.costs.instance
        found = sorted((r * t, t, r) for t in instance.tp_degrees for r in degrees if r * t <= instance.num_devices)
        self.devices, self.tp_degrees, self.replicas = (
            np.array([each[k] for each in found], dtype=np.int64) for k in range(3)
        )
        self._own = [np.nonzero(self.tp_degrees == t)[0] for t in instance.tp_degrees]
        self.tables = [
            tables if t == 1 else StageTables(Costs(instance, t), tables.masks, self.replicas[own])
            for t, own in zip(instance.tp_degrees, self._own, strict=True)
        ]
        self.costs = {each.costs.tp_degree: each.costs for each in self.tables}
        self.base, self.kept = (
            np.stack([getattr(self.tables[instance.tp_degrees.index(t)], name) for _, t, _ in found], axis=1)
            for name in ("base", "kept")
        )

    def at(self, microbatch: int) -> tuple[Array, Array]:
        """``tps`` and ``room`` of a micro-batch size, as `StageTables.at` has them."""
        tps, room = (np.empty(self.base.shape, kind) for kind in (np.float64, np.int64))
        for own, tables in zip(self._own, self.tables, strict=True):
            tps[:, own], room[:, own] = tables.at(microbatch)
        return tps, room
