"""What a declarative model begins with: the plan of a quick heuristic of its problem.

The plan is reported and hinted to the solver, and constrains nothing. Whose plan an answer holds is in its ``stats``;
its bound is the model's own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from formulations.contract.family import Violation
from formulations.contract.quantities import judge
from solvers.outcome import Watch

Instance = TypeVar("Instance")

#: The share of the time left, and the seconds, that a first plan may take.
SHARE, MOST_S = 0.4, 10.0


@dataclass(frozen=True)
class First:
    """A quick heuristic.

    ``by`` names it in results. ``find`` reports its plans to the watch that it is given, which has a share of the time,
    and polls it; its bounds are not the model's, and are not kept.
    """

    by: str
    find: Callable[[Watch], object]

    def report(
        self,
        instance: Instance,
        evaluate: Callable[[Instance, Any], float],
        violations: Callable[[Instance, Any], tuple[Violation, ...]],
        watch: Watch,
    ) -> float | None:
        """Run the heuristic; report its best plan, if that is feasible by the definition, and return its objective."""
        left = watch.remaining_s()
        own = watch.part(MOST_S if left is None else min(MOST_S, SHARE * left), silent=True)
        if not own.stopped():
            self.find(own)
        plan, _ = own.incumbent()
        if plan is None or judge(violations, instance, plan):
            return None
        objective = evaluate(instance, plan)
        watch.plan(plan, objective)
        return objective

    def origin(self, known: float | None, watch: Watch) -> dict[str, float | str]:
        """For ``stats``: ``first_plan``, the objective that `report` gave, and ``plan_by``, whose plan ``watch`` has.

        That is ``by``, or ``model`` where a better one was found since. Empty without a first plan.
        """
        _, objective = watch.incumbent()
        if known is None or objective is None:
            return {}
        return {"first_plan": known, "plan_by": "model" if objective < known else self.by}
