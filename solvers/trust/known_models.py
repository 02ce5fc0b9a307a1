"""A canary: a model so small that its optimum is known by hand, run to check that a solver solves it correctly."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from solvers.outcome import Limits, Run, Stop

#: What a canary may take where the caller sets no limits.
_LIMITS = Limits(time_s=10.0)


#: Solvers keep each of two rows that share a continuous variable to 1e-6, relatively; wrong proofs are far from it.
_TOLERANCE = 3e-6


@dataclass(frozen=True)
class Canary:
    """A named model, its known ``optimum`` (``None``: it is infeasible), and how to run it."""

    name: str
    optimum: float | None
    solve: Callable[[Limits], Run]

    def check(self, limits: Limits = _LIMITS, *, proof: bool = True) -> str | None:
        """``None`` if the solver proves the known outcome; otherwise what it reported instead.

        Where no ``proof`` is demanded, it may end without one.
        """
        run = self.solve(limits)
        if not proof and run.stop is not Stop.PROVED and not run.reason:
            return None
        if self.optimum is None:
            found = run.reason or str(run.objective)
            return None if run.infeasible else f"{self.name}: expected infeasible, got {found}"
        if run.infeasible or run.stop is not Stop.PROVED or run.objective is None or run.bound is None:
            found = run.reason or f"{run.stop} at {run.objective} with bound {run.bound}"
            return f"{self.name}: expected a proof of {self.optimum}, got {found}"
        if not all(math.isclose(value, self.optimum, rel_tol=_TOLERANCE) for value in (run.objective, run.bound)):
            return f"{self.name}: expected {self.optimum}, got {run.objective} with bound {run.bound}"
        return None
