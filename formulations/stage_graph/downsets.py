"""``downsets``: the plan of the wide recursion, and a proof that no micro-batch size and no partition does better.

Models that are not chains side by side have all their upsets searched, as ``levels`` does.
"""

from dataclasses import replace
from typing import Any

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer, infeasible_by_counting
from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import bottleneck_s
from formulations.stage_graph.definition.quantities import NO_SIZE, at_required_sizes
from formulations.stage_graph.paper import fewest_devices
from formulations.stage_graph.upsets import levels
from formulations.stage_graph.upsets.bounds import Proof, prove, simple_bound, whose
from formulations.stage_graph.upsets.branches import EqualBranches, UnsuitableError, structure_of
from instances.problems.stage_graph import StageGraph
from solvers.outcome import OPTIMAL_GAP, Limits, Prover, Stop, Watch


def suits(instance: StageGraph) -> str | None:
    """``None``, or why the program over upsets cannot take the instance."""
    try:
        structure_of(Costs(instance)).check()
    except UnsuitableError as error:
        return str(error)
    return None


def solve_downsets(instance: StageGraph, limits: Limits, watch: Watch, *, by: str = Prover.SEARCH) -> Answer[StagePlan]:
    """The plan of the wide recursion, then a proof, or better plans, by dynamic programming over upsets.

    ``by``: what the result calls this proof; that of models of another structure is ``levels``'.
    """
    if instance.requirements:  # which are about the size alone
        allowed = at_required_sizes(instance)
        return infeasible_by_counting(NO_SIZE) if allowed is None else solve_downsets(allowed, limits, watch, by=by)
    costs = Costs(instance)
    try:
        downsets = EqualBranches(costs, watch, limits.threads)
    except UnsuitableError:
        return replace(levels.solve(instance, limits, watch), proved_by="levels")
    first = fewest_devices.solve(instance, limits, watch)
    start = Proof(simple_bound(costs), first.plan)
    if first.plan is not None:
        start.value_s = bottleneck_s(instance, first.plan)
    watch.bound(start.bound_s, Prover.BOUNDS)
    with alarm(watch):
        proof = prove(costs, downsets, watch, start, max(limits.gap, OPTIMAL_GAP / 2), by)
    stats: dict[str, Any] = {
        **first.stats,
        "upsets": downsets.structure.num_upsets(),
        "proof_rounds": downsets.rounds,
        "proof_pairs": downsets.structure.num_pairs() * downsets.rounds,
    }
    if proof.infeasible:
        reason = "no partition fits into memory"
        return Answer(infeasible=True, stop=Stop.PROVED, proved_by=by, stats=stats, reason=reason)
    stop = Stop.PROVED if proof.is_closed else watch.why()
    return Answer(proof.plan, bound=proof.bound_s, stop=stop, proved_by=whose(proof, start, by), stats=stats)
