"""Layers in their stages, and stacked bars of stages."""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from formulations.contract.figures.plan_figures import Stack, Stage, Strip
from planner.display.headlines import headline, remark
from planner.display.kinds import kind_key, looks
from planner.display.palette import PART_PATTERNS, SHARES, STAGES, patterns, text_on
from planner.display.palette import stage_colour as colour_of
from planner.display.plots.chart import SVG_ROWS, Chart, Row
from planner.display.plots.marks import (
    CHOSEN,
    DECISIVE,
    Encoding,
    figures,
    layer,
    mark,
    nominal,
    over_lines,
    pixels,
    pixels_per,
    short_name,
    span,
    stage_colour,
    stage_fields,
    stage_name,
    text_where,
    tooltip,
    when,
    x_of,
)
from planner.display.plots.theme import part_pattern
from planner.results.texts import percent, short_amount, unit_for

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
    hatches, own = patterns([item.pattern for item in found.items]), looks(found.stages)
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
            "hatch": _hatch(hatches[item.pattern], None if item.stage is None else own[item.stage]),
            **text,
        }
        for index, (item, start, end, text) in enumerate(zip(found.items, starts, ends, texts, strict=True))
    ]
    shown = {"name": "layer", "stage_name": "stage", **({"pattern": "choice"} if len(hatches) > 1 else {}), **titles}
    stages = _spans(found.stages, items, tops) if len(found.stages) <= _LABELLED else []
    x = x_of("start", title=found.measure, axis={"grid": False}, scale={"domain": [0, "@top"], "nice": False})
    box = {"x": x, "x2": {"field": "end"}, "y": pixels("above"), "y2": {"datum": _ABOVE + _STRIP}}
    layers = [
        layer(
            mark("rect", cursor="pointer"),
            "items",
            **box,
            color=stage_colour(found.stages),
            stroke=when(CHOSEN, "@alarm", "@paper"),
            strokeWidth=when(CHOSEN, 4, 0.5 if len(items) <= 200 else 0),
            tooltip=tooltip(shown),
        ),
        *([_overlay(box)] if len(hatches) > 2 and len(items) <= SVG_ROWS else []),
        layer(mark("rect", fill=None, stroke="@paper", strokeWidth=3), "stages", **box),
        layer(mark("rect", fill=None, stroke="@ink"), "stages", **box, strokeWidth=when(DECISIVE, 3, 0.5)),
        _names(x, whole),
    ]
    spec: dict[str, Any] = {
        "height": _ABOVE + _STRIP,
        "params": [{"name": "chosen", "value": -1}, {"name": "shown", "value": "@top"}],
        "layer": layers,
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
            key=(*kind_key(found.stages), *((name, f"hatch-{hatch}" if hatch else "", 0.0) for name, hatch in key)),
            is_wide=True,
        )
    ]


def _names(x: Encoding, whole: float) -> Encoding:
    """The names of stages above the strip: with degrees where there is room, the bottleneck's in any case."""
    room = f"datum.share * {whole:g} / shown * width"
    texts = [
        {"test": f"{room} > 7 * datum.stage_name.length + 3", "field": "stage_name"},
        {"test": f"{room} > 7.5 * datum.label.length + 3 || datum.share > 0 && {DECISIVE}", "field": "label"},
    ]
    return layer(
        mark("text", baseline="bottom", dy=-3, limit=400),
        "stages",
        x={**x, "field": "middle"},
        y=pixels("above"),
        text={"condition": texts, "value": ""},
    )


def _overlay(box: Encoding) -> Encoding:
    """The patterns of what was chosen for layers; where a canvas is drawn they would be too small to see."""
    return layer(mark("rect", tooltip=None), "items", **box, fill=nominal("hatch", scale=None))


def _hatch(place: int, look: int | None) -> str:
    """The pattern that is drawn over a layer: its lines are black or white, as the stage's colour needs."""
    return f"url(#hatch-{place}-{text_on(colour_of(look)).removeprefix('#')})" if place else "transparent"


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
            **stage_fields(stages, piece["stage"]),
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


def stack(found: Stack, most: float = 0.0, colours: Sequence[int] | None = None) -> list[Chart]:
    """A bar for each stage of what its time or memory is spent on, with its limit, and what happens beside it.

    Bars that add up to the objective begin where the one before them ends, and a line runs at the objective.

    ``most`` is what its unit suits at least; ``colours`` are the numbers of the stages' colours, where these are not
    those of their kinds.
    """
    colours = looks(found.stages if colours is None else colours)
    highest, feet = top(found), _feet(found)
    factor, unit = unit_for(found.unit, max(most, highest))
    measure = f"{found.measure}, {unit}" if unit else found.measure
    is_limited = found.limits is not None and any(map(math.isfinite, found.limits))
    parts = _part_rows(found, feet, factor, colours)
    bars = _Bars(found, measure)
    layers = [
        *bars.parts(is_patterned=len(parts) <= SVG_ROWS),
        bars.marks(),
        *([bars.beside()] if found.beside else []),
        *(bars.limits() if is_limited else []),
        *(bars.adding_up(feet[-1] / factor, short_amount(feet[-1], found.unit)) if found.adds_up else []),
    ]
    shares = [
        (name, part_pattern(place), SHARES[place % len(SHARES)])
        for place, (name, values) in enumerate(found.parts.items())
        if any(values)
    ]
    key = [*shares, *((f"{name} (thin)", "@quiet", 1.0) for name in found.beside)]
    return [
        Chart(
            f"{found.title} (line: the limit)" if is_limited else found.title,
            ". ".join(filter(None, (headline(found), remark(found)))),
            {"height": _BARS, "resolve": {"scale": {"fill": "independent"}}, "layer": layers},
            {"parts": parts, "stages": _stage_rows(found, feet, factor)},
            top=1.1 * highest / factor or 1.0,
            unit=measure,
            key=tuple(key) if len(key) > 1 else (),
        )
    ]


def _part_rows(found: Stack, feet: Sequence[float], factor: float, colours: Sequence[int]) -> list[Row]:
    """A row for each part of each bar, from where to where it reaches."""
    return [
        {
            "stage": colours[place],
            "label": stage.label,
            "part": name,
            "side": side,
            "start": (feet[place] + start) / factor,
            "end": (feet[place] + end) / factor,
            "said": short_amount(end - start, found.unit),
            "whole": short_amount(found.total(place), found.unit),
        }
        for place, stage in enumerate(found.stages)
        for name, side, start, end in _pieces(found, place)
    ]


def _stage_rows(found: Stack, feet: Sequence[float], factor: float) -> list[Row]:
    """A row for each bar: its mark, its limit, how full it is, and what it stands on."""
    limits = [math.inf] * len(found.stages) if found.limits is None else found.limits
    return [
        {
            "label": stage.label,
            "above": _above(found, place, feet) / factor,
            "foot": feet[place] / factor,
            "before": found.stages[place - 1].label if found.adds_up and place else None,
            "mark": short_name(stage) if stage.is_bottleneck else "",
            "limit": None if found.limits is None else limit / factor,
            "full": percent(found.total(place) / limit, 2) if 0 < limit < math.inf else "",
        }
        for place, (stage, limit) in enumerate(zip(found.stages, limits, strict=True))
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


class _Bars:
    """The layers of stacked bars: what they share is where bars stand, and the colours."""

    def __init__(self, found: Stack, measure: str) -> None:
        outer = max(0.1, (8 - len(found.stages)) / 3)  # a few stages are no walls
        axis = {"labelAngle": 0, "labelOverlap": True, "ticks": False, "labelLimit": 60}
        self.found = found
        self.colours = list(range(len(STAGES)))
        self.x = nominal("label", sort=None, title="stage", axis=axis, scale={"paddingOuter": outer})
        height = {"domain": [0, "@top"], "nice": False}
        self.y = x_of("start", title=measure, scale=height, axis={"tickCount": 5})
        self.box = {"x": self.x, "y": self.y, "y2": {"field": "end"}}
        self.width = {"band": 0.62 if found.beside else 0.85}
        self.hover = tooltip({"label": "stage", "part": "of it", "said": found.measure, "whole": "in all"})

    def parts(self, *, is_patterned: bool) -> Iterator[Encoding]:
        """The parts, paler from the bottom up, on paper that lets nothing through; patterns unless on a canvas."""
        names, is_sum = list(self.found.parts), "datum.side === 'sum'"
        shares = {"domain": names, "range": [SHARES[place % len(SHARES)] for place in range(len(names))]}
        yield layer(mark("bar", color="@paper", width=self.width, tooltip=None), "parts", is_sum, **self.box)
        yield layer(
            mark("bar", stroke="@quiet", strokeWidth=0.5, width=self.width),
            "parts",
            is_sum,
            **self.box,
            color=stage_colour(self.colours),
            fillOpacity={"field": "part", "type": "ordinal", "scale": shares, "legend": None},
            tooltip=self.hover,
        )
        yield from (
            self._pattern(place, name) for place, name in enumerate(names) if is_patterned and part_pattern(place)
        )

    def _pattern(self, place: int, name: str) -> Encoding:
        """The pattern over the parts of one name: they differ where shades cannot be seen."""
        part = place % len(PART_PATTERNS)
        scale = {"domain": self.colours, "range": [f"@part{part}_{look}" for look in self.colours]}
        made = layer(
            mark("bar", width=self.width, tooltip=None),
            "parts",
            "datum.side === 'sum'",
            **self.box,
            fill=nominal("stage", scale=scale, legend=None),
        )
        made["transform"].insert(0, {"filter": {"field": "part", "equal": name}})
        return made

    def marks(self) -> Encoding:
        """The mark of the bottleneck above its bar."""
        above = {**self.y, "field": "above"}
        return layer(mark("text", dy=-9, fontWeight="bold"), "stages", x=self.x, y=above, text={"field": "mark"})

    def beside(self) -> Encoding:
        """A thin bar of what happens at the same time."""
        thin = mark("bar", color="@quiet", width={"band": 0.12}, xOffset={"expr": "0.4 * bandwidth('x')"})
        return layer(thin, "parts", "datum.side === 'beside'", **self.box, tooltip=self.hover)

    def limits(self) -> Iterator[Encoding]:
        """A line at each stage's limit, and below it how full the stage is, where there is room."""
        at = {"x": self.x, "y": {**self.y, "field": "limit"}}
        line = mark("tick", color="@alarm", thickness=2, width={"band": 1})
        yield layer(line, "stages", "isValid(datum.limit)", **at)
        room = f"{pixels_per(len(self.found.stages))} > 44"
        yield from over_lines({"dy": 10}, "stages", **at, text=text_where(room, "full"))

    def adding_up(self, whole: float, said_of_it: str) -> Iterator[Encoding]:
        """Lines from the top of each bar to the foot of the next one, and one at the sum of all, with its number."""
        at: Encoding = {"datum": whole, "type": "quantitative"}
        yield layer(
            mark("rule", color="@quiet", strokeWidth=0.7, tooltip=None),
            "stages",
            "datum.before !== null",
            **span("x", self.x, "before", "label"),
            y={**self.y, "field": "foot"},
        )
        line = mark("rule", color="@ink", strokeWidth=0.8, strokeDash=[4, 3], tooltip=None)
        words = mark("text", text=f"objective {said_of_it}", align="left", baseline="bottom", dy=-2)
        yield {**layer(line, y=at), "data": {"values": [{}]}}
        yield {**layer(words, y=at, x={"value": 2}), "data": {"values": [{}]}}
