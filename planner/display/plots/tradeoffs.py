"""Time against memory, and sweeps over two settings."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from formulations.contract.figures.plan_figures import Heat, Options, Tradeoff
from planner.display.headlines import headline
from planner.display.plots.chart import SVG_ROWS, Chart, Row
from planner.display.plots.marks import (
    Encoding,
    frames,
    layer,
    mark,
    nominal,
    over_lines,
    ramp_key,
    tooltip,
    when,
    x_of,
)
from planner.results.texts import short_amount, unit_for

_HEIGHT = 260
#: More nodes than this are not drawn one by one, except those for which the plans differ.
_NODES = 200
#: A table with more rows or columns is drawn with some of them.
_CELLS = 48
#: Values stand in the cells of tables with so many columns at most.
_WRITTEN = 6
#: The marks of options by who chose them.
_CHOOSERS: dict[str, tuple[str, str]] = {
    "both": ("circle", "@line"),
    "plan": ("square", "@line"),
    "heuristic": ("triangle-up", "@alarm"),
}
#: Isolines, as multiples of the least.
_LEVELS = (1.1, 1.5, 2.0, 4.0)


def tradeoff(found: Tradeoff) -> list[Chart]:
    """Whole choices on the frontier of time and memory; then each node's options as a line, with the chosen ones."""
    return [_totals(found), *_options(found)]


def _totals(found: Tradeoff) -> Chart:
    measure = f"time, {found.unit}" if found.unit else "time"
    factor, unit = unit_for("bytes", found.capacity_bytes)
    most = max(found.capacity_bytes, *(total.memory_bytes for total in (*found.frontier, *found.totals)))
    together: dict[tuple[float, float], list[str]] = {}
    for total in found.totals:
        together.setdefault((total.memory_bytes, total.time), []).append(total.name)
    points: list[Row] = [
        {
            "name": ", ".join(names),
            "memory": memory / factor,
            "time": time,
            "said": short_amount(memory, "bytes"),
            "is_first": place == 0,
            "is_left": memory > 0.6 * most,
        }
        for place, ((memory, time), names) in enumerate(together.items())
    ]
    frontier: list[Row] = [
        {"memory": total.memory_bytes / factor, "time": total.time, "said": short_amount(total.memory_bytes, "bytes")}
        for total in found.frontier
    ]
    at = {
        "x": x_of("memory", title=f"memory, {unit}", scale={"zero": False, "padding": 30}),
        "y": x_of("time", title=measure, scale={"zero": False, "padding": 20}),
    }
    capacity: Encoding = {"datum": found.capacity_bytes / factor, "type": "quantitative"}
    aside = {
        "align": {"expr": "datum.is_left ? 'right' : 'left'"},
        "dx": {"expr": "datum.is_left ? -9 : 9"},
        "dy": {"expr": "datum.is_left ? 14 : -9"},
    }
    layers = [
        layer(
            mark("line", color="@line", point={"color": "@line", "size": 14}),
            "frontier",
            **at,
            tooltip=tooltip({"said": "memory", "time": "time"}),
        ),
        {**layer(mark("rule", color="@alarm", strokeWidth=2), x=capacity), "data": {"values": [{}]}},
        layer(
            mark("point", filled=True, size=110, opacity=1, stroke="@paper"),
            "totals",
            **at,
            color=when("datum.is_first", "@ink", "@alarm"),
            tooltip=tooltip({"name": "choice", "said": "memory", "time": "time"}),
        ),
        *over_lines({"limit": 160, **aside}, "totals", **at, text={"field": "name"}),
    ]
    spec = {"height": _HEIGHT, "layer": layers}
    title = f"{found.title} (line: the capacity of {short_amount(found.capacity_bytes, 'bytes')})"
    return Chart(title, headline(found), spec, {"totals": points, "frontier": frontier})


def _options(found: Tradeoff) -> list[Chart]:
    differing = [each for each in found.nodes if each.heuristic not in (None, each.chosen)]
    shown = found.nodes if len(found.nodes) <= _NODES else differing[:_NODES]
    if not shown:
        return []
    measure = f"time, {found.unit}" if found.unit else "time"
    factor, unit = unit_for("bytes", max(option.memory_bytes for each in shown for option in each.options))
    rows: list[Row] = [
        {
            "node": each.node,
            "option": option.id,
            "memory": option.memory_bytes / factor,
            "time": option.time,
            "said": short_amount(option.memory_bytes, "bytes"),
            "by": _chooser(each, place),
        }
        for each in shown
        for place, option in sorted(enumerate(each.options), key=lambda pair: pair[1].memory_bytes)
    ]
    counts = _counts(rows)
    choosers = [name for name in _CHOOSERS if any(row["by"] == name for row in rows)]
    at = {
        "x": x_of("memory", title=f"memory, {unit}", scale={"padding": 20, "nice": False}),
        "y": x_of("time", title=measure, scale={"zero": False, "padding": 20}),
    }
    by = nominal("by", title="chosen by", legend={"orient": "top"})
    hover = tooltip({"node": "node", "option": "option", "time": "time", "said": "memory", "by": "chosen by"})
    words = {"align": "left", "dx": 8, "dy": -8, "tooltip": None}
    layers = [
        layer(mark("line", color="@quiet", strokeWidth=1, opacity=0.6), **at, detail={"field": "node"}),
        layer(mark("point", filled=False, color="@quiet", size=20), None, "datum.by === 'none'", **at, tooltip=hover),
        *(over_lines(words, "counts", **at, text={"field": "said"}) if counts else ()),
        layer(
            mark("point", filled=True, opacity=1, size=70, stroke="@paper"),
            None,
            "datum.by !== 'none'",
            **at,
            shape=_by_chooser(by, choosers, 0),
            color=_by_chooser(by, choosers, 1),
            tooltip=hover,
        ),
    ]
    spec = {"data": {"name": "options"}, "height": _HEIGHT, "layer": layers}
    left = "" if len(shown) == len(found.nodes) else f" ({len(shown)} of {len(found.nodes)})"
    text = f"the heuristic chooses otherwise for {len(differing)} of {len(found.nodes)} nodes"
    return [Chart(f"The options of each node{left}", text, spec, {"options": rows, "counts": counts})]


def _by_chooser(by: Mapping[str, Any], choosers: Sequence[str], which: int) -> dict[str, Any]:
    """The encoding of those who chose options, by the marks (0) or colours (1) of `_CHOOSERS`."""
    return {**by, "scale": {"domain": choosers, "range": [_CHOOSERS[each][which] for each in choosers]}}


def _chooser(node: Options, place: int) -> str:
    """Who chose the option at this place: one of `_CHOOSERS`, or "none"."""
    if node.heuristic is None:
        return "plan" if node.chosen == place else "none"
    if node.chosen == place:
        return "both" if node.heuristic == place else "plan"
    return "heuristic" if node.heuristic == place else "none"


def _counts(rows: Sequence[Row]) -> list[Row]:
    """How many nodes chose options of the same time and memory, which lie on each other, where several did."""
    chosen = Counter((row["memory"], row["time"]) for row in rows if row["by"] != "none")
    return [
        {"memory": memory, "time": time, "said": f"{count} nodes"}
        for (memory, time), count in chosen.items()
        if count > 1
    ]


def _sample_places(count: int, *marked: int) -> list[int]:
    """So many rows or columns as can be seen: all, or some at equal distances, with the last and the marked ones."""
    step = -(-count // _CELLS)
    return sorted({*range(step - 1, count, step), *marked, count - 1}) if count else []


def _setting(value: float, unit: str) -> float | str:
    return short_amount(value, unit) if unit else value


def heat(found: Heat) -> list[Chart]:
    """A cell for each pair of settings, the least and one's own with a frame; cells without a value are hatched.

    Lines run between cells of less and of more than 1.1, 1.5, 2 and 4 times the least.
    """
    marked = [each for each in (found.best, found.here) if each is not None]
    down = _sample_places(len(found.ys), *(row for row, _ in marked))
    across = _sample_places(len(found.xs), *(column for _, column in marked))
    factor, unit = unit_for(found.unit, min((v for values in found.values for v in values if v), default=0.0))
    measure = f"{found.measure}, {unit}" if unit else found.measure
    xs = [_setting(each, found.xunit) for each in found.xs]
    ys = [_setting(each, found.yunit) for each in found.ys]
    rows: list[Row] = [
        {
            "x": xs[column],
            "y": ys[row],
            "value": None if (value := found.values[row][column]) is None else value / factor,
            "said": found.empty if value is None else short_amount(value, found.unit),
            "frame": "best" if found.best == (row, column) else "here" if found.here == (row, column) else "",
        }
        for row in down
        for column in across
    ]
    is_hatched = len(rows) <= SVG_ROWS  # on a canvas there are no patterns
    empty = "@hatching" if is_hatched else "@faint"
    overlap = {"labelAngle": 0, "labelOverlap": True}
    order = {"x": [xs[column] for column in across], "y": [ys[row] for row in reversed(down)]}
    box = {
        name: {"field": name, "type": "ordinal", "title": title, "sort": order[name], "axis": overlap}
        for name, title in (("x", found.xlabel), ("y", found.ylabel))
    }
    hover = tooltip({"x": found.xlabel, "y": found.ylabel, "said": found.measure})
    known = [row["value"] for row in rows if row["value"] is not None]
    framed = (("best", "@alarm"), ("here", "@ink"))
    words = () if len(across) > _WRITTEN else over_lines({"tooltip": None}, "cells", **box, text={"field": "said"})
    spec: dict[str, Any] = {
        "height": int(min(320, max(120, 30 * len(down)))),
        "layer": [
            layer(
                mark("rect", stroke="@paper", strokeWidth=0.5),
                "cells",
                "datum.value !== null",
                **box,
                color=_value_colour(measure, known),
                tooltip=hover,
            ),
            layer(mark("rect", fill=empty), "cells", "datum.value === null", **box, tooltip=hover),
            *_isolines(box, is_named=not words),
            *words,
            *(each for own, colour in framed for each in frames(colour, "cells", f"datum.frame === '{own}'", **box)),
        ],
    }
    key = [
        *([("frame: the least", "@alarm", 1.0)] if found.best is not None else []),
        *([("frame: here", "@ink", 1.0)] if found.here not in (None, found.best) else []),
    ]
    if len(known) < len(rows):
        key.append((found.empty, "hatch-1", 0.0) if is_hatched else (found.empty, "@faint", 1.0))
    some = "" if len(down) == len(found.ys) and len(across) == len(found.xs) else " (some of its rows and columns)"
    lines = _levels(found, down, across, xs, ys)
    return [Chart(f"{found.title}{some}", headline(found), spec, {"cells": rows, "lines": lines}, key=tuple(key))]


def _value_colour(measure: str, known: Sequence[float]) -> Encoding:
    """The colour of a value: the less, the stronger."""
    is_log = bool(known) and max(known) > 4 * min(known) > 0
    scale = {"type": "log" if is_log else "linear", "range": ["@line", "@ramp3"], "interpolate": "rgb"}
    from_least = {} if is_log else {"zero": False}
    return x_of("value", title=measure, scale={**scale, **from_least}, legend=ramp_key(known))


def _levels(found: Heat, down: Sequence[int], across: Sequence[int], xs: Sequence[Any], ys: Sequence[Any]) -> list[Row]:
    """Sides of cells between less and more than each level; the topmost upright one of a level has its value."""
    known = [value for row in down for column in across if (value := found.values[row][column]) is not None]
    rows: list[Row] = []
    for level in (times * min(known, default=0.0) for times in _LEVELS):
        own: list[dict[str, Any]] = []
        for lower, row in zip((None, *down), down, strict=False):
            for before, column in zip((None, *across), across, strict=False):
                here = found.values[row][column]
                for other, side in ((before, "left"), (lower, "below")):
                    if other is None or here is None:
                        continue
                    beside = found.values[row][other] if side == "left" else found.values[other][column]
                    if beside is not None and (here < level) != (beside < level):
                        own.append({"x": xs[column], "y": ys[row], "side": side, "said": "", "is_right": False})
        upright = [each for each in own if each["side"] == "left"]
        free = [each for each in reversed(upright) if not any(row["said"] and row["y"] == each["y"] for row in rows)]
        for each in free[:1]:
            each["said"] = short_amount(level, found.unit)
            each["is_right"] = list(xs).index(each["x"]) > 0.75 * len(xs)
        rows += own
    return rows


def _isolines(box: Encoding, *, is_named: bool) -> Iterator[Encoding]:
    """Levels as lines along cells, with their values in the middle of a cell's side."""
    x, y = box["x"], box["y"]
    left, below, far = {**x, "bandPosition": 0}, {**y, "bandPosition": 1}, {"bandPosition": 1}
    rule = mark("rule", stroke="@ink", strokeWidth=1.2, tooltip=None)
    upright = {"y": {**y, "bandPosition": 0}, "y2": {"field": "y", **far}}
    yield layer(rule, "lines", "datum.side === 'left'", x=left, **upright)
    yield layer(rule, "lines", "datum.side === 'below'", y=below, x=left, x2={"field": "x", **far})
    for side, where in (("false", {"align": "left", "dx": 3}), ("true", {"align": "right", "dx": -3})):
        is_there, look = f"datum.said !== '' && datum.is_right === {side}", {"fontSize": 11, "tooltip": None, **where}
        yield from over_lines(look, "lines", is_there, x=left, y=y, text={"field": "said"}) if is_named else ()
