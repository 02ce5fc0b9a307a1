"""How far an optimal plan can be trusted when numbers are off: intervals, random noise, and scenarios.

Every loss is to an optimum that an exact method proved for the changed instance.

From the declared value of a parameter outwards the plan is optimal up to where some rival beats it. The first trial is
at the end of the range; while the optimum there beats the plan, the trial moves to where that rival stops beating it
(bisection between two evaluations, no proof needed). It ends at a factor where the plan is optimal, and next to which
it is not. What lies between is proved where it can be, else sampled (`_Side`).
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from formulations.compiled.compile_times import compiling
from formulations.contract.rounding import round_up, step_below
from formulations.contract.what_if import Factor, Questions
from planner.analysis.proofs import Findings, Proofs, asked_of, beats, least
from planner.files.load import family_of, validate
from planner.files.settings import expect_types
from planner.process.errors import UsageError
from planner.results.check import check
from planner.results.optimality_loss import spread
from planner.results.result import Result
from planner.solving.solve import silent
from solvers.outcome import OPTIMAL_GAP, Limits, Status

#: Factors that are tried at all.
LEAST, MOST = 0.1, 10.0
#: At its ends the plan loses this much at most; in between, where that is proved, `OPTIMAL_GAP`: ten times as much.
EDGE_GAP = OPTIMAL_GAP * LEAST
#: Trials between where nothing is proved, and how often a part is halved for a proof.
_POINTS, _HALVINGS = 4, 5


@dataclass(frozen=True)
class Interval:
    """Factors of a parameter with which the plan stays optimal, the others as they are declared.

    ``low`` and ``high`` are ``None`` where it is optimal to the end of the range (`LEAST`, `MOST`), or for any amount
    of memory. ``proved``: for all factors in between; else for ``points`` trials between. Of memory the ends are
    amounts as well: ``low_amount`` (what the plan needs) and ``high_amount`` (from the next one on another is better).
    """

    parameter: str
    low: float | None
    high: float | None
    proved: bool
    points: int = 0
    low_amount: float | None = None
    high_amount: float | None = None


def interval(proofs: Proofs, factor: Factor[Any], plan: Any) -> Interval:
    """The factors around 1 with which a plan that is optimal at 1 stays so."""
    low, high = (_Side(proofs, factor, plan, end) for end in (LEAST, MOST))
    ends = [None if side.reach == side.end else side.reach for side in (low, high)]
    return Interval(factor.name, ends[0], ends[1], low.proved and high.proved, low.points + high.points)


class _Side:
    """How far the plan stays optimal from 1 towards one end."""

    def __init__(self, proofs: Proofs, factor: Factor[Any], plan: Any, end: float) -> None:
        self._proofs, self._factor, self._plan = proofs, factor, plan
        self.end = self.reach = end
        self.proved, self.points = True, 0
        trials = [end]
        while trials:
            self._pull(trials.pop())
            self.proved, self.points = True, 0
            hole = self._inside(*sorted((1.0, self.reach)))
            if hole is not None:
                trials.append(hole)

    def _worth(self, at: float, plan: Any = None) -> float:
        found: float = self._proofs.family.evaluate(self._factor.scaled(at), self._plan if plan is None else plan)
        return found

    def _rival(self, at: float) -> Any:
        """A plan that beats this one there, or ``None``."""
        changed = self._factor.scaled(at)
        found = self._proofs.optimum(changed).own_plan
        return found if self._beats(found, at) else None

    def _beats(self, rival: Any, at: float) -> bool:
        return self._worth(at, rival) < self._worth(at) * (1 - EDGE_GAP)

    def _pull(self, trial: float) -> None:
        """Move the reach from a trial towards 1 until nothing beats the plan there."""
        self.reach = trial
        while (rival := self._rival(self.reach)) is not None:
            self.reach, _ = _bisect(1.0, self.reach, partial(self._beats, rival))
            if self.reach == 1.0:
                return

    # -- between 1 and the reach; both are known to be optimal

    def _inside(self, low: float, high: float) -> float | None:
        """Prove or sample what is between; a factor at which the plan is beaten, if one is met."""
        first, last = self._worth(low), self._worth(high)
        if first == last:
            return None  # optima are monotone in the factor, and reach the plan's constant at both ends
        if self._factor.connected:
            return None
        if self._factor.steeper is not None:
            rise = self._end_of_constant(low, high)
            others = (
                self._factor.steeper((last - self._worth(rise)) / (high - rise) * (1 + 1e-9)) if rise < high else None
            )
            if others is None or self._none_beats(others, rise, high, _HALVINGS):
                return None
            low = rise
        return self._sample(low, high)

    def _end_of_constant(self, low: float, high: float) -> float:
        """Where the plan's objective begins to rise."""
        constant = self._worth(low)
        return _bisect(low, high, lambda at: self._worth(at) > constant)[1]

    def _none_beats(self, others: Callable[[float], Any], low: float, high: float, halvings: int) -> bool:
        """Whether it is proved that no plan of ``others`` beats the plan between two factors, where its line rises.

        Their optimum at ``low`` is a bound for all larger factors, and the one at ``high`` times ``f / high`` for the
        factor f, as no line falls and none is below 0. A line is above the larger of the two, if at all, at ``high`` or
        where they cross.
        """
        below, above = (self._proofs.optimum(others(at)).objective for at in (low, high))
        if below is None or above is None:  # no plan has such a TMPC
            return True
        crossing = min(max(low, high * below / above if above else high), high)
        if all(max(below, at / high * above) >= self._worth(at) * (1 - OPTIMAL_GAP) for at in (crossing, high)):
            return True
        if not halvings:
            return False
        middle = (low + high) / 2
        return all(self._none_beats(others, *part, halvings - 1) for part in ((low, middle), (middle, high)))

    def _sample(self, low: float, high: float) -> float | None:
        self.proved = False
        for number in range(1, _POINTS + 1):
            at = low + (high - low) * number / (_POINTS + 1)
            self.points += 1
            if self._rival(at) is not None:
                return at
        return None


def _bisect(first: float, last: float, holds: Callable[[float], bool]) -> tuple[float, float]:
    """The last factor known not to hold on the way from ``first``, and the next one that does, as ``last`` does."""
    while abs(last - first) > 1e-12 and (middle := (first + last) / 2) not in (first, last):
        first, last = (first, middle) if holds(middle) else (middle, last)
    return first, last


#: Instances with noise, where their number is not given.
SAMPLES = 100


@dataclass(frozen=True)
class Noise:
    """Losses of the plan where every time and the bandwidth are off by a random factor from 1 - share to 1 + share.

    ``optimal`` is the share of the samples in which the plan is optimal.
    """

    share: float
    samples: int
    seed: int
    mean_loss: float
    p95_loss: float
    worst_loss: float
    optimal: float


@dataclass(frozen=True)
class Scenarios:
    """Candidates (the optimum of the instance, number 0, and those of the scenarios) and their losses in each scenario.

    ``losses[candidate][scenario]`` is infinite where the candidate's plan breaks a rule. ``best`` has the least worst
    loss among the candidates, no others were tried; ``None`` if each breaks a rule somewhere. Scenarios without any
    plan are in ``infeasible`` and count no further.
    """

    names: tuple[str, ...]
    infeasible: tuple[int, ...]
    losses: tuple[tuple[float, ...], ...]
    best: int | None
    plan: Any

    def worst(self, candidate: int) -> float:
        """The worst loss of a candidate."""
        return max(self.losses[candidate], default=0.0)


@dataclass(kw_only=True)
class Sensitivity(Findings):
    """What `sensitivity` found; what there was no time for is missing (``stop``)."""

    intervals: Sequence[Interval] = ()
    noise: Noise | None = None
    scenarios: Scenarios | None = None

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner sensitivity --json`` prints (docs/interface/analyses.md)."""
        return {
            **self.head(),
            "plan": None if self.result is None else self.result.plan,
            "intervals": [dict(vars(each)) for each in self.intervals],
            "noise": None if self.noise is None else dict(vars(self.noise)),
            "scenarios": None if self.scenarios is None else _scenarios_json(self.scenarios),
            "proofs": self.proofs,
            "seconds": self.seconds,
        }


def _scenarios_json(found: Scenarios) -> dict[str, Any]:
    worst = [found.worst(number) for number in range(len(found.losses))]
    return {
        "names": list(found.names),
        "infeasible": list(found.infeasible),
        "losses": [[_finite(loss) for loss in row] for row in found.losses],
        "worst_losses": [_finite(loss) for loss in worst],
        "best": found.best,
        "plan": found.plan,
    }


def _finite(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None


def sensitivity(
    instance: Any,
    *,
    noise: float = 0.1,
    samples: int = SAMPLES,
    scenarios: Sequence[Any] = (),
    limits: Limits | None = None,
    listen: Callable[[int], None] | None = None,
    notice: Callable[[str], None] = silent,
) -> Sensitivity:
    """Within which factors of each parameter the optimal plan stays optimal, and what it loses beyond.

    Parameters
    ----------
    instance
        From `planner.load`; of a problem that knows its parameters.
    noise
        Above 0 and below 1: times and bandwidth are off by up to this share, independently and uniformly.
    samples
        Instances with noise.
    scenarios
        Instances of the same problem: the candidates with the least worst loss over them is named.
    limits
        The time is that of all proofs together; the seed that of the noise.
    listen
        Called with how many proofs there were, after each.
    notice
        As for `planner.solve`.

    Raises
    ------
    UsageError
        If the problem does not know its parameters, or an argument breaks its rule.
    """
    expect_types(limits=limits, notice=notice)
    if isinstance(noise, bool) or not isinstance(noise, int | float) or not 0 < noise < 1:
        raise UsageError.at("noise", noise, "a share above 0 and below 100 %, such as 10% or 0.1")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise UsageError.at("samples", samples, "an integer >= 1")
    instance = validate(instance)
    family, questions = asked_of(instance, studied=True)
    others = [validate(each, f"scenario {number}") for number, each in enumerate(scenarios)]
    for number, each in enumerate(others):
        if family_of(each) is not family:
            raise UsageError.at(f"scenario {number}", family_of(each).name, f"an instance of {family.name}")
    limits = limits or Limits()
    with compiling(notice):
        family.load()
        proofs = Proofs(instance, limits, listen)
        study = _Study(instance, questions, proofs)
        with proofs.into(study.found):
            study.run(float(noise), samples, limits.seed, others)
    return study.found


class _Study:
    """A study as far as it is."""

    def __init__(self, instance: Any, questions: Questions[Any], proofs: Proofs) -> None:
        self._instance, self._questions, self._proofs = instance, questions, proofs
        self.found = Sensitivity(**proofs.subject(instance))

    def run(self, noise: float, samples: int, seed: int, scenarios: list[Any]) -> None:
        """All of it; `EndedError` where the time is over, after which what is known is kept."""
        found = self._proofs.optimum(self._instance)
        self.found.status = found.status
        if found.status is Status.INFEASIBLE:
            return
        self.found.result = found
        plan = found.own_plan
        if scenarios:
            self._compare(found, scenarios)
        self._sample(plan, noise, samples, seed)
        self.found.intervals = intervals = []
        for more in self._questions.resources(self._instance):
            if more.change.needed is not None:
                intervals.append(self._amounts(more.change, plan, found))
        assert self._questions.factors is not None
        for factor in self._questions.factors(self._instance):
            intervals.append(interval(self._proofs, factor, plan))

    def _amounts(self, change: Any, plan: Any, found: Result) -> Interval:
        """From what the plan needs to just below the least amount with a better plan: more takes no plan away."""
        declared = change.declared
        assert found.objective is not None
        low = min(declared, round_up(change.needed(plan), change.slack))
        beyond = least(change, beats(found.objective), self._proofs.optimum)
        high = None if beyond is None else max(declared, step_below(beyond))
        ends = [None if end is None else times(declared, end, up) for end, up in ((low, True), (high, False))]
        return Interval(change.name, ends[0], ends[1], True, 0, low, high)

    def _sample(self, plan: Any, share: float, samples: int, seed: int) -> None:
        """Losses under noise; with what is known of them if the time is over."""
        rng, losses = random.Random(f"noise {seed}"), []
        assert self._questions.noisy is not None
        try:
            for _ in range(samples):
                changed = self._questions.noisy(self._instance, lambda: rng.uniform(1 - share, 1 + share))
                optimum = self._proofs.optimum(changed).objective
                assert optimum is not None  # the plan keeps all rules
                losses.append(_loss(self._proofs.family.evaluate(changed, plan), optimum))
        finally:
            if losses:
                kept = sum(loss <= OPTIMAL_GAP for loss in losses) / len(losses)
                self.found.noise = Noise(share, len(losses), seed, *spread(losses), kept)

    def _compare(self, found: Result, scenarios: list[Any]) -> None:
        optima = [self._proofs.optimum(each) for each in scenarios]
        feasible = [number for number, each in enumerate(optima) if each.plan is not None]
        plans = [found.plan, *(optima[number].plan for number in feasible)]
        losses = tuple(tuple(_in(scenarios[number], plan, optima[number]) for number in feasible) for plan in plans)
        worst = [max(row, default=0.0) for row in losses]
        best = min(range(len(plans)), key=worst.__getitem__)
        if math.isinf(worst[best]):
            best = -1
        self.found.scenarios = Scenarios(
            tuple(each.name for each in scenarios),
            tuple(number for number in range(len(scenarios)) if number not in feasible),
            losses,
            None if best < 0 else best,
            None if best < 0 else plans[best],
        )


def times(declared: float, amount: float, up: bool) -> float | None:
    """The factor that makes ``amount`` of what is declared, or the nearest that makes more (``up``) or less than it.

    ``None`` if 0 is declared.

    >>> times(10.0, 3.0, True) * 10.0, times(0.0, 3.0, True)
    (3.0, None)
    """
    if not declared:
        return None
    factor = amount / declared
    while (factor * declared < amount) if up else (factor * declared > amount):
        factor = math.nextafter(factor, math.inf if up else 0.0)
    return factor


def _in(scenario: Any, plan: Any, optimum: Result) -> float:
    """The loss of a plan in a scenario; infinite if it breaks a rule there, or has another set of layers."""
    try:
        verdict = check(scenario, plan)
    except ValueError:  # no plan of the scenario
        return math.inf
    if verdict.objective is None or not verdict.feasible:
        return math.inf
    assert optimum.objective is not None
    return _loss(verdict.objective, optimum.objective)


def _loss(objective: float, optimum: float) -> float:
    """By what share an objective is above the optimum; 0 within float noise."""
    if objective <= optimum * (1 + 1e-12):
        return 0.0
    return objective / optimum - 1 if optimum else math.inf
