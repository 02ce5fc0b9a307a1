"""Stage graphs by CP-SAT: one model (`cpsat_model`) for each micro-batch size.

The sizes are taken from large to small, each below the best plan so far; between them one question without an
objective, whether any smaller size is worth a look (`Case` with several sizes), mostly ends the search. The proof is
the models' alone: other methods' plans may be hints and have to be beaten, bounds of others are no part of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ortools.sat.python import cp_model

from formulations.family import Answer
from formulations.modelled import Stopped
from formulations.stage_graph.bounds import simple_bound
from formulations.stage_graph.costs import Costs
from formulations.stage_graph.models.devices import alike, most_s
from formulations.stage_graph.models.partition import Case, Model
from formulations.stage_graph.problem import StagePlan, evaluate, violations
from instances.stage_graph import StageGraph
from solvers import cpsat
from solvers.outcome import OPTIMAL_GAP, Limits, Prover, Run, Stop, Watch
from solvers.scaling import Scale, cost_scale

#: Every model was solved, and yet there is a gap.
_COARSE = "the whole numbers of the models are too coarse for a proof"


@dataclass
class _Search:
    instance: StageGraph
    limits: Limits
    watch: Watch
    scale: Scale
    top: int
    solver: str = ""
    models: int = 0
    branches: int = 0
    conflicts: int = 0
    #: Why the last model that proved nothing ended (``None``: all did), and the solver's words if it failed.
    stop: Stop | None = None
    reason: str = ""

    def high(self) -> int:
        """The largest target worth a look, in units: less than the best plan's by more than the accuracy of a proof."""
        best = self.watch.best_objective
        return self.top if best is None else self.scale.floor(best * (1 - OPTIMAL_GAP / 4))

    def size(self, size: int) -> float | None:
        """Solve one size; what no plan of that size (better than the best one) goes below, ``None`` if unknown."""
        built = Model(self.instance, Case((size,)), self.scale, self.high(), self.watch)
        built.model.minimize(built.target)
        best = self.watch.best_plan
        if best is not None and best.stages[0].microbatch == size:
            built.hint(best)
        while True:
            wrong: list[list[Any]] = []

            def listen(values: Any, built: Model = built, wrong: list[list[Any]] = wrong) -> None:
                plan = built.plan(values)
                if violations(self.instance, plan):
                    wrong.append(built.chosen(values))
                else:
                    self.watch.plan(plan, evaluate(self.instance, plan))

            run = self.run(built.model, listen)
            if run.values is not None:
                listen(run.values)
            if not wrong or run.stop is not Stop.PROVED:
                break
            for chosen in wrong:  # rounded sizes let in what does not fit
                built.model.add_bool_or([each.negated() for each in chosen])
        if run.infeasible:
            return self.beaten()
        return None if run.bound is None else self.seconds(run.bound)

    def worth(self, sizes: tuple[int, ...]) -> bool | None:
        """Whether some of these sizes may beat the best plan; ``None`` if unknown."""
        built = Model(self.instance, Case(sizes), self.scale, self.high(), self.watch)
        run = self.run(built.model, None)
        return False if run.infeasible else True if run.values is not None else None

    def beaten(self) -> float:
        """What no plan goes below once none is better than the best one; ``inf`` if there is none at all."""
        best = self.watch.best_objective
        return math.inf if best is None else best * (1 - OPTIMAL_GAP / 2)

    def seconds(self, units: float) -> float:
        """Seconds per sample of a bound in units."""
        return self.scale.restore(cpsat.whole(units)) * (1 - 1e-12)

    def run(self, model: cp_model.CpModel, listen: Any) -> Run:
        """Run a model, and count its effort."""
        found = cpsat.run(model, self.limits, self.watch, on_solution=listen)
        self.models += 1
        self.solver = found.solver or self.solver
        if found.stop is not Stop.PROVED:
            self.stop, self.reason = found.stop, found.reason or self.reason
        self.branches += int(found.stats.get("branches", 0))
        self.conflicts += int(found.stats.get("conflicts", 0))
        return found


def solve(instance: StageGraph, limits: Limits, watch: Watch, *, first: StagePlan | None = None) -> Answer[StagePlan]:
    """The optimum with one micro-batch size and 1F1B, on like devices or on a device graph.

    ``first`` is a plan that is known already.
    """
    simple = simple_bound(Costs(alike(instance)))
    watch.bound(simple, Prover.BOUNDS)
    if watch.stopped():
        return Answer(first, stop=watch.why())
    if first is not None:
        watch.plan(first, evaluate(instance, first))
    top = most_s(instance)
    terms = instance.num_operators + 3 * len(instance.edges) + 2
    scale = cost_scale(simple, terms, top * (instance.num_devices + 4))
    search = _Search(instance, limits, watch, scale, scale.ceil(top))
    try:
        bound = _sizes(search)
    except Stopped:
        bound = None
    plan, objective = watch.incumbent()
    stats = {"models": search.models, "branches": search.branches, "conflicts": search.conflicts}
    if bound == math.inf and plan is None:
        reason = "no partition fits into memory"
        return Answer(
            infeasible=True, stop=Stop.PROVED, proved_by=Prover.SOLVER, solver=search.solver, stats=stats, reason=reason
        )
    done = bound is not None and objective is not None and bound >= objective * (1 - OPTIMAL_GAP)
    stop = Stop.PROVED if done else watch.why(search.stop or Stop.COMPLETED)
    reason = "" if done else _COARSE if search.stop is None and bound is not None else search.reason
    return Answer(plan, bound, stop=stop, proved_by=Prover.SOLVER, solver=search.solver, reason=reason, stats=stats)


def _sizes(search: _Search) -> float | None:
    """What no plan goes below by the models alone, ``inf`` if there is none; ``None`` if a size was left undecided.

    Better plans go to the watch. So does a bound over all sizes while some are left undecided; as it takes these from
    `simple_bound`, it is that one's.
    """
    sizes = sorted(search.instance.microbatch_sizes, reverse=True)
    bounds: list[float] = []
    for number, size in enumerate(sizes):
        found = search.size(size)
        if found is None:
            return None
        bounds.append(found)
        rest = tuple(sizes[number + 1 :])
        if rest:
            simple = simple_bound(Costs(alike(replace(search.instance, microbatches=rest))))
            search.watch.bound(min(*bounds, simple), Prover.BOUNDS)
            if search.watch.stopped():
                return None
            if len(rest) > 1 and search.worth(rest) is False:
                bounds.append(search.beaten())
                break
    best, objective = min(bounds), search.watch.best_objective
    return best if best == math.inf or objective is None else min(best, objective)
