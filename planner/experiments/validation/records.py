"""What every method makes of each instance of a population, beside the reference that proves the optimum, and totals.

Totals say how often each method was optimal, and by how much it was not.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from formulations.contract.family import Family
from planner.files.load import family_named
from planner.files.problems import address
from planner.files.write import plain
from planner.plugins.registry import texts, texts_of
from planner.process import idle
from planner.process.signals import defer, pending
from planner.process.target import absolute
from planner.results.check import exceeds
from planner.results.optimality_loss import spread
from planner.results.result import Result
from planner.solving.compare import Report, crosscheck
from solvers.outcome import OPTIMAL_GAP, Limits, Status, relative_gap

#: What came of a method on an instance. ``open``: a plan that is not known to be optimal, nor to be worse than another.
#: ``infeasible``: it is proved that there is no plan, and the method has none.
OPTIMAL, SUBOPTIMAL, NO_PLAN, INVALID, ERROR, OPEN, INFEASIBLE = (
    "optimal",
    "suboptimal",
    "no_plan",
    "invalid",
    "error",
    "open",
    "infeasible",
)
#: Outcomes by what a brought function's ``stats.failure`` says.
_FAILURES = {"error": ERROR, "import": ERROR, "invalid_plan": INVALID}

#: A number in a reason, with the unit of a size.
_NUMBER = re.compile(r"\d[\d.e+-]*( ([KMGT]i)?B\b)?")

#: An instance as it is handed to a worker: its number, where it comes from, its JSON text.
Handed = tuple[int, str, str]


@dataclass(frozen=True)
class Work:
    """What is done with every instance, wherever it is done: all that a worker has to know.

    ``methods`` are the names that a worker finds them by, the reference ``against`` among them, and ``names`` what they
    are called; ``plans`` holds plans in their JSON form.
    """

    problem: str
    names: tuple[str, ...]
    methods: tuple[str, ...]
    plans: Mapping[str, Any]
    limits: Limits
    options: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, problem: str, names: Sequence[str], plans: Mapping[str, Any], limits: Limits, options: Mapping[str, Any]
    ) -> "Work":
        """With functions in files by their full path: a worker may be at home elsewhere."""
        methods = tuple(map(absolute, names))
        return cls(address(problem), tuple(names), methods, dict(plans), limits, dict(options), texts_of(methods))


def solve_all(work: Work, handed: Sequence[Handed]) -> tuple[list[dict[str, Any]], int | None]:
    """The records of some instances; fewer, and the signal, if one came."""
    found: list[dict[str, Any]] = []
    family = family_named(work.problem)
    with defer(), texts(work.texts), idle.kept():
        for number, origin, text in handed:
            stopped = pending()
            if stopped is None:
                record, stopped = _record(work, family, number, origin, text)
            if stopped is not None:
                return found, stopped
            found.append(record)
    return found, None


def _record(
    work: Work, family: Family[Any, Any], number: int, origin: str, text: str
) -> tuple[dict[str, Any], int | None]:
    """What came of one instance, and the signal that interrupted it, if one did."""
    instance = family.read(json.loads(text), origin, {})
    report = crosscheck(
        instance, methods=work.methods, plans=work.plans, limits=work.limits, options=work.options, reproducers=None
    )
    infeasible = any(result.status is Status.INFEASIBLE for result in report.results) and report.agree
    called = dict(zip(work.methods, work.names, strict=True))
    by_method = {result.method: result for result in report.results}
    found: dict[str, Any] = plain({
        "number": number,
        "instance": instance.name,
        "origin": origin,
        "size": size(family, instance)[1],
        "memory_pressure": family.memory_pressure(instance),
        "optimum": report.optimum,
        "infeasible": infeasible,
        "contradictions": [_rename_methods(sentence, called) for sentence in report.contradictions],
        "rows": {
            called.get(name, name): _row(report, by_method.get(name), report.left_out.get(name, ""), infeasible)
            for name in (*work.methods, *work.plans)
        },
    })  # fmt: skip
    return found, report.signal


def _row(report: Report, result: Result | None, left_out: str, infeasible: bool) -> dict[str, Any]:
    if result is None:
        outcome = ERROR if any(sentence == left_out for sentence in report.contradictions) else NO_PLAN
        nothing = dict.fromkeys(("loss", "objective", "bound", "status", "stop"))
        return {"outcome": outcome, **nothing, "seconds": 0.0, "reason": f"left out: {left_out}"}
    return {
        "outcome": _outcome(report, result, infeasible),
        "loss": result.loss,
        "objective": result.objective,
        "bound": result.bound,
        "status": result.status.value,
        "stop": result.stop.value,
        "seconds": result.seconds,
        "reason": result.reason if result.plan is None or "failure" in result.stats else "",
    }


def _outcome(report: Report, result: Result, infeasible: bool) -> str:
    if result.objective is None:
        failed = _FAILURES.get(str(result.stats.get("failure")))
        return failed or (INFEASIBLE if infeasible else NO_PLAN)
    if report.optimum is not None:
        gap = relative_gap(result.objective, report.optimum)
        return OPTIMAL if gap is not None and gap <= OPTIMAL_GAP else SUBOPTIMAL
    best = min(each.objective for each in report.results if each.objective is not None)
    return SUBOPTIMAL if exceeds(result.objective, best) else OPEN


def _rename_methods(sentence: str, called: Mapping[str, str]) -> str:
    for name, spelled in called.items():
        sentence = sentence.replace(name, spelled)
    return sentence


def size(family: Family[Any, Any], instance: Any) -> tuple[str, int | None]:
    """The first whole number among the key figures of an instance, such as that of its nodes, and what it counts."""
    for name, value in family.describe(instance).items():
        if isinstance(value, int) and not isinstance(value, bool):
            return name, value
    return "", None


@dataclass(frozen=True)
class Fared:
    """How one method fared on a population.

    Instances in none of the five counts are those where it is proved that there is no plan, and ``open`` ones: the
    method has a plan, no optimum is proved, and no other plan is better. ``mean_loss``, ``p95_loss`` (nearest rank) and
    ``worst_loss`` are over all plans with a known loss, to the best bound where no optimum is proved: then they are at
    most this. ``seconds``: of all runs.
    """

    optimal: int
    suboptimal: int
    no_plan: int
    invalid: int
    errors: int
    mean_loss: float | None
    p95_loss: float | None
    worst_loss: float | None
    seconds: float


def totals_of(records: Sequence[Mapping[str, Any]], method: str) -> Fared:
    """The totals of one method; sums are exactly rounded, so that no order of the records changes them."""
    rows = [record["rows"][method] for record in records]
    counts = Counter(row["outcome"] for row in rows)
    known = (row for row in rows if row["loss"] is not None)  # what is optimal and loses is rounding
    lost = [0.0 if row["outcome"] == OPTIMAL else row["loss"] for row in known]
    mean, p95, most = spread(lost) if lost else (None, None, None)
    return Fared(
        optimal=counts[OPTIMAL],
        suboptimal=counts[SUBOPTIMAL],
        no_plan=counts[NO_PLAN],
        invalid=counts[INVALID],
        errors=counts[ERROR],
        mean_loss=mean,
        p95_loss=p95,
        worst_loss=most,
        seconds=math.fsum(row["seconds"] for row in rows),
    )


def worst_of(records: Sequence[Mapping[str, Any]], method: str, most: int) -> list[Mapping[str, Any]]:
    """The records of the instances on which a method lost most, no instance twice, the worst first."""
    lost: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for record in records:
        row = record["rows"][method]
        if row["outcome"] == SUBOPTIMAL and row["loss"] is not None:
            lost.setdefault((record["same_as"],), record)
    return sorted(lost.values(), key=lambda each: (-each["rows"][method]["loss"], each["number"]))[:most]


def reasons(records: Iterable[Mapping[str, Any]], method: str) -> list[tuple[str, int, int]]:
    """Why a method has no plan, or failed after one: the reason, how often, and the number of the first instance.

    Reasons that differ in numbers only are one, in the words of the first.
    """
    counts: Counter[str] = Counter()
    first: dict[str, tuple[str, int]] = {}
    for record in records:
        reason = record["rows"][method]["reason"]
        if reason and record["rows"][method]["outcome"] != "infeasible":
            kind = _NUMBER.sub("#", reason)
            counts[kind] += 1
            first.setdefault(kind, (reason, record["number"]))
    return [(first[kind][0], count, first[kind][1]) for kind, count in counts.most_common()]


def flat(records: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for every instance and method, as the table on disk has them."""
    columns = columns_of(records)
    for record in records:
        drawn = {column_of(name): value for name, value in record["parameters"].items()}
        as_typed = {name: str(value) if columns[name] is str else value for name, value in drawn.items()}
        known = {**as_typed, **{name: record[name] for name in COLUMNS if name in record}}
        for method, row in record["rows"].items():
            yield {**dict.fromkeys(columns), **known, "method": method, **row}


def columns_of(records: Iterable[Mapping[str, Any]]) -> dict[str, type]:
    """The columns of the table: `COLUMNS`, and what was drawn, as numbers where all of it are some."""
    drawn: dict[str, type] = {}
    for record in records:
        for name, value in record["parameters"].items():
            kind = str if isinstance(value, str) else float
            drawn[column_of(name)] = kind if drawn.get(column_of(name), kind) is kind else str
    return {**COLUMNS, **drawn}


def column_of(parameter: str) -> str:
    """The column that has what was drawn of a parameter."""
    name = parameter.replace("-", "_")
    return f"drawn_{name}" if name in COLUMNS else name


#: The columns of the table, with their types: of the instance, then of the method.
COLUMNS: Mapping[str, type] = {
    "number": int,
    "instance": str,
    "origin": str,
    "size": int,
    "memory_pressure": float,
    "optimum": float,
    "infeasible": bool,
    "method": str,
    "outcome": str,
    "loss": float,
    "objective": float,
    "bound": float,
    "status": str,
    "stop": str,
    "seconds": float,
    "reason": str,
}
