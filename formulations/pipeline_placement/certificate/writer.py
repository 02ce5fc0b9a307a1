"""Certificates of pipeline placement: plan and bound, where `checker` tries all plans by itself in bounded time."""

from fractions import Fraction

from formulations.contract.certificates import Proved, certifies, check_stop
from formulations.pipeline_placement.certificate import checker
from instances.problems.pipeline_placement import PlacementInstance
from solvers.outcome import Watch


@certifies(checker.CHECKER)
def write(_instance: PlacementInstance, exact: checker.Instance, T: Fraction | None, watch: Watch) -> Proved:
    """`certificate` of a plan and a bound; writing takes as long as checking."""
    return None if _Watched(exact, T, watch).finds_a_plan() else (T, {"kind": "search"})


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
