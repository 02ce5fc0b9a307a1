"""Many small proofs under one limit: what several instances near each other are worth, by exact methods alone."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import formulations
from formulations.contract.family import Claim, Family, Method
from formulations.contract.rounding import least_amount, round_up
from formulations.contract.what_if import Change, Questions
from planner.files.load import family_of
from planner.plugins.method_names import AUTO
from planner.process.errors import UsageError
from planner.results.result import Result
from planner.solving.choose import candidates
from planner.solving.solve import run
from planner.solving.worker import Received, signals_stop
from solvers.outcome import OPTIMAL_GAP, Limits, Status, Stop, Watch

#: A gap at which any plan is enough.
ANY_PLAN = 1 - 1e-9


def asked_of(instance: Any, studied: bool = False) -> tuple[Family[Any, Any], Questions[Any]]:
    """The family of an instance, and what its problem knows for explanations, or, ``studied``, for sensitivity.

    `UsageError` if the problem knows nothing; with the names of those that do.
    """
    family = family_of(instance)
    known_of = family.questions() if family.questions is not None else None
    if known_of is not None and (known_of.factors is not None or not studied):
        return family, known_of
    others = {each.name: each.questions() for each in formulations.FAMILIES if each.questions is not None}
    known = [name for name, each in others.items() if each.factors is not None or not studied]
    raise UsageError.at("INSTANCE", family.name, f"an instance of {', '.join(known)}")


@dataclass(kw_only=True)
class Findings:
    """What proofs found of an instance, as far as it is known.

    ``status`` is ``infeasible``, ``optimal``, or ``unknown`` where the limit came first; ``result`` is the optimum,
    where there is a plan, and ``proofs`` says how many instances exact methods solved for it.
    """

    problem: str
    instance: str
    unit: str
    status: Status = Status.UNKNOWN
    stop: Stop = Stop.PROVED
    result: Result | None = None
    proofs: int = 0
    seconds: float = 0.0
    signal: int | None = None

    def head(self) -> dict[str, Any]:
        """What its JSON object begins with."""
        return {
            "problem": self.problem,
            "instance": self.instance,
            "status": self.status.value,
            "stop": self.stop.value,
            "unit": self.unit,
            "objective": None if self.result is None else self.result.objective,
        }


def beats(now: float) -> Callable[[Result], bool]:
    """Whether a result is better than an optimum, beyond rounding."""
    return lambda result: result.objective is not None and result.objective < now * (1 - OPTIMAL_GAP)


class EndedError(Exception):
    """The limit came, or a signal, or no exact method ended with a proof."""


class Proofs:
    """Solves instances of one family with exact methods, and counts.

    ``limits``: the time is that of all proofs together. ``listen``: called with how many there were, after each.
    """

    def __init__(self, instance: Any, limits: Limits, listen: Callable[[int], None] | None = None) -> None:
        self.family = family_of(instance)
        self.count = 0
        self.signal: int | None = None
        self.stop = Stop.PROVED
        self._limits, self._listen = limits, listen
        self._began = time.perf_counter()
        self._silent = replace(self.family, entries={**self.family.entries, "why_infeasible": None})
        self._received: Received | None = None

    @contextmanager
    def into(self, found: Findings) -> Iterator[None]:
        """Inside, Ctrl-C and SIGTERM end the proofs (`EndedError`), also between two of them; it is caught here.

        What is known is kept, with why and when the proofs ended, and how many there were.
        """
        with signals_stop(Watch(Limits())) as self._received, suppress(EndedError):
            yield
        found.stop, found.proofs, found.seconds, found.signal = self.stop, self.count, self.seconds, self.signal

    @property
    def seconds(self) -> float:
        """Since the first was asked."""
        return time.perf_counter() - self._began

    def optimum(self, instance: Any, explained: bool = False) -> Result:
        """The proved optimum, or the proof that there is no plan; `EndedError` if there is neither.

        ``explained``: without a plan ``reason`` is the sentence of `planner.solve`.
        """
        found = self._run(instance, 0.0, self.family if explained else self._silent)
        if found.status not in (Status.OPTIMAL, Status.INFEASIBLE):
            raise self._end_error(found)
        return found

    def near(self, instance: Any, gap: float, most_s: float) -> Result:
        """What is found of an instance within a gap, in so many seconds at most, proved or not."""
        return self._run(instance, gap, self._silent, most_s)

    def plan(self, instance: Any) -> Result:
        """Any plan, or the proof that there is none; `EndedError` if there is neither."""
        found = self._run(instance, ANY_PLAN, self._silent)
        if found.plan is None and found.status is not Status.INFEASIBLE:
            raise self._end_error(found)
        return found

    def subject(self, instance: Any) -> dict[str, Any]:
        """The fields of `Findings` that are the same whatever is asked."""
        return {"problem": self.family.name, "instance": instance.name, "unit": self.family.unit(instance)}

    def _run(self, instance: Any, gap: float, family: Family[Any, Any], most_s: float = math.inf) -> Result:
        left = self._time_left()
        self.signal = self._received.signal if self._received is not None else None
        if self.signal is not None or left == 0:
            self.stop = Stop.TIME_LIMIT if self.signal is None else Stop.INTERRUPTED
            raise EndedError
        limits = replace(self._limits, gap=gap, time_s=left)
        for method, _ in self._methods(instance, limits):
            time_s = min(most_s, math.inf if (left := self._time_left()) is None else left)
            found = run(
                family, method, instance, replace(limits, time_s=None if time_s == math.inf else time_s), {}, ""
            )
            proved = found.status in (Status.OPTIMAL, Status.INFEASIBLE) or (gap and found.plan is not None)
            if proved or found.stop not in (Stop.SIZE_LIMIT, Stop.COMPLETED):
                break
        self.count += 1
        if self._listen is not None:
            self._listen(self.count)
        return found

    def _time_left(self) -> float | None:
        return None if self._limits.time_s is None else max(0.0, self._limits.time_s - self.seconds)

    def _methods(self, instance: Any, limits: Limits) -> Iterator[tuple[Method[Any, Any], str]]:
        """Exact methods to be tried; `UsageError` if none takes the first instance, a later one ends the proofs."""
        try:
            yield from candidates(self._silent, instance, limits, AUTO, exact=True)
        except UsageError as error:
            if self.count:
                self.stop = Stop.SIZE_LIMIT
                raise EndedError(str(error)) from None
            exact = [method for method in self.family.methods if method.claim is Claim.EXACT]
            reasons = "; ".join(f"{method.name}: {method.refusal(instance)}" for method in exact)
            raise UsageError.at("INSTANCE", self.family.name, f"one that an exact method takes ({reasons})") from None

    def _end_error(self, found: Result) -> EndedError:
        self.signal, self.stop = found.signal, found.stop
        return EndedError(found.reason)


def least(change: Change[Any], helps: Callable[[Result], bool], solve: Callable[[Any], Result]) -> float | None:
    """The smallest amount of a change that helps, or ``None`` if none does.

    ``change``: of which more helps no less (or `Change.within`), or each step of which is to be tried.
    ``helps``: whether what was proved of the changed instance is enough.
    ``solve``: ``proofs.optimum`` or ``proofs.plan``.
    """
    needed = change.needed
    if change.in_turn:
        return next((step for step in change.steps if helps(solve(change.changed(step)))), None)
    if needed is None:
        within = change.within or change.changed
        first = _first(len(change.steps), lambda index: helps(solve(within(change.steps[index]))))
        return None if first is None else change.steps[first]

    def fits(amount: float) -> float | None:
        changed = change.changed(min(amount, change.most))
        result = solve(changed)
        return needed(result.own_plan) if helps(result) else None

    most = fits(change.most)
    if most is None:
        return None
    found = least_amount(fits, Watch(Limits()), change.slack, most)
    return round_up(most, change.slack) if found.amount is None else found.amount


def _first(count: int, works: Callable[[int], bool]) -> int | None:
    """The first index that works, where all after it work as well: by doubling, then by halves.

    >>> _first(100, lambda index: index >= 37), _first(3, lambda index: False), _first(0, lambda index: True)
    (37, None, None)
    """
    last = -1
    for index in _doubling(count):
        if works(index):
            break
        last = index
    else:
        return None
    while index - last > 1:
        middle = (last + index) // 2
        last, index = (last, middle) if works(middle) else (middle, index)
    return index


def _doubling(count: int) -> Iterator[int]:
    """0, 1, 3, 7, ... and the last index."""
    index = 0
    while index < count - 1:
        yield index
        index = 2 * index + 1
    if count:
        yield count - 1
