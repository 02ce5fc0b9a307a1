"""``downsets``: the plan of the wide recursion, and a proof that no micro-batch size and no partition does better.

Models without rows of operators side by side have all their upsets looked at, as ``levels`` does.
"""

from __future__ import annotations

from typing import Any

from formulations.alarm import alarm
from formulations.family import Answer
from formulations.stage_graph import levels, plus
from formulations.stage_graph.bounds import Proof, prove, simple_bound
from formulations.stage_graph.costs import Costs
from formulations.stage_graph.downsets import Downsets, UnsuitableError, shape_of
from formulations.stage_graph.problem import StagePlan, bottleneck_s
from instances.stage_graph import StageGraph
from solvers.outcome import OPTIMAL_GAP, Limits, Prover, Stop, Watch


def suits(instance: StageGraph) -> str | None:
    """``None``, or why the program over upsets cannot take the instance."""
    try:
        shape_of(Costs(instance)).check()
    except UnsuitableError as error:
        return str(error)
    return None


def solve_downsets(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The plan of the wide recursion, then a proof, or better plans, by dynamic programming over upsets."""
    costs = Costs(instance)
    try:
        downsets = Downsets(costs, watch)
    except UnsuitableError:
        return levels.solve(instance, limits, watch)
    first = plus.solve(instance, limits, watch)
    start = Proof(simple_bound(costs), first.plan)
    if first.plan is not None:
        start.value_s = bottleneck_s(instance, first.plan)
    watch.bound(start.bound_s, Prover.BOUNDS)
    with alarm(watch):
        proof = prove(costs, downsets, watch, start, max(limits.gap, OPTIMAL_GAP / 2))
    stats: dict[str, Any] = {
        **first.stats,
        "upsets": downsets.shape.num_upsets(),
        "proof_rounds": downsets.rounds,
        "proof_pairs": downsets.shape.num_pairs() * downsets.rounds,
    }
    if proof.infeasible:
        return Answer(infeasible=True, stop=Stop.PROVED, stats=stats, reason="no partition fits into memory")
    stop = Stop.PROVED if proof.closed else watch.why()
    return Answer(proof.plan, bound=proof.bound_s, stop=stop, stats=stats)
