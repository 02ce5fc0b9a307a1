"""Which solvers of MILPs are installed here."""

from __future__ import annotations

from importlib.util import find_spec

from solvers.outcome import DEFAULT_SOLVER

#: Those of MathOpt's that solve MILPs and are in the wheel of ortools.
_MATHOPT = ("gscip", "cp_sat", "highs")


def installed() -> list[str]:
    """The names that ``--solver`` takes here, the default first; Pyomo knows more by its own names for interfaces."""
    from solvers.external.through_pyomo import INTERFACES, available

    found = [DEFAULT_SOLVER, *(f"mathopt:{name}" for name in _MATHOPT)]
    if find_spec("pyscipopt"):
        found.append("scip")
    return found + [name for name in INTERFACES if name not in found and available(name)]
