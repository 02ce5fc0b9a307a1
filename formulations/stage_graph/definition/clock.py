"""GraphPipe's Equation 1 is that of a pipeline that never runs empty; an iteration is simulated beside it."""

from typing import Literal

from formulations.contract.clock import Clock
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import bottleneck_s, iteration_s
from instances.problems.stage_graph import StageGraph


def clock(instance: StageGraph, plan: StagePlan) -> Clock:
    """Either objective beside the iteration of the plan's own order: F^l (B^k F^k)* B^rest on every stage.

    No method takes the objective ``iteration`` on a device graph.
    """
    kind: Literal["steady", "iteration"] = "iteration" if instance.objective == "iteration" else "steady"
    other = "" if instance.device_graph is not None else f"--objective {'iteration' if kind == 'steady' else 'tps'}"
    of_batch = instance.minibatch * bottleneck_s(instance, plan)
    sizes = {stage.microbatch for stage in plan.stages}
    number = instance.minibatch // min(sizes) if kind == "iteration" and len(sizes) == 1 else None
    return Clock(kind, None, number, lambda: iteration_s(instance, plan), of_batch, other)
