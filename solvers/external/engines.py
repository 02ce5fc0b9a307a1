"""Which engine runs the solver of a name; its package is imported only then."""

import threading
from importlib.util import find_spec

from solvers.external.engine import Engine
from solvers.external.messages import OWN_CPSAT, OWN_HIGHS


def engine_of(name: str, stopped: threading.Event) -> Engine:
    """The engine of a solver's name; `RefusedError` if it is not installed.

    Ours listen to ``stopped``: the task at work is to end.
    """
    if name == OWN_CPSAT:
        from solvers.external.own_cpsat import CpSat

        return CpSat(stopped)
    if name == OWN_HIGHS:
        from solvers.external.own_highs import Highs

        return Highs(stopped)
    kind, _, within = name.partition(":")
    if kind == "mathopt":
        from solvers.external.mathopt import MathOpt

        return MathOpt(within)
    if name == "scip" and find_spec("pyscipopt"):
        from solvers.external.scip import Scip

        return Scip()
    from solvers.external.through_pyomo import ThroughPyomo

    return ThroughPyomo(name)
