"""How far an optimal plan can be trusted when numbers are off: intervals, random noise, and scenarios.

Every loss is to an optimum that an exact method proved for the changed instance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from formulations.compiled.compile_times import compiling
from formulations.contract.rounding import round_up, step_below
from formulations.contract.what_if import Questions
from planner.analysis.intervals import Interval, interval
from planner.analysis.proofs import Findings, Proofs, asked_of, beats, least
from planner.files.load import family_of, validate
from planner.files.settings import expect_types
from planner.process.errors import UsageError
from planner.results.check import check
from planner.results.optimality_loss import spread
from planner.results.result import Result
from planner.solving.solve import silent
from solvers.outcome import OPTIMAL_GAP, Limits, Status

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
        """The object that ``planner sensitivity --json`` prints (docs/interface.md)."""
        return {
            **self.head(),
            "plan": None if self.result is None else self.result.plan,
            "intervals": [each.to_json() for each in self.intervals],
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
