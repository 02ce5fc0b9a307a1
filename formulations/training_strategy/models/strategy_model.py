"""What the models of training strategies have in common: plans of solutions, quantities, the search for the degrees."""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.modelling.solve_model import add_requirements, prove
from formulations.modelling.warm_start import First
from formulations.training_strategy.costs import NO_PLAN
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import evaluate, peak_memory, violations
from formulations.training_strategy.definition.quantities import VOCABULARY
from formulations.training_strategy.degrees import Degrees
from formulations.training_strategy.heuristics import even
from formulations.training_strategy.models.layout_data import Layouts, Priced, priced_degrees
from instances.problems.training_strategy import StrategyInstance
from solvers.outcome import OPTIMAL_GAP, Limits, Prover, Stop, Watch

#: Makes the model of some degrees, and of the best plan that the watch knows.
Make = Callable[[StrategyInstance, Sequence[Priced], Watch], Any]


class StrategyModel(ABC):
    """A model of ``data``, or of the plan ``known``."""

    data: Sequence[Layouts]
    instance: StrategyInstance
    known: StrategyPlan | None

    @abstractmethod
    def of(self, name: str) -> Any:
        """The variables of a name, by their indices."""

    @abstractmethod
    def forbid(self, variables: list[Any]) -> None:
        """Not all of these are 1."""

    def _taken(self, values: Any) -> list[tuple[int, ...]]:
        return [at for at, variable in self.of("runs").items() if values[variable] > 0.5]

    def decode(self, values: Any) -> StrategyPlan:
        """The plan of a solution."""
        if self.known is not None and values[self.of("kept")] > 0.5:
            return self.known
        taken = self._taken(values)
        return self.data[taken[0][0]].plan((g, v, x) for _, g, v, x in taken)

    def cut_off(self, plan: StrategyPlan, values: Any) -> None:
        """Forbid what the devices of a plan hold that have not the memory for it."""
        for chunks, held in zip(plan.held, peak_memory(self.instance, plan), strict=True):
            own = [at for at in self._taken(values) if at[1] in chunks]
            if held > self.data[own[0][0]].chain.limit:
                self.forbid([self.of("runs")[at] for at in own])

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of degrees, as sums over those that may be chosen."""

        def total(value: Callable[[Degrees], int]) -> Any:
            return sum(value(own.degrees) * self.of("chosen")[c] for c, own in enumerate(self.data))

        fields = {"pp_degree": "p", "tp_degree": "t", "dp_degree": "d", "virtual_stages": "V", "sharding": "level",
                  "sequence_parallel": "sequences", "cp_degree": "c", "ep_degree": "e",
                  "shard_groups": "r", "dp_outermost": "outermost", "num_stages": "num_chunks"}  # fmt: skip
        found = {name: lambda field=field: total(operator.attrgetter(field)) for name, field in fields.items()}
        return {**found, "schedule": lambda name: total(lambda degrees: int(degrees.schedule == name))}


def shown(instance: StrategyInstance, watch: Watch | None, make: Make, *, complete: bool) -> Any:
    """The model of all degrees together that may be better than the watch's best plan, with the requirements.

    `solve` runs it for one after another. `Stopped` once the watch is: 50,000 passes take ten seconds to build.
    """
    watch = Watch() if complete or watch is None else watch
    every, best = priced_degrees(instance) or priced_degrees(replace(instance, requirements=())), watch.best_objective
    found = [each for each in every if best is None or each.least <= best]
    return add_requirements(make(instance, found, watch), VOCABULARY, instance)


def solve(instance: StrategyInstance, limits: Limits, watch: Watch, make: Make) -> Answer[StrategyPlan]:
    """The best plan: degrees in the order of a bound that needs no search, with the model of each.

    It has to beat the best plan so far, that of Megatron's even split at first, or to keep it; its bound is the proof.
    The exact search is no part of it.
    """
    queue = priced_degrees(instance)
    if not queue:
        return infeasible_by_counting(NO_PLAN)
    first = First("Megatron's even split", lambda own: even(instance, limits, own))
    known = first.report(instance, evaluate, violations, watch)
    closed, models, solver, stop, reason = math.inf, 0, "", Stop.COMPLETED, ""

    def best() -> float:
        return math.inf if watch.best_objective is None else watch.best_objective

    for priced in queue:
        watch.bound(min(closed, priced.least, best()), Prover.BOUNDS if closed >= priced.least else Prover.SOLVER)
        if priced.least >= best() * (1 - limits.gap) or watch.stopped():
            closed = min(closed, priced.least)  # that of all degrees which are left
            break
        part = watch.part(bounds=False)
        if watch.best_objective is not None:
            part.receive(watch.best_plan, watch.best_objective)
        build_one = partial(make, instance, [priced], part)
        found = prove(instance, build_one, evaluate, violations, limits, part, to_scale=True)
        closed = min(closed, math.inf if found.infeasible else max(found.bound or 0.0, priced.least))
        models, solver = models + 1, found.solver or solver
        if found.stop is not Stop.PROVED:
            stop, reason = found.stop, found.reason
    bound, by = min(closed, best()), Prover.SOLVER if solver else Prover.BOUNDS
    stats = {"degrees": len(queue), "models": models, **first.origin(known, watch)}
    answer = Answer(watch.best_plan, bound, proved_by=by, solver=solver, stats=stats)
    if bound == math.inf:
        return replace(answer, bound=None, infeasible=True, stop=Stop.PROVED, reason=NO_PLAN)
    watch.bound(bound, by)
    is_proved = best() - bound <= OPTIMAL_GAP * best() < math.inf
    return replace(answer, stop=Stop.PROVED if is_proved else watch.why(stop), reason="" if is_proved else reason)
