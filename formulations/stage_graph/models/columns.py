"""Stage graphs as a MILP over columns (Pyomo, HiGHS): a convex set of operators at a depth, on the fewest devices.

As in GraphPipe's Algorithm 1 a target t_max for the slowest stage is given, and lowered. For a target every column has
its fewest devices (EstimateTPS <= t_max, line 28, and Equation 2 at its depth), so what is left is a cover: each
operator in one column, as few devices as possible, and along an edge that leaves a column the depth falls. The least
target comes from the finite list of what stages can take, as in ``levels``, whose upsets give the sets. Where
requirements speak of degrees or of what is in flight, the fewest devices are not enough: with any it is `direct`.
Where convex sets are too many to be laid out, columns are generated (`generation`). Source: this project.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.modelling.solve_model import Stopped
from formulations.stage_graph.costs.costs import Costs, assemble
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import evaluate, violations
from formulations.stage_graph.kernels.levels import needed
from formulations.stage_graph.models import cover, direct
from formulations.stage_graph.models.first_plan import first_plan
from formulations.stage_graph.models.generation.targets import Targets
from formulations.stage_graph.upsets.bounds import Proof, prove, simple_bound, whose
from formulations.stage_graph.upsets.chains import TooManyError, best_of_sizes
from instances.problems.stage_graph import StageGraph
from solvers.outcome import OPTIMAL_GAP, Limits, Prover, Stop, Watch

#: Of more operators no columns are generated.
MAX_OPERATORS = 400
#: By the relaxation alone the bound is found to within this gap, before any cover is run.
_COARSE = 1e-3


class Columns(direct.ConvexSets):
    """Convex sets of operators as columns, one for each depth; `TooManyError` if there are too many."""

    def __init__(self, costs: Costs, limits: Limits, watch: Watch) -> None:
        super().__init__(costs, watch)
        self.limits, self.solver, self.search_nodes, self.failure = limits, "", 0, ""

    def plan(self, microbatch: int, target_s: float) -> StagePlan | None:
        """A plan on the fewest devices, with every stage within the target; ``None`` if none has enough devices."""
        self.rounds += 1
        tps, room = self.tables.at(microbatch)
        needed(tps, room, target_s, self.degrees, self.need)
        instance = self.costs.instance
        columns = {
            (number, depth): int(self.need[number, depth])
            for number in range(len(self.masks))
            for depth in range(1, self.need.shape[1])
            if self.need[number, depth] <= instance.num_devices
        }
        built = cover.build(instance, self.masks, columns)
        run = built.run(self.limits, self.watch)
        self.solver = run.solver or self.solver
        self.search_nodes += int(run.stats.get("search_nodes", 0))
        if run.values is None:
            if not run.infeasible:  # no proof: nothing more can be said
                self.failure = run.reason
                self.watch.stop(run.stop if run.stop is not Stop.PROVED else Stop.COMPLETED)
            return None
        return assemble(instance, built.decode(run.values), microbatch)


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum with one micro-batch size for all stages; a plan and a bound where columns cannot be listed."""
    if instance.requirements:
        return direct.solve(instance, limits, watch)
    costs = Costs(instance)
    first = first_plan(instance, limits)
    known = first.report(instance, evaluate, violations, watch)
    try:
        search = Columns(costs, limits, watch)
    except TooManyError as error:
        return _generated(costs, limits, watch, str(error), lambda: first.origin(known, watch))
    with alarm(watch):
        found = best_of_sizes(instance, search, watch, watch.best_plan)
    return replace(
        found,
        proved_by=Prover.SOLVER if search.solver else Prover.SEARCH,  # no set may fit: then no model is run
        solver=search.solver,
        reason=found.reason or search.failure,
        stats={
            "columns": len(search.masks),
            "models": search.rounds,
            "search_nodes": search.search_nodes,
            **first.origin(known, watch),
        },
    )


def _generated(
    costs: Costs, limits: Limits, watch: Watch, reason: str, origin: Callable[[], dict[str, Any]]
) -> Answer[StagePlan]:
    """Where convex sets are too many (``reason``): those that have to be known, by column generation."""
    watch.bound(simple_bound(costs), Prover.BOUNDS)
    plan, objective = watch.incumbent()
    start = Proof(0.0, plan, math.inf if objective is None else objective)
    if costs.instance.num_operators > MAX_OPERATORS or watch.stopped():
        return Answer(plan, watch.best_bound, stop=watch.why(Stop.SIZE_LIMIT), reason=reason, stats=origin())
    try:
        with alarm(watch):
            targets = Targets(costs, limits, watch, plan)
            proof = prove(costs, targets, watch, start, max(limits.gap, _COARSE), Prover.SOLVER)
            if not (proof.closed or proof.stopped):
                targets.covers_too = True
                proof = prove(costs, targets, watch, proof, max(limits.gap, OPTIMAL_GAP / 2), Prover.SOLVER)
    except Stopped:
        return Answer(plan, watch.best_bound, stop=watch.why(), stats=origin())
    stats = {
        "columns": targets.generation.columns,
        "rounds": targets.generation.rounds,
        "covers": targets.covers,
        "search_nodes": targets.search_nodes,
        **origin(),
    }
    solver, reason = targets.generation.solver, targets.failure or targets.unlisted
    if proof.infeasible:
        return Answer(infeasible=True, stop=Stop.PROVED, proved_by=Prover.SOLVER, solver=solver, stats=stats,
                      reason="no partition fits into memory")  # fmt: skip
    otherwise = Stop.SIZE_LIMIT if reason else Stop.COMPLETED
    stop = Stop.PROVED if proof.closed else watch.why(otherwise)
    return Answer(
        proof.plan,
        bound=proof.bound_s if proof.closed else watch.best_bound,
        stop=stop,
        proved_by=whose(proof, start, Prover.SOLVER),
        solver=solver,
        reason="" if proof.closed else reason,
        stats=stats,
    )
