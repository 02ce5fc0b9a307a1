"""A linear model as plain arrays, as it is handed to the process of a solver."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Matrix:
    """``least <= A x <= most`` and ``lower <= x <= upper``; the costs are minimised or maximised.

    ``costs``, ``lower``, ``upper`` and ``is_whole`` have an entry for each column, ``least`` and ``most`` for each row;
    row r has ``factors[starts[r]:starts[r + 1]]`` in the columns of the same part of ``columns``, ascending, none 0.
    Infinite sides are infinite floats.
    """

    costs: Any
    offset: float
    is_minimum: bool
    lower: Any
    upper: Any
    is_whole: Any
    least: Any
    most: Any
    starts: Any
    columns: Any
    factors: Any

    @classmethod
    def of(cls, lp: Any) -> "Matrix":
        """Of a ``HighsLp``."""
        import highspy

        from solvers.trust.prove_twice import entries

        row, column, factors = entries(lp)
        order = np.lexsort((column, row))
        order = order[factors[order] != 0.0]
        counts = np.bincount(row[order], minlength=lp.num_row_)
        kinds = lp.integrality_ or [highspy.HighsVarType.kContinuous] * lp.num_col_
        return cls(
            costs=np.array(lp.col_cost_, np.float64),
            offset=float(lp.offset_),
            is_minimum=lp.sense_ == highspy.ObjSense.kMinimize,
            lower=np.array(lp.col_lower_, np.float64),
            upper=np.array(lp.col_upper_, np.float64),
            is_whole=np.array([kind != highspy.HighsVarType.kContinuous for kind in kinds], bool),
            least=np.array(lp.row_lower_, np.float64),
            most=np.array(lp.row_upper_, np.float64),
            starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            columns=column[order],
            factors=factors[order],
        )

    def relaxed(self) -> "Matrix":
        """The same without whole numbers."""
        return replace(self, is_whole=np.zeros_like(self.is_whole))

    def row(self, place: int) -> tuple[Any, Any]:
        """Columns and factors of a row."""
        part = slice(self.starts[place], self.starts[place + 1])
        return self.columns[part], self.factors[part]

    def value(self, values: Any) -> float:
        """The objective of a solution."""
        return float(np.dot(self.costs, values)) + self.offset

    def holds(self, values: Any, tolerance: float = 1e-4) -> bool:
        """Whether values are a solution, within what solvers allow themselves."""
        rows = np.repeat(np.arange(len(self.least)), np.diff(self.starts))
        totals = np.bincount(rows, self.factors * values[self.columns], minlength=len(self.least))
        room = tolerance * np.maximum(1.0, np.abs(totals))
        off = np.abs(values - np.round(values))[self.is_whole]
        return bool(
            np.all(totals >= self.least - room)
            and np.all(totals <= self.most + room)
            and np.all(values >= self.lower - tolerance)
            and np.all(values <= self.upper + tolerance)
            and np.all(off <= tolerance)
        )

    @property
    def is_refuted(self) -> bool:
        """Whether a row without coefficients cannot hold."""
        empty = np.diff(self.starts) == 0
        return bool(np.any(empty & ((self.least > 0) | (self.most < 0))))

    @property
    def is_bounded(self) -> bool:
        """Whether the columns' own bounds keep the objective finite: then a solver that cannot tell has refuted it."""
        costs = self.costs if self.is_minimum else -self.costs
        improving = np.where(costs > 0, self.lower, self.upper)
        return bool(np.all(np.isfinite(improving[costs != 0])))
