"""The census of the knapsacks of a Piper run: each solved exactly and by every variant of its heuristic.

The outer downsets are cut into chunks, each a line of the journal in the folder of its census.

Source: Piper, Appendix C.
"""

import json
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

from formulations.contract.inner_problems import Inside
from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.paper.appendix_d import appendix_d
from formulations.stage_partitioning.questions.studies.subproblems import EDGES, Origin, Subproblems
from formulations.tmpc_knapsack import FAMILY as KNAPSACK
from instances.problems.stage_partitioning import StageInstance
from planner.experiments.census.totals import WORST, Census, compare_runs
from planner.experiments.runner import Folder, Record, fingerprint, safe_name
from planner.files.write import as_json
from planner.process.errors import UsageError
from planner.process.executors import Ended
from planner.solving.compare import crosscheck
from solvers.outcome import Limits

#: Fewest and most chunks, and about how many pairs of downsets one holds in between.
_FEWEST, _MOST, _PAIRS = 32, 2000, 20_000
#: Seconds of each method that solves a knapsack again.
_AGAIN_S = 60.0
_COUNTS = ("pairs", "calls", "instances", "reachable", "all_fastest_feasible", "infeasible", "nontrivial")
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


@dataclass(kw_only=True)
class KnapsackCensus(Census):
    """The totals of all chunks; ``chunks_found`` of the ``chunks_done`` were in the folder already."""

    formula: dict[str, int]
    chunks: int
    chunks_done: int
    chunks_found: int
    compile_seconds: float
    worst_files: dict[str, list[str]] = field(default_factory=dict)
    crosscheck: dict[str, Any] | None = None

    @property
    def progress(self) -> str:
        """How far it came, in words that continue "in a folder"."""
        return f"{self.chunks_done} of {self.chunks} chunks lie"

    def figures(self) -> dict[str, Any]:
        """What its JSON object has of its own."""
        own = self.variants[self.variant]
        shown = ("crosscheck", "formula", "chunks", "chunks_done", "chunks_found", "compile_seconds", "variant")
        return {
            **{name: getattr(own, name) for name in ("suboptimal", "worst_gap", "mean_gap")},
            "variants": {name: self._variant(name) for name in self.variants},
            **{name: getattr(self, name) for name in shown},
        }

    def _variant(self, name: str) -> dict[str, Any]:
        found: Variant = self.variants[name]
        bins = zip([0.0, *EDGES], [*EDGES, None], found.histogram, strict=True)
        files = zip(found.worst, self.worst_files.get(name, []), strict=False)
        return {
            **asdict(found),
            "histogram": [{"above": low, "up_to": high, "count": count} for low, high, count in bins],
            "worst": [{"gap": gap, "file": file} for (gap, _), file in files],
        }


def survey_chunk(text: str, first: int, last: int) -> dict[str, Any]:
    """One chunk of the census of the instance in JSON ``text``, wherever it runs."""
    began = time.process_time()
    survey = _calls(text).survey(first, last, worst=WORST)
    return {"seconds": time.process_time() - began, "survey": asdict(survey)}


@lru_cache(maxsize=1)
def _calls(text: str) -> Subproblems:
    return Subproblems(FAMILY.read(json.loads(text), "census", {}))


class Knapsacks:
    """A census of knapsacks at work: ``left`` has the chunks that are not in its folder yet."""

    units, work = "chunks", staticmethod(survey_chunk)

    def __init__(
        self,
        instance: StageInstance,
        inside: Inside,
        crosscheck: int,
        limits: Limits,
        out: str | None,
        fresh: bool,
        notice: Callable[[str], None],
    ) -> None:
        self._crosschecked, self._again, self._notice = crosscheck, Limits(_AGAIN_S, seed=limits.seed), notice
        from formulations.stage_partitioning.paper.piper import resolve

        self._instance, self._inside, began = instance, inside, time.perf_counter()
        self._variant = resolve(instance, "auto")
        try:
            self._calls = Subproblems(instance)
        except ValueError as error:
            raise UsageError(f"{instance.name}: {error}") from None
        self._calls.survey(1, 1)  # loads or compiles the kernels
        self._began = time.perf_counter()
        self._compile_seconds = self._began - began
        text = as_json(FAMILY.to_json(instance))
        self._ranges = chunks_of(self._calls.num_downsets)
        title = {"instance": json.loads(text), "chunks": self._ranges, "edges": EDGES, "worst": WORST}
        own = fingerprint(title)
        where = f"census/{safe_name(instance.name)}-{own[:10]}" if out is None else out
        again = "their chunks are computed again"
        self._folder = Folder(where, "census", "census.json", title, own, again, is_strict=False)
        self.path, self.failures = self._folder.path, self._folder.failures
        self._folder.head()
        self._records = {} if fresh else self._folder.records(notice)
        for failure in self.failures:
            notice(f"warning: {failure}")
        self.total = len(self._ranges)
        self.left = {n: (text, *each) for n, each in enumerate(self._ranges) if n not in self._records}

    def keep(self, number: int, record: Record) -> None:
        """Keep what came of a chunk."""
        self._records.update(self._folder.keep([{"number": number, **record}]))

    def sum_up(self, ended: Ended) -> KnapsackCensus:
        """The totals of the chunks that are done, with the worst knapsacks as files."""
        done = [self._records[number] for number in sorted(self._records)]
        variants = {rule: _merge(rule, done) for rule in self._calls.rules}
        texts = {
            rule: [as_json(KNAPSACK.to_json(self._calls.knapsack(origin))) for _, origin in found.worst]
            for rule, found in variants.items()
        }
        found = KnapsackCensus(
            instance=self._instance,
            inside=self._inside,
            complete=len(done) == self.total,
            counts={name: sum(record["survey"][name] for record in done) for name in _COUNTS},
            variants=variants,
            out=str(self.path),
            seconds=time.perf_counter() - self._began,
            cpu_seconds=sum(record["seconds"] for record in done),
            signal=ended.signal,
            lost=ended.lost,
            variant=self._variant,
            formula=appendix_d(self._calls.profile, self._calls.num_downsets),
            chunks=self.total,
            chunks_done=len(done),
            chunks_found=self.total - len(self.left),
            compile_seconds=self._compile_seconds,
            worst_files=self._folder.write_worst(texts),
        )
        if self._crosschecked and not (found.signal or found.lost):
            self._crosscheck(found)
        return found

    def _crosscheck(self, found: KnapsackCensus) -> None:
        """Add what the witnesses find on a random sample, and the signal that ended it early, if one did."""
        began, folder = time.perf_counter(), str(self.path / "reproducers")
        counts = [self._records[number]["survey"]["nontrivial"] for number in range(self.total)]
        checked, unproved = 0, 0
        sample = draw_sample(self._calls, self._ranges, counts, self._crosschecked, self._again.seed, nontrivial=True)
        for knapsack in map(self._calls.knapsack, sample):
            report = crosscheck(knapsack, methods=_WITNESSES, limits=self._again, reproducers=folder)
            checked += 1
            unproved += report.optimum is None
            found.contradictions += [f"{report.instance}: {sentence}" for sentence in report.contradictions]
            found.signal = report.signal
            if found.signal is not None:
                self._notice(f"the crosscheck was interrupted after {checked} instances")
                break
        found.crosscheck = {
            "methods": list(_WITNESSES),
            "checked": checked,
            "unproved": unproved,
            "contradictions": found.contradictions,
            "seconds": time.perf_counter() - began,
        }

    def end_to_end(self, limits: Limits) -> tuple[dict[str, Any] | None, int | None]:
        """Piper's objective against the optimum (null: not found in time), or the signal that ended it early."""
        options = {"piper": {"knapsack": self._variant}, "exact": {}}
        runs = {name: (FAMILY.method(name), given) for name, given in options.items()}
        for method, _ in runs.values():
            if refused := method.supports(self._instance):
                return {"piper": None, "exact": None, "loss": None, "reason": refused}, None
        return compare_runs(FAMILY, self._instance, runs, limits)


def chunks_of(num_downsets: int) -> list[tuple[int, int]]:
    """Ranges of outer downsets that hold about as many pairs each."""
    rows = num_downsets - 1
    wanted = min(rows, _MOST, max(_FEWEST, rows * rows // 2 // _PAIRS))
    ends = sorted({round(rows * (number / wanted) ** 0.5) for number in range(wanted + 1)}) if wanted else []
    return [(low + 1, high + 1) for low, high in pairwise(ends)]


def _merge(rule: str, records: Sequence[dict[str, Any]]) -> Variant:
    parts = [record["survey"]["rules"][rule] for record in records]
    nontrivial = sum(record["survey"]["nontrivial"] for record in records)
    summed = ("suboptimal", "usable", "missed", "gap_sum")
    suboptimal, usable, missed, gaps = (sum(part[name] for part in parts) for name in summed)
    worst = [(gap, Origin(*origin)) for part in parts for gap, origin in part["worst"]]
    worst.sort(key=lambda each: -each[0])  # stable: chunks are in order
    return Variant(
        suboptimal=suboptimal,
        usable=usable,
        missed=missed,
        worst_gap=worst[0][0] if worst else 0.0,
        mean_gap=gaps / nontrivial if nontrivial else 0.0,
        mean_gap_suboptimal=gaps / suboptimal if suboptimal else 0.0,
        histogram=tuple(sum(part["histogram"][b] for part in parts) for b in range(len(EDGES) + 1)),
        worst=tuple(worst[:WORST]),
    )


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
