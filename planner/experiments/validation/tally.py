"""From records to totals: how often each method was optimal, and by how much it was not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.experiments.validation.records import ERROR, INVALID, NO_PLAN, OPTIMAL, SUBOPTIMAL
from planner.results.optimality_loss import spread


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


def worst(records: Sequence[Mapping[str, Any]], method: str, most: int) -> list[Mapping[str, Any]]:
    """The records of the instances on which a method lost most, no instance twice, the worst first."""
    lost: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for record in records:
        row = record["rows"][method]
        if row["outcome"] == SUBOPTIMAL and row["loss"] is not None:
            lost.setdefault((record["same_as"],), record)
    return sorted(lost.values(), key=lambda each: (-each["rows"][method]["loss"], each["number"]))[:most]


def reasons(records: Iterable[Mapping[str, Any]], method: str) -> list[tuple[str, int, int]]:
    """Why a method has no plan, or failed after one: the reason, how often, and the number of the first instance."""
    counts: Counter[str] = Counter()
    first: dict[str, int] = {}
    for record in records:
        reason = record["rows"][method]["reason"]
        if reason and record["rows"][method]["outcome"] != "infeasible":
            counts[reason] += 1
            first.setdefault(reason, record["number"])
    return [(reason, count, first[reason]) for reason, count in counts.most_common()]


def flat(records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for every instance and method, as the table on disk has them."""
    for record in records:
        shared = {name: record[name] for name in COLUMNS if name in record}
        for method, row in record["rows"].items():
            yield {**shared, "method": method, **row}


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
