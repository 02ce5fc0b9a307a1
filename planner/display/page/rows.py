"""The tables of the page: cells of the methods, and the parts of a plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from formulations.contract.figures.plan_figures import Breakdown
from planner.display.tables import is_rows, table_of_objects
from planner.results.result import Result
from planner.results.sentences import stage_rows, without_empty
from planner.results.texts import brief, format_loss, number, percent
from solvers.outcome import OPTIMAL_GAP, Status, Stop

#: The columns of the methods' table; a narrow page shows the first ones first.
COLUMNS = (
    *("method", "loss", "gap", "objective", "bound"),
    *("claim", "status", "stop", "proved by", "seconds", "solver"),
)


#: Longer lists of numbers are shown by their ends.
_LISTED = 64


@dataclass(frozen=True)
class Cell:
    """What a table shows, and the text it is sorted by (empty: absent)."""

    text: str
    value: str


def cells(result: Result, is_proved: bool) -> list[Cell]:
    """A method's row, a cell for each of `COLUMNS`."""
    whose = str(result.proved_by) if result.proved_by and result.stop is Stop.PROVED else ""
    figures = [
        (format_loss(result.loss, is_proved), result.loss),
        (percent(result.gap), result.gap),
        *((number(value), value) for value in (result.objective, result.bound)),
        *((word, word) for word in (result.claim, _status(result, is_proved), result.stop.value, whose)),
        (f"{result.seconds:.4g}", result.seconds),
        (result.solver, result.solver),
    ]
    return [Cell(result.method, result.method), *(Cell(text, _sortable(value)) for text, value in figures)]


def _status(result: Result, is_proved: bool) -> str:
    """What is known of the plan, in the words of its loss: one is optimal whichever method proved it."""
    is_optimal = is_proved and result.loss is not None and result.loss <= OPTIMAL_GAP
    return Status.OPTIMAL.value if is_optimal else result.status.value


def _sortable(value: float | str | None) -> str:
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
        columns, rows = table_of_objects(part)
        return {"name": name, "columns": columns, "rows": rows}
    if is_rows(part):
        return {"name": name, "columns": ["#", ""], "rows": [[str(i), brief(row)] for i, row in enumerate(part)]}
    return {"name": name, "rows": [], "text": _one_line(part)}


def _one_line(part: Any) -> str:
    """A part of a plan on a line: a page has room for longer lists of numbers than a terminal.

    >>> _one_line([4, 3, 3, 5, 4, 4, 3]), _one_line([1] * 8), _one_line(list(range(16))), _one_line(["a"])
    ('4, 3, 3, 5, 4, 4, 3', '8 x 1', '0 .. 15 (16)', 'a')
    """
    if not isinstance(part, Sequence) or isinstance(part, str) or not all(type(each) is int for each in part):
        return brief(part)
    if len(part) > 2 and len(set(part)) == 1:
        return f"{len(part)} x {part[0]}"
    is_run = len(part) > 2 and list(part) == list(range(part[0], part[0] + len(part)))
    return brief(part) if is_run or len(part) > _LISTED else ", ".join(map(str, part))


def by_row(best: Result, found: Breakdown) -> dict[str, Any]:
    """The stages of a plan, or whatever its figures are of, as a table, equal neighbours in one row."""
    rows = without_empty(stage_rows(best, found))
    return {"name": f"by {found.row}", "columns": list(rows[0]), "rows": [list(row.values()) for row in rows]}
