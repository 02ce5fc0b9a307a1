"""Certificates of hierarchical partitioning: plan and bound; `checker` looks for a plan within the bound by itself."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from formulations.contract.certificates import Proof, certificate, check_stop
from formulations.contract.family import UncertifiedError
from formulations.hierarchical_partitioning.certificate import checker
from instances.exchange import to_json
from instances.problems.hierarchical_partitioning import HierarchicalInstance, Objective
from solvers.outcome import Watch


def write(instance: HierarchicalInstance, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """`certificate` of a plan and a bound; writing takes as long as checking."""
    if instance.upper_levels:
        raise UncertifiedError("the checker does not know levels above machines")
    if instance.objective is Objective.ITERATION:
        raise UncertifiedError("the checker does not know the objective iteration")

    def prove(exact: checker.Instance, T: Fraction | None) -> tuple[Fraction | None, Proof] | None:
        search = checker.Search(checker.lattice_of(exact), T)
        for _ in search.run():
            check_stop(watch)
        return None if search.labels[-1] else (T, {"kind": "search"})

    return certificate(checker.CHECKER, to_json(instance), plan, bound, prove)
