"""What the declarative models begin with: the plan of the compiled sweep, whose bound they do not see."""

from __future__ import annotations

from formulations.layer_assignment import exact
from formulations.layer_assignment.costs import balanced
from formulations.layer_assignment.definition.problem import evaluate
from formulations.modelling.warm_start import First
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.outcome import Limits, Watch


def first_plan(instance: LayerAssignmentInstance, limits: Limits) -> First:
    """The balanced plan, and that of ``exact``'s sweep, with the all-reduce inside where there is one."""

    def find(watch: Watch) -> None:
        plan = balanced(instance)
        watch.plan(plan, evaluate(instance, plan))
        if not watch.stopped():
            exact.solve(instance, limits, watch)

    return First("exact", find)
