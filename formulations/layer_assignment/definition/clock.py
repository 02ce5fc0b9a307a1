"""AMP's Equation 4 is a formula of a step; an iteration is the step under 1F1B."""

from itertools import pairwise

from formulations.contract.clock import MOST_ACTIONS, Clock
from formulations.contract.figures.gantt import forward_and_backward
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import cuts, terms
from formulations.simulation.simulate_graph import one_f_one_b
from instances.problems.layer_assignment import LayerAssignmentInstance
from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage


def pipeline(instance: LayerAssignmentInstance, plan: LayerPlan) -> ScheduleInstance:
    """One replica's pipeline; a backward pass takes two thirds, and half of a cut's seconds go each way."""
    parts = list(pairwise(cuts(plan)))
    times = [instance.stage_s(stage, *part) for stage, part in enumerate(parts)]
    sending = [instance.cut_cost(end - 1, stage) for stage, (_, end) in enumerate(parts[:-1])]
    return ScheduleInstance(
        instance.name,
        instance.num_microbatches,
        tuple(ScheduleStage(*forward_and_backward(time)) for time in times),
        tuple(ScheduleEdge(stage, stage + 1, seconds / 2) for stage, seconds in enumerate(sending)),
    )


def clock(instance: LayerAssignmentInstance, plan: LayerPlan) -> Clock:
    """The formula beside the simulated step, with the formula's all-reduce after it."""

    def simulate() -> float | None:
        if 2 * len(plan.lengths) * instance.num_microbatches > MOST_ACTIONS:
            return None
        return one_f_one_b(pipeline(instance, plan)).iteration_s + terms(instance, plan).all_reduce

    return Clock("formula", "1f1b", instance.num_microbatches, simulate)
