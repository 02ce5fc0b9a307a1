"""The plans of an instance's methods, each distinct one once, with their charts: what the page's explorer switches."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from formulations.contract.figures.plan_figures import Breakdown
from planner.display.plots.chart import Chart, Row, cell
from planner.display.plots.panels import charts, highest
from planner.display.terminal import printable
from planner.files.load import family_of
from planner.files.write import plain
from planner.results.result import Result
from planner.results.texts import format_loss
from planner.solving.compare import Report


@dataclass
class Columns:
    """The columns of all charts, each kept once: plans of one instance share most of them."""

    kept: list[Sequence[Any] | dict[str, Sequence[Any]]] = field(default_factory=list)
    _places: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def of(self, chart: Chart) -> dict[str, Any]:
        """The chart as the page's script reads it."""
        return {
            "title": printable(chart.title),
            "text": printable(chart.text),
            "spec": chart.spec,
            "data": {name: self._split(rows) for name, rows in chart.datasets.items()},
            "top": chart.top,
            "details": chart.details,
            "unit": chart.unit,
            "key": [[printable(name), pattern, share] for name, pattern, share in chart.key],
            "canvas": chart.is_large,
        }

    def _split(self, rows: Sequence[Row]) -> dict[str, int]:
        names = rows[0] if rows else ()
        return {name: self._place(tuple(cell(row[name]) for row in rows)) for name in names}

    def _place(self, column: tuple[Any, ...]) -> int:
        key = tuple((type(value), value) for value in column)
        if key not in self._places:
            self._places[key] = len(self.kept)
            self.kept.append(_compress(column))
        return self._places[key]


def _compress(column: Sequence[Any]) -> Sequence[Any] | dict[str, Sequence[Any]]:
    """A column, or where texts come again and again its distinct values and their places.

    >>> _compress(["stage 0"] * 3), _compress(["a", "b"])
    ({'of': ['stage 0'], 'at': [0, 0, 0]}, ['a', 'b'])
    """
    if 2 * len(set(column)) >= len(column) or not any(isinstance(value, str) for value in column):
        return column
    places = {value: place for place, value in enumerate(dict.fromkeys(column))}
    return {"of": list(places), "at": [places[value] for value in column]}


@dataclass(frozen=True)
class Plan:
    """One plan: who found it, its figures (``None``: its family has none), and whether losses are to an optimum."""

    results: tuple[Result, ...]
    figures: Breakdown | None
    is_proved: bool

    @property
    def label(self) -> str:
        """The methods that found it, its objective and its loss."""
        first = self.results[0]
        value = f"{first.objective:.6g} {first.unit}".rstrip()
        methods = ", ".join(result.method for result in self.results)
        return (
            f"{methods}: {value}"
            if first.loss is None
            else f"{methods}: {value}, {format_loss(first.loss, self.is_proved)}"
        )


def distinct(instance: Any, report: Report) -> list[Plan]:
    """Distinct plans, the best first and of equal ones the quickest (`Material.best`)."""
    together: dict[str, list[Result]] = {}
    found = [result for result in report.results if result.plan is not None and result.objective is not None]
    for result in sorted(found, key=lambda result: (result.objective or 0.0, result.seconds)):
        together.setdefault(json.dumps(plain(result.plan), sort_keys=True), []).append(result)
    is_proved = report.optimum is not None
    breakdown = family_of(instance).breakdown
    figures = [None if breakdown is None else breakdown(instance, own[0].own_plan) for own in together.values()]
    return [Plan(tuple(own), each, is_proved) for own, each in zip(together.values(), figures, strict=True)]


def plans_for_page(found: list[Plan], columns: Columns) -> Iterator[dict[str, Any]]:
    """The plans as the page's script reads them."""
    most = highest([plan.figures for plan in found if plan.figures is not None])
    for plan in found:
        if plan.figures is not None and (drawn := list(charts(plan.figures, most))):
            yield {"label": plan.label, "charts": [columns.of(chart) for chart in drawn]}
