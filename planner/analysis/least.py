"""The fewest devices, the least memory or the least time of all plans within given amounts of the others.

Whether there is a plan with at most so many devices or bytes never changes back from yes to no when there is more of
either. So the least amount lies between one at which an exact method has a plan within the time and one at which it
proves that there is none, and the interval is bisected. Every plan found narrows it to what that plan takes.

Source: this project (the epsilon-constraint method, with its steps bisected, for one point of the front).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from formulations.contract.alternatives import Axis
from instances.parameters import parse_count
from instances.units import parse_bytes, parse_time
from planner.analysis.alternatives import Unfinished, Variants, verify_plan
from planner.files.load import family_of, validate
from planner.files.settings import AMOUNTS
from planner.process.errors import UsageError
from planner.results.result import Result, own_terms
from solvers.outcome import Limits, Status, Stop

TIME = "time"
#: The rule of a bound, in words.
_RULE = "time, memory or devices, <=, and an amount, such as time <= 40ms"
_BOUND = re.compile(rf"\s*({'|'.join(AMOUNTS)})\s*<=\s*(\S.*?)\s*")
#: A least amount that is no whole number is proved up to this part of it.
_SAME = 1e-9
#: An objective may exceed the time that was given by float noise.
_SLACK = 1 + 1e-12


def split_bounds(texts: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """What ``--require`` states of amounts, by name, and the other texts; `UsageError` for an amount twice.

    >>> split_bounds(["time <= 40ms", "num_stages <= 3"])
    ({'time': '40ms'}, ['num_stages <= 3'])
    """
    bounds: dict[str, str] = {}
    rest = []
    for text in texts:
        found = _BOUND.fullmatch(text)
        if found is None and re.match(rf"\s*({'|'.join(AMOUNTS)})\b(?!\()", text):
            raise UsageError.at("--require", text, _RULE)
        if found is None:
            rest.append(text)
        elif found[1] in bounds:
            raise UsageError.at("--require", text, f"one bound on {found[1]}")
        else:
            bounds[found[1]] = found[2]
    return bounds, rest


def solve_least(
    instance: Any,
    minimise: str,
    bounds: Mapping[str, str | float] | None = None,
    *,
    limits: Limits | None = None,
    **arguments: Any,
) -> Result:
    """A plan that takes least of one amount, of those that take at most so much of others.

    Parameters
    ----------
    instance
        From `planner.load`.
    minimise
        One of `planner.files.settings.AMOUNTS`; ``time`` is the problem's own objective.
    bounds
        By name of an amount how much there may be of it, with a unit or in the instance's: ``{"time": "40ms"}``.
    limits
        The time is that of all solves together.
    arguments
        Further ones of `planner.solve`, such as the method.

    Returns
    -------
    Result
        ``own`` has the value and the bound of what is minimised, ``minimised`` its name and ``within`` the bounds in
        words; ``status`` and ``bound`` say nothing of the instance. `CrosscheckError` as of `planner.solve`.

    Raises
    ------
    UsageError
        If plans of the problem do not take such an amount, a bound is none, or no exact method takes the instance.
    """
    declared = validate(instance)
    amounts = _Amounts.of(declared, minimise, bounds or {})
    search = _Search(declared, amounts, Variants(limits or Limits(), arguments))
    is_complete = True
    try:
        search.run(minimise)
    except Unfinished:
        is_complete = False
    return search.result(minimise, is_complete)


@dataclass(frozen=True)
class _Amounts:
    """The axes of an instance's plans, how much there may be of some amounts, and the bounds as they were stated."""

    axes: Mapping[str, Axis]
    most: Mapping[str, float]
    units: Mapping[str, str]
    stated: tuple[str, ...]

    @classmethod
    def of(cls, instance: Any, minimise: str, bounds: Mapping[str, str | float]) -> "_Amounts":
        family = family_of(instance)
        axes = {} if family.nearby is None else dict(family.nearby.axes)
        known = [TIME, *(name for name, axis in axes.items() if axis.most(instance) is not None)]
        given = {"--minimise": minimise, **{f"--require {name}": name for name in bounds}}
        for option, name in given.items():
            if name not in known:
                raise UsageError.at(option.split()[0], name, _refusal(instance, name, known))
        own = {name: {"B": "bytes"}.get(axis.unit, axis.unit) or name for name, axis in axes.items()}
        units = {TIME: family.unit(instance), **own}
        if units[TIME] == "bytes":
            raise UsageError.at("--minimise", minimise, "a problem that minimises a time; this one minimises bytes")
        most = {name: _parse(name, value, units[name]) for name, value in bounds.items()}
        return cls(axes, most, units, tuple(f"{name} <= {value}" for name, value in bounds.items()))

    def limited(self, instance: Any, most: Mapping[str, float]) -> Any:
        """The instance whose plans take at most so much of each amount but time."""
        for name, amount in most.items():
            allowed = None if name == TIME else self.axes[name].most(instance)
            if allowed is not None and amount < allowed:
                whole = name in self.axes and not self.axes[name].unit
                instance = self.axes[name].limited(instance, int(amount) if whole else amount)
        return instance


def _refusal(instance: Any, name: str, known: Iterable[str]) -> str:
    """What is expected in place of an amount that the problem's plans do not take, and which problems have it."""
    from formulations import FAMILIES

    having = [each.name for each in FAMILIES if each.nearby is not None and name in each.nearby.axes]
    others = f"; {name} is an amount of {', '.join(having)}" if having else ""
    return f"{' or '.join(known)} for this instance of {family_of(instance).name}{others}"


def _parse(name: str, value: str | float, unit: str) -> float:
    """An amount as it is typed; `UsageError` for what is none."""
    reader = {"devices": parse_count, "bytes": parse_bytes, "s": parse_time}.get(unit)
    try:
        return float(value) if reader is None else float(reader(value))
    except (TypeError, ValueError) as rule:
        said = str(rule) if reader is not None else f"a number, in {unit or 'the unit of the instance'}"
        raise UsageError.at("--require", f"{name} <= {value}", said) from None


@dataclass
class _Search:
    """``best`` is the result whose plan takes least so far, ``last`` the last one, and ``low`` is proved too little."""

    instance: Any
    amounts: _Amounts
    variants: Variants
    best: Result | None = None
    last: Result | None = None
    low: float | None = None
    seconds: float = 0.0

    def run(self, minimise: str) -> None:
        """Ask until the least amount is proved; `Unfinished` where a limit or a signal comes first."""
        is_found = self._ask(self.amounts.most)
        if minimise == TIME and is_found and self.best is not None and self.best.status is not Status.OPTIMAL:
            self.variants.give_up(self.best)
        if minimise == TIME or not is_found:
            return
        self.low, is_below = 0.0, False
        is_whole = not self.amounts.axes[minimise].unit
        while True:
            value = self._taken(minimise)
            below = value - 1 if is_whole else value * (1 - _SAME)
            if below <= self.low:
                return
            # halves alternate with what lies just below the best plan, where it is often proved to be the least
            middle = (self.low + below + 1) // 2 if is_whole else self.low + (below - self.low) / 2
            amount = below if is_below or not self.low < middle else middle
            is_below = not is_below and not is_whole
            if not self._ask({**self.amounts.most, minimise: amount}):
                self.low = amount

    def _ask(self, most: Mapping[str, float]) -> bool:
        """Whether a plan takes at most these amounts; it becomes the best. `Unfinished` where neither is proved."""
        result = self.last = self.variants.attempt(
            self.amounts.limited(self.instance, most), is_first=self.last is None
        )
        self.seconds += result.seconds
        time = most.get(TIME)
        if result.objective is not None and (time is None or result.objective <= time * _SLACK):
            self.best = result
        elif not (result.status is Status.INFEASIBLE or (time is not None and (result.bound or 0.0) > time)):
            self.variants.give_up(result)
        if result.signal is not None:
            self.variants.give_up(result)
        return self.best is result

    def _taken(self, name: str) -> float:
        """How much the best plan takes, by the definition of the instance as it was declared."""
        assert self.best is not None
        plan, objective = verify_plan(self.instance, self.best.plan)
        return objective if name == TIME else float(self.amounts.axes[name].of_plan(self.instance, plan))

    def result(self, minimise: str, is_complete: bool) -> Result:
        """The best plan's result, with what is proved of the amount in ``own``."""
        result = self.best or self.last
        assert result is not None
        value = None if self.best is None else self._taken(minimise)
        within = [*self.amounts.stated, *self.instance.requirements]
        options = {name: given for name, given in result.options.items() if name != "require"}  # of the last step
        own = own_terms(value, self._bound(minimise), self.amounts.units[minimise], is_complete and self.best is None)
        return replace(
            result,
            status=Status.UNKNOWN if self.best is None else Status.FEASIBLE,
            stop=Stop.PROVED if is_complete else self.variants.stop,
            plan=None if self.best is None else result.plan,
            own_plan=None if self.best is None else result.own_plan,
            objective=None if self.best is None else self._taken(TIME),
            bound=None, gap=None, proved_by=None, verified=self.best is not None,
            signal=self.variants.signal,
            seconds=self.seconds,
            stats={**result.stats, "solves": self.variants.solved},
            own={**own, "minimised": minimise, "within": within},
            options={**options, "require": " and ".join(within)} if within else options,
            of=self.instance,
        )  # fmt: skip

    def _bound(self, minimise: str) -> float | None:
        """What every plan takes at least."""
        if minimise == TIME:
            return None if self.last is None else self.last.bound
        if self.low is None or self.amounts.axes[minimise].unit:
            return self.low
        return self.low + 1
