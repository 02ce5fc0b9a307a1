"""What a method loses on an instance: both methods are run on it, and the reference has to prove its optimum."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from formulations.contract.family import Family, Method
from planner.results.optimality_loss import losses
from planner.results.result import Result
from planner.solving.solve import run
from solvers.outcome import Limits, Status, Stop

#: Seconds for a method on one instance; a result that a limit cut short is no evidence against it.
EVALUATION_S = 10.0
#: However late it is, a method has so many.
LEAST_S = 0.1


@dataclass(frozen=True)
class Evaluation:
    """The results of both methods on an instance, and the loss to the optimum that the reference proved.

    ``loss`` is ``None`` where nothing is lost that could be measured; ``is_without_plan``: the method came to its end
    without a plan, although there is one.
    """

    instance: Any
    result: Result | None
    reference: Result
    loss: float | None
    is_without_plan: bool = False

    @property
    def signal(self) -> int | None:
        """The signal that interrupted one of the runs."""
        return self.reference.signal or (self.result.signal if self.result else None)


@dataclass(frozen=True)
class Pair:
    """A method, the reference that it is measured against, and their options by the methods' names."""

    family: Family[Any, Any]
    method: Method[Any, Any]
    reference: Method[Any, Any]
    options: Mapping[str, Mapping[str, Any]]

    def takes(self, instance: Any) -> bool:
        """Whether both methods take the instance."""
        return self.method.refusal(instance) is None and self.reference.refusal(instance) is None

    def evaluate(self, instance: Any, limits: Limits, ends: float = math.inf) -> Evaluation:
        """Run the reference, and the method where the reference has an optimum.

        Each has `EVALUATION_S`, and both together what is left until ``ends`` (of ``time.perf_counter``).

        `CrosscheckError` if a plan breaks a rule, or a bound lies above a verified plan.
        """
        reference = run(self.family, self.reference, instance, _until(limits, ends), self.options[self.reference.name])
        if reference.status is not Status.OPTIMAL:
            return Evaluation(instance, None, reference, None)
        result = run(self.family, self.method, instance, _until(limits, ends), self.options[self.method.name])
        known = [(result.objective, result.bound), (reference.objective, reference.bound)]
        is_over = result.stop in (Stop.COMPLETED, Stop.PROVED)
        return Evaluation(
            instance,
            result,
            reference,
            losses(known)[0] if is_over else None,
            is_over and result.objective is None and "left_behind" not in result.stats,
        )


def _until(limits: Limits, ends: float) -> Limits:
    """The limits with the time that a method has now: at least a little, as it has to be prepared."""
    return replace(limits, time_s=min(EVALUATION_S, max(LEAST_S, ends - time.perf_counter())))
