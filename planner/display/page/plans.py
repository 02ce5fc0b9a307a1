"""The plans of an instance's methods, each distinct one once, with their charts: what the page's explorer switches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from formulations.figures.plan_figures import Breakdown
from planner.display.page.chart import Columns
from planner.display.page.drawn import charts, highest
from planner.files.load import family_of
from planner.files.write import plain
from planner.results.optimality_loss import shown
from planner.results.result import Result
from planner.solving.compare import Report


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
            f"{methods}: {value}" if first.loss is None else f"{methods}: {value}, {shown(first.loss, self.is_proved)}"
        )


def distinct(instance: Any, report: Report) -> list[Plan]:
    """Distinct plans, the best first and of equal ones the quickest (`Material.best`)."""
    together: dict[str, list[Result]] = {}
    found = [result for result in report.results if result.plan is not None and result.objective is not None]
    for result in sorted(found, key=lambda result: (result.objective or 0.0, result.seconds)):
        together.setdefault(json.dumps(plain(result.plan), sort_keys=True), []).append(result)
    is_proved = report.optimum is not None
    return [Plan(tuple(results), _figures(instance, results[0]), is_proved) for results in together.values()]


def _figures(instance: Any, result: Result) -> Breakdown | None:
    family = family_of(instance)
    return (
        None if family.breakdown is None else family.breakdown(instance, family.plan_from_json(instance, result.plan))
    )


def explored(found: list[Plan], columns: Columns) -> Iterator[dict[str, Any]]:
    """The plans as the page's script reads them."""
    most = highest([plan.figures for plan in found if plan.figures is not None])
    for plan in found:
        if plan.figures is not None and (drawn := list(charts(plan.figures, most))):
            yield {"label": plan.label, "charts": [columns.of(chart) for chart in drawn]}
