"""The tables of the page: cells of the methods, and the parts of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.losses import shown
from planner.result import Result
from planner.show.tables import brief, is_rows, named, number, percent, together, unfolded
from solvers.outcome import Stop

#: The columns of the methods' table; a narrow page shows the first ones first.
COLUMNS = (
    *("method", "loss", "own gap", "objective", "bound"),
    *("claim", "status", "stop", "proved by", "seconds", "solver"),
)


@dataclass(frozen=True)
class Cell:
    """What a table shows, and the text it is sorted by (empty: absent)."""

    text: str
    value: str


def cells(result: Result, is_proved: bool) -> list[Cell]:
    """A method's row, a cell for each of `COLUMNS`."""
    whose = str(result.proved_by) if result.proved_by and result.stop is Stop.PROVED else ""
    figures = [
        (shown(result.loss, is_proved), result.loss),
        (percent(result.gap), result.gap),
        *((number(value), value) for value in (result.objective, result.bound)),
        *((word, word) for word in (result.claim, result.status.value, result.stop.value, whose)),
        (f"{result.seconds:.4g}", result.seconds),
        (result.solver, result.solver),
    ]
    return [Cell(result.method, result.method), *(Cell(text, _sortable(value)) for text, value in figures)]


def _sortable(value: float | str | None) -> str:
    """What a column is sorted by."""
    return "" if value is None else value if isinstance(value, str) else repr(value)


def parts(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a plan as tables or lines; a plan in phases has parts of parts."""
    for name, part in plan.items():
        if isinstance(part, Mapping) and any(isinstance(value, list) for value in part.values()):
            yield from parts({f"{name}, {inner}": value for inner, value in part.items()})
        else:
            yield _part(name, part)


def _part(name: str, part: Any) -> dict[str, Any]:
    """A part of a plan: lists of objects with equal keys as a table, anything else as a line."""
    if isinstance(part, Sequence) and part and all(isinstance(row, Mapping) for row in part):
        columns, rows = unfolded(part)
        return {"name": name, "columns": columns, "rows": rows}
    if is_rows(part):
        return {"name": name, "columns": ["#", ""], "rows": [[str(i), brief(row)] for i, row in enumerate(part)]}
    return {"name": name, "rows": [], "text": brief(part)}


def by_stage(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of stages as a table, equal neighbours in one row."""
    names = list(rows[0])
    found = together([[named(name, row[name], 6) for name in names] for row in rows])
    return {
        "name": "by stage",
        "columns": ["#", *(name.removesuffix("_bytes") for name in names)],
        "rows": [[position, *figures] for position, figures in found],
    }
