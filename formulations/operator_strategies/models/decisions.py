"""What the models of both solvers decide, and how a plan is read off it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from formulations.contract.family import Answer
from formulations.modelling.solve_model import prove
from formulations.modelling.warm_start import First
from formulations.operator_strategies import descent
from formulations.operator_strategies.choice import Choice, infeasible_answer
from formulations.operator_strategies.definition.plan import StrategyPlan
from formulations.operator_strategies.definition.problem import evaluate, violations
from formulations.operator_strategies.reduction import Reduced
from instances.problems.operator_strategies import OperatorStrategies
from solvers.outcome import Limits, Watch

#: A node, and one of its kept strategies.
Taken = tuple[int, int]


class StrategyModel(ABC):
    """A solver's model: ``takes[v, i]`` is 1 if node v takes the i-th of its kept strategies."""

    data: Reduced
    takes: Mapping[Taken, Any]
    weighted_sum: Callable[[Iterable[tuple[int, Any]]], Any]
    #: As of `solve_model.Extensible`.
    add_row: Callable[[str, Any, str, float], None]
    #: Choices of live nodes that `cut_off` has ruled out.
    num_forbidden = 0

    def decode(self, values: Any) -> StrategyPlan:
        """The plan of a solution."""
        found = {v: i for (v, i), variable in self.takes.items() if values[variable] > 0.5}
        return self.data.plan([found[v] for v in range(len(self.data.kept))])

    @abstractmethod
    def extra_cost(self, bound: float) -> float:
        """A bound on the model's objective as cost above ``base``, before it is rounded up to a whole number."""

    def lower_bound(self, bound: float) -> float:
        """A bound on the model's objective as cost; costs are whole numbers."""
        return float(self.data.base + int(np.ceil(max(0.0, self.extra_cost(bound)))))

    def cut_off(self, plan: StrategyPlan, _values: Any) -> None:
        """Forbid the choice of nodes that are live together and use too much, with all that use no less."""
        instance = self.data.instance
        limit = instance.usage_limit
        for live in self.data.cliques:
            own = {v: instance.nodes[v].usages[plan.strategy_of[v]] for v in live}
            if limit is not None and sum(own.values()) > limit:
                large = [(v, i) for v in live for i, usage in enumerate(self.data.usage(v)) if usage >= own[v]]
                terms = self.weighted_sum((1, self.takes[each]) for each in large)
                self.add_row(f"forbidden[{self.num_forbidden}]", terms, "<=", len(live) - 1)
                self.num_forbidden += 1

    def values_of(self, plan: StrategyPlan) -> Iterator[tuple[Any, int]]:
        """The values of the decisions in a plan; the solver finds what follows from them."""
        for (v, i), variable in self.takes.items():
            yield variable, int(self.data.kept[v][i] == plan.strategy_of[v])

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of `Decisions.vocabulary`."""
        return {
            "strategy_of": lambda v: self.weighted_sum(
                (k, self.takes[v, i]) for i, k in enumerate(self.data.kept[v]) if k
            )
        }


def known_cost(watch: Watch, *, complete: bool) -> float | None:
    """What the watch's best plan costs, if a model may be pruned by it."""
    return None if complete else watch.best_objective


def solve(
    build: Callable[[OperatorStrategies, Watch], Any], instance: OperatorStrategies, limits: Limits, watch: Watch
) -> Answer[StrategyPlan]:
    """The best choice; models begin with that of our descent."""
    impossible = infeasible_answer(instance, Choice(instance))
    if impossible is not None:
        return impossible
    first = First("descent", lambda part: descent.solve(instance, limits, part))
    reason = "no choice meets the requirements" if instance.requirements else "no choice keeps the limit"

    def built() -> Any:
        return build(instance, watch)

    return prove(instance, built, evaluate, violations, limits, watch, reason=reason, to_scale=True, first=first)
