"""A linear model that HiGHS solves again and again, each time with other variables left out; bounds from its duals.

Source: the bound is that of Neumaier and Shcherbina, "Safe bounds in linear and mixed-integer linear programming"
(2004): whatever a solver's duals are, they prove it, so no tolerance of the solver is in it.
"""

from collections.abc import Collection
from typing import Any

import highspy
import numpy as np
import pyomo.environ as pyo
from numpy.typing import NDArray

from solvers import check_solver
from solvers.highs_settings import configure, poll, run_for_rest
from solvers.milp import backend as milp
from solvers.milp.translation import translate
from solvers.outcome import Limits, Run, Watch
from solvers.trust.pins import demand
from solvers.values import Values


class Repeated:
    """HiGHS with a Pyomo model whose integers count as continuous, kept from run to run with its last basis.

    Every variable has finite bounds, of which 0 is the lower one.

    `BackendError`: as `solvers.milp.backend.run`.
    """

    def __init__(self, model: pyo.ConcreteModel, limits: Limits, watch: Watch) -> None:
        demand("highspy")
        check_solver.demand_passed("highs", limits)
        self.watch, self.seed = watch, limits.seed
        self.highs, self.columns, _, _ = translate(model, watch)
        count = self.highs.getNumCol()
        every = np.arange(count, dtype=np.int32)
        self.highs.changeColsIntegrality(count, every, np.zeros(count, np.uint8))
        configure(self.highs, limits, {"presolve": "off"})
        self.upper = np.array(self.highs.getLp().col_upper_)
        self.highs.cbSimplexInterrupt.subscribe(poll(watch))
        self.solver = milp.version()
        self.stats = {"variables": count, "constraints": self.highs.getNumRow()}

    def run(self, without: Collection[Any]) -> Run:
        """The least objective if these variables are 0; ``bound`` is what the duals prove, ``None`` where they fail."""
        upper = self.upper.copy()
        upper[[self.columns[id(variable)] for variable in without]] = 0.0
        every = np.arange(len(upper), dtype=np.int32)
        self.highs.changeColsBounds(len(upper), every, np.zeros(len(upper)), upper)
        is_solved = run_for_rest(self.highs, self.watch) == highspy.HighsModelStatus.kOptimal
        solution = self.highs.getSolution()
        return Run(
            stop=self.watch.why(),
            values=Values(self.columns, solution.col_value) if is_solved else None,
            objective=self.highs.getInfo().objective_function_value if is_solved else None,
            bound=self._dual_bound(np.array(solution.row_dual), upper) if solution.dual_valid else None,
            solver=milp.version(),
        )

    def _dual_bound(self, duals: NDArray[np.float64], upper: NDArray[np.float64]) -> float:
        """What the rows' duals prove: their own part, and the least that each column's reduced cost adds to it.

        A dual of the wrong sign for a row without the bound that it speaks of counts as 0.
        """
        lp = self.highs.getLp()
        low, high = np.array(lp.row_lower_), np.array(lp.row_upper_)
        duals = np.where(((duals > 0) & np.isinf(low)) | ((duals < 0) & np.isinf(high)), 0.0, duals)
        sides = np.where(duals > 0, low, high)
        rows = float(np.dot(duals[duals != 0], sides[duals != 0]))
        matrix = lp.a_matrix_
        index, start, value = np.array(matrix.index_, np.int64), np.array(matrix.start_), np.array(matrix.value_)
        owner = np.repeat(np.arange(len(upper)), np.diff(start))
        reduced = np.array(lp.col_cost_) - np.bincount(owner, value * duals[index], len(upper))
        return float(lp.offset_ + rows + np.dot(np.minimum(reduced, 0.0), upper))
