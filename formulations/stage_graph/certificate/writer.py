"""Certificates of stage graphs: plan and bound; `checker` looks for a plan within the bound by itself."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from formulations.contract.certificates import Proof, certificate, check_stop
from formulations.stage_graph.certificate import checker
from instances.exchange import to_json
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Watch


def write(instance: StageGraph, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """`certificate` of a plan and a bound; writing takes as long as checking."""

    def prove(exact: checker.Instance, T: Fraction | None) -> tuple[Fraction | None, Proof] | None:
        lattice = checker.lattice_of(exact)
        return None if any(_finds(lattice, b, T, watch) for b in exact.sizes) else (T, {"kind": "search"})

    return certificate(checker.CHECKER, to_json(instance), plan, bound, prove)


def _finds(lattice: checker.Lattice, b: int, T: Fraction | None, watch: Watch) -> bool:
    """Whether the search of the checker at a size b ends with a label of all operators."""
    search = checker.Search(lattice, b, T)
    for _ in search.run():
        check_stop(watch)
    return bool(search.labels[-1])
