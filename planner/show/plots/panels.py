"""What to draw of a plan: a panel for each picture that its family makes of it (`formulations.breakdown`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from formulations.breakdown import Bars, Devices, Passes, Picture, Stages, Tiles
from planner.inputs.loading import family_of
from planner.show.plots.charts import bars
from planner.show.plots.networks import graph, mapping, tiling
from planner.show.plots.panel import Panel
from planner.show.plots.schedules import gantt


def panels(instance: Any, plan: Any) -> list[Panel]:
    """The pictures of a plan (a family's plan object); empty for families that have none."""
    breakdown = family_of(instance).breakdown
    return [] if breakdown is None else [_panel(picture) for picture in breakdown(instance, plan).pictures]


def _panel(picture: Picture) -> Panel:
    draw = _DRAWN[type(picture)]
    return Panel(picture.title, lambda axes: draw(axes, picture))


_DRAWN: dict[type, Callable[[Any, Any], Any]] = {
    Bars: lambda axes, found: bars(axes, found.labels, found.values, found.ylabel, found.limit, found.xlabel),
    Stages: lambda axes, found: graph(axes, found.edges, found.names),
    Devices: lambda axes, found: mapping(axes, found.devices, found.bandwidth_bytes_per_s),
    Passes: lambda axes, found: gantt(axes, [task[:5] for task in found.tasks], len(found.stages)),
    Tiles: lambda axes, found: tiling(axes, found.rows, found.columns, [vars(tile) for tile in found.tiles]),
}
