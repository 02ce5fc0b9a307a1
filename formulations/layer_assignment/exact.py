"""Exact layer assignment: the threshold sweep of `kernels.sweep`, with limits, incumbents and bounds."""

import numpy as np

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.layer_assignment.costs import (
    filling,
    infeasible_answer,
    plan_of,
    rounding,
    rounding_by_stage_s,
    tables,
    within_reach,
)
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import evaluate
from formulations.layer_assignment.kernels import sweep
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.outcome import Limits, Stop, Watch


def solve(instance: LayerAssignmentInstance, _limits: Limits, watch: Watch) -> Answer[LayerPlan]:
    """The best assignment and a bound that is less by rounding alone; if stopped, the best so far and its bound."""
    infeasible = infeasible_answer(instance)
    if infeasible is not None:
        return infeasible
    lengths = np.zeros(instance.num_stages, np.int64)
    near = within_reach(instance, has_requirements=False)  # requirements are met by models alone
    report, table = np.zeros(5), tables(near)
    weight = float(instance.num_microbatches - 1)
    with alarm(watch):
        flag = np.frombuffer(watch.flag, np.uint8)
        sweep.search(table.elapsed, table.filled_cut, table.held, table.ring, weight, lengths, flag, report)
    plan = plan_of(lengths)
    value = (float(report[1]) + filling(near, table)) * (1 - rounding(instance))
    bound = max(0.0, value - rounding_by_stage_s(near))
    watch.plan(plan, evaluate(instance, plan))
    watch.bound(bound)
    return Answer(
        plan=plan, bound=bound, stop=watch.why() if report[3] else Stop.PROVED, stats={"steps": int(report[2])}
    )
