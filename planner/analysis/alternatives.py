"""The best plans of an instance, one after the other, with a proof that no other plan belongs among them.

`Variants` solves what questions next to the optimum ask for, within one time limit.

The plans are divided as Lawler divides them: once a plan is the best of a part of all plans, the rest of that part
falls into smaller parts, in each of which one more quantity differs from the plan's, and those before it are the same.
Each part is the instance with requirements, and an exact method finds its best plan. A part is solved only when its
bound, that of the part it came from, is not above the best plan that waits.

Source: E. L. Lawler, "A procedure for computing the k best solutions to discrete optimization problems and its
application to the shortest path problem", Management Science 18(7), 1972.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from formulations.contract.alternatives import Nearby
from instances.requirements import Requirement, with_requirements
from planner.files.load import family_of, validate
from planner.process.errors import UsageError
from planner.process.signals import pending
from planner.results.result import Result
from planner.solving.solve import solve
from solvers.outcome import Limits, Status, Stop


class Unfinished(Exception):  # noqa: N818 - the answer so far is still given
    """A limit or a signal came first."""


@dataclass
class Variants:
    """Solves variants of an instance exactly, one after the other.

    ``arguments`` are those of `planner.solve` beside the limits. ``signal`` is the one that ended it, ``stop`` why it
    ended without an answer.
    """

    limits: Limits
    arguments: dict[str, Any]
    signal: int | None = None
    stop: Stop = Stop.COMPLETED
    solved: int = 0
    _began: float = field(default_factory=time.monotonic)

    def solve(self, variant: Any) -> Result:
        """The optimum of a variant, or that it has no plan, proved; `Unfinished` where neither is."""
        result = self.attempt(variant)
        if result.signal is not None or result.status not in (Status.OPTIMAL, Status.INFEASIBLE):
            self.give_up(result)
        return result

    def give_up(self, result: Result) -> NoReturn:
        """Raise `Unfinished` for what a result ended with."""
        self.signal, self.stop = result.signal, result.stop
        raise Unfinished

    def attempt(self, variant: Any, *, is_first: bool = False) -> Result:
        """What an exact method finds of a variant, proved or not; `Unfinished` where the time of all is over.

        ``is_first``: it has an answer in any case, be it that nothing was found in no time.
        """
        limits = self.limits
        if limits.time_s is not None:
            left = limits.time_s - (time.monotonic() - self._began)
            if left <= 0 and not is_first:
                self.stop = Stop.TIME_LIMIT
                raise Unfinished
            limits = replace(limits, time_s=max(0.0, left))
        if pending() is not None and not is_first:
            self.signal, self.stop = pending(), Stop.INTERRUPTED
            raise Unfinished
        result = solve(variant, exact=True, limits=limits, **self.arguments)
        self.solved += 1
        return result


def verify_plan(instance: Any, plan: Any) -> tuple[Any, float]:
    """A plan from its JSON form, and its objective, both by the definition of the instance as it was declared.

    ``ValueError`` if it breaks a rule of the instance: a fault of the search.
    """
    family = family_of(instance)
    read = family.plan_from_json(instance, plan)
    broken = family.judge(instance, read)
    if broken:
        raise ValueError(f"a plan of a variant breaks {'; '.join(map(str, broken))}")
    return read, family.evaluate(instance, read)


#: A part whose bound exceeds a plan by no more than this, relatively, cannot hold a better one.
_SAME = 1e-8
#: How many plans within a share of the optimum are listed where no other number is given.
MOST = 100


@dataclass(frozen=True)
class _Part:
    """Plans that meet some requirements; none is better than ``bound``, and ``result`` has the best, if it is known."""

    requirements: tuple[Requirement, ...]
    bound: float
    result: Result | None = None

    @property
    def objective(self) -> float:
        """Of the best plan."""
        return math.inf if self.result is None or self.result.objective is None else self.result.objective


@dataclass(frozen=True)
class Alternatives:
    """The best plans, ascending.

    ``plans`` are ``{"objective", "plan", "verified"}`` each. No plan that is distinct from all of them, in the declared
    ``sense``, is better than ``bound`` (infinite: there is no other plan; minus infinity: none is known).
    ``is_complete``: these are the plans that were wanted, or all there are. ``effort`` says how many solves it took,
    and what ended it early.
    """

    sense: str
    plans: tuple[Mapping[str, Any], ...]
    bound: float
    is_complete: bool
    effort: Variants

    def to_json(self) -> dict[str, Any]:
        """The keys that a result has more."""
        return {
            "alternatives": [dict(each) for each in self.plans],
            "distinct": f"plans that differ in {self.sense}",
            "bound_of_others": self.bound if math.isfinite(self.bound) else None,
            "complete": self.is_complete,
        }


def nearby_of(instance: Any) -> Nearby:
    """How plans of the instance's family differ; `UsageError` if the family does not say."""
    family = family_of(instance)
    if family.nearby is None:
        from formulations import FAMILIES

        known = ", ".join(each.name for each in FAMILIES if each.nearby is not None)
        raise UsageError.at("INSTANCE", family.name, f"one of another problem; there are answers for {known}")
    return family.nearby


def expect_distinct(instance: Any, option: str, value: object) -> Nearby:
    """`nearby_of`, for alternatives; `UsageError` as well if no exact method honours what plans differ in."""
    nearby = nearby_of(instance)
    refusal = nearby.refusal(instance)
    if refusal is not None:
        raise UsageError.at(option, value, f"none for this instance: {refusal}")
    return nearby


def alternatives(
    instance: Any,
    first: Result,
    *,
    count: int | None = None,
    within: float | None = None,
    limits: Limits | None = None,
    **arguments: Any,
) -> Alternatives:
    """The ``count`` best plans, or those within a share of the optimum.

    ``instance``: as it was solved.
    ``first``: its result; there are no plans if it is not proved optimal.
    ``count``: how many plans are wanted at most; ``None``: 1, or `MOST` with ``within``.
    ``within``: plans that take at most ``1 + within`` times the optimum. If there are more than ``count`` of them, the
    list is not complete.
    ``limits``: the time is that of all solves together.
    ``arguments``: further ones of `planner.solve`, such as the method.
    `UsageError` if the family does not say which plans are distinct, or no exact method honours requirements on that.
    """
    instance = validate(instance)
    search = _Search(instance, expect_distinct(instance, "alternatives", count), first)
    variants = Variants(limits or Limits(), arguments)
    most = count if count is not None else MOST if within is not None else 1
    ceiling = math.inf if within is None or first.objective is None else first.objective * (1 + within)
    plans: list[Mapping[str, Any]] = []
    is_complete = first.status in (Status.OPTIMAL, Status.INFEASIBLE)
    try:
        while is_complete and len(plans) < most and search.find(variants, ceiling):
            plans.append(search.take())
        if within is not None and is_complete:
            is_complete = len(plans) < most or not search.find(variants, ceiling)
    except Unfinished:
        is_complete = False
    return Alternatives(
        search.nearby.sense,
        tuple(sorted(plans, key=lambda each: float(each["objective"]))),
        search.bound,
        is_complete,
        variants,
    )


class _Search:
    """The parts that are left of all plans, and the best plans that wait in them."""

    def __init__(self, instance: Any, nearby: Nearby, first: Result) -> None:
        self.instance, self.nearby = instance, nearby
        self._unknown = -math.inf if first.bound is None else first.bound
        self.opened = [_Part((), self._unknown, first)] if first.status is Status.OPTIMAL else []
        self.closed: list[_Part] = []
        self._is_whole = first.status in (Status.OPTIMAL, Status.INFEASIBLE)

    @property
    def bound(self) -> float:
        """No plan of the parts that are left is better."""
        left = [part.bound for part in (*self.opened, *self.closed)]
        return min(left, default=math.inf) if self._is_whole else self._unknown

    def find(self, variants: Variants, ceiling: float) -> bool:
        """Whether a plan of at most the ceiling is left; then `take` has the best. `Unfinished` as `Variants.solve`."""
        while True:
            self.opened.sort(key=lambda part: part.objective)
            best = min((part.objective for part in self.opened), default=math.inf)
            least = min(self.closed, key=lambda part: part.bound, default=None)
            if least is None or best <= least.bound * (1 + _SAME) or least.bound > ceiling * (1 + _SAME):
                return best <= ceiling * (1 + _SAME) and best < math.inf
            result = variants.solve(with_requirements(self.instance, least.requirements))
            self.closed.remove(least)
            if result.objective is not None and result.bound is not None:
                bound = max(least.bound, result.bound)
                self.opened.append(_Part(least.requirements, bound, result))

    def take(self) -> Mapping[str, Any]:
        """The best plan that waits, checked; what else its part has falls into smaller parts."""
        part = self.opened.pop(0)
        assert part.result is not None
        plan, objective = verify_plan(self.instance, part.result.plan)
        fixed = list(part.requirements)
        for pin in self.nearby.pins(self.instance, plan):
            if pin.same in part.requirements:
                continue
            self.closed += [_Part((*fixed, other), part.bound) for other in pin.others]
            fixed.append(pin.same)
        return {"objective": objective, "plan": part.result.plan, "verified": True}
