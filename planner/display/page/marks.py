"""What the pictures of plans share on the page: a stage's colour, its mark as the bottleneck, what hovering shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from formulations.figures.plan_figures import Stage
from planner.display.page.chart import Row
from planner.display.palette import BOTTLENECK
from planner.display.tables import named

Encoding = dict[str, Any]
#: Texts over lines: first the paper around them, then they themselves.
HALO: tuple[Encoding, ...] = ({"stroke": "@paper", "strokeWidth": 4, "strokeJoin": "round"}, {})


def stage_colour(stages: Sequence[Stage], colours: str = "@stages", otherwise: str = "@no_stage") -> Encoding:
    """The colour of the field ``stage``: its position, ``None`` for what is in none."""
    scale = {"domain": list(range(len(stages))), "range": colours}
    return {
        "condition": {
            "test": "datum.stage !== null",
            "field": "stage",
            "type": "nominal",
            "scale": scale,
            "legend": None,
        },
        "value": otherwise,
    }


def stage_name(stage: Stage) -> str:
    """What a stage is called in a picture: its number, its degrees, its mark if it is the bottleneck."""
    return " ".join(filter(None, (BOTTLENECK if stage.is_bottleneck else "", stage.label, stage.degrees)))


def short_name(stage: Stage) -> str:
    """The same where there is less room.

    >>> short_name(Stage("3", "dp 2 x tp 4", is_bottleneck=True))
    '▼3'
    """
    return f"{BOTTLENECK if stage.is_bottleneck else ''}{stage.label}"


def said(titles: Mapping[str, str]) -> list[Encoding]:
    """What hovering shows: by column what it is called."""
    return [{"field": column, "title": title, "type": "nominal"} for column, title in titles.items()]


def figures(of: Sequence[Mapping[str, Any]]) -> tuple[list[Row], dict[str, str]]:
    """Figures of layers as texts, a row for each, and what the columns are called.

    >>> figures([{"time_s": 0.5, "weight_bytes": 2.0**30}, {"time_s": 1.0}])
    ([{'f0': '0.5', 'f1': '1 GiB'}, {'f0': '1', 'f1': ''}], {'f0': 'time, s', 'f1': 'weight'})
    """
    names = list(dict.fromkeys(name for each in of for name in each))
    columns = {name: f"f{place}" for place, name in enumerate(names)}
    rows: list[Row] = [
        {columns[name]: named(name, each[name], 4) if name in each else "" for name in names} for each in of
    ]
    return rows, {columns[name]: called(name) for name in names}


def called(name: str) -> str:
    """A heading for figures: their name in words, with the unit where the figures do not show it.

    >>> called("all_reduce_s"), called("memory_bytes"), called("in_flight")
    ('all reduce, s', 'memory', 'in flight')
    """
    for ending, unit in (("_bytes", ""), ("_share", ""), ("_s", ", s")):
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " ") + unit
    return name.replace("_", " ")


def x_of(field: str, **more: Any) -> Encoding:
    """A quantity along the page."""
    return {"field": field, "type": "quantitative", **more}


def pixels(field: str) -> Encoding:
    """A height that is given in pixels from the top."""
    return {"field": field, "type": "quantitative", "scale": None, "axis": None}


def pixels_per(count: float) -> str:
    """Vega's expression of the pixels that each of so many has along the page."""
    return f"(width / {count:g})"
