"""Which solvers of MILPs are installed here."""

from importlib.util import find_spec

from solvers.outcome import DEFAULT_SOLVER

#: Those of MathOpt's that solve MILPs and are in the wheel of ortools.
_MATHOPT = ("gscip", "highs")

#: Those that are not run, with the rule that they break.
REFUSED = {
    "mathopt:cp_sat": "one that keeps continuous variables, which it rounds to whole numbers: its bounds and its "
    "infeasibility are not those of the model (CP-SAT itself runs the methods cpsat)"
}


def installed_solvers() -> list[str]:
    """The names that ``--solver`` takes here, the default first; Pyomo knows more by its own names for interfaces."""
    from solvers.external.through_pyomo import INTERFACES, available

    found = [DEFAULT_SOLVER, *(f"mathopt:{name}" for name in _MATHOPT)]
    if find_spec("pyscipopt"):
        found.append("scip")
    return found + [name for name in INTERFACES if name not in found and available(name)]
