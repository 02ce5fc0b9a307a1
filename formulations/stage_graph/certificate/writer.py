"""Certificates of stage graphs: plan and bound; `checker` looks for a plan within the bound by itself."""

from fractions import Fraction

from formulations.contract.certificates import Proved, certifies, check_stop
from formulations.stage_graph.certificate import checker
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Watch


@certifies(checker.CHECKER)
def write(_instance: StageGraph, exact: checker.Instance, T: Fraction | None, watch: Watch) -> Proved:
    """`certificate` of a plan and a bound; writing takes as long as checking."""
    lattice = checker.lattice_of(exact)
    return None if any(_finds(lattice, b, T, watch) for b in exact.sizes) else (T, {"kind": "search"})


def _finds(lattice: checker.Lattice, b: int, T: Fraction | None, watch: Watch) -> bool:
    """Whether the search of the checker at a size b ends with a label of all operators."""
    search = checker.Search(lattice, b, T)
    for _ in search.run():
        check_stop(watch)
    return bool(search.labels[-1])
