"""A dynamic program's arrays: its transitions, and what every stage of them costs."""

from collections.abc import Sequence

import numpy as np

from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.costs.tables import StageTables
from formulations.stage_graph.kernels.program import Transitions
from formulations.stage_graph.paper.program import Program


class Tables(StageTables):
    """Arrays over a program as ``kernels`` take them.

    Attributes
    ----------
    moves
        Transitions of each state; their stages are indices into ``masks``.
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
