"""What the declarative models begin with: the plan of ``graphpipe-plus``."""

from __future__ import annotations

from formulations.first_plan import First
from formulations.stage_graph import wide
from instances.stage_graph import StageGraph
from solvers.outcome import Limits, Watch


def first_plan(instance: StageGraph, limits: Limits) -> First:
    """Of all partitions where the model is small, else of the recursion; none on a device graph."""

    def find(watch: Watch) -> None:
        if instance.device_graph is None:
            wide.solve(instance, limits, watch)

    return First("graphpipe-plus", find)
