"""How a method does on instances of the library: its losses to the best that is known, and the machine's speed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from planner.experiments.bench.measure import MeasuredRow, measure, plan_runs
from planner.experiments.bench.suites import Case
from planner.experiments.library.entries import VERSION, BestKnown, LibraryEntry
from planner.files.load import family_named, family_of, load
from planner.files.write import as_json
from planner.process.errors import UsageError
from planner.process.executors import Ended
from planner.process.versions import machine, today, versions
from planner.solving.choose import find_method
from planner.solving.solve import solve
from solvers.outcome import OPTIMAL_GAP, Limits

#: Seconds of the exact search on this instance say how fast a machine is: under a second, no solver, no model.
_CALIBRATION: tuple[str, dict[str, Any]] = (
    "bert",
    {"layers": 128, "devices": 256, "hidden_size": 8192, "memory": "80GB"},
)
_REPEATS = 3


@dataclass(frozen=True)
class Scored:
    """A method on one instance: ``loss`` is its objective over the best known, less 1 (below 0: a better plan)."""

    name: str
    problem: str
    method: str
    objective: float | None
    best: float | None
    is_optimal: bool
    loss: float | None
    seconds: float
    reason: str | None

    @classmethod
    def of(
        cls,
        entry: LibraryEntry,
        method: str,
        known: BestKnown | None,
        objective: float | None = None,
        seconds: float = 0.0,
        reason: str | None = None,
    ) -> Scored:
        """What a plan of this objective is worth beside the best known; without one, why there is none."""
        best = None if known is None else known.objective
        loss = None if objective is None or not best else objective / best - 1
        proved = known is not None and known.is_optimal
        return cls(entry.name, entry.problem, method, objective, best, proved, loss, seconds, reason)


@dataclass(frozen=True)
class Standing:
    """How a method stands on a group of instances: counts, losses as shares, and its seconds in sum.

    ``optimal``: plans as good as a proved optimum; ``best``: as good as, or better than, the best that is known;
    ``mean_loss`` and ``worst_loss`` are of the instances with a plan, ``None`` without any.
    """

    instances: int
    plans: int
    optimal: int
    best: int
    mean_loss: float | None
    worst_loss: float | None
    seconds: float

    @classmethod
    def of(cls, rows: Sequence[Scored]) -> Standing:
        """Of some rows."""
        found = [row.loss for row in rows if row.loss is not None]
        equal = [row for row in rows if row.loss is not None and row.loss <= OPTIMAL_GAP]
        return cls(
            len(rows),
            sum(row.objective is not None for row in rows),
            sum(row.is_optimal for row in equal),
            len(equal),
            math.fsum(found) / len(found) if found else None,
            max(found, default=None),
            math.fsum(row.seconds for row in rows),
        )


@dataclass(frozen=True)
class Score:
    """The rows of all methods, with what makes them comparable: ``calibration_s`` is the machine's CPU seconds."""

    rows: tuple[Scored, ...]
    time_limit_s: float | None
    calibration_s: float
    date: str
    machine: str
    versions: Mapping[str, str]
    library: str = VERSION

    def standings(self) -> dict[tuple[str, str], Standing]:
        """By method and problem, and by method and ``all`` where a method ran on several problems."""
        groups: dict[tuple[str, str], list[Scored]] = {}
        for row in self.rows:
            groups.setdefault((row.method, row.problem), []).append(row)
        for method in dict.fromkeys(row.method for row in self.rows):
            own = [row for row in self.rows if row.method == method]
            if len({row.problem for row in own}) > 1:
                groups[method, "all"] = own
        return {key: Standing.of(rows) for key, rows in groups.items()}

    def to_json(self) -> dict[str, Any]:
        """The record: comparable with that of another machine by its ``calibration_s``."""
        standings = [
            {"method": method, "problem": problem, **asdict(each)}
            for (method, problem), each in self.standings().items()
        ]
        return {**asdict(self), "standings": standings}


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
    refused: list[Scored] = []
    for each in chosen:
        made = each.make()
        for name in _methods_of(each.problem, methods, chosen):
            reason = find_method(family_of(made), name).refusal(made)
            if reason is None:
                takers.setdefault(each.name, (each, []))[1].append(name)
            else:
                refused.append(Scored.of(each, name, known.get(each.name), reason=reason))
    cases = [Case(each.source, each.settings, tuple(names)) for each, names in takers.values()]
    wanted = {run.key for case in cases for run in plan_runs(case, limits, None, (limits.seed,))}
    rows = [row for row in done if row.key in wanted]

    def add(row: MeasuredRow) -> None:
        rows.append(row)
        keep(row)

    ended = measure(cases, limits, 1, None, add, known={row.key for row in rows}, jobs=jobs)
    of_case = {_key(each.source, each.settings): each for each, _ in takers.values()}
    scored = []
    for row in rows:
        entry = of_case.get(_key(row.case, row.settings))
        if entry is not None and not row.signal:
            best = known.get(entry.name)
            scored.append(Scored.of(entry, row.method, best, row.objective, row.seconds, row.reason))
    found = (*scored, *refused)
    return Score(found, limits.time_s, calibration(), today(), machine(), versions()), ended


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


def _key(case: str, settings: Mapping[str, Any]) -> str:
    return as_json([case, dict(sorted(settings.items()))])


def calibration() -> float:
    """The least CPU seconds of `_REPEATS` exact searches of one fixed instance."""
    name, settings = _CALIBRATION
    instance, found = load(name, **settings), []
    for _ in range(_REPEATS):
        began = time.process_time()
        solve(instance, method="exact")
        found.append(time.process_time() - began)
    return min(found)
