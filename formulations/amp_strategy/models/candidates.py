"""What the declarative models choose from: degrees and micro-batch with a class of placements, and what they cost."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from formulations.amp_strategy.definition.plan import Degrees, StrategyPlan
from formulations.amp_strategy.definition.problem import evaluate, violations
from formulations.amp_strategy.paper.classes import classes, possible
from formulations.contract.family import Answer, infeasible_by_counting
from formulations.contract.quantities import judge
from formulations.layer_assignment.costs import Tables, balance, tables, within_reach
from formulations.modelling.solve_model import begin_with, check_stop
from instances.problems.amp_strategy import AmpInstance
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.outcome import Watch

#: Relative room for rounding where what is too slow is left out.
MARGIN = 1e-9

#: Where no plan is known that meets the requirements, costs count up to so many times those of a balanced one.
_FAR = 1e3


@dataclass(frozen=True, eq=False)
class Candidate:
    """Degrees, a micro-batch, and a class of placements (`classes`): all that is left is a layer assignment."""

    degrees: Degrees
    placements: tuple[tuple[int, ...], ...]
    priced: LayerAssignmentInstance

    @cached_property
    def table(self) -> Tables:
        """Seconds of layers and cuts, parameters of stages, seconds per parameter of rings, as arrays."""
        return tables(self.priced)

    @property
    def weight(self) -> int:
        """Micro-batches but the first, which wait for the slowest stage each: gas - 1."""
        return self.priced.num_microbatches - 1

    @cached_property
    def filling(self) -> float:
        """Seconds of all layers, each in the stage where it takes least; stages may take more (`Tables.extra`)."""
        return math.fsum(self.priced.least_time_s)

    @property
    def least_s(self) -> float:
        """Seconds that every assignment takes: all stages once, and waiting for the longest layer."""
        return self.filling + self.weight * max(self.priced.least_time_s)

    def plan(self, lengths: tuple[int, ...]) -> StrategyPlan:
        """The strategy with these layers in its stages, in the first placement of the class."""
        return StrategyPlan(self.degrees, lengths, self.placements[0])

    def holds(self, plan: StrategyPlan) -> bool:
        """Whether a plan has these degrees and a placement of this class."""
        return plan.degrees == self.degrees and plan.placement in self.placements


NO_STRATEGY = "no degrees fit: expected a batch, layers and profiled degrees that leave a stage for each pipeline rank"


def infeasible_answer(instance: AmpInstance) -> Answer[StrategyPlan] | None:
    """The proof that there is no strategy, as there are no degrees, or ``None``."""
    return None if any(True for _ in possible(instance)) else infeasible_by_counting(NO_STRATEGY)


def candidates(instance: AmpInstance, watch: Watch) -> list[Candidate]:
    """All there are; where the requirements leave none, those without them, as models are made of some.

    `formulations.modelling.solve_model.Stopped` once the watch is stopped.
    """
    if instance.requirements and infeasible_answer(instance) is not None:
        return candidates(replace(instance, requirements=()), watch)
    found = []
    for degrees in possible(instance):
        check_stop(watch)
        found += [Candidate(*each) for each in classes(instance, degrees)]
    return found


class Choice(NamedTuple):
    """What a model chooses from, and what it needs to know of the size of its costs, in seconds.

    ``known_s``: of the best plan that the watch knows (``None``: none, or whatever it knows leaves nothing out).
    ``most_s``: what more expensive parts may as well cost. ``quick_s``: of the best balanced assignment, whether or not
    it meets the requirements: no strategy is better by more than its `layer_assignment.costs.balance_factor`.
    """

    candidates: list[Candidate]
    known_s: float | None
    most_s: float
    quick_s: float


def choice(instance: AmpInstance, watch: Watch, *, complete: bool) -> Choice:
    """All candidates but those that take longer than the watch's best plan, for whatever cuts; all if ``complete``.

    The best balanced assignment is reported to the watch. `solve_model.Stopped` once it is stopped.
    """
    found, plans = candidates(instance, watch), []
    for each in found:
        check_stop(watch)
        plans.append(each.plan(balance(each.priced).lengths))
    values = [evaluate(instance, plan) for plan in plans]
    quick_s = min(values, default=0.0)
    if complete:
        return Choice(found, None, math.inf, quick_s)
    allowed = [plan for plan in sorted(plans, key=dict(zip(plans, values, strict=True)).__getitem__)
               if not judge(violations, instance, plan)]  # fmt: skip
    begin_with(instance, allowed[0] if allowed else None, evaluate, violations, watch)
    known, far = watch.best_objective, bool(instance.requirements)
    found = [replace(each, priced=within_reach(each.priced, has_requirements=far)) for each in found]
    if known is None:
        return Choice(found, None, _FAR * quick_s, quick_s)
    kept = [each for each in found if each.least_s <= known * (1 + MARGIN)]
    return Choice(kept, known, known, quick_s)
