"""From the names of two methods to the instance on which the first one loses most, or the smallest with such a loss."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import formulations
from formulations.compiled.compile_times import compiling
from formulations.contract.family import Claim, Family, Method
from formulations.contract.instance_space import Domain, Genome, InstanceSpace
from instances.parameters import parse_count
from planner.experiments.mining.search import LossSearch
from planner.files.load import family_named, read_declared, validate
from planner.files.settings import method_options
from planner.files.write import plain
from planner.plugins import registry
from planner.process import idle
from planner.process.errors import CrosscheckError, UsageError
from planner.process.signals import pending
from planner.results.check import agree, check
from planner.results.optimality_loss import losses
from planner.results.result import Result
from planner.solving.choose import exact_names, find_method, reference_name
from planner.solving.solve import run, silent
from planner.types import Instance
from solvers.outcome import OPTIMAL_GAP, Limits, Status, Stop

#: Seconds for a method on one instance; a result that a limit cut short is no evidence against it.
EVALUATION_S = 10.0
#: However late it is, a method has so many.
LEAST_S = 0.1


@dataclass(frozen=True)
class Evaluation:
    """The results of both methods on an instance, and the loss to the optimum that the reference proved.

    ``loss`` is ``None`` where nothing is lost that could be measured; ``is_without_plan``: the method came to its end
    without a plan, although there is one.
    """

    instance: Any
    result: Result | None
    reference: Result
    loss: float | None
    is_without_plan: bool = False

    @property
    def signal(self) -> int | None:
        """The signal that interrupted one of the runs."""
        return self.reference.signal or (self.result.signal if self.result else None)


@dataclass(frozen=True)
class Pair:
    """A method, the reference that it is measured against, and their options by the methods' names."""

    family: Family[Any, Any]
    method: Method[Any, Any]
    reference: Method[Any, Any]
    options: Mapping[str, Mapping[str, Any]]

    def takes(self, instance: Any) -> bool:
        """Whether both methods take the instance."""
        return self.method.refusal(instance) is None and self.reference.refusal(instance) is None

    def evaluate(self, instance: Any, limits: Limits, ends: float = math.inf) -> Evaluation:
        """Run the reference, and the method where the reference has an optimum.

        Each has `EVALUATION_S`, and both together what is left until ``ends`` (of ``time.perf_counter``).

        `CrosscheckError` if a plan breaks a rule, or a bound lies above a verified plan.
        """
        reference = run(self.family, self.reference, instance, _until(limits, ends), self.options[self.reference.name])
        if reference.status is not Status.OPTIMAL:
            return Evaluation(instance, None, reference, None)
        result = run(self.family, self.method, instance, _until(limits, ends), self.options[self.method.name])
        known = [(result.objective, result.bound), (reference.objective, reference.bound)]
        is_over = result.stop in (Stop.COMPLETED, Stop.PROVED)
        return Evaluation(
            instance,
            result,
            reference,
            losses(known)[0] if is_over else None,
            is_over and result.objective is None and "left_behind" not in result.stats,
        )


def _until(limits: Limits, ends: float) -> Limits:
    """The limits with the time that a method has now: at least a little, as it has to be prepared."""
    return replace(limits, time_s=min(EVALUATION_S, max(LEAST_S, ends - time.perf_counter())))


#: What is looked for in place of a loss: an instance with a plan on which the method has none.
NO_PLAN = "no-plan"
#: Seconds of a search, where neither they nor a number of evaluations are given.
DEFAULT_TIME_S = 60.0


@dataclass(frozen=True)
class Progress:
    """How far a search is: seconds, evaluations, the worst loss, and the size of the best instance (empty: none)."""

    seconds: float
    evaluations: int
    worst: float
    size: Mapping[str, int]


@dataclass(frozen=True)
class Mined:
    """What a search found.

    Parameters
    ----------
    instance, result, reference
        The instance, and what both methods made of it; ``None`` if nothing was found.
    loss
        To the optimum that the reference proved; ``None`` without a plan.
    size
        Of the instance, the parts that count most first.
    evaluations, seconds
        Instances that both methods were given, and how long that took.
    worst
        The worst loss seen, and ``worst_of`` for each number of nodes.
    without_plan
        How many of the instances have a plan and the method found none.
    stop, signal
        Why the search ended, and the signal that interrupted it.
    """

    problem: str
    method: str
    against: str
    instance: Instance | None
    result: Result | None
    reference: Result | None
    loss: float | None
    size: Mapping[str, int] | None
    evaluations: int
    seconds: float
    worst: float | None
    worst_of: Mapping[int, float]
    without_plan: int
    stop: Stop
    signal: int | None

    def to_json(self, out: str | None = None, certificate: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The object that ``planner mine --json`` prints (docs/interface/comparisons.md)."""
        return {
            **{name: getattr(self, name) for name in ("problem", "method", "against", "loss")},
            "size": None if self.size is None else dict(self.size),
            "instance": None if self.instance is None else self.instance.name,
            "objective": None if self.result is None else self.result.objective,
            "optimum": None if self.reference is None else self.reference.objective,
            **{name: getattr(self, name) for name in ("evaluations", "seconds", "worst", "without_plan")},
            "out": None if self.instance is None else out,
            "certificate": certificate,
            "stop": self.stop.value,
        }


def mine(
    method: str,
    *,
    against: str | None = None,
    problem: str | None = None,
    most: Mapping[str, Any] | None = None,
    loss: float | str | None = None,
    domains: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    count: int | None = None,
    options: Mapping[str, Any] | None = None,
    listen: Callable[[Progress], None] | None = None,
    notice: Callable[[str], None] = silent,
) -> Mined:
    """Search for the instance on which a method loses most, or the smallest on which it loses at least ``loss``.

    Parameters
    ----------
    method, against
        Names, or ``FILE.py:FUNCTION``; the second is exact, and its proved optima are what losses are measured by.
        Default: ``exact``, or the first exact method that the problem lists.
    problem
        Default: the first one that can be searched and has both methods.
    most
        The largest instances: whole numbers by the names that the problem has for limits (`InstanceSpace.limits`).
    loss
        Such as 0.05, ``NO_PLAN`` for instances on which the method finds no plan, or ``None``: the worst loss.
    domains
        Classes that all instances have to belong to: values by name, ``None`` for those without.
    limits
        Seconds of the whole search, and its seed. Default: a minute, if there is no ``count``.
    count
        Evaluations at most; then the same seed finds the same instance.
    options
        Those of the two methods.
    listen
        Called with the progress, some times a second.
    notice
        As for `planner.solve`.

    Raises
    ------
    UsageError
        If a name or value is not one, or no instance lies within the limits and domains.
    CrosscheckError
        If a method contradicts the definition or the other.
    """
    limits = limits or Limits(time_s=None if count is not None else DEFAULT_TIME_S)
    if limits.time_s is None and count is None:
        raise UsageError.at("--time-limit", "infinite", "seconds, or a number of evaluations (--count)")
    family, against = choose_problem(method, against, problem)
    pair, space = _pair(family, method, against, options or {}), family.mining
    assert space is not None
    found = space()
    genes = found.genes(_limits(found, most or {}))
    held = _domains(found, domains or {})
    enough = 1.0 if loss == NO_PLAN else None if loss is None else max(float(loss), 2 * OPTIMAL_GAP)
    with compiling(notice), idle.kept():
        for each in (pair.method, pair.reference):
            each.load()
        run = _Run(pair, limits, count, loss == NO_PLAN, listen)
        search = LossSearch(genes, held, run.score, run.used_share, Random(limits.seed), enough)
        if not search.any_in_domain():
            names = ", ".join([*(f"{name}={value}" for name, value in (most or {}).items()), *(domains or {})])
            raise UsageError.at("--max and --domain", names, "limits and domains that some instance lies in")
        search.run()
    return run.outcome(search)


def choose_problem(method: str, against: str | None, problem: str | None) -> tuple[Family[Any, Any], str]:
    """The problem to search in and the exact method to measure by; arguments and errors as of `mine`."""
    family = _family(method, against, problem)
    return family, against or reference_name(family, but=method)


class _Run:
    """A search at work: it evaluates genomes, counts, and reports."""

    def __init__(
        self,
        pair: Pair,
        limits: Limits,
        count: int | None,
        wants_no_plan: bool,
        listen: Callable[[Progress], None] | None,
    ) -> None:
        self._pair, self._limits, self._count, self._listen = pair, limits, count, listen
        self._wants_no_plan = wants_no_plan
        self._began = time.perf_counter()
        self._evaluations, self._without_plan, self._worst = 0, 0, 0.0
        self._signal: int | None = None

    def used_share(self) -> float:
        """The part of the budget that is used up; all of it after a signal."""
        if self._signal is not None or pending() is not None:
            return 1.0
        return max(self._count_share(), self._time_share())

    def _count_share(self) -> float:
        return 0.0 if self._count is None else self._evaluations / self._count

    def _time_share(self) -> float:
        limit = self._limits.time_s
        return 0.0 if limit is None else self._seconds() / limit if limit > 0 else 1.0

    def score(self, search: LossSearch, genome: Genome) -> tuple[float, Evaluation | None]:
        """The loss, or 1 for no plan if that is wanted; -1 where nothing can be compared."""
        built = search.genes.build(genome)
        if built is None or self.used_share() >= 1:
            return -1.0, None
        instance = validate(built)
        if not self._pair.takes(instance):
            return -1.0, None
        limit = self._limits.time_s
        found = self._pair.evaluate(instance, self._limits, math.inf if limit is None else self._began + limit)
        if found.signal is not None:
            self._signal = found.signal
            return -1.0, None
        self._evaluations += 1
        self._without_plan += found.is_without_plan
        self._worst = max(self._worst, found.loss or 0.0)
        self._report(search)
        if self._wants_no_plan and (found.is_without_plan or found.loss is not None):
            return float(found.is_without_plan), found
        return (-1.0, None) if found.loss is None else (found.loss, found)

    def _report(self, search: LossSearch) -> None:
        if self._listen is not None:
            best = search.best
            size = {} if best is None else search.genes.size(best.genome)
            self._listen(Progress(self._seconds(), self._evaluations, self._worst, size))

    def _seconds(self) -> float:
        return time.perf_counter() - self._began

    def outcome(self, search: LossSearch) -> Mined:
        """What was found; its plans are judged once more, on the instance as its file has it."""
        best = search.best
        evidence = None if best is None else best.evidence
        stop = Stop.COMPLETED if self._count_share() >= self._time_share() else Stop.TIME_LIMIT
        return Mined(
            problem=self._pair.family.name,
            method=self._pair.method.name,
            against=self._pair.reference.name,
            instance=None if evidence is None else _check_again(self._pair.family, evidence),
            result=None if evidence is None else replace(evidence.result, loss=evidence.loss),
            reference=None if evidence is None else replace(evidence.reference, loss=0.0),
            loss=None if evidence is None else evidence.loss,
            size=None if best is None else search.genes.size(best.genome),
            evaluations=self._evaluations,
            seconds=self._seconds(),
            worst=self._worst if self._evaluations else None,
            worst_of={} if self._wants_no_plan else {n: each.score for n, each in sorted(search.worst_of.items())},
            without_plan=self._without_plan,
            stop=stop if self._signal is None and pending() is None else Stop.INTERRUPTED,
            signal=self._signal or pending(),
        )


def _check_again(family: Family[Any, Any], found: Evaluation) -> Any:
    """The instance as its file has it; `CrosscheckError` unless both plans are worth there what the methods said."""
    instance = read_declared(plain(family.to_json(found.instance)), "mined", None, {})
    for result in (found.result, found.reference):
        if result is None or result.plan is None:
            continue
        verdict = check(instance, plain(result.plan))
        if verdict.objective is None or result.objective is None or not agree(verdict.objective, result.objective):
            said = f"{result.method} has a plan of {result.objective!r}, which is {verdict.objective!r} in the file"
            raise CrosscheckError(said, {"problem": family.name, "instance": family.to_json(instance)})
    return instance


def _family(method: str, against: str | None, problem: str | None) -> Family[Any, Any]:
    minable = [each for each in formulations.FAMILIES if each.mining is not None]
    if problem is not None:
        family = family_named(problem)
        if family.mining is None:
            raise UsageError.at("--problem", problem, f"one of {', '.join(each.name for each in minable)}")
        return family
    own = [each for each in minable if method in {known.name for known in each.methods}]
    for each in own:
        if against is None or against in {known.name for known in each.methods}:
            return each
    if own:
        raise UsageError.at("--against", against, f"a method of {own[0].name}, as {method} is")
    for each in minable:
        if method in registry.functions_of(each.name):
            return each
    if registry.target_of(method) is None:
        raise UsageError.unknown("METHOD", method, [known.name for each in minable for known in each.methods])
    raise UsageError(f"{method} may be a method of any problem; expected --problem NAME as well, of planner list")


def _pair(family: Family[Any, Any], method: str, against: str, options: Mapping[str, Any]) -> Pair:
    ours, reference = find_method(family, method), find_method(family, against)
    if ours.needs:
        raise UsageError.at("METHOD", method, f"a method of all instances, not of those with {ours.needs} alone")
    if reference.claim is not Claim.EXACT or reference.needs:
        names = [each for each in exact_names(family) if not find_method(family, each).needs]
        rule = f"an exact method: one of {', '.join(names)}"
        raise UsageError.at("--against", against, rule)
    if ours.name == reference.name:
        raise UsageError.at("--against", against, f"another method than {method}")
    return Pair(family, ours, reference, method_options([ours, reference], options))


def _limits(space: InstanceSpace[Any], most: Mapping[str, Any]) -> dict[str, int]:
    """All limits of the problem; `UsageError` for one that it does not have, or that is no positive number."""
    found = dict(space.limits)
    for name, value in most.items():
        if name not in found:
            raise UsageError.unknown("--max", name, found)
        try:
            found[name] = parse_count(value)
        except ValueError as error:
            raise UsageError.at(f"--max {name}", value, str(error)) from None
    return found


def _domains(space: InstanceSpace[Any], given: Mapping[str, Any]) -> dict[Domain, Any]:
    known = {domain.name: domain for domain in space.domains}
    found: dict[Domain, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise UsageError.unknown("--domain", name, known)
        domain = known[name]
        if (domain.parse is None) != (value is None):
            raise UsageError.at(f"--domain {name}", value, "no value" if domain.parse is None else f"{name}=VALUE")
        try:
            found[domain] = None if domain.parse is None else domain.parse(str(value))
        except ValueError as error:
            raise UsageError.at(f"--domain {name}", value, str(error)) from None
    return found
