"""Which pass runs when: a Gantt chart, on a page with a zoom that keys can move."""

from collections.abc import Sequence
from typing import Any

from formulations.contract.figures.plan_figures import Passes, Task
from planner.display.headlines import headline, note
from planner.display.palette import SHARES
from planner.display.plots.chart import Chart, Row
from planner.display.plots.marks import (
    Encoding,
    layer,
    mark,
    nominal,
    short_name,
    span,
    stage_colour,
    stage_name,
    text_where,
    tooltip,
    when,
    x_of,
)
from planner.results.texts import unit_for

#: Pixels of a row where there are few, and where there are more.
_FEW, _ROW, _LOW = 12, 24, 16
#: More passes than this have no visible edges.
_EDGED = 800
#: The part of a row that a pass takes.
_THICK = {"band": 0.85}
#: The part of the time that the reader of a page looks at.
_ZOOMED = {
    "domainMin": {"expr": "place / 100 * whole * (1 - 1 / zoom)"},
    "domainMax": {"expr": "place / 100 * whole * (1 - 1 / zoom) + whole / zoom"},
    "nice": False,
    "zero": False,
}
#: At most so high, and so many passes.
_HIGHEST, _MOST = 560, 6000

#: What a pass of each kind is called.
_KINDS = {"F": "forward", "B": "backward", "W": "weight gradient"}


def end(found: Passes) -> float:
    """When the last pass that is drawn ends."""
    return max((task.end for task in _first(found)), default=0.0) or 1.0


def _first(found: Passes) -> list[Task]:
    return sorted(found.tasks, key=lambda task: task.start)[:_MOST]


def _rows(found: Passes, tasks: Sequence[Task]) -> dict[tuple[int, int], str]:
    """The rows of passes from the top: by stage and replica what they are called, replicas only where there are any."""
    places = sorted({(task.stage, task.replica) for task in tasks})
    replicated = {stage for stage, replica in places if replica}
    labels = [short_name(stage) for stage in found.stages]
    return {(s, r): f"{labels[s]} ({r})" if s in replicated else labels[s] for s, r in places}


def passes(found: Passes, most: float = 0.0) -> list[Chart]:
    """A row for each stage: backward passes full, forward passes paler, with the numbers of their micro-batches."""
    shown, last = _first(found), end(found)
    factor, unit = unit_for(found.unit, max(most, last))
    whole, names = last / factor, _rows(found, shown)
    rows: list[Row] = [
        {
            "row": names[task.stage, task.replica],
            "stage": task.stage,
            "stage_name": stage_name(found.stages[task.stage]),
            "kind": _KINDS.get(task.kind, task.kind),
            "microbatch": task.microbatch,
            "start": task.start / factor,
            "end": task.end / factor,
        }
        for task in shown
    ]
    order = list(names.values())
    x = x_of("start", title=f"time, {unit}", scale=_ZOOMED)
    titles = {"stage_name": "stage", "kind": "pass", "microbatch": "micro-batch"}
    bars = layer(
        mark("bar", clip=True, stroke="@quiet" if len(rows) <= _EDGED else "@paper", strokeWidth=0.4, height=_THICK),
        **span("x", x, "start", "end"),
        color=stage_colour(found.stages),
        fillOpacity=when("datum.kind === 'forward'", SHARES[1], 1),
        tooltip=tooltip({**titles, "start": f"from, {unit}", "end": f"to, {unit}"}),
    )
    axis = {"labelOverlap": True, "ticks": False}
    spec: dict[str, Any] = {
        "height": min((_ROW if len(order) <= _FEW else _LOW) * max(1, len(order)), _HIGHEST),
        "params": [{"name": "whole", "value": "@top"}, _slider("zoom", 1, 60), _slider("place", 0, 100)],
        "data": {"name": "tasks"},
        "encoding": {"y": nominal("row", sort=order, title="stage", axis=axis)},
        "resolve": {"scale": {"color": "independent"}},
        "layer": [
            bars,
            _numbers("backward", x, stage_colour(found.stages, "@on_stage", "@ink")),
            _numbers("forward", x, stage_colour(found.stages, "@on_pale_stage", "@ink")),
        ],
    }
    cut = "" if len(shown) == len(found.tasks) else f"; the first {_MOST:,} of {len(found.tasks):,} passes"
    title = f"{found.title}{cut} (forward passes are pale, backward passes full)"
    said_of_it = ". ".join(filter(None, (headline(found), note(found))))
    return [Chart(title, said_of_it, spec, {"tasks": rows}, top=whole, unit=unit, is_wide=True)]


def _slider(name: str, least: int, most: int) -> dict[str, Any]:
    """What the reader of a page sets, the least at first."""
    bind = {"input": "range", "min": least, "max": most, "step": 1, "name": name.capitalize()}
    return {"name": name, "value": least, "bind": bind}


def _numbers(kind: str, x: Encoding, colour: Encoding) -> Encoding:
    """The numbers of micro-batches in the passes of one kind, where these are wide enough."""
    is_wide = (
        "(min(datum.end, whole) - datum.start) / whole * zoom * width > 16"
        " && (datum.middle / whole * zoom - place / 100 * (zoom - 1)) * width > 8"
    )
    made = layer(
        mark("text", clip=True, fontSize=10, tooltip=None),
        None,
        f"datum.kind === '{kind}'",
        x={**x, "field": "middle"},
        color=colour,
        text=text_where(is_wide, "microbatch"),
    )
    made["transform"].append({"calculate": "(datum.start + datum.end) / 2", "as": "middle"})
    return made
