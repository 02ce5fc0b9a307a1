"""The census of any kind of subproblems: each of a run's solved exactly, and compared with what was chosen inside.

Source: Piper, Appendix C, for other planners than Piper's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from formulations.contract.family import Claim, Family
from formulations.contract.inner_problems import Inside
from planner.experiments.census.inner_rows import InnerRow, inside_of, rows
from planner.experiments.census.optima import Optima, Optimum
from planner.experiments.runner import safe_name, write_or_note, write_worst
from planner.files.load import family_named, family_of, validate
from planner.files.settings import declared_options
from planner.files.write import as_json
from planner.plugins.method_names import AUTO
from planner.process.errors import UsageError
from planner.process.signals import pending
from planner.results.check import exceeds
from planner.results.optimality_loss import losses, optimum_of, spread
from planner.solving.solve import run
from planner.solving.worker import signals_stop
from solvers.outcome import OPTIMAL_GAP, Limits, Stop, Watch

#: The worst subproblems of each inner heuristic that are kept.
WORST = 5


@dataclass
class Tally:
    """How one inner heuristic fared.

    Parameters
    ----------
    instances, distinct
        Its subproblems, and how many of them differ in more than name and origin.
    optimal, suboptimal, no_plan
        Of those whose optimum is proved: it is attained, it is missed, nothing was found though there is a plan.
    infeasible, unproved
        Those that have no plan, and those whose optimum was not found in time.
    mean_loss, p95_loss, worst_loss
        Objective / optimum - 1 over all that are optimal or sub-optimal: mean, 95th percentile (the least value that
        is not exceeded by 95 % of them), largest. Infinite ones (an optimum of 0) are left out.
    decisions
        Where it decided whether a plan of at most some target exists: how many it found, rightly called impossible,
        missed (there is one), how many of its "no" are of a search that was cut off, and how many are still open.
    worst
        Losses and files of the worst subproblems, decisions by how far the optimum lies below the target.
    """

    instances: int = 0
    distinct: int = 0
    optimal: int = 0
    suboptimal: int = 0
    no_plan: int = 0
    infeasible: int = 0
    unproved: int = 0
    mean_loss: float | None = None
    p95_loss: float | None = None
    worst_loss: float | None = None
    decisions: dict[str, int] | None = None
    worst: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class EachCensus:
    """The totals of a census of rows; ``complete``: nothing ended it early.

    ``end_to_end``: the objective of the method as it is (``published``) and with every subproblem solved exactly
    (``exact_inside``), and how much more the former is (``loss``; below 0: less). ``cpu_seconds``: of the exact
    methods, those of optima found before included. ``contradictions``: claims that exclude each other, in words.
    """

    problem: str
    instance: str
    options: dict[str, Any]
    inside: Inside
    complete: bool
    tallies: dict[str, Tally]
    end_to_end: dict[str, Any] | None
    contradictions: list[str]
    seconds: float
    cpu_seconds: float
    out: str
    signal: int | None = None
    lost: str | None = None
    unwritten: list[str] = field(default_factory=list)

    @property
    def agree(self) -> bool:
        """Whether no two claims exclude each other."""
        return not self.contradictions

    @property
    def progress(self) -> str:
        """How far it came, in words that continue "in a folder"."""
        return f"the optima of {sum(each.instances for each in self.tallies.values())} subproblems lie"

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner census --problem P --json`` prints."""
        return {
            **{name: getattr(self, name) for name in ("problem", "instance", "options")},
            "subproblem": self.inside.problem,
            "method": self.inside.method,
            "complete": self.complete,
            "instances": sum(each.instances for each in self.tallies.values()),
            "variants": {name: asdict(tally) for name, tally in self.tallies.items()},
            **{name: getattr(self, name) for name in ("end_to_end", "contradictions", "seconds", "cpu_seconds", "out")},
        }


def census_of(
    instance: Any,
    *,
    problem: str | None = None,
    method: str | None = None,
    against: str | None = None,
    jobs: int = 1,
    dask: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    end_to_end: bool = True,
    limits: Limits | None = None,
    out: str | None = None,
    listen: Callable[[int, int], None] = lambda _done, _all: None,
    notice: Callable[[str], None] = lambda _line: None,
) -> EachCensus:
    """Solve the subproblems of a run on ``instance`` exactly, and compare them with what was chosen inside.

    Parameters
    ----------
    problem, method
        The family of the subproblems, and the method in whose run they arise (`inside_of`).
    against
        The exact method that finds the optima; default: the one that fits.
    jobs, dask
        Local processes, or the address of a dask scheduler.
    sample, seed
        That many of the subproblems at random; ``None``: all. The seed is also that of the methods.
    end_to_end
        Also run the method as it is and with exact subproblems.
    limits
        Of the run, of each exact method and of each method end to end; default: a minute.
    out
        Folder of the optima and of the worst subproblems; default: ``census/NAME-PROBLEM-METHOD``.
    listen
        Called with the optima that are known and their number.

    Raises
    ------
    UsageError
        If there are no such subproblems, the method does not take the instance, or ``out`` holds something else.
    CrosscheckError
        If what was chosen inside is no plan of its subproblem.
    """
    instance = validate(instance, requirements=False)
    inside, family = inside_of(instance, problem, method), family_of(instance)
    if inside.walk is not None:
        raise UsageError.at(
            "problem", inside.problem, "one whose subproblems are rows (planner.experiments.census.census has these)"
        )
    limits = replace(limits or Limits(time_s=60.0), seed=seed)
    began = time.perf_counter()
    optima = Optima(
        out or f"census/{safe_name(instance.name)}-{inside.problem}-{inside.method}",
        inside.problem,
        notice,
        _exact(inside.problem, against),
    )
    watch = Watch(limits)
    with signals_stop(watch):
        found = list(rows(instance, inside, limits, sample, seed, watch))
    if watch.reason is Stop.TIME_LIMIT:
        notice(f"the run of {inside.method} was ended at the time limit: {len(found)} subproblems of its beginning")
    contents = [row.content for row in found]
    lost = optima.find(contents, limits, jobs, dask, listen).lost
    known = [optima.known.get(optima.key(content)) for content in contents]
    pairs = [(row, each) for row, each in zip(found, known, strict=True) if each is not None]
    result = EachCensus(
        problem=family.name,
        instance=instance.name,
        options=declared_options(instance),
        inside=inside,
        complete=len(pairs) == len(found) and pending() is None,
        tallies={inner: _tally([pair for pair in pairs if pair[0].inner == inner])
                 for inner in dict.fromkeys(row.inner for row in found)},
        end_to_end=None,
        contradictions=[words for pair in pairs for words in _contradictions(*pair)],
        seconds=0.0,
        cpu_seconds=math.fsum(each.cpu_seconds for each in {id(each): each for _, each in pairs}.values()),
        out=str(optima.path),
    )  # fmt: skip
    ranked = {inner: _rank([pair for pair in pairs if pair[0].inner == inner])[:WORST] for inner in result.tallies}
    texts = {inner.replace(" ", "-"): [as_json(row.to_json()) for _, row in worst] for inner, worst in ranked.items()}
    files = write_worst(optima.path, texts, lambda write: write_or_note(optima.failures, write))
    for (inner, worst), (_, paths) in zip(ranked.items(), files, strict=True):
        kept = [{"loss": loss, "file": path} for (loss, _), path in zip(worst, paths, strict=True)]
        result.tallies[inner].worst = kept
    if end_to_end and inside.exactly is not None and pending() is None and lost is None:
        result.end_to_end = _end_to_end(family, instance, inside, limits)
    result.signal, result.lost, result.seconds = pending(), lost, time.perf_counter() - began
    result.unwritten = list(dict.fromkeys(optima.failures))
    return result


def _exact(problem: str, name: str | None) -> str:
    """The name of an exact method of a problem; `UsageError` if it is none."""
    exact = [each.name for each in family_named(problem).methods if each.claim is Claim.EXACT]
    if name is not None and name not in exact:
        raise UsageError.unknown("--against", name, exact)
    return name or AUTO


Pair = tuple[InnerRow, Optimum]


def loss_of(row: InnerRow, optimum: Optimum) -> tuple[float | None, bool]:
    """What the plan that was chosen inside loses, and whether that is to a proved optimum."""
    both = [(row.objective, None), (optimum.objective, optimum.bound)]
    return losses(both)[0], optimum_of(both) is not None


def _tally(pairs: Sequence[Pair]) -> Tally:
    tally = Tally(instances=len(pairs), distinct=len({row.content for row, _ in pairs}))
    lost = []
    for row, optimum in pairs:
        loss, is_proved = loss_of(row, optimum)
        if optimum.status == "infeasible":
            tally.infeasible += 1
        elif not is_proved:
            tally.unproved += 1
        elif row.objective is None:
            tally.no_plan += 1
        elif loss is None or loss > OPTIMAL_GAP:
            tally.suboptimal += 1
        else:
            tally.optimal += 1
        if is_proved and loss is not None and row.decision is None:
            lost.append(loss)
    if lost:
        tally.mean_loss, tally.p95_loss, tally.worst_loss = spread(lost)
    if any(row.decision is not None for row, _ in pairs):
        tally.decisions = _count_decisions(pairs)
        tally.optimal = tally.suboptimal = tally.no_plan = tally.unproved = 0  # a plan within a target need not be best
    return tally


def _count_decisions(pairs: Sequence[Pair]) -> dict[str, int]:
    counts = dict.fromkeys(("found", "impossible", "missed", "cut_off", "open"), 0)
    for row, optimum in pairs:
        truth = _truth(row, optimum)
        assert row.decision is not None
        if row.decision.answer:
            counts["found"] += 1
            continue
        counts["cut_off"] += not row.decision.is_proved
        counts["open" if truth is None else "missed" if truth else "impossible"] += 1
    return counts


def _truth(row: InnerRow, optimum: Optimum) -> bool | None:
    """Whether there is a plan of at most the decision's target; ``None``: nobody knows."""
    assert row.decision is not None
    best = min((each for each in (row.objective, optimum.objective) if each is not None), default=math.inf)
    if best <= row.decision.target:
        return True
    is_out = optimum.status == "infeasible" or (
        optimum.bound is not None and exceeds(optimum.bound, row.decision.target)
    )
    return False if is_out else None


def _contradictions(row: InnerRow, optimum: Optimum) -> list[str]:
    found = []
    who = f"{row.instance.name}: {optimum.method}"
    if row.objective is not None and optimum.status == "infeasible":
        found.append(f"{who} calls it infeasible, but {row.inner} has a verified plan of {row.objective!r}")
    if row.objective is not None and optimum.bound is not None and exceeds(optimum.bound, row.objective):
        found.append(f"{who} claims the lower bound {optimum.bound!r}, but {row.inner} has {row.objective!r}")
    decision = row.decision
    if decision is None or decision.answer or not decision.is_proved or optimum.objective is None:
        return found
    if exceeds(decision.target, optimum.objective):
        found.append(f"{who} has a verified plan of {optimum.objective!r}, but {row.inner} proves that there is none "
                     f"of {decision.target!r}")  # fmt: skip
    return found


def _rank(pairs: Sequence[Pair]) -> list[tuple[float, InnerRow]]:
    """The subproblems of one inner heuristic on which it loses, with the loss, the worst first."""
    ranked: list[tuple[float, InnerRow]] = []
    for row, optimum in pairs:
        loss, is_proved = loss_of(row, optimum)
        if row.decision is not None:
            missed = not row.decision.answer and bool(_truth(row, optimum))
            assert optimum.objective is not None or not missed
            loss = row.decision.target / optimum.objective - 1 if missed and optimum.objective else None
        elif not is_proved:
            loss = None
        if loss is not None and loss > OPTIMAL_GAP:
            ranked.append((loss, row))
    return sorted(ranked, key=lambda pair: -pair[0])


def _end_to_end(family: Family[Any, Any], instance: Any, inside: Inside, limits: Limits) -> dict[str, Any] | None:
    """What the losses inside do to the whole plan; ``None`` if a signal ended it."""
    published = family.method(inside.method)
    assert inside.exactly is not None
    values = []
    for method in (published, replace(published, solve=inside.exactly)):
        result = run(family, method, instance, limits, {})
        if result.signal is not None:
            return None
        values.append(result.objective)
    as_it_is, exactly = values
    loss = as_it_is / exactly - 1 if as_it_is is not None and exactly else None
    return {"published": as_it_is, "exact_inside": exactly, "loss": loss, "unit": family.unit(instance)}
