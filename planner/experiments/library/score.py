"""How a method does on instances of the library: its losses to the best that is known, and the machine's speed."""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.experiments.bench.measure import MeasuredRow, measure, plan_runs
from planner.experiments.bench.suites import Case
from planner.experiments.library.entries import VERSION, BestKnown, LibraryEntry, best_known, entry
from planner.experiments.runner import Record
from planner.experiments.validation.loss_by import ALSO, LossBy, losses_by
from planner.experiments.validation.records import NO_PLAN, OPEN, OPTIMAL, SUBOPTIMAL, Fared, size, totals_of
from planner.files.load import family_named, family_of, load
from planner.process.errors import UsageError
from planner.process.executors import Ended
from planner.process.versions import machine, today, versions
from planner.results.events import primal_integral
from planner.solving.choose import find_method
from planner.solving.solve import solve
from solvers.outcome import OPTIMAL_GAP, Limits

#: Seconds of the exact search on this instance say how fast a machine is: under a second, no solver, no model.
_CALIBRATION: tuple[str, dict[str, Any]] = (
    "bert",
    {"layers": 128, "devices": 256, "hidden_size": 8192, "memory": "80GB"},
)
_REPEATS = 3
#: What a score keeps of its own; all else follows from it and from what is best known.
_MEASURED = ("features", "time_limit_s", "calibration_s", "date", "machine", "versions", "library")


@dataclass(frozen=True)
class ScoredRun:
    """A method on one instance: its verified objective, and seconds and objective of each better plan on the way.

    Without a plan there is a ``reason``; what a method refuses took no seconds.
    """

    name: str
    method: str
    objective: float | None = None
    seconds: float = 0.0
    incumbents: tuple[tuple[float, float], ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Standing(Fared):
    """How a method fared on a group of instances, of which losses are to the best known.

    ``best``: plans as good as, or better than, the best that is known; ``primal_integral``: the mean over the instances
    of which a plan is known of the share that `primal_integral` gives, ``None`` without one or without a time limit.
    """

    instances: int
    best: int
    primal_integral: float | None

    @property
    def plans(self) -> int:
        """Instances with a plan."""
        return self.instances - self.no_plan

    @classmethod
    def of(cls, records: Sequence[Record], method: str) -> "Standing":
        """Of a method that has a row in each of these records."""
        rows = [record["rows"][method] for record in records]
        integrals = [row["primal_integral"] for row in rows if row["primal_integral"] is not None]
        mean = math.fsum(integrals) / len(integrals) if integrals else None
        best = sum(row["outcome"] in (OPTIMAL, OPEN) for row in rows)
        return cls(**vars(totals_of(records, method)), instances=len(rows), best=best, primal_integral=mean)


@dataclass(frozen=True)
class Score:
    """What methods did, with what makes it comparable: ``calibration_s`` is the CPU seconds of a fixed search there.

    ``features``: size and memory pressure of each instance, by its name; ``known``: what losses are to.
    """

    rows: tuple[ScoredRun, ...]
    features: Mapping[str, Mapping[str, Any]]
    time_limit_s: float | None
    calibration_s: float
    date: str
    machine: str
    versions: Mapping[str, str]
    library: str = VERSION
    known: Mapping[str, BestKnown] = field(default_factory=best_known, repr=False)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Score":
        """The score whose record this is, or what was `measured` of it, beside what is known now."""
        rows = tuple(ScoredRun(**row) for row in content["rows"])
        return cls(rows, **{name: content[name] for name in _MEASURED})

    def measured(self) -> dict[str, Any]:
        """What was measured, without what follows from it and the best known."""
        rows = [{name: value for name, value in vars(row).items() if value not in (None, ())} for row in self.rows]
        return {**{name: value for name, value in vars(self).items() if name in _MEASURED}, "rows": rows}

    def to_json(self) -> dict[str, Any]:
        """The record: what was measured, losses by instance, standings, and losses by features of instances."""
        standings = [
            {"method": method, "problem": problem, **vars(each)} for (method, problem), each in self.standings().items()
        ]
        by = {problem: [each.to_json() for each in self.by(problem)] for problem in self.methods}
        return {**self.measured(), "instances": self.records(), "standings": standings, "by": by}

    @property
    def methods(self) -> dict[str, list[str]]:
        """By problem its methods."""
        found: dict[str, dict[str, None]] = {}
        for row in self.rows:
            found.setdefault(entry(row.name).problem, {})[row.method] = None
        return {problem: list(names) for problem, names in found.items()}

    def records(self, problem: str | None = None, methods: Collection[str] = ()) -> list[Record]:
        """An instance each (of one problem, with rows of all these methods), in the form of a validation's records."""
        rows: dict[str, Record] = {}
        for row in self.rows:
            rows.setdefault(row.name, {})[row.method] = self._judged(row)
        found = []
        for number, (name, own) in enumerate(rows.items()):
            each, best = entry(name), self.known.get(name)
            if problem in (None, each.problem) and set(methods) <= set(own):
                parameters = {"entry": each.instance, **each.settings}
                of_best = None if best is None else best.objective
                of = {"number": number, "instance": name, "problem": each.problem, **self.features[name]}
                found.append({**of, "parameters": parameters, "best": of_best, "infeasible": False, "rows": own})
        return found

    def _judged(self, row: ScoredRun) -> Record:
        """The row with its outcome, its loss (objective over the best known, less 1) and its primal integral."""
        known, objective = self.known.get(row.name), row.objective
        best = None if known is None else known.objective
        loss = None if objective is None or not best else objective / best - 1
        outcome = NO_PLAN if objective is None else OPEN
        if loss is not None and loss > OPTIMAL_GAP:
            outcome = SUBOPTIMAL
        elif loss is not None and known is not None and known.is_optimal:
            outcome = OPTIMAL
        over_time = None
        if best is not None and self.time_limit_s:
            over_time = primal_integral(row.incumbents, best, self.time_limit_s)
        judged = {"outcome": outcome, "loss": loss, "primal_integral": over_time}
        return {**judged, "objective": objective, "seconds": row.seconds, "reason": row.reason or ""}

    def standings(self) -> dict[tuple[str, str], Standing]:
        """By method and problem, and by method and ``all`` where a method ran on several problems."""
        problems: dict[str, list[str]] = {}
        for problem, names in self.methods.items():
            for method in names:
                problems.setdefault(method, []).append(problem)
        groups = [(method, own) for method, those in problems.items() for own in (*those, *["all"] * (len(those) > 1))]
        return {
            (method, own): Standing.of(self.records(None if own == "all" else own, [method]), method)
            for method, own in groups
        }

    def by(self, problem: str) -> list[LossBy]:
        """The losses by the settings, size and memory pressure of its instances that differ (`losses_by`)."""
        methods = self.methods[problem]
        records = self.records(problem, methods)
        names = dict.fromkeys([*ALSO, *(name for record in records for name in record["parameters"])])
        return [each for each in losses_by(records, names, methods) if len(each.instances) > 1]


def score(
    chosen: Sequence[LibraryEntry],
    methods: Sequence[str],
    limits: Limits,
    known: Mapping[str, BestKnown],
    *,
    done: Sequence[MeasuredRow] = (),
    keep: Callable[[MeasuredRow], None] = lambda _: None,
    jobs: int = 1,
) -> tuple[Score, Ended]:
    """Run methods on instances, without those that are ``done``, and compare with the best known.

    A method runs on the instances of its problem; one that it refuses counts as an instance without a plan. Of what is
    done counts what was run within the same limits, by the same text of a user's file. ``keep`` is called with each new
    row. Instances are made before anything runs: `InstanceError` if one is not the library's;
    `UsageError` if a method is none of any problem.
    """
    takers: dict[str, tuple[LibraryEntry, list[str]]] = {}
    refused: list[ScoredRun] = []
    features = {}
    for each in chosen:
        made = each.make()
        family = family_of(made)
        features[each.name] = {"size": size(family, made)[1], "memory_pressure": family.memory_pressure(made)}
        for name in _methods_of(each.problem, methods, chosen):
            reason = find_method(family, name).refusal(made)
            if reason is None:
                takers.setdefault(each.name, (each, []))[1].append(name)
            else:
                refused.append(ScoredRun(each.name, name, reason=reason))
    cases = {name: Case(each.source, each.settings, tuple(names)) for name, (each, names) in takers.items()}
    names_by_key = {
        run.key: name for name, case in cases.items() for run in plan_runs(case, limits, None, (limits.seed,))
    }
    rows = [row for row in done if row.key in names_by_key]

    def add(row: MeasuredRow) -> None:
        rows.append(row)
        keep(row)

    ended = measure(list(cases.values()), limits, 1, None, add, known={row.key for row in rows}, jobs=jobs)
    scored = [_scored(names_by_key[row.key], row) for row in rows if not row.signal]
    order = {each.name: place for place, each in enumerate(chosen)}
    found = tuple(sorted([*scored, *refused], key=lambda run: order[run.name]))
    return Score(found, features, limits.time_s, calibration(), today(), machine(), versions(), known=known), ended


def _scored(name: str, row: MeasuredRow) -> ScoredRun:
    """The run of a row; where nothing is known of its way, its plan was there at its end."""
    at_end = () if row.objective is None else ((row.seconds, row.objective),)
    return ScoredRun(name, row.method, row.objective, row.seconds, row.incumbents or at_end, row.reason)


def _methods_of(problem: str, methods: Sequence[str], chosen: Sequence[LibraryEntry]) -> list[str]:
    """Those that the problem has; `UsageError` for one that no problem of the instances has."""
    found, family = [], family_named(problem)
    for name in methods:
        try:
            found.append(find_method(family, name).name)
        except UsageError:
            if not any(_has(other, name) for other in {each.problem for each in chosen} - {problem}):
                raise
    return found


def _has(problem: str, name: str) -> bool:
    return any(method.name == name for method in family_named(problem).methods)


def calibration() -> float:
    """The least CPU seconds of `_REPEATS` exact searches of one fixed instance."""
    name, settings = _CALIBRATION
    instance, found = load(name, **settings), []
    for _ in range(_REPEATS):
        began = time.process_time()
        solve(instance, method="exact")
        found.append(time.process_time() - began)
    return min(found)
