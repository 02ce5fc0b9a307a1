"""A linear program that grows by columns, kept in HiGHS with its last basis: the master program of column generation.

It gives prices alone. What these prove is for the room to say, which knows all columns: whatever the prices are, no
tolerance of the solver is in such a bound.
"""

from collections.abc import Sequence

import highspy
import numpy as np
from numpy.typing import NDArray

from solvers import check_solver
from solvers.highs_settings import configure, poll, run_for_rest
from solvers.milp import backend as milp
from solvers.outcome import Limits, Watch
from solvers.trust.pins import demand


class Growing:
    """The least cost of a cover: ``sum of count[i, c] x[c] >= sides[i]`` for each row i, every x at least 0.

    ``sides``: one for each row.
    ``dearest``: what a row costs that no column covers, for each unit of its side.
    `BackendError`: as `solvers.milp.backend.run`.
    """

    def __init__(self, sides: Sequence[float], dearest: float, limits: Limits, watch: Watch) -> None:
        demand("highspy")
        check_solver.demand_passed("highs", limits)
        self.watch, self.solver, self.runs = watch, milp.version(), 0
        self.highs = highspy.Highs()
        self.highs.setOptionValue("output_flag", False)
        configure(self.highs, limits, {"presolve": "off"})
        self.highs.cbSimplexInterrupt.subscribe(poll(watch))
        for row, side in enumerate(sides):
            self.highs.addRow(float(side), highspy.kHighsInf, 0, np.empty(0, np.int32), np.empty(0))
            self.highs.addCol(dearest, 0.0, highspy.kHighsInf, 1, np.array([row], np.int32), np.ones(1))

    def add(self, cost: float, counts: NDArray[np.float64]) -> None:
        """Add a column: what it costs, and how much of each row it covers."""
        rows = np.nonzero(counts)[0].astype(np.int32)
        self.highs.addCol(cost, 0.0, highspy.kHighsInf, len(rows), rows, counts[rows])

    def prices(self) -> tuple[float, NDArray[np.float64]] | None:
        """The least cost, and what one more of each row costs, at least 0; ``None`` if HiGHS fails or is stopped."""
        self.runs += 1
        if run_for_rest(self.highs, self.watch) != highspy.HighsModelStatus.kOptimal:
            return None
        duals = np.array(self.highs.getSolution().row_dual)
        return self.highs.getInfo().objective_function_value, np.maximum(duals, 0.0)
