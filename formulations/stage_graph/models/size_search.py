"""The search for the micro-batch size, around a model of each (`models.cpsat`).

A few operators are one model that chooses the size. Else sizes are taken from large to small, and each model looks for
plans of one size below the best plan so far. Between them one question without an objective, whether any smaller size
may be better (a group of several, `Data.groups`), mostly ends the search. The proof is the models' alone: other
methods' plans may be hints and have to be beaten, bounds of others are no part of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from formulations.contract.family import Answer
from formulations.modelling.solve_model import Stopped, prove
from formulations.stage_graph.costs.costs import Costs, identical
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import evaluate, violations
from formulations.stage_graph.models import FEW_OPERATORS, usable_sizes
from formulations.stage_graph.models.first_plan import first_plan
from formulations.stage_graph.upsets.bounds import simple_bound
from instances.problems.stage_graph import StageGraph
from solvers.outcome import OPTIMAL_GAP, Limits, Prover, Run, Stop, Watch

#: Every model was solved, and yet there is a gap.
_COARSE = "the whole numbers of the models are too coarse for a proof"


@dataclass
class Search:
    """The models of an instance, one after another, and what they counted.

    ``model`` builds that of some groups of sizes, for plans that are better than the watch's best one.
    """

    instance: StageGraph
    limits: Limits
    watch: Watch
    model: Callable[..., Any]
    solver: str = ""
    models: int = 0
    branches: int = 0
    conflicts: int = 0
    #: Why the last model that proved no optimum ended (``None``: all did), and the solver's words if it failed.
    stop: Stop | None = None
    reason: str = ""

    def least(self, *sizes: int) -> float | None:
        """What no plan of these sizes (better than the best one) goes below; ``None`` if unknown."""
        groups = tuple((size,) for size in sizes)
        found = prove(
            self.instance, lambda: self.model(groups), evaluate, violations, self.limits, self.watch.part(bounds=False)
        )
        self._count(found, int(found.stats.get("rounds", 0)))
        return self.bound_of_best() if found.infeasible else found.bound

    def may_improve(self, sizes: tuple[int, ...]) -> bool | None:
        """Whether some of these sizes may beat the best plan; ``None`` if unknown.

        Not by `prove`: a solution is a "maybe" and no plan, so there is nothing to check it by.
        """
        run = self.model((sizes,)).run(self.limits, self.watch)
        self._count(run, 1)
        return False if run.infeasible else True if run.values is not None else None

    def _count(self, found: Answer[StagePlan] | Run, models: int) -> None:
        self.models += models
        self.solver = found.solver or self.solver
        self.branches += int(found.stats.get("branches", 0))
        self.conflicts += int(found.stats.get("conflicts", 0))
        if found.stop is not Stop.PROVED:
            self.stop, self.reason = found.stop, found.reason or self.reason

    def bound_of_best(self) -> float:
        """What no plan goes below once none is better than the best one; ``inf`` if there is none at all."""
        best = self.watch.best_objective
        return math.inf if best is None else best * (1 - OPTIMAL_GAP / 2)

    def bound(self) -> float | None:
        """What no plan goes below by the models alone, ``inf`` if there is none; ``None`` if a size is left undecided.

        Better plans go to the watch. So does a bound over all sizes while some are left undecided; as it takes these
        from `simple_bound`, it is that one's.
        """
        sizes, bounds = tuple(sorted(usable_sizes(self.instance), reverse=True)), list[float]()
        few = self.instance.num_operators <= FEW_OPERATORS
        while sizes:
            own, sizes = (sizes, ()) if few else (sizes[:1], sizes[1:])
            found = self.least(*own)
            if found is None:
                return None
            bounds.append(found)
            if sizes:
                simple = simple_bound(Costs(identical(replace(self.instance, microbatches=sizes))))
                self.watch.bound(min(*bounds, simple), Prover.BOUNDS)
                if self.watch.stopped():
                    return None
                if len(sizes) > 1 and self.may_improve(sizes) is False:
                    bounds.append(self.bound_of_best())
                    break
        best, objective = min(bounds), self.watch.best_objective
        return best if best == math.inf or objective is None else min(best, objective)


def solve(
    instance: StageGraph, limits: Limits, watch: Watch, model: Callable[..., Any], first: StagePlan | None
) -> Answer[StagePlan]:
    """The optimum by models of ``model`` (`Search`), from a known plan on or else from that of `first_plan`."""
    watch.bound(simple_bound(Costs(identical(instance))), Prover.BOUNDS)
    if watch.stopped():
        return Answer(first, stop=watch.why())
    heuristic, known = first_plan(instance, limits), None
    if first is not None:
        watch.plan(first, evaluate(instance, first))
    else:
        known = heuristic.report(instance, evaluate, violations, watch)
    search = Search(instance, limits, watch, model)
    try:
        bound = search.bound()
    except Stopped:
        bound = None
    plan, objective = watch.incumbent()
    counts = {"models": search.models, "branches": search.branches, "conflicts": search.conflicts}
    answer = Answer(
        plan, bound, proved_by=Prover.SOLVER, solver=search.solver, stats={**counts, **heuristic.origin(known, watch)}
    )
    if bound == math.inf and plan is None:
        return replace(answer, bound=None, infeasible=True, stop=Stop.PROVED, reason="no partition fits into memory")
    if bound is not None and objective is not None and bound >= objective * (1 - OPTIMAL_GAP):
        return replace(answer, stop=Stop.PROVED)
    stop = watch.why(search.stop or Stop.COMPLETED)
    coarse = bound is not None and stop is Stop.COMPLETED and not search.reason and limits.gap <= OPTIMAL_GAP
    return replace(answer, stop=stop, reason=_COARSE if coarse else search.reason)
