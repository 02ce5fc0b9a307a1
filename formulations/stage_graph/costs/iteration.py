"""The compiled twin of ``problem.iteration_s``, for methods that compare many plans."""

import itertools

import numpy as np

from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import all_reduce_s, bottleneck_s, pass_times
from formulations.stage_graph.kernels.simulate import makespan
from instances.problems.stage_graph import StageGraph


def iteration_s(instance: StageGraph, plan: StagePlan) -> float:
    """Simulated seconds of an iteration of a plan without violations.

    Sending is part of a pass (as in the cost of a stage), and an all-reduce overlaps with nothing.

    `ValueError` if the stages wait for each other, as they keep too few samples in flight.
    """
    stages = plan.stages
    times = [pass_times(instance, plan, index) for index in range(len(stages))]
    before_start, before = neighbours(len(stages), [(after, source) for source, after in plan.edges])
    after_start, after = neighbours(len(stages), plan.edges)
    seconds = makespan(
        np.array([stage.microbatch for stage in stages]),
        np.array([max(1, stage.in_flight // stage.microbatch) for stage in stages]),
        np.array([stage.k for stage in stages]),
        np.array([forward for forward, _ in times]),
        np.array([backward for _, backward in times]),
        before_start,
        before,
        after_start,
        after,
        instance.minibatch,
    )
    if seconds < 0:
        raise ValueError("the stages wait for each other")
    return float(seconds + max(all_reduce_s(instance, stage) for stage in stages))


def objective_of(instance: StageGraph, plan: StagePlan) -> float:
    """The instance's objective, as ``problem.evaluate`` has it."""
    return iteration_s(instance, plan) if instance.objective == "iteration" else bottleneck_s(instance, plan)


def neighbours(count: int, edges: list[tuple[int, int]] | tuple[tuple[int, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    """Second ends of the edges by first end, and where each begins."""
    lists: list[list[int]] = [[] for _ in range(count)]
    for one, other in edges:
        lists[one].append(other)
    starts = [0, *itertools.accumulate(len(found) for found in lists)]
    return np.array(starts), np.array([other for found in lists for other in found], dtype=np.int64)
