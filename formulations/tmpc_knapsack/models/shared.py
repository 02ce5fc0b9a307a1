"""What the two solver models share: sizes, and how a solution and a bound are read."""

from __future__ import annotations

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


def fastest(instance: KnapsackInstance) -> list[float]:
    """Least time of every node."""
    return [min(option.time for option in node.options) for node in instance.nodes]


def extra_times(instance: KnapsackInstance, known: float | None) -> list[list[float]]:
    """Time of every option above its node's fastest; beside a plan of ``known`` no more than twice what that has.

    No better plan takes an option that alone costs as much, so its costs are counted in full; where some options take
    10^5 times as long as others, those that matter would be lost in the solvers' roundings and tolerances.
    """
    extra = [[option.time - best for option in node.options]
             for node, best in zip(instance.nodes, fastest(instance), strict=True)]  # fmt: skip
    if known is None:
        return extra
    most = _FAR * max(0.0, known - math.fsum(fastest(instance)))
    return [[min(time, most) for time in times] for times in extra]


def sizes(instance: KnapsackInstance) -> tuple[list[list[float]], float]:
    """Memory of every option, and the limit; what exceeds the limit alone is cut to about twice the limit.

    Cutting keeps such options out as before, and coefficients near the limit's size.
    """
    limit = instance.capacity_bytes * MEMORY_SLACK
    too_large = float(math.floor(2 * limit) + 1)
    return [[min(option.memory_bytes, too_large) for option in node.options] for node in instance.nodes], limit


@dataclass(frozen=True)
class Data:
    """Of every option its ``memory`` and its ``extra`` time above the node's fastest option, in the instance's units.

    ``fastest`` is the least time of every node, ``limit`` the bytes that all nodes may take.
    """

    memory: list[list[float]]
    limit: float
    extra: list[list[float]]
    fastest: list[float]


def data_of(instance: KnapsackInstance, watch: Watch, *, complete: bool) -> Data:
    """What both models are made of.

    Times far beyond those of the best plan that the watch knows are not distinguished (`extra_times`), unless
    ``complete``.
    """
    extra = extra_times(instance, None if complete else watch.best_objective)
    return Data(*sizes(instance), extra, fastest(instance))


class KnapsackModel(ABC):
    """A solver's model of an instance; its objective is time above the fastest options, in units of its own."""

    instance: KnapsackInstance

    @abstractmethod
    def option(self, node: int, option: int) -> Any:
        """The variable that is 1 if that option is taken (positions in the instance)."""

    def takes(self, values: Any, node: int, option: int) -> bool:
        """Whether a solution takes that option."""
        return bool(values[self.option(node, option)] > 0.5)

    @abstractmethod
    def extra_time(self, bound: float) -> float:
        """A bound on the model's objective as time above the fastest options, not rounded up."""

    @abstractmethod
    def forbid(self, options: list[tuple[int, int]]) -> None:
        """Demand that not every node takes one of these (node, option)."""

    @abstractmethod
    def total(self, options: Iterable[tuple[int, int]]) -> Any:
        """How many of these (node, option) are taken: a linear expression."""

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a choice."""

        def taken(option: str, node: NodeId | None = None) -> Any:
            return self.total(
                (v, j)
                for v, each in enumerate(self.instance.nodes)
                for j, found in enumerate(each.options)
                if found.id == option and node in (None, each.id)
            )

        return {"chosen": lambda node, option: taken(option, node), "num_chosen": taken}

    def decode(self, values: Any) -> KnapsackPlan:
        """The plan of a solution."""
        return plan_of(self.instance, self._choice(values))

    def lower_bound(self, bound: float) -> float:
        """A bound on the model's objective as total time."""
        total = math.fsum(fastest(self.instance)) + max(0.0, self.extra_time(bound))
        return total - _ROUNDING * total * (len(self.instance.nodes) + 1)

    def values_of(self, plan: KnapsackPlan) -> Iterator[tuple[Any, int]]:
        """The values of all variables in a plan."""
        for v, node in enumerate(self.instance.nodes):
            for j, option in enumerate(node.options):
                yield self.option(v, j), int(plan.choice[node.id] == option.id)

    def cut_off(self, _plan: KnapsackPlan, values: Any) -> None:
        """Forbid the choice together with all that are at least as large in every node."""
        self.forbid(_at_least_as_large(self.instance, self._choice(values)))

    def _choice(self, values: Any) -> list[int]:
        return [
            next(option for option in range(len(node.options)) if self.takes(values, position, option))
            for position, node in enumerate(self.instance.nodes)
        ]


#: The sentences of both models, by group.
SAYS = {
    "chosen": "chosen[v,j]: node v takes its option j",
    "one_tmpc": 'a node takes exactly one TMPC: "choose one TMPC X in T(v, t) for each v in S": sum over j of '
    "chosen[v,j] = 1 [Piper, section 4]",
    "memory": 'total memory is within the capacity: "staying under the memory limit M": sum over v, j of memory(v,j) '
    "chosen[v,j] <= M [Piper, section 4]",
    "forbidden": "what has more bytes than fit, which only rounding or tolerances admitted, is cut off",
}


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


def _at_least_as_large(instance: KnapsackInstance, choice: list[int]) -> list[tuple[int, int]]:
    return [
        (position, option)
        for position, node in enumerate(instance.nodes)
        for option, other in enumerate(node.options)
        if other.memory_bytes >= node.options[choice[position]].memory_bytes
    ]
