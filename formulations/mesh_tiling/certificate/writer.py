"""Certificates of mesh tiling: plan and bound, where `checker` lists all covers by itself in bounded time."""

from fractions import Fraction

from formulations.contract.certificates import Proved, certifies, check_stop
from formulations.mesh_tiling.certificate import checker
from instances.problems.mesh_tiling import MeshInstance
from solvers.outcome import Watch


@certifies(checker.CHECKER)
def write(_instance: MeshInstance, exact: checker.Instance, T: Fraction | None, watch: Watch) -> Proved:
    """`certificate` of a plan and a bound; writing takes as long as checking."""
    covers = checker.Covers(exact, T)
    while covers.left > 0 and covers.fronts:
        check_stop(watch)
        covers.lay()
    return None if covers.fronts and covers.finds_a_plan() else (T, {"kind": "search"})
