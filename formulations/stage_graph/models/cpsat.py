"""Stage graphs by CP-SAT: a model (`models.partition`) that chooses the micro-batch size, or one for each size.

A few operators are one model. Else sizes are taken from large to small, and each model looks for plans of one size
below the best plan so far. Between them one question without an objective, whether any smaller size may be better
(`Case` with several sizes), mostly ends the search. The proof is the models' alone: other methods' plans may be hints
and have to be beaten, bounds of others are no part of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from formulations.contract.family import Answer
from formulations.modelling.solve_model import Stopped, add_requirements, prove
from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import evaluate, violations
from formulations.stage_graph.definition.quantities import VOCABULARY, required_sizes
from formulations.stage_graph.models import FEW_OPERATORS
from formulations.stage_graph.models.devices import identical, longest_s
from formulations.stage_graph.models.first_plan import first_plan
from formulations.stage_graph.models.partition import Case, Model
from formulations.stage_graph.upsets.bounds import simple_bound
from instances.problems.stage_graph import StageGraph
from instances.requirements import requirements_of
from solvers.outcome import OPTIMAL_GAP, Limits, Prover, Run, Stop, Watch
from solvers.scaling import Scale, cost_scale

#: Every model was solved, and yet there is a gap.
_COARSE = "the whole numbers of the models are too coarse for a proof"


def build(instance: StageGraph, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of all plans with one micro-batch size for all stages, which it chooses among those required.

    `solve` takes one size after another instead, which is faster. Nothing of it is pruned, unless the watch knows a
    plan. Plans may keep more samples in flight than they must if it is ``complete``, or a requirement speaks of them.

    Raises
    ------
    Stopped
        Once ``watch`` is stopped.
    """
    sizes = _sizes(instance)
    return _built(instance, Case(sizes, len(sizes) > 1), _scale(instance), watch or Watch(), complete=complete)


def _sizes(instance: StageGraph) -> tuple[int, ...]:
    """Sizes that a model is about: those required, or all of them where none is left (which the model then refutes)."""
    return required_sizes(instance) or instance.microbatch_sizes


def _scale(instance: StageGraph) -> Scale:
    simple = simple_bound(Costs(identical(instance)))
    terms = instance.num_operators + 3 * len(instance.edges) + 2
    return cost_scale(simple, terms, longest_s(instance) * (instance.num_devices + 4))


def _built(instance: StageGraph, case: Case, scale: Scale, watch: Watch, *, complete: bool = False) -> Model:
    """The model of plans that are better than the watch's best one (any, if ``complete``), which is its hint.

    A relaxed one has no objective, and its solutions are no plans; requirements are left to the others.
    """
    plan, best = watch.incumbent()
    known = None if complete else best
    # A plan counts as better if the gap of a proof would not cover the difference.
    high = scale.ceil(longest_s(instance)) if known is None else scale.floor(known * (1 - OPTIMAL_GAP / 4))
    declared = complete or any(each.quantity == "in_flight_of" for each in requirements_of(instance))
    model = Model(instance, case, scale, high, watch, declared=declared, is_beaten=known is not None)
    if plan is not None and not case.is_relaxed and plan.stages[0].microbatch in case.sizes:
        model.hint(plan)
    if not case.is_relaxed:
        add_requirements(model, VOCABULARY, instance)
    return model


@dataclass
class _Search:
    instance: StageGraph
    limits: Limits
    watch: Watch
    scale: Scale
    solver: str = ""
    models: int = 0
    branches: int = 0
    conflicts: int = 0
    #: Why the last model that proved no optimum ended (``None``: all did), and the solver's words if it failed.
    stop: Stop | None = None
    reason: str = ""

    def size(self, *sizes: int) -> float | None:
        """Solve one size, or choose of several; what no such plan (better than the best one) goes below.

        ``None`` if unknown.
        """
        found = prove(
            self.instance,
            lambda: _built(self.instance, Case(sizes, len(sizes) > 1), self.scale, self.watch),
            evaluate,
            violations,
            self.limits,
            self.watch.part(bounds=False),
        )
        self._note(found, int(found.stats.get("rounds", 0)))
        return self.beaten() if found.infeasible else found.bound

    def may_improve(self, sizes: tuple[int, ...]) -> bool | None:
        """Whether some of these sizes may beat the best plan; ``None`` if unknown.

        Not by `prove`: a solution is a "maybe" and no plan, so there is nothing to check it by.
        """
        run = _built(self.instance, Case(sizes), self.scale, self.watch).run(self.limits, self.watch)
        self._note(run, 1)
        return False if run.infeasible else True if run.values is not None else None

    def _note(self, found: Answer[StagePlan] | Run, models: int) -> None:
        self.models += models
        self.solver = found.solver or self.solver
        self.branches += int(found.stats.get("branches", 0))
        self.conflicts += int(found.stats.get("conflicts", 0))
        if found.stop is not Stop.PROVED:
            self.stop, self.reason = found.stop, found.reason or self.reason

    def beaten(self) -> float:
        """What no plan goes below once none is better than the best one; ``inf`` if there is none at all."""
        best = self.watch.best_objective
        return math.inf if best is None else best * (1 - OPTIMAL_GAP / 2)

    def bound(self) -> float | None:
        """What no plan goes below by the models alone, ``inf`` if there is none; ``None`` if a size is left undecided.

        Better plans go to the watch. So does a bound over all sizes while some are left undecided; as it takes these
        from `simple_bound`, it is that one's.
        """
        sizes = sorted(_sizes(self.instance), reverse=True)
        bounds: list[float] = []
        few = self.instance.num_operators <= FEW_OPERATORS
        for number, size in enumerate(sizes):
            found = self.size(*sizes) if few else self.size(size)
            if found is None:
                return None
            bounds.append(found)
            rest = tuple(sizes[number + 1 :])
            if few:
                break
            if rest:
                simple = simple_bound(Costs(identical(replace(self.instance, microbatches=rest))))
                self.watch.bound(min(*bounds, simple), Prover.BOUNDS)
                if self.watch.stopped():
                    return None
                if len(rest) > 1 and self.may_improve(rest) is False:
                    bounds.append(self.beaten())
                    break
        best, objective = min(bounds), self.watch.best_objective
        return best if best == math.inf or objective is None else min(best, objective)


def solve(instance: StageGraph, limits: Limits, watch: Watch, *, first: StagePlan | None = None) -> Answer[StagePlan]:
    """The optimum with one micro-batch size and 1F1B, on identical devices or on a device graph.

    ``first`` is a plan that is known already; without one the models begin with that of `first_plan`.
    """
    simple = simple_bound(Costs(identical(instance)))
    watch.bound(simple, Prover.BOUNDS)
    if watch.stopped():
        return Answer(first, stop=watch.why())
    heuristic, known = first_plan(instance, limits), None
    if first is not None:
        watch.plan(first, evaluate(instance, first))
    else:
        known = heuristic.report(instance, evaluate, violations, watch)
    search = _Search(instance, limits, watch, _scale(instance))
    try:
        bound = search.bound()
    except Stopped:
        bound = None
    plan, objective = watch.incumbent()
    stats = {
        "models": search.models,
        "branches": search.branches,
        "conflicts": search.conflicts,
        **heuristic.origin(known, watch),
    }
    if bound == math.inf and plan is None:
        reason = "no partition fits into memory"
        return Answer(
            infeasible=True, stop=Stop.PROVED, proved_by=Prover.SOLVER, solver=search.solver, stats=stats, reason=reason
        )
    done = bound is not None and objective is not None and bound >= objective * (1 - OPTIMAL_GAP)
    stop = Stop.PROVED if done else watch.why(search.stop or Stop.COMPLETED)
    coarse = bound is not None and stop is Stop.COMPLETED and not search.reason and limits.gap <= OPTIMAL_GAP
    reason = "" if done else _COARSE if coarse else search.reason
    return Answer(plan, bound, stop=stop, proved_by=Prover.SOLVER, solver=search.solver, reason=reason, stats=stats)
