"""Which engine runs the solver of a name; its package is imported only then."""

from __future__ import annotations

from importlib.util import find_spec

from solvers.external.engine import Engine


def engine_of(name: str) -> Engine:
    """The engine of a solver's name; `RefusedError` if it is not installed."""
    kind, _, within = name.partition(":")
    if kind == "mathopt":
        from solvers.external.mathopt import MathOpt

        return MathOpt(within)
    if name == "scip" and find_spec("pyscipopt"):
        from solvers.external.scip import Scip

        return Scip()
    from solvers.external.through_pyomo import ThroughPyomo

    return ThroughPyomo(name)
