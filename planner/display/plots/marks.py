"""The small parts of Vega-Lite that pictures are put together from: layers, stages, figures, what hovering shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from formulations.contract.figures.plan_figures import Stage
from planner.display.kinds import looks
from planner.display.palette import BOTTLENECK
from planner.display.plots.chart import Row
from planner.results.texts import format_cell, heading

Encoding = dict[str, Any]
#: Of a row: whether the reader chose it, and whether it is of the bottleneck.
CHOSEN, DECISIVE = "datum.index === chosen", "datum.is_bottleneck"
#: The paper around texts over lines.
_HALO: Encoding = {"stroke": "@paper", "strokeWidth": 4, "strokeJoin": "round"}


def stage_colour(stages: Sequence[Any], colours: str = "@stage", otherwise: str = "@no_stage") -> Encoding:
    """The colour of the field ``stage``: a position among ``stages``, ``None`` for what is in none."""
    scale = {"domain": list(range(len(stages))), "range": [f"{colours}{look}" for look in looks(stages)]}
    of = nominal("stage", scale=scale, legend=None)
    return {"condition": {"test": "datum.stage !== null", **of}, "value": otherwise}


def stage_name(stage: Stage) -> str:
    """What a stage is called in a picture: its number, its degrees, its mark if it is the bottleneck."""
    return " ".join(filter(None, (BOTTLENECK if stage.is_bottleneck else "", stage.label, stage.degrees)))


def short_name(stage: Stage) -> str:
    """The same where there is less room.

    >>> short_name(Stage("3", "dp 2 x tp 4", is_bottleneck=True))
    '▼3'
    """
    return f"{BOTTLENECK if stage.is_bottleneck else ''}{stage.label}"


def stage_fields(stages: Sequence[Stage], stage: int | None) -> dict[str, Any]:
    """What a row has of its stage, by its position; ``None``: it is in none."""
    if stage is None:
        return {"stage": None, "stage_name": "none", "label": "", "is_bottleneck": False}
    own = stages[stage]
    name = {"stage_name": stage_name(own), "label": short_name(own)}
    return {"stage": stage, **name, "is_bottleneck": own.is_bottleneck}


def tooltip(titles: Mapping[str, str]) -> list[Encoding]:
    """What hovering shows: by column what it is called."""
    return [nominal(column, title=title) for column, title in titles.items()]


def figures(of: Sequence[Mapping[str, Any]]) -> tuple[list[Row], dict[str, str]]:
    """Figures of layers as texts, a row for each, and what the columns are called.

    >>> figures([{"time_s": 0.5, "weight_bytes": 2.0**30}, {"time_s": 1.0}])
    ([{'f0': '0.5', 'f1': '1 GiB'}, {'f0': '1', 'f1': ''}], {'f0': 'time, s', 'f1': 'weight'})
    """
    names = list(dict.fromkeys(name for each in of for name in each))
    columns = {name: f"f{place}" for place, name in enumerate(names)}
    rows: list[Row] = [
        {columns[name]: format_cell(name, each[name], 4) if name in each else "" for name in names} for each in of
    ]
    return rows, {columns[name]: heading(name) for name in names}


def mark(kind: str, **look: Any) -> Encoding:
    """A kind of mark with its settings."""
    return {"type": kind, **look}


def layer(marks: Encoding, data: str | None = None, where: str | None = None, /, **encoding: Any) -> Encoding:
    """A layer of marks.

    Parameters
    ----------
    data, where
        The name of its rows, and the expression that those meet which are drawn.
    encoding
        By channel what it shows.

    >>> layer(mark("bar"), "stages", "datum.is_first", x={"field": "end"})["transform"]
    [{'filter': 'datum.is_first'}]
    """
    made: Encoding = {"mark": marks, "encoding": encoding}
    if data is not None:
        made["data"] = {"name": data}
    if where is not None:
        made["transform"] = [{"filter": where}]
    return made


def stage_texts(data: str | None, stages: Sequence[Any], at: Encoding, room: str, **look: Any) -> Encoding:
    """The labels of stages on their colours, where a row meets the expression ``room``."""
    colour = stage_colour(stages, "@on_stage", "@ink")
    return layer(mark("text", tooltip=None, **look), data, **at, color=colour, text=text_where(room, "label"))


def frames(colour: str, data: str, where: str, /, **encoding: Any) -> list[Encoding]:
    """Frames around the rectangles that meet an expression: on paper, so that they can be seen on every colour."""
    looks = (("@paper", 5), (colour, 2.5))
    return [
        layer(mark("rect", fill=None, stroke=stroke, strokeWidth=wide, tooltip=None), data, where, **encoding)
        for stroke, wide in looks
    ]


def over_lines(look: Encoding, data: str, where: str | None = None, /, **encoding: Any) -> list[Encoding]:
    """Texts over lines, with a look of `mark`: first the paper around them, then they themselves."""
    return [layer(mark("text", **look, **halo), data, where, **encoding) for halo in (_HALO, {})]


def when(test: str, value: Any, otherwise: Any) -> Encoding:
    """A value where a row meets an expression, and another one where it does not."""
    return {"condition": {"test": test, "value": value}, "value": otherwise}


def text_where(test: str, field: str) -> Encoding:
    """A field as text, where a row meets an expression: there is room for it."""
    return {"condition": {"test": test, "field": field}, "value": ""}


def nominal(field: str, **more: Any) -> Encoding:
    """Names, which have no order of their own."""
    return {"field": field, "type": "nominal", **more}


def span(channel: str, of: Encoding, start: str, end: str) -> Encoding:
    """From one field of a row to another along ``x`` or ``y``, which is encoded so.

    >>> span("x", x_of("x"), "left", "right")
    {'x': {'field': 'left', 'type': 'quantitative'}, 'x2': {'field': 'right'}}
    """
    return {channel: {**of, "field": start}, f"{channel}2": {"field": end}}


def x_of(field: str, **more: Any) -> Encoding:
    """A quantity: along the page, or down it."""
    return {"field": field, "type": "quantitative", **more}


def ramp_key(known: Sequence[float]) -> Encoding | None:
    """The key of a ramp of colours, with its ends; ``None`` where nothing is known.

    >>> ramp_key([2.5, 48.0, 12.0])["values"], ramp_key([])
    ([2.5, 48.0], None)
    """
    ends = sorted({min(known), max(known)}) if known else []
    return {"orient": "top", "gradientLength": 160, "values": ends, "format": ".3~g"} if ends else None


def pixels(field: str) -> Encoding:
    """A height that is given in pixels from the top."""
    return x_of(field, scale=None, axis=None)


def pixels_per(count: float) -> str:
    """Vega's expression of the pixels that each of so many has along the page."""
    return f"(width / {count:g})"
