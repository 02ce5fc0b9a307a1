"""What the declarative models begin with: the best strategies of balanced layers, their cuts moved one by one."""

from contextlib import suppress
from functools import partial

from formulations.amp_strategy.definition.plan import StrategyPlan
from formulations.amp_strategy.definition.problem import evaluate
from formulations.amp_strategy.models.candidates import Candidate, candidates
from formulations.layer_assignment.costs import balance
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.models import first_plan as layers
from formulations.modelling.warm_start import First
from instances.problems.amp_strategy import AmpInstance
from solvers.build_stop import Stopped
from solvers.outcome import Limits, Watch

#: So many strategies are improved: some 0.1 s each for 30 layers.
_IMPROVED = 3


def first_plan(instance: AmpInstance, limits: Limits) -> First:
    """The best plan of a local search in each of a few strategies."""

    def seconds(each: Candidate) -> float:
        return evaluate(instance, each.plan(balance(each.priced).lengths))

    def find(watch: Watch) -> None:
        with suppress(Stopped):
            for each in sorted(candidates(instance, watch), key=seconds)[:_IMPROVED]:
                layers.first_plan(each.priced, limits).find(watch.part(plan_of=partial(_strategy, each)))

    return First("balanced layers, their cuts moved one by one", find)


def _strategy(candidate: Candidate, plan: LayerPlan) -> StrategyPlan:
    return candidate.plan(plan.lengths)
