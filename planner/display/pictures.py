"""`--plot FILE`: pictures of plans."""

from collections.abc import Mapping, Sequence
from typing import Any

import formulations
from formulations.contract.figures.plan_figures import Picture
from planner.display.plots.files import require_drawable, save
from planner.display.plots.methods import losses_of, over_time
from planner.display.plots.panels import panels, panels_of
from planner.files.load import family_of
from planner.process.errors import UsageError
from planner.results.events import Event
from planner.solving.compare import Report


def refuse_undrawable(instance: Any, path: str) -> None:
    """`UsageError` if plans of the instance cannot be drawn to such a file: before any work is done."""
    family = family_of(instance)
    if family.breakdown is None:
        known = sorted(family.name for family in formulations.FAMILIES if family.breakdown)
        raise UsageError.at("--plot", path, f"a problem whose plans are drawn ({', '.join(known)})")
    require_drawable(path)


def draw(path: str, instance: Any, plan: Mapping[str, Any], *before: Picture) -> None:
    """Write the picture of a plan, in the family's JSON form, to a file; other pictures stand ``before`` it."""
    family = family_of(instance)
    decoded = family.plan_from_json(instance, plan)
    first = [chart for picture in before for chart in panels_of(picture)]
    save([*first, *panels(instance, decoded)], path, instance.name)


def draw_comparison(path: str, instance: Any, report: Report, events: Sequence[Event]) -> None:
    """Write the losses of the methods, and what each of them knew when, to a file."""
    over = over_time(events, report)
    save([losses_of(report), *([] if over is None else [over])], path, instance.name)
