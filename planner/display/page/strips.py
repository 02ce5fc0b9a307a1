"""Layers in their stages, and stacked bars of stages, for the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from formulations.figures.plan_figures import Stack, Stage, Strip
from planner.display.headlines import amount, headline, scaled
from planner.display.page.chart import SVG_ROWS, Chart, Row
from planner.display.page.marks import figures, pixels, said, short_name, stage_colour, stage_name, x_of
from planner.display.page.theme import part_pattern
from planner.display.palette import PART_PATTERNS, SHARES, patterns, text_on
from planner.display.palette import stage_colour as colour_of

#: Pixels: above the strip, of the strip, of a plot of bars.
_ABOVE, _STRIP, _BARS = 22, 84, 200
#: More stages than this have no outline and no label.
_LABELLED = 80


def strip(found: Strip) -> list[Chart]:
    """Layers from the input side on, as wide as their sizes, in the colours of their stages, as high as replicas."""
    sizes = [item.size for item in found.items]
    if not sum(sizes) > 0:
        sizes = [1.0] * len(sizes)
    ends = list(accumulate(sizes))
    starts, whole = [0.0, *ends[:-1]], ends[-1] if ends else 1.0
    tops = _tops(found.stages)
    hatches = patterns([item.pattern for item in found.items])
    texts, titles = figures([item.figures for item in found.items])
    items: list[Row] = [
        {
            "index": index,
            "name": item.name,
            "stage": item.stage,
            "stage_name": "none" if item.stage is None else stage_name(found.stages[item.stage]),
            "start": start,
            "end": end,
            "above": _ABOVE if item.stage is None else tops[item.stage],
            "pattern": item.pattern,
            "hatch": _hatch(hatches, item.pattern, item.stage),
            **text,
        }
        for index, (item, start, end, text) in enumerate(zip(found.items, starts, ends, texts, strict=True))
    ]
    shown = {"name": "layer", "stage_name": "stage", **({"pattern": "choice"} if len(hatches) > 1 else {}), **titles}
    stages = _spans(found.stages, items, tops) if len(found.stages) <= _LABELLED else []
    x = x_of("start", title=found.measure, scale={"domain": [0, "@top"], "nice": False})
    box = {"x": x, "x2": {"field": "end"}, "y": pixels("above"), "y2": {"datum": _ABOVE + _STRIP}}
    is_marked = "datum.share > 0 && datum.is_bottleneck"
    room = f"datum.share * {whole:g} / shown * width"
    spec: dict[str, Any] = {
        "height": _ABOVE + _STRIP,
        "params": [{"name": "chosen", "value": -1}, {"name": "shown", "value": "@top"}],
        "layer": [
            {
                "data": {"name": "items"},
                "mark": {"type": "rect", "cursor": "pointer"},
                "encoding": {
                    **box,
                    "color": stage_colour(found.stages),
                    "stroke": {"condition": {"test": "datum.index === chosen", "value": "@alarm"}, "value": "@paper"},
                    "strokeWidth": {
                        "condition": {"test": "datum.index === chosen", "value": 4},
                        "value": 0.5 if len(items) <= 200 else 0,
                    },
                    "tooltip": said(shown),
                },
            },
            *([_overlay(box)] if len(hatches) > 2 and len(items) <= SVG_ROWS else []),
            {
                "data": {"name": "stages"},
                "mark": {"type": "rect", "fill": None, "stroke": "@ink"},
                "encoding": {
                    **box,
                    "strokeWidth": {"condition": {"test": "datum.is_bottleneck", "value": 3}, "value": 0.5},
                },
            },
            {
                "data": {"name": "stages"},
                "mark": {"type": "text", "baseline": "bottom", "dy": -3, "limit": 400},
                "encoding": {
                    "x": {**x, "field": "middle"},
                    "y": pixels("above"),
                    "text": {
                        "condition": [
                            {"test": f"{room} > 7 * datum.long.length + 3", "field": "long"},
                            {
                                "test": f"{room} > 7.5 * datum.short.length + 3 || {is_marked}",
                                "field": "short",
                            },
                        ],
                        "value": "",
                    },
                },
            },
        ],
    }
    key = [(name, hatch) for name, hatch in hatches.items() if name] if len(hatches) > 2 else []
    return [
        Chart(
            found.title,
            headline(found),
            spec,
            {"items": items, "stages": stages},
            top=whole,
            unit=found.measure,
            details=("items", shown, "Layer"),
            key=tuple((name, f"hatch-{_place(hatches, hatch)}" if hatch else "", 0.0) for name, hatch in key),
        )
    ]


def _overlay(box: Any) -> dict[str, Any]:
    """The patterns of what was chosen for layers; where a canvas is drawn they would be too small to see."""
    return {
        "data": {"name": "items"},
        "mark": {"type": "rect", "tooltip": None},
        "encoding": {**box, "fill": {"field": "hatch", "type": "nominal", "scale": None}},
    }


def _hatch(hatches: dict[str, str], pattern: str, stage: int | None) -> str:
    """The pattern of the page that is drawn over a layer: its lines are black or white, as the stage's colour needs."""
    place = _place(hatches, hatches[pattern])
    return f"url(#hatch-{place}-{text_on(colour_of(stage)).removeprefix('#')})" if place else "transparent"


def _place(hatches: dict[str, str], hatch: str) -> int:
    return list(dict.fromkeys(hatches.values())).index(hatch)


def _tops(stages: Sequence[Stage]) -> list[float]:
    """Where each stage begins from the top: the higher, the more replicas."""
    most = max((stage.replicas for stage in stages), default=1)
    heights = [math.log2(1 + stage.replicas) / math.log2(1 + most) for stage in stages]
    return [round(_ABOVE + _STRIP * (1 - height), 1) for height in heights]


def _spans(stages: Sequence[Stage], items: Sequence[Row], tops: Sequence[float]) -> list[Row]:
    """From where to where neighbouring layers of one stage reach; of several pieces the longest has the name."""
    pieces: list[dict[str, Any]] = []
    whole = items[-1]["end"] if items else 1.0
    for item in items:
        if item["stage"] is None:
            continue
        if pieces and pieces[-1]["stage"] == item["stage"] and pieces[-1]["end"] == item["start"]:
            pieces[-1]["end"] = item["end"]
        else:
            pieces.append({"stage": item["stage"], "start": item["start"], "end": item["end"]})
    longest: dict[int, tuple[float, Any]] = {}
    for piece in pieces:
        if piece["end"] - piece["start"] > longest.get(piece["stage"], (-1.0, None))[0]:
            longest[piece["stage"]] = (piece["end"] - piece["start"], piece)
    return [
        {
            **piece,
            "middle": (piece["start"] + piece["end"]) / 2,
            "above": tops[piece["stage"]],
            "share": (piece["end"] - piece["start"]) / whole if longest[piece["stage"]][1] is piece else 0.0,
            "long": stage_name(stages[piece["stage"]]),
            "short": short_name(stages[piece["stage"]]),
            "is_bottleneck": stages[piece["stage"]].is_bottleneck,
        }
        for piece in pieces
    ]


def top(found: Stack) -> float:
    """The highest number of the picture: a sum, the sum of all bars where they stand on each other, or a limit."""
    limits = [each for each in found.limits or () if math.isfinite(each)]
    totals = [found.total(stage) for stage in range(len(found.stages))]
    return max([math.fsum(totals) if found.adds_up else max(totals, default=0.0), *limits], default=0.0)


def _feet(found: Stack) -> list[float]:
    """Where each bar begins, and where the last one ends: on the one before it if together they make the objective."""
    if not found.adds_up:
        return [0.0] * (len(found.stages) + 1)
    return list(accumulate((found.total(stage) for stage in range(len(found.stages))), initial=0.0))


def stack(found: Stack, most: float = 0.0) -> list[Chart]:
    """A bar for each stage of what its time or memory is spent on, with its limit, and what happens beside it.

    Bars that add up to the objective begin where the one before them ends, and a line runs at the objective.
    """
    totals, highest, feet = [found.total(stage) for stage in range(len(found.stages))], top(found), _feet(found)
    factor, unit = scaled(found.unit, max(most, highest))
    rows = [
        {
            "stage": place,
            "label": stage.label,
            "part": name,
            "side": side,
            "start": (feet[place] + start) / factor,
            "end": (feet[place] + end) / factor,
            "said": amount(end - start, found.unit),
            "whole": amount(totals[place], found.unit),
        }
        for place, stage in enumerate(found.stages)
        for name, side, start, end in _pieces(found, place)
    ]
    marks: list[Row] = [
        {
            "label": stage.label,
            "above": _above(found, place, feet) / factor,
            "foot": feet[place] / factor,
            "before": found.stages[place - 1].label if found.adds_up and place else None,
            "mark": short_name(stage) if stage.is_bottleneck else "",
            "limit": None if found.limits is None else found.limits[place] / factor,
        }
        for place, stage in enumerate(found.stages)
    ]
    measure = f"{found.measure}, {unit}" if unit else found.measure
    is_limited = found.limits is not None and any(map(math.isfinite, found.limits))
    spec = _stacked(found, measure, is_limited, len(rows) <= SVG_ROWS)
    if found.adds_up:
        spec["layer"] += _adding_up(spec["layer"][0]["encoding"], feet[-1] / factor, amount(feet[-1], found.unit))
    title = f"{found.title} (line: the limit)" if is_limited else found.title
    shares = [
        (name, part_pattern(place), SHARES[place % len(SHARES)])
        for place, (name, values) in enumerate(found.parts.items())
        if any(values)
    ]
    key = [*shares, *((f"{name} (thin)", "@quiet", 1.0) for name in found.beside)]
    return [
        Chart(
            title,
            headline(found),
            spec,
            {"parts": rows, "stages": marks},
            top=1.1 * highest / factor or 1.0,
            unit=measure,
            key=tuple(key) if len(key) > 1 else (),
        )
    ]


def _above(found: Stack, place: int, feet: Sequence[float]) -> float:
    """Where a stage's mark stands: on its bar, or on the line of its limit, or of the sum, if that went through it."""
    total = feet[place] + found.total(place)
    limit = feet[-1] if found.adds_up else math.inf if found.limits is None else found.limits[place]
    return limit if 0 <= limit - total < 0.12 * limit else total


def _pieces(found: Stack, place: int) -> Iterator[tuple[str, str, float, float]]:
    """The parts of a stage's bar from the bottom up, and what stands beside it: name, which of both, from, to."""
    start = 0.0
    for name, values in found.parts.items():
        yield name, "sum", start, start + values[place]
        start += values[place]
    for name, values in found.beside.items():
        yield name, "beside", 0.0, values[place]


def _stacked(found: Stack, measure: str, is_limited: bool, is_patterned: bool) -> dict[str, Any]:
    """The specification of stacked bars of the fields start and end; patterns can be drawn on a canvas no more."""
    outer = max(0.1, (8 - len(found.stages)) / 3)  # a few stages are no walls
    axis = {"labelAngle": 0, "labelOverlap": True, "ticks": False, "labelLimit": 60}
    x = {
        "field": "label",
        "type": "nominal",
        "sort": None,
        "title": "stage",
        "axis": axis,
        "scale": {"paddingOuter": outer},
    }
    y = {
        "field": "start",
        "type": "quantitative",
        "title": measure,
        "scale": {"domain": [0, "@top"], "nice": False},
        "axis": {"tickCount": 5},
    }
    wide, aside = 0.62 if found.beside else 0.85, {"expr": "0.4 * bandwidth('x')"}
    parts = list(found.parts)
    shares = {"domain": parts, "range": [SHARES[place % len(SHARES)] for place in range(len(parts))]}
    box = {"x": x, "y": y, "y2": {"field": "end"}}
    hover = said({"label": "stage", "part": "of it", "said": found.measure, "whole": "in all"})
    layers: list[dict[str, Any]] = [
        {  # parts are paler by being translucent: nothing is to be seen through them
            "data": {"name": "parts"},
            "transform": [{"filter": "datum.side === 'sum'"}],
            "mark": {"type": "bar", "color": "@paper", "width": {"band": wide}, "tooltip": None},
            "encoding": box,
        },
        {
            "data": {"name": "parts"},
            "transform": [{"filter": "datum.side === 'sum'"}],
            "mark": {
                "type": "bar",
                "stroke": "@quiet",
                "strokeWidth": 0.5,
                "width": {"band": wide},
            },
            "encoding": {
                **box,
                "color": stage_colour(found.stages),
                "fillOpacity": {"field": "part", "type": "ordinal", "scale": shares, "legend": None},
                "tooltip": hover,
            },
        },
        *(_patterned(found, place, wide, box) for place in range(len(parts)) if is_patterned and part_pattern(place)),
        {
            "data": {"name": "stages"},
            "mark": {"type": "text", "dy": -9, "fontWeight": "bold"},
            "encoding": {"x": x, "y": {**y, "field": "above"}, "text": {"field": "mark"}},
        },
    ]
    if found.beside:
        layers.append(
            {
                "data": {"name": "parts"},
                "transform": [{"filter": "datum.side === 'beside'"}],
                "mark": {
                    "type": "bar",
                    "color": "@quiet",
                    "width": {"band": 0.12},
                    "xOffset": aside,
                },
                "encoding": {**box, "tooltip": hover},
            }
        )
    if is_limited:
        layers.append(
            {
                "data": {"name": "stages"},
                "transform": [{"filter": "isValid(datum.limit)"}],
                "mark": {"type": "tick", "color": "@alarm", "thickness": 2, "width": {"band": 1}},
                "encoding": {"x": x, "y": {**y, "field": "limit"}},
            }
        )
    return {"height": _BARS, "resolve": {"scale": {"fill": "independent"}}, "layer": layers}


def _adding_up(box: Any, whole: float, said_of_it: str) -> list[dict[str, Any]]:
    """Lines from the top of each bar to the foot of the next one, and one at the sum of all, with its number."""
    at_whole = {"y": {"datum": whole, "type": "quantitative"}}
    return [
        {
            "data": {"name": "stages"},
            "transform": [{"filter": "datum.before !== null"}],
            "mark": {"type": "rule", "color": "@quiet", "strokeWidth": 0.7, "tooltip": None},
            "encoding": {
                "x": {**box["x"], "field": "before"},
                "x2": {"field": "label"},
                "y": {**box["y"], "field": "foot"},
            },
        },
        {
            "data": {"values": [{}]},
            "mark": {"type": "rule", "color": "@ink", "strokeWidth": 0.8, "strokeDash": [4, 3], "tooltip": None},
            "encoding": at_whole,
        },
        {
            "data": {"values": [{}]},
            "mark": {
                "type": "text",
                "text": f"objective {said_of_it}",
                "align": "left",
                "baseline": "bottom",
                "dy": -2,
            },
            "encoding": {**at_whole, "x": {"value": 2}},
        },
    ]


def _patterned(found: Stack, place: int, wide: float, box: Any) -> dict[str, Any]:
    """The pattern over the parts of one name: they differ where shades cannot be seen."""
    name = list(found.parts)[place]
    scale = {"domain": list(range(len(found.stages))), "range": f"@part{place % len(PART_PATTERNS)}"}
    return {
        "data": {"name": "parts"},
        "transform": [{"filter": {"field": "part", "equal": name}}, {"filter": "datum.side === 'sum'"}],
        "mark": {"type": "bar", "width": {"band": wide}, "tooltip": None},
        "encoding": {**box, "fill": {"field": "stage", "type": "nominal", "scale": scale, "legend": None}},
    }
