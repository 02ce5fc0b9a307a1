"""Compiling the kernels of the room, or loading them from the cache."""

from __future__ import annotations

from formulations.stage_graph import levels, paper, plus, proof
from formulations.stage_graph.costs import Costs
from formulations.stage_graph.program import Reach
from formulations.stage_graph.series_parallel import decompose
from instances.stage_graph import AffineTime, Operator, StageGraph
from solvers.outcome import Limits, Watch


def prepare() -> None:
    """Run every kernel on the smallest of instances."""
    time = AffineTime(0.0, 1.0)
    instance = StageGraph("smallest", (Operator("one", time, time, 0.0, 0.0),), (), 1, 0.0, 1.0, 0.0, 1)
    limits, watch = Limits(), Watch()
    paper.solve_graphpipe(instance, limits, watch)
    levels.solve(instance, limits, watch)
    proof.solve_downsets(instance, limits, watch)
    costs = Costs(instance)
    plus.Fewest(costs, decompose(costs).segment, Reach.STRADDLE, watch).shallowest(1, 1.0, 1)
