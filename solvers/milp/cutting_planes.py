"""A linear program that grows by rows, kept in HiGHS with its last basis: the master program of cutting planes.

Source: bounds are those of Neumaier and Shcherbina, "Safe bounds in linear and mixed-integer linear programming"
(2004): whatever a solver's duals are, they prove them, so no tolerance of the solver is in them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import highspy
import numpy as np

from solvers import check_solver
from solvers.highs_settings import configure, poll, run_for_rest
from solvers.outcome import Limits, Watch
from solvers.trust.pins import demand

Vector = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.int64]]
#: Places of variables and their factors, and the least and most of their sum.
Row = tuple[Sequence[int] | Places, Sequence[float] | Vector, float, float]


class Solved(NamedTuple):
    """Values of the variables, what the duals prove of the least cost, and each variable's reduced cost."""

    values: Vector
    bound: float
    reduced: Vector


class Rows:
    """The least cost of variables that are at least 0 under rows, to which more are added.

    ``costs``, ``upper``: of each variable; what a variable may be at most is finite, or is so where the bound matters:
    ``most`` of `run`.
    ``rows``: the first ones.
    `BackendError` as `solvers.milp.backend.run`.
    """

    def __init__(self, costs: Vector, rows: Sequence[Row], limits: Limits, watch: Watch) -> None:
        demand("highspy")
        check_solver.demand_passed("highs", limits)
        self.costs, self.watch = costs, watch
        self.highs = highspy.Highs()
        self.highs.setOptionValue("output_flag", False)
        configure(self.highs, limits, {"presolve": "off"})
        self.highs.cbSimplexInterrupt.subscribe(poll(watch))
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(costs), len(rows)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = costs, np.zeros_like(costs), np.full_like(costs, np.inf)
        lp.row_lower_, lp.row_upper_ = (np.array([row[k] for row in rows], dtype=float) for k in (2, 3))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row[0]) for row in rows)]).astype(np.int32)
        lp.a_matrix_.index_ = np.concatenate([row[0] for row in rows]).astype(np.int32)
        lp.a_matrix_.value_ = np.concatenate([row[1] for row in rows]).astype(float)
        self.highs.passModel(lp)
        self._rows = list(rows)
        self._flat: tuple[Places, Places, Vector, Vector, Vector] | None = None

    def add(self, places: Sequence[int], factors: Sequence[float], least: float) -> None:
        """Add a row: a sum is at least so much."""
        index, value = np.array(places, np.int32), np.array(factors, float)
        self.highs.addRow(least, highspy.kHighsInf, len(index), index, value)
        self._rows.append((places, factors, least, np.inf))
        self._flat = None

    def run(self, upper: Vector, most: Vector) -> Solved | None:
        """Solve it with variables of at most ``upper``; ``None`` if HiGHS fails or is stopped.

        The bound is one on solutions that are at most ``most`` besides, which is finite.
        """
        every = np.arange(len(upper), dtype=np.int32)
        self.highs.changeColsBounds(len(upper), every, np.zeros_like(upper), upper)
        if run_for_rest(self.highs, self.watch) != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self.highs.getSolution()
        if self._flat is None:
            owner = np.repeat(np.arange(len(self._rows)), [len(row[0]) for row in self._rows])
            index, value = (np.concatenate([row[k] for row in self._rows]) for k in (0, 1))
            low, high = (np.array([row[k] for row in self._rows], dtype=float) for k in (2, 3))
            self._flat = owner, index.astype(np.int64), value.astype(float), low, high
        row, column, factor, low, high = self._flat
        duals = np.array(solution.row_dual)
        # A dual of the wrong sign for a row without the side that it speaks of counts as 0.
        duals = np.where(((duals > 0) & np.isinf(low)) | ((duals < 0) & np.isinf(high)), 0.0, duals)
        reduced = self.costs - np.bincount(column, factor * duals[row], len(upper))
        sides = np.where(duals > 0, low, high)
        used = duals != 0
        rows = float(np.dot(duals[used], sides[used]))
        bound = rows + float(np.dot(np.minimum(reduced, 0.0), np.minimum(upper, most)))
        return Solved(np.array(solution.col_value), bound, reduced)
