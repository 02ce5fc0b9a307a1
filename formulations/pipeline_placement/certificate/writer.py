"""Certificates of pipeline placement: plan and bound, where `checker` tries all plans by itself in bounded time."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from formulations.contract.certificates import Proof, certificate, check_stop
from formulations.pipeline_placement.certificate import checker
from instances.exchange import to_json
from instances.problems.pipeline_placement import PlacementInstance
from solvers.outcome import Watch


def write(instance: PlacementInstance, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """`certificate` of a plan and a bound; writing takes as long as checking."""

    def prove(exact: checker.Instance, T: Fraction | None) -> tuple[Fraction | None, Proof] | None:
        return None if _Watched(exact, T, watch).finds_a_plan() else (T, {"kind": "search"})

    return certificate(checker.CHECKER, to_json(instance), plan, bound, prove)


class _Watched(checker.Search):
    """The checker's search, which ends where the run is stopped."""

    def __init__(self, exact: checker.Instance, bound: Fraction | None, watch: Watch) -> None:
        super().__init__(exact, bound)
        self._watch = watch

    def step(self) -> None:
        """Count one, or `UncertifiedError`."""
        super().step()
        if self.steps % 1000 == 1:
            check_stop(self._watch)
