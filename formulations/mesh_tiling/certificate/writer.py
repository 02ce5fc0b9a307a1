"""Certificates of mesh tiling: plan and bound, where `checker` lists all covers by itself in bounded time."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from formulations.contract.certificates import Proof, certificate, check_stop
from formulations.mesh_tiling.certificate import checker
from instances.exchange import to_json
from instances.problems.mesh_tiling import MeshInstance
from solvers.outcome import Watch


def write(instance: MeshInstance, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """`certificate` of a plan and a bound; writing takes as long as checking."""

    def prove(exact: checker.Instance, T: Fraction | None) -> tuple[Fraction | None, Proof] | None:
        covers = checker.Covers(exact, T)
        while covers.left > 0 and covers.fronts:
            check_stop(watch)
            covers.lay()
        return None if covers.fronts and covers.finds_a_plan() else (T, {"kind": "search"})

    return certificate(checker.CHECKER, to_json(instance), plan, bound, prove)
