"""What the two solver models share: run, check the plan, cut off what only rounding let through, and run again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from formulations.family import Answer
from formulations.tmpc_knapsack.costs import plan_of, shortage
from formulations.tmpc_knapsack.problem import MEMORY_SLACK, KnapsackPlan, evaluate, violations
from instances.tmpc_knapsack import KnapsackInstance
from solvers.outcome import Limits, Run, Stop, Watch

#: A bound is put together from a few rounded numbers: this part of it is given up to keep it below the optimum.
_ROUNDING = 1e-14


class Model(Protocol):
    """A solver's model of an instance; its objective is time above the fastest options, in units of its own."""

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[Any], None],
        on_bound: Callable[[float], None],
    ) -> Run:
        """Run the backend."""

    def is_chosen(self, values: Any, node: int, option: int) -> bool:
        """Whether a solution takes that option (positions in the instance)."""

    def extra_time(self, bound: float) -> float:
        """A bound on the model's objective as time above the fastest options, not rounded up."""

    def forbid(self, options: list[tuple[int, int]]) -> None:
        """Demand that not every node takes one of these (node, option)."""


def fastest(instance: KnapsackInstance) -> list[float]:
    """Least time of every node."""
    return [min(option.time for option in node.options) for node in instance.nodes]


def sizes(instance: KnapsackInstance) -> tuple[list[list[float]], float]:
    """Memory of every option, and the limit; what exceeds the limit alone is cut to about twice the limit.

    Cutting keeps such options out as before, and coefficients near the limit's size.
    """
    limit = instance.capacity_bytes * MEMORY_SLACK
    too_large = float(math.floor(2 * limit) + 1)
    return [[min(option.memory_bytes, too_large) for option in node.options] for node in instance.nodes], limit


def solve_model(instance: KnapsackInstance, model: Model, limits: Limits, watch: Watch) -> Answer[KnapsackPlan]:
    """Run a model until its plan obeys the definition, or its bound meets the best plan found.

    A model may round sizes down. A plan that only rounding let through is forbidden together with all plans that are
    at least as large in every node, and the model runs again; its bounds stay valid throughout.
    """
    base = math.fsum(fastest(instance))

    def bound_of(value: float) -> float:
        total = base + max(0.0, model.extra_time(value))
        return total - _ROUNDING * total * (len(instance.nodes) + 1)

    def decode(values: Any) -> list[int]:
        return [
            next(option for option in range(len(node.options)) if model.is_chosen(values, position, option))
            for position, node in enumerate(instance.nodes)
        ]

    def listen(values: Any) -> None:
        plan = plan_of(instance, decode(values))
        if not violations(instance, plan):
            watch.plan(plan, evaluate(instance, plan))

    rounds = 0
    while True:
        run = model.run(limits, watch, listen, lambda value: watch.bound(bound_of(value)))
        rounds += 1
        stats = {**run.stats, "rounds": rounds}
        if run.infeasible:
            return Answer(infeasible=True, stop=Stop.PROVED, solver=run.solver, reason=shortage(instance), stats=stats)
        if run.bound is not None:
            watch.bound(bound_of(run.bound))
        stop = run.stop
        if run.values is not None:
            listen(run.values)
            choice = decode(run.values)
            if violations(instance, plan_of(instance, choice)):
                if not watch.stopped():
                    model.forbid(_at_least_as_large(instance, choice))
                    continue
                stop = watch.why()
        return Answer(watch.best_plan, watch.best_bound, stop=stop, solver=run.solver, stats=stats)


def _at_least_as_large(instance: KnapsackInstance, choice: list[int]) -> list[tuple[int, int]]:
    return [
        (position, option)
        for position, node in enumerate(instance.nodes)
        for option, other in enumerate(node.options)
        if other.memory_bytes >= node.options[choice[position]].memory_bytes
    ]
