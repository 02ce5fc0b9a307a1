"""The census of any kind of subproblems but knapsacks: the optimum of each, beside what was chosen inside.

A proved optimum is a line of ``optima.jsonl`` in the census's folder, under what it is of; so a census that was killed
goes on where it was, as long as the program is the same, and another one of the same subproblems begins there.

Source: Piper, Appendix C, for other planners than Piper's.
"""

import hashlib
import json
import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from formulations.contract.family import Claim
from formulations.contract.inner_problems import Inside
from planner.experiments.census.extract import InnerRow, rows
from planner.experiments.census.totals import WORST, Census, compare_runs
from planner.experiments.runner import Journal, open_folder, safe_name, write_or_note, write_worst
from planner.files.destinations import writable
from planner.files.load import family_named, family_of
from planner.files.write import as_json
from planner.plugins.method_names import AUTO
from planner.process.errors import UsageError
from planner.process.executors import Ended
from planner.process.signals import pending
from planner.process.versions import versions
from planner.results.check import exceeds
from planner.results.optimality_loss import losses, optimum_of, spread
from planner.solving.solve import solve
from planner.solving.worker import signals_stop
from solvers.outcome import OPTIMAL_GAP, Limits, Status, Stop, Watch

_FILE = "optima.jsonl"
#: Whose versions an optimum depends on.
_PROGRAM = ("dnn-planner", "ortools", "highspy", "numba")


@dataclass(frozen=True)
class Optimum:
    """What an exact method found of an instance: ``status`` and ``reason`` as in a result.

    ``cpu_seconds`` is the time of the process that ran it.
    """

    status: str
    objective: float | None
    bound: float | None
    method: str
    reason: str
    cpu_seconds: float


def find_optimum(problem: str, content: str, limits: Limits, against: str) -> Optimum | None:
    """The optimum of the instance in JSON ``content``, by an exact method; ``None`` if a signal ended the search."""
    began = time.process_time()
    instance = family_named(problem).read(json.loads(content), "subproblem", {})
    try:
        result = solve(instance, method=against, exact=True, limits=limits)
    except UsageError as refused:  # no exact method takes it
        return Optimum(Status.UNKNOWN, None, None, "", str(refused), time.process_time() - began)
    if result.signal is not None or result.stop is Stop.INTERRUPTED:
        return None
    took = time.process_time() - began
    return Optimum(result.status, result.objective, result.bound, result.method, result.reason, took)


@dataclass
class Tally:
    """How one inner heuristic fared.

    ``instances``, ``distinct``: its subproblems, and how many of them differ in more than name and origin.
    ``optimal``, ``suboptimal``, ``no_plan``: of those whose optimum is proved: it is attained, it is missed, nothing
    was found though there is a plan.
    ``infeasible``, ``unproved``: those that have no plan, and those whose optimum was not found in time.
    ``mean_loss``, ``p95_loss``, ``worst_loss``: objective / optimum - 1 over all that are optimal or sub-optimal: mean,
    95th percentile (the least value that is not exceeded by 95 % of them), largest. Infinite ones (an optimum of 0) are
    left out.
    ``decisions``: where it decided whether a plan of at most some target exists: how many it found, rightly called
    impossible, missed (there is one), how many of its "no" are of a search that was cut off, and how many are still
    open.
    ``worst``: losses and files of the worst subproblems, decisions by how far the optimum lies below the target.
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


@dataclass(kw_only=True)
class RowCensus(Census):
    """The totals of a census of rows: a `Tally` for each inner heuristic."""

    @property
    def progress(self) -> str:
        """How far it came, in words that continue "in a folder"."""
        return f"the optima of {self.counts['instances']} subproblems lie"

    def figures(self) -> dict[str, Any]:
        """What its JSON object has of its own."""
        return {
            "subproblem": self.inside.problem,
            "method": self.inside.method,
            "variants": {name: asdict(tally) for name, tally in self.variants.items()},
            "contradictions": self.contradictions,
        }


class Rows:
    """A census of rows at work: ``left`` has the subproblems whose optimum is not in its folder yet.

    A file that cannot be written (a full disk) is one of its ``failures`` and does not end the census.
    """

    units, work = "optima", staticmethod(find_optimum)

    def __init__(
        self,
        instance: Any,
        inside: Inside,
        against: str | None,
        limits: Limits,
        sample: int | None,
        out: str | None,
        notice: Callable[[str], None],
    ) -> None:
        self._instance, self._inside, self._began = instance, inside, time.perf_counter()
        exact = [each.name for each in family_named(inside.problem).methods if each.claim is Claim.EXACT]
        if against is not None and against not in exact:
            raise UsageError.unknown("--against", against, exact)
        out = out or f"census/{safe_name(instance.name)}-{inside.problem}-{inside.method}"
        self.path, self.failures = Path(out), list[str]()
        if open_folder(out) and not self.path.joinpath(_FILE).is_file():
            raise UsageError.at("--out", out, "an empty folder, or one of a census of such subproblems")
        self._journal = Journal(self.path / _FILE, "key", "their optima are found again")
        with writable(self._journal.path, "--out"), self._journal.path.open("a"):  # whether it can be written
            pass
        known = {key: {**record} for key, record in self._journal.records(notice).items()}
        self._optima = {record.pop("key"): Optimum(**record) for record in known.values()}
        watch = Watch(limits)
        with signals_stop(watch):
            self._rows = list(rows(instance, inside, limits, sample, limits.seed, watch))
        if watch.reason is Stop.TIME_LIMIT:
            said = f"{len(self._rows)} subproblems of its beginning"
            notice(f"the run of {inside.method} was ended at the time limit: {said}")
        program = as_json({name: versions().get(name) for name in _PROGRAM})
        begins = f"{inside.problem} {against or AUTO} {program}"
        self._keys = [hashlib.sha256(f"{begins} {row.content}".encode()).hexdigest() for row in self._rows]
        contents = dict(zip(self._keys, (row.content for row in self._rows), strict=True))
        self.total = len(contents)
        self.left = {
            key: (inside.problem, content, limits, against or AUTO)
            for key, content in contents.items()
            if key not in self._optima
        }

    def keep(self, key: str, found: Optimum | None) -> int | None:
        """Keep an optimum, if it is proved in the folder as well; the signal that there is none for."""
        if found is None:
            return pending() or signal.SIGINT
        self._optima[key] = found
        if found.status in (Status.OPTIMAL, Status.INFEASIBLE):
            write_or_note(self.failures, lambda: self._journal.keep([{"key": key, **asdict(found)}]))
        return None

    def sum_up(self, ended: Ended) -> RowCensus:
        """The totals of what is known, with the worst subproblems as files."""
        pairs = [
            (row, self._optima[key]) for row, key in zip(self._rows, self._keys, strict=True) if key in self._optima
        ]
        by_inner = {row.inner: [pair for pair in pairs if pair[0].inner == row.inner] for row in self._rows}
        variants = {inner: _tally(own) for inner, own in by_inner.items()}
        ranked = {inner: [(judge(*pair)[1] or 0.0, pair[0]) for pair in own] for inner, own in by_inner.items()}
        worst = {
            inner: sorted((each for each in own if each[0] > OPTIMAL_GAP), key=lambda each: -each[0])[:WORST]
            for inner, own in ranked.items()
        }
        texts = {inner.replace(" ", "-"): [as_json(row.to_json()) for _, row in own] for inner, own in worst.items()}
        files = write_worst(self.path, texts, lambda write: write_or_note(self.failures, write))
        for (inner, own), (_, paths) in zip(worst.items(), files.items(), strict=True):
            variants[inner].worst = [{"loss": loss, "file": path} for (loss, _), path in zip(own, paths, strict=True)]
        return RowCensus(
            instance=self._instance,
            inside=self._inside,
            complete=len(pairs) == len(self._rows) and pending() is None,
            counts={"instances": len(pairs)},
            variants=variants,
            out=str(self.path),
            seconds=time.perf_counter() - self._began,
            cpu_seconds=math.fsum(each.cpu_seconds for each in {id(each): each for _, each in pairs}.values()),
            contradictions=[words for pair in pairs for words in _contradictions(*pair)],
            signal=ended.signal,
            lost=ended.lost,
        )

    def end_to_end(self, limits: Limits) -> tuple[dict[str, Any] | None, int | None]:
        """The method as it is against itself with every subproblem solved exactly, if there is such a run."""
        if self._inside.exactly is None:
            return None, None
        family = family_of(self._instance)
        published = family.method(self._inside.method)
        exactly = replace(published, solve=self._inside.exactly)
        runs: dict[str, Any] = {"published": (published, {}), "exact_inside": (exactly, {})}
        return compare_runs(family, self._instance, runs, limits)


Pair = tuple[InnerRow, Optimum]


def judge(row: InnerRow, optimum: Optimum) -> tuple[str, float | None]:
    """What became of a subproblem, as a field of `Tally` or a key of its ``decisions``, and what was lost inside."""
    if row.decision is None:
        both = [(row.objective, None), (optimum.objective, optimum.bound)]
        loss = losses(both)[0]
        if optimum.status == "infeasible":
            return "infeasible", None
        if optimum_of(both) is None:
            return "unproved", None
        if row.objective is None:
            return "no_plan", None
        return "optimal" if loss is not None and loss <= OPTIMAL_GAP else "suboptimal", loss
    target = row.decision.target
    if row.decision.answer:
        return "found", None
    best = min((each for each in (row.objective, optimum.objective) if each is not None), default=math.inf)
    if best <= target:
        return "missed", target / optimum.objective - 1 if optimum.objective else None
    is_out = optimum.status == "infeasible" or (optimum.bound is not None and exceeds(optimum.bound, target))
    return "impossible" if is_out else "open", None


def _tally(pairs: Sequence[Pair]) -> Tally:
    judged = [judge(*pair) for pair in pairs]
    counts = Counter(outcome for outcome, _ in judged)
    tally = Tally(
        instances=len(pairs),
        distinct=len({row.content for row, _ in pairs}),
        optimal=counts["optimal"],
        suboptimal=counts["suboptimal"],
        no_plan=counts["no_plan"],
        infeasible=sum(optimum.status == "infeasible" for _, optimum in pairs),
        unproved=counts["unproved"],
    )
    decisions = [row.decision for row, _ in pairs if row.decision is not None]
    lost = [loss for _, loss in judged if loss is not None]
    if decisions:
        tally.decisions = {name: counts[name] for name in ("found", "impossible", "missed", "cut_off", "open")}
        tally.decisions["cut_off"] = sum(not each.answer and not each.is_proved for each in decisions)
    elif lost:
        tally.mean_loss, tally.p95_loss, tally.worst_loss = spread(lost)
    return tally


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
