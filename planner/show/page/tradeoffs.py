"""Time against memory, and sweeps over two settings, for the page."""

from __future__ import annotations

from typing import Any

from formulations.breakdown import Heat, Tradeoff
from planner.show.headlines import amount, headline, scaled
from planner.show.page.chart import Chart, Row
from planner.show.page.marks import said

_HEIGHT = 260
#: More nodes than this are not drawn one by one, except those for which the plans differ.
_NODES = 200
#: A table with more rows or columns is drawn with some of them.
_CELLS = 48


def tradeoff(found: Tradeoff) -> list[Chart]:
    """Whole choices on the frontier of time and memory; then each node's options as a line, with the chosen ones."""
    return [_totals(found), *_options(found)]


def _totals(found: Tradeoff) -> Chart:
    measure = f"time, {found.unit}" if found.unit else "time"
    factor, unit = scaled("bytes", found.capacity_bytes)
    together: dict[tuple[float, float], list[str]] = {}
    for total in found.totals:
        together.setdefault((total.memory_bytes, total.time), []).append(total.name)
    points: list[Row] = [
        {
            "name": ", ".join(names),
            "memory": memory / factor,
            "time": time,
            "said": amount(memory, "bytes"),
            "is_first": place == 0,
        }
        for place, ((memory, time), names) in enumerate(together.items())
    ]
    frontier: list[Row] = [
        {"memory": total.memory_bytes / factor, "time": total.time, "said": amount(total.memory_bytes, "bytes")}
        for total in found.frontier
    ]
    x = {"field": "memory", "type": "quantitative", "title": f"memory, {unit}", "scale": {"zero": False, "padding": 30}}
    y = {"field": "time", "type": "quantitative", "title": measure, "scale": {"zero": False, "padding": 20}}
    spec = {
        "height": _HEIGHT,
        "layer": [
            {
                "data": {"name": "frontier"},
                "mark": {"type": "line", "color": "@line", "point": {"color": "@line", "size": 14}},
                "encoding": {"x": x, "y": y, "tooltip": said({"said": "memory", "time": "time"})},
            },
            {
                "mark": {"type": "rule", "color": "@alarm", "strokeWidth": 2},
                "data": {"values": [{}]},
                "encoding": {"x": {"datum": found.capacity_bytes / factor, "type": "quantitative"}},
            },
            {
                "data": {"name": "totals"},
                "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1, "stroke": "@paper"},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": {"condition": {"test": "datum.is_first", "value": "@ink"}, "value": "@alarm"},
                    "tooltip": said({"name": "choice", "said": "memory", "time": "time"}),
                },
            },
            {
                "data": {"name": "totals"},
                "mark": {"type": "text", "align": "right", "dx": -9, "dy": -9, "limit": 160},
                "encoding": {"x": x, "y": y, "text": {"field": "name"}},
            },
        ],
    }
    title = f"{found.title} (line: the capacity of {amount(found.capacity_bytes, 'bytes')})"
    return Chart(title, headline(found), spec, {"totals": points, "frontier": frontier})


def _options(found: Tradeoff) -> list[Chart]:
    differing = [each for each in found.nodes if each.heuristic not in (None, each.chosen)]
    shown = found.nodes if len(found.nodes) <= _NODES else differing[:_NODES]
    if not shown:
        return []
    measure = f"time, {found.unit}" if found.unit else "time"
    factor, unit = scaled("bytes", max(option.memory_bytes for each in shown for option in each.options))
    rows: list[Row] = [
        {
            "node": each.node,
            "option": option.id,
            "memory": option.memory_bytes / factor,
            "time": option.time,
            "said": amount(option.memory_bytes, "bytes"),
            "by": "both"
            if each.chosen == place and each.heuristic in (None, place)
            else "plan"
            if each.chosen == place
            else "heuristic"
            if each.heuristic == place
            else "none",
        }
        for each in shown
        for place, option in sorted(enumerate(each.options), key=lambda pair: pair[1].memory_bytes)
    ]
    x = {"field": "memory", "type": "quantitative", "title": f"memory, {unit}"}
    y = {"field": "time", "type": "quantitative", "title": measure, "scale": {"zero": False}}
    hover = said({"node": "node", "option": "option", "time": "time", "said": "memory", "by": "chosen by"})
    spec = {
        "data": {"name": "options"},
        "height": _HEIGHT,
        "layer": [
            {
                "mark": {"type": "line", "color": "@quiet", "strokeWidth": 1, "opacity": 0.6},
                "encoding": {"x": x, "y": y, "detail": {"field": "node"}},
            },
            {
                "transform": [{"filter": "datum.by === 'none'"}],
                "mark": {"type": "point", "filled": False, "color": "@quiet", "size": 20},
                "encoding": {"x": x, "y": y, "tooltip": hover},
            },
            {
                "transform": [{"filter": "datum.by !== 'none'"}],
                "mark": {"type": "point", "filled": True, "opacity": 1, "size": 70, "stroke": "@paper"},
                "encoding": {
                    "x": x,
                    "y": y,
                    "shape": {
                        "field": "by",
                        "type": "nominal",
                        "title": "chosen by",
                        "scale": {
                            "domain": ["both", "plan", "heuristic"],
                            "range": ["circle", "square", "triangle-up"],
                        },
                        "legend": {"orient": "top"},
                    },
                    "color": {"condition": {"test": "datum.by === 'heuristic'", "value": "@alarm"}, "value": "@line"},
                    "tooltip": hover,
                },
            },
        ],
    }
    left = "" if len(shown) == len(found.nodes) else f" ({len(shown)} of {len(found.nodes)})"
    text = f"the heuristic chooses otherwise for {len(differing)} of {len(found.nodes)} nodes"
    return [Chart(f"The options of each node{left}", text, spec, {"options": rows})]


def _kept(count: int, *marked: int) -> list[int]:
    """So many rows or columns as can be seen: all, or some at equal distances, with the last and the marked ones."""
    step = -(-count // _CELLS)
    return sorted({*range(step - 1, count, step), *marked, count - 1}) if count else []


def _setting(value: float, unit: str) -> float | str:
    return amount(value, unit) if unit else value


def heat(found: Heat) -> list[Chart]:
    """A cell for each pair of settings, the best one marked; cells without a plan are empty."""
    marked = [each for each in (found.best, found.here) if each is not None]
    down = _kept(len(found.ys), *(row for row, _ in marked))
    across = _kept(len(found.xs), *(column for _, column in marked))
    factor, unit = scaled(found.unit, min((v for values in found.values for v in values if v), default=0.0))
    measure = f"{found.measure}, {unit}" if unit else found.measure
    rows: list[Row] = [
        {
            "x": _setting(found.xs[column], found.xunit),
            "y": _setting(found.ys[row], found.yunit),
            "value": None if (value := found.values[row][column]) is None else value / factor,
            "said": found.empty if value is None else amount(value, found.unit),
            "is_best": found.best == (row, column),
            "is_here": found.here == (row, column),
        }
        for row in down
        for column in across
    ]
    thinned = {"labelOverlap": True}
    x_axis = {
        "field": "x",
        "type": "ordinal",
        "title": found.xlabel,
        "sort": [_setting(found.xs[column], found.xunit) for column in across],
        "axis": {"labelAngle": 0, **thinned},
    }
    ys = [_setting(found.ys[row], found.yunit) for row in reversed(down)]
    y_axis = {"field": "y", "type": "ordinal", "title": found.ylabel, "sort": ys, "axis": thinned}
    known = [row["value"] for row in rows if row["value"]]
    kind = "log" if known and max(known) > 20 * min(known) else "linear"
    spec: dict[str, Any] = {
        "data": {"name": "cells"},
        "height": int(min(320, max(80, 26 * len(down)))),
        "encoding": {"x": x_axis, "y": y_axis},
        "layer": [
            {
                "mark": {"type": "rect"},
                "encoding": {
                    "color": {
                        "field": "value",
                        "type": "quantitative",
                        "title": measure,
                        "scale": {"type": kind, "range": ["@line", "@paper"], "zero": False, "interpolate": "rgb"},
                        "legend": {"orient": "top", "gradientLength": 160},
                    },
                    "stroke": {
                        "condition": [
                            {"test": "datum.is_best", "value": "@alarm"},
                            {"test": "datum.is_here", "value": "@ink"},
                        ],
                        "value": "@paper",
                    },
                    "strokeWidth": {"condition": {"test": "datum.is_best || datum.is_here", "value": 3}, "value": 0.5},
                    "tooltip": said({"x": found.xlabel, "y": found.ylabel, "said": found.measure}),
                },
            }
        ],
    }
    some = "" if len(down) == len(found.ys) and len(across) == len(found.xs) else " (some of its rows and columns)"
    return [Chart(f"{found.title}{some}", headline(found), spec, {"cells": rows})]
