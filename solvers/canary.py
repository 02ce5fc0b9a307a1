"""A canary: a model so small that its optimum is known by hand, run to check that a solver solves it correctly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from solvers.outcome import Run, Stop


@dataclass(frozen=True)
class Canary:
    """A named model, its known ``optimum`` (``None``: it is infeasible), and how to run it."""

    name: str
    optimum: float | None
    solve: Callable[[], Run]

    def check(self) -> str | None:
        """``None`` if the solver proves the known outcome; otherwise what it reported instead."""
        run = self.solve()
        if self.optimum is None:
            return None if run.infeasible else f"{self.name}: expected infeasible, got {run.objective}"
        if run.infeasible or run.stop is not Stop.PROVED or run.objective is None or run.bound is None:
            return f"{self.name}: expected a proof of {self.optimum}, got {run.stop} at {run.objective}"
        if not all(math.isclose(value, self.optimum, rel_tol=1e-6) for value in (run.objective, run.bound)):
            return f"{self.name}: expected {self.optimum}, got {run.objective} with bound {run.bound}"
        return None
