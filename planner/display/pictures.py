"""`--plot FILE`: pictures of plans with matplotlib, or the family's own SVG where that is all there is."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from formulations import FAMILIES
from formulations.figures.plan_figures import Picture
from planner.display.headlines import percent
from planner.display.plots.charts import LINES_SAY, gap_over_time, losses
from planner.display.plots.files import require, save
from planner.display.plots.panel import Panel
from planner.display.plots.panels import panels, panels_of
from planner.files.load import family_of
from planner.files.write import write_atomically
from planner.process.errors import UsageError
from planner.results.events import Event
from planner.solving.compare import Report
from solvers.outcome import OPTIMAL_GAP


def refuse_undrawable(instance: Any, path: str) -> None:
    """`UsageError` if plans of the instance cannot be drawn to such a file: before any work is done."""
    family = family_of(instance)
    if family.breakdown is None and family.picture is None:
        known = sorted(family.name for family in FAMILIES if family.breakdown or family.picture)
        raise UsageError.at("--plot", path, f"a problem whose plans are drawn ({', '.join(known)})")
    if not _own_picture(instance, path):
        require(path)


def draw(path: str, instance: Any, plan: Mapping[str, Any], *before: Picture) -> None:
    """Write the picture of a plan, in the family's JSON form, to a file; other pictures stand ``before`` it."""
    family = family_of(instance)
    decoded = family.plan_from_json(instance, plan)
    if family.picture is not None and _own_picture(instance, path):
        write_atomically(path, family.picture(instance, decoded), "--plot")
    else:
        first = [panel for picture in before for panel in panels_of(picture)]
        save([*first, *panels(instance, decoded)], path, instance.name)


def draw_comparison(path: str, instance: Any, report: Report, events: Sequence[Event]) -> None:
    """Write the losses of the methods, and gap over time, a line for each method, to a file."""
    unit = family_of(instance).unit(instance)
    over_time = Panel("Incumbents and bounds", lambda axes: gap_over_time(axes, events, unit), LINES_SAY)
    save([losses_of(report), over_time], path, instance.name)


def losses_of(report: Report) -> Panel:
    """The losses of the methods, as a picture."""
    found = [(result.method, result.loss) for result in report.results]
    reference = "best bound" if report.optimum is None else "optimum"
    known = [loss for _, loss in found if loss is not None]
    best = sum(1 for loss in known if loss <= OPTIMAL_GAP)
    says = f"{best} of {len(found)} methods find the {reference}" + (
        f"; the worst loses {percent(max(known))}" if known and max(known) > OPTIMAL_GAP else ""
    )
    title = f"Loss of every method to the proved {reference}"
    height = max(1.6, 0.7 + 0.28 * len(found))
    return Panel(title, lambda axes: losses(axes, found, reference), says, False, height)


def _own_picture(instance: Any, path: str) -> bool:
    """Whether the family draws this itself: SVG, where nothing better is known or matplotlib is missing."""
    family = family_of(instance)
    better = family.breakdown is not None and importlib.util.find_spec("matplotlib") is not None
    return family.picture is not None and not better and Path(path).suffix.lower() == ".svg"
