"""The exact front of time against memory and devices: every point a plan, and none that another one beats.

The optimum with at most k devices and M bytes never grows with k or M, so what one solve proves answers others: its
bound holds wherever there is no more of either, and its plan wherever there is enough. For each number of devices the
least memory of a time is found by bisection between the plans' own memories; the proof is a solve just below it.
Amounts of memory that differ by no more than 1e-9 of themselves count as equal, and times by no more than 1e-6: within
that each of them is proved.

Source: this project (the epsilon-constraint method, with its steps bisected).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from formulations.contract.alternatives import Nearby
from planner.analysis.alternatives import Unfinished, Variants, nearby_of, verify_plan
from planner.files.load import family_of, validate
from planner.process.errors import UsageError
from planner.results.result import Result
from solvers.outcome import OPTIMAL_GAP, Limits, Status

#: Amounts that differ relatively by no more count as equal.
_SAME = 1e-9
#: What a plan takes may exceed what there is by float noise.
_SLACK = 1 + 1e-12
_TIME = "time"
_MEMORY, _DEVICES = "memory", "devices"


@dataclass(frozen=True)
class Point:
    """A plan with what it takes: ``amounts`` by the name of the axis, ``time`` being the objective."""

    amounts: Mapping[str, float]
    plan: Mapping[str, Any]

    def beats(self, other: "Point", axes: Iterable[str]) -> bool:
        """Whether it takes no more on any axis, up to rounding."""
        within = {axis: OPTIMAL_GAP if axis == _TIME else _SAME for axis in axes}
        return all(self.amounts[axis] <= other.amounts[axis] * (1 + within[axis]) for axis in axes)


@dataclass(frozen=True)
class Front:
    """Plans none of which is beaten on all ``axes``, by ascending time.

    ``is_complete``: every feasible plan is beaten by one of them; else they are what was known when ``effort`` ended.
    """

    axes: tuple[str, ...]
    units: Mapping[str, str]
    points: tuple[Point, ...]
    is_complete: bool
    effort: Variants

    def to_json(self) -> dict[str, Any]:
        """The keys that a result has more."""
        front = [{**point.amounts, "plan": dict(point.plan), "verified": True} for point in self.points]
        return {"front": front, "axes": list(self.axes), "complete": self.is_complete}


def parse_axes(text: str, instance: Any) -> tuple[str, ...]:
    """The axes between commas; `UsageError` for what the family does not have, and unless time is among two or more."""
    nearby = nearby_of(instance)
    others = [name for name, axis in nearby.axes.items() if axis.most(instance) is not None]
    known = (_TIME, *others)
    axes = tuple(part.strip() for part in text.split(","))
    if len(known) == 1:
        raise UsageError.at("--pareto", text, f"none: {family_of(instance).name} has no axis but time here")
    if not set(axes) <= set(known) or len(set(axes)) < len(axes) or len(axes) < 2 or _TIME not in axes:
        rule = f"{_TIME} and at least one of {', '.join(others)} between commas, each once"
        raise UsageError.at("--pareto", text, rule)
    return axes


def pareto(
    instance: Any, axes: tuple[str, ...], first: Result, *, limits: Limits | None = None, **arguments: Any
) -> Front:
    """The front of an instance.

    ``instance``: as it was solved.
    ``axes``: from `parse_axes`.
    ``first``: its result; there is no front unless it is proved.
    ``limits``: the time is that of all solves together.
    ``arguments``: further ones of `planner.solve`, such as the method.
    `UsageError` if no exact method takes the instance with fewer devices.
    """
    instance = validate(instance)
    variants = Variants(limits or Limits(), arguments)
    optima = _Optima(instance, nearby_of(instance), variants, axes)
    is_complete = first.status in (Status.OPTIMAL, Status.INFEASIBLE)
    if first.plan is not None:
        optima.remember(first, optima.most)
    try:
        if first.status is Status.OPTIMAL:
            _sweep(optima, axes)
    except Unfinished:
        is_complete = False
    points = _drop_dominated(optima.points, axes)
    units = {_TIME: first.unit, **{name: axis.unit for name, axis in optima.axes.items()}}
    return Front(axes, units, tuple(points), is_complete, variants)


def _sweep(optima: "_Optima", axes: tuple[str, ...]) -> None:
    amounts = dict(optima.most)
    while True:
        found = _least_memory(optima, amounts) if _MEMORY in axes else [optima.best(amounts)]
        points = [point for point in found if point is not None]
        if _DEVICES not in axes or not points:
            return
        amounts[_DEVICES] = max(point.amounts[_DEVICES] for point in points) - 1
        if amounts[_DEVICES] < 1:
            return


def _least_memory(optima: "_Optima", amounts: Mapping[str, float]) -> list[Point]:
    """For every time that is an optimum at some memory, with the other amounts as given, a plan of the least memory."""
    found = []
    point = optima.best(amounts)
    while point is not None:
        smallest, point = _smallest(optima, amounts, point)
        found.append(smallest)
    return found


def _smallest(optima: "_Optima", amounts: Mapping[str, float], point: Point) -> tuple[Point, Point | None]:
    """A plan of the least memory that is as fast, and the best plan that needs less; ``None``: there is none."""
    low, time = 0.0, point.amounts[_TIME]
    while True:
        memory = point.amounts[_MEMORY]
        if memory <= 0:
            return point, None
        below = optima.best({**amounts, _MEMORY: memory * (1 - _SAME)})
        if below is None or not _no_slower(below.amounts[_TIME], time):
            return point, below
        point = below
        middle = (low + point.amounts[_MEMORY]) / 2
        found = optima.best({**amounts, _MEMORY: middle})
        if found is not None and _no_slower(found.amounts[_TIME], time):
            point = found
        else:
            low = middle


@dataclass
class _Optima:
    """Optima of an instance with less memory and fewer devices; what is known answers before anything is solved.

    ``proved`` has the amounts of each solve with its bound (infinite: there is no plan), ``points`` all plans.
    """

    instance: Any
    nearby: Nearby
    variants: Variants
    wanted: tuple[str, ...]
    points: list[Point] = field(default_factory=list)
    proved: list[tuple[Mapping[str, float], float]] = field(default_factory=list)

    @property
    def axes(self) -> Mapping[str, Any]:
        """Those of the instance beside time."""
        return {name: axis for name, axis in self.nearby.axes.items() if axis.most(self.instance) is not None}

    @property
    def most(self) -> dict[str, float]:
        """What the instance allows."""
        return {name: axis.most(self.instance) for name, axis in self.axes.items()}

    def remember(self, result: Result, amounts: Mapping[str, float]) -> None:
        """A solve with at most these amounts."""
        if result.plan is None:
            self.proved.append((dict(amounts), math.inf))
            return
        plan, objective = verify_plan(self.instance, result.plan)
        taken = {name: axis.of_plan(self.instance, plan) for name, axis in self.axes.items()}
        self.points.append(Point({_TIME: objective, **taken}, result.plan))
        if result.bound is not None:
            self.proved.append((dict(amounts), result.bound))

    def best(self, amounts: Mapping[str, float]) -> Point | None:
        """A fastest plan that takes at most these amounts, or ``None``; `Unfinished` as of `Variants.solve`."""
        bounds = [bound for have, bound in self.proved if all(amounts[name] <= have[name] for name in amounts)]
        bound = max(bounds, default=-math.inf)
        fitting = [
            each for each in self.points if all(each.amounts[name] <= amounts[name] * _SLACK for name in amounts)
        ]
        known = min(fitting, key=lambda each: each.amounts[_TIME], default=None)
        if bound == math.inf:
            return None
        if known is not None and _no_slower(known.amounts[_TIME], bound):
            return known
        variant = self.instance
        for name in self.wanted:
            if name in self.axes and amounts[name] < self.most[name]:
                variant = self.axes[name].limited(variant, amounts[name])
        result = self.variants.solve(variant)
        self.remember(result, amounts)
        return None if result.plan is None else self.points[-1]


def _no_slower(time: float, other: float) -> bool:
    return time <= other * (1 + OPTIMAL_GAP)


def _drop_dominated(points: Iterable[Point], axes: tuple[str, ...]) -> list[Point]:
    """Those that no other beats; of equal ones the first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda each: tuple(each.amounts[axis] for axis in axes)):
        if not any(other.beats(point, axes) for other in kept):
            kept = [other for other in kept if not point.beats(other, axes)] + [point]
    return sorted(kept, key=lambda each: (each.amounts[_TIME], *(each.amounts[axis] for axis in axes)))
