"""What notebooks show of results, plans, comparisons, models and instances: tables, and pictures as in files and pages.

IPython asks this module; the classes know nothing of pictures. Importing `planner` in a notebook registers it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from planner.display.plots.files import can_draw
from planner.results.result import html_table, summary

if TYPE_CHECKING:
    from planner.analysis.compare_models import Formulations
    from planner.analysis.difference import Difference
    from planner.display.plots.chart import Chart
    from planner.results.check import Verdict
    from planner.results.result import Result
    from planner.solving.compare import Report

#: Pixels of a picture in a notebook.
_WIDTH = 960


def register(shell: Any) -> None:
    """Let a running IPython show results, comparisons, models and instances so, from the first one of each on."""
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.for_type_by_name("planner.results.result", "Result", of_result)
    formatter.for_type_by_name("planner.solving.compare", "Report", of_report)
    formatter.for_type_by_name("planner.analysis.difference", "Difference", of_difference)
    formatter.for_type_by_name("planner.results.check", "Verdict", of_verdict)
    formatter.for_type_by_name("planner.analysis.compare_models", "Formulations", of_formulations)
    formatter.for_type_by_name("instances.rules", "Declared", of_instance)


def of_result(result: Result) -> str:
    """A row, and the plan's pictures: without its instance or vl-convert the plan as a table."""
    return html_table([summary(result)]) + (_pictures(result) or html_table(result.to_records()))


def of_report(report: Report) -> str:
    """A row for each method, the contradictions, losses as bars, and the best plan's pictures."""
    html = report._repr_html_()
    found = [result for result in report.results if result.objective is not None]
    if found and can_draw():
        from planner.display.plots.methods import losses_of

        if any(result.loss is not None for result in found):
            html += _image([losses_of(report)], _WIDTH // 2)
        html += _pictures(min(found, key=lambda result: (result.objective, result.seconds)))
    return html


def of_difference(found: Difference) -> str:
    """A row for each plan, both as strips and what their stages cost; without stages or vl-convert what differs."""
    from planner.display.differences import has_stages, panels, plan_rows

    html = html_table(plan_rows(found))
    if found.plans is not None and can_draw() and has_stages(found):
        return html + _image(panels(found), _WIDTH)
    return html + html_table([vars(row) for row in found.decisions if row.differs])


def of_verdict(found: Verdict) -> str:
    """What the definition says of a plan, and the pictures of one that breaks no rule."""
    said = {"instance": found.instance, "objective": found.objective, "unit": found.unit}
    html = html_table([said]) + html_table(
        [{"rule": each.rule, "breaks it": each.message} for each in found.violations]
    )
    if found.violations or found.plan is None or not can_draw():
        return html
    return html + _draw(found.of, found.plan)


def of_formulations(found: Formulations) -> str:
    """What a terminal shows of them, root bounds as bars, and gaps over time."""
    from planner.display.models import panels_of_formulations

    html = html_table(found.cells())
    return html + (_image(panels_of_formulations(found), _WIDTH) if can_draw() else "")


def of_instance(instance: Any) -> str:
    """What an instance is, as a table."""
    from planner.files.load import family_of
    from planner.files.write import plain

    family = family_of(instance)
    return html_table([{"instance": instance.name, "problem": family.name, **plain(family.describe(instance))}])


def _pictures(result: Result) -> str:
    """The pictures of a result's plan; empty without a plan, its instance, or vl-convert."""
    if result.plan is None or result.of is None or not can_draw():
        return ""
    return _draw(result.of, result.plan)


def _draw(instance: Any, plan: Any) -> str:
    """The pictures of a plan; empty for families that have none."""
    from planner.display.plots.panels import panels

    drawn = panels(instance, plan)
    return _image(drawn, _WIDTH) if drawn else ""


def _image(drawn: Sequence[Chart], width: int) -> str:
    from planner.display.plots.files import Sheet

    sheet = Sheet(drawn, width=width)
    content = base64.b64encode(sheet.png()).decode()
    style = f"max-width: 100%; width: {width}px"
    return f'<img alt="{escape(str(sheet))}" style="{style}" src="data:image/png;base64,{content}">'
