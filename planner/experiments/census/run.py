"""The census of knapsack subproblems: all of a Piper run, solved exactly and by every variant of its heuristic.

The outer downsets are cut into chunks. Every chunk that is done is a line of the journal in the folder of its census,
so that a census that was killed goes on where it was; the totals do not depend on who solved which chunk.

Source: Piper, Appendix C.
"""

from __future__ import annotations

import json
import random
import signal
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.paper.appendix_d import appendix_d
from formulations.stage_partitioning.questions.studies.subproblems import EDGES, Origin, Subproblems
from formulations.tmpc_knapsack import FAMILY as KNAPSACK
from instances.problems.stage_partitioning import StageInstance
from planner.experiments.runner import Folder, Record, fingerprint, safe_name
from planner.files.load import family_of, validate
from planner.files.settings import declared_options
from planner.files.write import as_json
from planner.process.errors import UsageError
from planner.process.executors import Ended, Opened, place, run_tasks
from planner.solving.compare import crosscheck
from planner.solving.solve import solve
from solvers.outcome import Limits

#: Fewest and most chunks, and about how many pairs of downsets one holds in between.
_FEWEST, _MOST, _PAIRS = 32, 2000, 20_000
#: The worst instances of every variant that are kept.
WORST = 5
_AGAIN = "their chunks are computed again"
_COUNTS = ("pairs", "calls", "instances", "reachable", "all_fastest_feasible", "infeasible", "nontrivial")
#: Fields that JSON has as they are.
_SHOWN = (
    *("end_to_end", "crosscheck", "formula", "chunks", "chunks_done", "chunks_found"),
    *("seconds", "cpu_seconds", "compile_seconds", "out"),
)
_WITNESSES = ("exact", "cpsat", "milp")


@dataclass(frozen=True)
class Variant:
    """How one variant of the heuristic fared; see `subproblems.RuleTally`.

    ``mean_gap`` is over all non-trivial instances, ``mean_gap_suboptimal`` over those it did not solve.
    """

    suboptimal: int
    usable: int
    missed: int
    worst_gap: float
    mean_gap: float
    mean_gap_suboptimal: float
    histogram: tuple[int, ...]
    worst: tuple[tuple[float, Origin], ...]


@dataclass
class Census:
    """The totals of all chunks; ``chunks_done`` < ``chunks`` if ``signal`` or what ``lost`` says ended it early.

    ``unwritten`` names the files that could not be written. ``variant`` is the one that the dynamic program uses on
    this instance. ``seconds`` is wall time from the first to the last chunk of this run, ``cpu_seconds`` the chunks'
    own, those found in the folder included.
    """

    instance: StageInstance
    variant: str
    counts: dict[str, int]
    variants: dict[str, Variant]
    formula: dict[str, int]
    chunks: int
    chunks_done: int
    chunks_found: int
    seconds: float
    cpu_seconds: float
    compile_seconds: float
    out: str
    signal: int | None = None
    lost: str | None = None
    unwritten: list[str] = field(default_factory=list)
    worst_files: dict[str, list[str]] = field(default_factory=dict)
    crosscheck: dict[str, Any] | None = None
    end_to_end: dict[str, Any] | None = None

    @property
    def progress(self) -> str:
        """How far it came, in words that continue "in a folder"."""
        return f"{self.chunks_done} of {self.chunks} chunks lie"

    @property
    def agree(self) -> bool:
        """Whether no solver contradicts the census."""
        return self.crosscheck is None or not self.crosscheck["contradictions"]

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner census --json`` prints."""
        own = self.variants[self.variant]
        return {
            "problem": FAMILY.name,
            "instance": self.instance.name,
            "options": declared_options(self.instance),
            "complete": self.chunks_done == self.chunks,
            **self.counts,
            "variant": self.variant,
            **{name: getattr(own, name) for name in ("suboptimal", "worst_gap", "mean_gap")},
            "variants": {name: self._variant(name) for name in self.variants},
            **{name: getattr(self, name) for name in _SHOWN},
        }

    def _variant(self, name: str) -> dict[str, Any]:
        found = asdict(self.variants[name])
        ends = [0.0, *EDGES]
        bins = zip(ends, [*EDGES, None], found["histogram"], strict=True)
        found["histogram"] = [{"above": low, "up_to": high, "count": count} for low, high, count in bins]
        found["worst"] = [
            {"gap": gap, "file": file}
            for (gap, _), file in zip(self.variants[name].worst, self.worst_files.get(name, []), strict=False)
        ]
        return found


def census(
    instance: Any,
    *,
    jobs: int = 1,
    dask: str | None = None,
    sample: int = 0,
    seed: int = 0,
    end_to_end: bool = True,
    limits: Limits | None = None,
    out: str | None = None,
    fresh: bool = False,
    listen: Callable[[int, int], None] = lambda _done, _chunks: None,
    notice: Callable[[str], None] = lambda _line: None,
) -> Census:
    """Solve every knapsack subproblem of a Piper run on ``instance``.

    Parameters
    ----------
    jobs, dask
        Local processes, or the address of a dask scheduler.
    sample, seed
        This many random non-trivial instances are solved again by the family's exact, CP-SAT and MILP methods.
    end_to_end
        Also run Piper and the exact method on the whole instance, with ``limits`` each.
    out
        Folder of the chunks and of the worst instances; default: ``census/NAME-FINGERPRINT``. Chunks of the same
        census that lie there are not computed again, unless ``fresh``.
    listen
        Called with the chunks done and their number.

    Raises
    ------
    UsageError
        If the graph has too many downsets, or ``out`` holds something else.
    """
    instance = validate(instance, requirements=False)
    if not isinstance(instance, StageInstance):
        raise UsageError.at("INSTANCE", family_of(instance).name, f"an instance of {FAMILY.name}")
    again = Limits(time_s=60.0, seed=seed)
    opened = place(jobs, dask)
    began = time.perf_counter()
    try:
        calls = Subproblems(instance)
    except ValueError as error:
        raise UsageError(f"{instance.name}: {error}") from None
    calls.survey(1, 1)  # loads or compiles the kernels
    compiled = time.perf_counter()
    text = as_json(FAMILY.to_json(instance))
    ranges = chunks_of(calls.num_downsets)
    title = {"instance": json.loads(text), "chunks": ranges, "edges": EDGES, "worst": WORST}
    own = fingerprint(title)
    where = f"census/{safe_name(instance.name)}-{own[:10]}" if out is None else out
    folder = Folder(where, "census", "census.json", title, own, _AGAIN, is_strict=False)
    folder.head()
    records = {} if fresh else folder.records(notice)
    found = len(records)
    if found:
        notice(f"{found} of {len(ranges)} chunks lie in {folder.path} already")
    for failure in folder.failures:
        notice(f"warning: {failure}")
    ended = _fill(opened, text, ranges, folder, records, listen)
    done = [records[number] for number in sorted(records)]
    result = Census(
        instance=instance,
        variant=_own_variant(instance),
        counts={name: sum(record["survey"][name] for record in done) for name in _COUNTS},
        variants={rule: _merge(rule, done) for rule in calls.rules},
        formula=appendix_d(calls.profile, calls.num_downsets),
        chunks=len(ranges),
        chunks_done=len(done),
        chunks_found=found,
        seconds=time.perf_counter() - compiled,
        cpu_seconds=sum(record["seconds"] for record in done),
        compile_seconds=compiled - began,
        out=str(folder.path),
        signal=ended.signal,
        lost=ended.lost,
    )
    result.worst_files = folder.write_worst(
        {
            rule: [as_json(KNAPSACK.to_json(calls.knapsack(origin))) for _, origin in found.worst]
            for rule, found in result.variants.items()
        }
    )
    if result.signal is None and ended.lost is None and sample > 0:
        result.crosscheck, result.signal = _crosscheck(calls, ranges, done, sample, again, folder, notice)
    if result.signal is None and ended.lost is None and end_to_end:
        result.end_to_end, result.signal = _end_to_end(instance, result.variant, limits or Limits(time_s=60.0))
    result.unwritten = list(dict.fromkeys(folder.failures))
    return result


def chunks_of(num_downsets: int) -> list[tuple[int, int]]:
    """Ranges of outer downsets that hold about as many pairs each."""
    rows = num_downsets - 1
    wanted = min(rows, _MOST, max(_FEWEST, rows * rows // 2 // _PAIRS))
    ends = sorted({round(rows * (number / wanted) ** 0.5) for number in range(wanted + 1)}) if wanted else []
    return [(low + 1, high + 1) for low, high in pairwise(ends)]


def survey_chunk(text: str, first: int, last: int) -> dict[str, Any]:
    """One chunk of the census of the instance in JSON ``text``, wherever it runs."""
    began = time.process_time()
    survey = _calls(text).survey(first, last, worst=WORST)
    return {"seconds": time.process_time() - began, "survey": asdict(survey)}


@lru_cache(maxsize=1)
def _calls(text: str) -> Subproblems:
    return Subproblems(FAMILY.read(json.loads(text), "census", {}))


def _fill(
    opened: Opened,
    text: str,
    ranges: Sequence[tuple[int, int]],
    folder: Folder,
    records: dict[int, dict[str, Any]],
    listen: Callable[[int, int], None],
) -> Ended:
    left = [number for number in range(len(ranges)) if number not in records]
    listen(len(records), len(ranges))

    def keep(position: int, record: Record) -> None:
        records.update(folder.keep([{"number": left[position], **record}]))
        listen(len(records), len(ranges))

    try:
        return run_tasks(opened, survey_chunk, [(text, *ranges[number]) for number in left], keep)
    except KeyboardInterrupt:
        return Ended(signal.SIGINT)
    except SystemExit as stop:
        return Ended(int(stop.code or 0) - 128)


def _merge(rule: str, records: Sequence[dict[str, Any]]) -> Variant:
    parts = [record["survey"]["rules"][rule] for record in records]
    nontrivial = sum(record["survey"]["nontrivial"] for record in records)
    suboptimal, gaps = sum(part["suboptimal"] for part in parts), sum(part["gap_sum"] for part in parts)
    worst = [(gap, Origin(*origin)) for part in parts for gap, origin in part["worst"]]
    worst.sort(key=lambda each: -each[0])  # stable: chunks are in order
    return Variant(
        suboptimal=suboptimal,
        usable=sum(part["usable"] for part in parts),
        missed=sum(part["missed"] for part in parts),
        worst_gap=worst[0][0] if worst else 0.0,
        mean_gap=gaps / nontrivial if nontrivial else 0.0,
        mean_gap_suboptimal=gaps / suboptimal if suboptimal else 0.0,
        histogram=tuple(sum(part["histogram"][b] for part in parts) for b in range(len(EDGES) + 1)),
        worst=tuple(worst[:WORST]),
    )


def _own_variant(instance: StageInstance) -> str:
    from formulations.stage_partitioning.paper.piper import resolve

    return resolve(instance, "auto")


def draw_sample(
    calls: Subproblems,
    ranges: Sequence[tuple[int, int]],
    counts: Sequence[int],
    sample: int,
    seed: int,
    *,
    nontrivial: bool,
) -> Iterator[Origin]:
    """A uniform sample without repetition, in the order of the walk; ``counts`` are the instances of every range."""
    seen = [0, *accumulate(counts)]
    wanted = sorted(random.Random(seed).sample(range(seen[-1]), min(sample, seen[-1])))
    by_range: dict[int, list[int]] = {}
    for ordinal in wanted:
        by_range.setdefault(bisect_right(seen, ordinal) - 1, []).append(ordinal)
    for number, ordinals in by_range.items():
        yield from calls.pick(*ranges[number], ordinals, nontrivial=nontrivial, seen=seen[number])


def _crosscheck(
    calls: Subproblems,
    ranges: Sequence[tuple[int, int]],
    records: Sequence[dict[str, Any]],
    sample: int,
    limits: Limits,
    folder: Folder,
    notice: Callable[[str], None],
) -> tuple[dict[str, Any], int | None]:
    """What the witnesses find on a random sample, and the signal that ended it early, if one did."""
    began = time.perf_counter()
    counts = [record["survey"]["nontrivial"] for record in records]
    checked, unproved, contradictions, signalled = 0, 0, [], None
    for origin in draw_sample(calls, ranges, counts, sample, limits.seed, nontrivial=True):
        report = crosscheck(
            calls.knapsack(origin),
            methods=_WITNESSES,
            limits=limits,
            reproducers=str(folder.path / "reproducers"),
        )
        checked += 1
        unproved += report.optimum is None
        contradictions += [f"{report.instance}: {sentence}" for sentence in report.contradictions]
        signalled = report.signal
        if signalled is not None:
            notice(f"the crosscheck was interrupted after {checked} instances")
            break
    found = {
        "methods": list(_WITNESSES),
        "checked": checked,
        "unproved": unproved,
        "contradictions": contradictions,
        "seconds": time.perf_counter() - began,
    }
    return found, signalled


def _end_to_end(instance: StageInstance, variant: str, limits: Limits) -> tuple[dict[str, Any] | None, int | None]:
    """What the heuristic's gaps do to the plan: Piper's objective against the optimum (null: not found in time).

    Nothing, and the signal, if one ended it early.
    """
    found: dict[str, Any] = {}
    for name, method in (("piper", "piper"), ("exact", "exact")):
        missing = FAMILY.method(method).supports(instance)
        if missing:
            return {"piper": None, "exact": None, "loss": None, "reason": missing}, None
        options = {"knapsack": variant} if method == "piper" else {}
        result = solve(instance, method=method, limits=limits, options=options)
        if result.signal is not None:
            return None, result.signal
        found[name] = result.objective
    loss = found["piper"] / found["exact"] - 1 if found["piper"] and found["exact"] else None
    return {**found, "loss": loss, "unit": instance.time_unit}, None
