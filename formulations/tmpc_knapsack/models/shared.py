"""What the two solver models share: the numbers they are made of, and how a solution and a bound are read."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from formulations.contract.family import Answer
from formulations.modelling.solve_model import prove
from formulations.modelling.warm_start import First
from formulations.tmpc_knapsack import exact
from formulations.tmpc_knapsack.costs import plan_of, shortage
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.problem import MEMORY_SLACK, evaluate, violations
from instances.problems.tmpc_knapsack import KnapsackInstance
from instances.rules import NodeId
from solvers.outcome import Limits, Watch

#: A bound is put together from a few rounded numbers: this part of it is given up to keep it below the optimum.
_ROUNDING = 1e-14

#: So many times what a known plan takes above the fastest options is as good as more.
_FAR = 2.0

#: At this gap to the relaxation the search for a first plan ends.
_ROUNDED_GAP = 0.01

#: A node and one of its options, by position.
Option = tuple[int, int]


@dataclass(frozen=True)
class Data:
    """``options`` of each node; of each option its ``memory``, and its ``extra`` time above the node's fastest one.

    All nodes may take ``limit`` bytes. ``fastest`` is the time of all nodes' fastest options together. Units are the
    instance's, but where a model has its own.
    """

    options: list[list[Option]]
    memory: Mapping[Option, float]
    limit: float
    extra: Mapping[Option, float]
    fastest: float


def data_of(instance: KnapsackInstance, watch: Watch, *, complete: bool) -> Data:
    """The instance, with all times as they are if ``complete``.

    Else, beside a plan that the watch knows, none is more than twice what that has above the fastest options. No better
    plan takes an option that alone costs as much, so its costs are counted in full; where some options take 10^5 times
    as long as others, those that matter would be lost in the solvers' roundings and tolerances.
    """
    every = {(v, j): x for v, node in enumerate(instance.nodes) for j, x in enumerate(node.options)}
    options = [[(v, j) for j in range(len(node.options))] for v, node in enumerate(instance.nodes)]
    least = [min(x.time for x in node.options) for node in instance.nodes]
    known = None if complete else watch.best_objective
    most = math.inf if known is None else _FAR * max(0.0, known - math.fsum(least))
    limit = instance.capacity_bytes * MEMORY_SLACK
    # What alone exceeds the limit is kept out by twice the limit as well, and coefficients stay near the limit's size.
    too_large = float(math.floor(2 * limit) + 1)
    return Data(
        options,
        {o: min(x.memory_bytes, too_large) for o, x in every.items()},
        limit,
        {(v, j): min(x.time - least[v], most) for (v, j), x in every.items()},
        math.fsum(least),
    )


class KnapsackModel(ABC):
    """A solver's model of an instance: ``chosen[v, j]`` is 1 if node v takes its option j.

    Its objective is time above the fastest options, in units of its own.
    """

    instance: KnapsackInstance
    chosen: Mapping[Option, Any]
    #: The solver's sum of factor times variable.
    weighted_sum: Callable[[Iterable[tuple[int, Any]]], Any]
    #: As of `solve_model.Extensible`.
    add_row: Callable[[str, Any, str, float], None]
    #: Choices that `forbid` has ruled out.
    num_forbidden = 0

    @abstractmethod
    def extra_time(self, bound: float) -> float:
        """A bound on the model's objective as time above the fastest options, not rounded up."""

    def takes(self, values: Any, node: int, option: int) -> bool:
        """Whether a solution takes that option."""
        return bool(values[self.chosen[node, option]] > 0.5)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a choice."""

        def taken(option: str, node: NodeId | None = None) -> Any:
            nodes = self.instance.nodes
            return self._number(
                (v, j) for v, j in self.chosen if nodes[v].options[j].id == option and node in (None, nodes[v].id)
            )

        return {"chosen": lambda node, option: taken(option, node), "num_chosen": taken}

    def decode(self, values: Any) -> KnapsackPlan:
        """The plan of a solution."""
        return plan_of(self.instance, self._choice(values))

    def lower_bound(self, bound: float) -> float:
        """A bound on the model's objective as total time."""
        fastest = math.fsum(min(option.time for option in node.options) for node in self.instance.nodes)
        total = fastest + max(0.0, self.extra_time(bound))
        return total - _ROUNDING * total * (len(self.instance.nodes) + 1)

    def values_of(self, plan: KnapsackPlan) -> Iterator[tuple[Any, int]]:
        """The values of all variables in a plan."""
        for (v, j), variable in self.chosen.items():
            node = self.instance.nodes[v]
            yield variable, int(plan.choice[node.id] == node.options[j].id)

    def cut_off(self, _plan: KnapsackPlan, values: Any) -> None:
        """Forbid the choice together with all that are at least as large in every node."""
        nodes, choice = self.instance.nodes, self._choice(values)
        size = [node.options[j].memory_bytes for node, j in zip(nodes, choice, strict=True)]
        self.forbid([(v, j) for v, j in self.chosen if nodes[v].options[j].memory_bytes >= size[v]])

    def forbid(self, options: list[Option]) -> None:
        """Demand that not every node takes one of these."""
        self.add_row(f"forbidden[{self.num_forbidden}]", self._number(options), "<=", len(self.instance.nodes) - 1)
        self.num_forbidden += 1

    def _number(self, options: Iterable[Option]) -> Any:
        return self.weighted_sum((1, self.chosen[each]) for each in options)

    def _choice(self, values: Any) -> list[int]:
        return [
            next(option for option in range(len(node.options)) if self.takes(values, position, option))
            for position, node in enumerate(self.instance.nodes)
        ]


def solve(
    build: Callable[..., KnapsackModel], instance: KnapsackInstance, limits: Limits, watch: Watch
) -> Answer[KnapsackPlan]:
    """The best choice; a model begins with the linear relaxation's, rounded: the search around it ends at once."""
    gap = replace(limits, gap=_ROUNDED_GAP)
    first = First("relaxation, rounded", lambda part: exact.solve(instance, gap, part))
    reason = "no choice meets the requirements" if instance.requirements else shortage(instance)

    def model() -> Any:
        return build(instance, watch)

    return prove(instance, model, evaluate, violations, limits, watch, reason=reason, to_scale=True, first=first)
