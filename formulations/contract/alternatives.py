"""What questions next to the optimum need to know of a family: which plans count as different, and what else they cost.

The room declares it (``questions/alternatives.py``); `planner.analysis.alternatives` and `planner.analysis.pareto` ask.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

from instances.requirements import Argument, Requirement


@dataclass(frozen=True)
class Pin:
    """The value that a quantity has in a plan, and its least and its greatest in any plan."""

    quantity: str
    arguments: tuple[Argument, ...]
    value: int
    least: int
    most: int

    @property
    def same(self) -> Requirement:
        """What the plans with this value meet."""
        return Requirement(self.quantity, self.arguments, "==", self.value)

    @property
    def others(self) -> list[Requirement]:
        """Requirements of which each plan with another value meets exactly one."""
        below = Requirement(self.quantity, self.arguments, "<=", self.value - 1)
        above = Requirement(self.quantity, self.arguments, ">=", self.value + 1)
        return [*([below] if self.value > self.least else []), *([above] if self.value < self.most else [])]


@dataclass(frozen=True)
class Axis:
    """What a plan costs beside its objective.

    ``of_plan(instance, plan)``: how much it takes.
    ``limited(instance, amount)``: the instance whose plans are those that take at most so much.
    ``most(instance)``: what the instance itself allows; ``None``: it does not say it in one number.
    ``unit``: of an amount; whole amounts have none.
    """

    of_plan: Callable[[Any, Any], float]
    limited: Callable[[Any, Any], Any]
    most: Callable[[Any], float | None]
    unit: str = ""


@dataclass(frozen=True)
class Nearby:
    """How plans of a family differ.

    ``sense``: what distinct plans differ in, in words that follow "plans that differ in".
    ``pins(instance, plan)``: quantities with their values, which exactly the plans that are not distinct from
    this one share. Exact methods honour requirements on them.
    ``axes``: by name, ``memory`` or ``devices``.
    ``refusal``: ``None``, or why no exact method honours such requirements on an instance.
    """

    sense: str
    pins: Callable[[Any, Any], Sequence[Pin]]
    axes: Mapping[str, Axis] = field(default_factory=dict)
    refusal: Callable[[Any], str | None] = lambda _: None


def grouping_pins(groups: Iterable[Sequence[Argument]]) -> list[Pin]:
    """Pins of ``same_stage`` that only this partition of nodes into stages has.

    Stages that follow each other come first: where the nodes are a chain, nothing else can be joined.
    """
    groups = list(groups)
    together = [(node, other, 1) for nodes in groups for node, other in pairwise(nodes)]
    firsts = [nodes[0] for nodes in groups]
    pairs = [*pairwise(firsts), *((u, v) for (i, u), (j, v) in combinations(enumerate(firsts), 2) if j - i > 1)]
    return [Pin("same_stage", (u, v), value, 0, 1) for u, v, value in [*together, *((u, v, 0) for u, v in pairs)]]
