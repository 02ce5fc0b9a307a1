"""Graphs of operators or stages for the page, in layers from the input side on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from formulations.figures.plan_figures import Graph
from planner.display.headlines import amount, headline
from planner.display.layers import Layout, Point, layered
from planner.display.page.chart import Chart, Row
from planner.display.page.marks import HALO, figures, pixels_per, said, short_name, stage_colour, stage_name, x_of

_ROW, _HIGHEST = 40, 600
#: Names stand above their nodes: from and to so many rows, and so much of the way to the next layers on both sides.
_LOW, _HIGH, _WIDE = 0.3, 0.65, 0.45
_NAME: dict[str, Any] = {"type": "text", "fontSize": 11, "dy": -19, "tooltip": None}


def graph(found: Graph) -> list[Chart]:
    """Nodes with the numbers of their stages; arcs between stages as wide as their bytes.

    A name, and of a chain its length, stands above its node unless an arc would go through it.
    """
    if not found.nodes:
        return []
    layout = layered(found)
    places, deep = layout.places, layout.depth + 1
    across = [y for route in layout.routes for _, y in route] + [y for _, y in places.values()]
    texts, titles = figures([node.figures for node in found.nodes])
    nodes: list[Row] = [
        {
            "index": index,
            "name": node.name,
            "stage": node.stage,
            "stage_name": "none" if node.stage is None else stage_name(found.stages[node.stage]),
            "count": node.count,
            "text": node.text,
            "label": "" if node.stage is None else short_name(found.stages[node.stage]),
            "title": f"{node.count} × {node.name}" if node.count > 1 else node.name,
            "is_free": _is_free(places[node.id], layout.routes),
            "is_bottleneck": node.stage is not None and found.stages[node.stage].is_bottleneck,
            "x": places[node.id][0],
            "y": places[node.id][1],
            **text,
        }
        for index, (node, text) in enumerate(zip(found.nodes, texts, strict=True))
    ]
    is_folded = any(node.count > 1 for node in found.nodes)
    shown = {
        "name": "node",
        "stage_name": "stage",
        **(
            {"count": "operators"} if is_folded else {"text": "holds"} if any(node.text for node in found.nodes) else {}
        ),
        **titles,
    }
    x = x_of("x", axis=None, scale={"domain": [-0.6, deep - 0.4], "nice": False})
    span = max(across) - min(across) + 1
    y = {
        "field": "y",
        "type": "quantitative",
        "axis": None,
        "scale": {"domain": [max(across) + 0.7, min(across) - 0.7], "nice": False},
    }
    room = pixels_per(deep)
    wide = {"domain": [0, 1], "range": [0.8, {"expr": f"clamp(0.22 * {room}, 1.6, 4.5)"}]}
    names: list[dict[str, Any]] = [{**_NAME, "limit": {"expr": f"{2 * _WIDE} * {room}"}, **halo} for halo in HALO]
    spec: dict[str, Any] = {
        "height": int(min(_HIGHEST, max(70, _ROW * (span + 0.4)))),
        "params": [{"name": "chosen", "value": -1}],
        "resolve": {"scale": {"color": "independent"}},
        "layer": [
            {
                "data": {"name": "arcs"},
                "mark": {"type": "line", "interpolate": "monotone", "strokeCap": "round"},
                "encoding": {
                    "x": x,
                    "y": y,
                    "detail": {"field": "arc"},
                    "order": {"field": "place", "type": "quantitative"},
                    "strokeWidth": {"field": "wide", "type": "quantitative", "scale": wide, "legend": None},
                    "color": {"condition": {"test": "datum.is_cut", "value": "@ink"}, "value": "@quiet"},
                    "tooltip": said({"said": "sends"}),
                },
            },
            {
                "data": {"name": "nodes"},
                "mark": {
                    "type": "circle",
                    "opacity": 1,
                    "cursor": "pointer",
                    "size": {"expr": f"pow(clamp(0.75 * {room}, 6, 24), 2)"},
                },
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": stage_colour(found.stages),
                    "stroke": {
                        "condition": [
                            {"test": "datum.index === chosen", "value": "@alarm"},
                            {"test": "datum.is_bottleneck", "value": "@ink"},
                        ],
                        "value": "@quiet",
                    },
                    "strokeWidth": {
                        "condition": [
                            {"test": "datum.index === chosen", "value": 4},
                            {"test": "datum.is_bottleneck", "value": 2},
                        ],
                        "value": 0.5,
                    },
                    "tooltip": said(shown),
                },
            },
            {
                "data": {"name": "nodes"},
                "mark": {"type": "text", "fontSize": 10, "fontWeight": "bold", "tooltip": None},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": stage_colour(found.stages, "@on_stages", "@ink"),
                    "text": {
                        "condition": {
                            "test": f"min(0.75 * {room}, 24) > 6 * datum.label.length + 2 && {room} > 24",
                            "field": "label",
                        },
                        "value": "",
                    },
                },
            },
            *(
                {
                    "data": {"name": "nodes"},
                    "transform": [{"filter": "datum.is_free"}],
                    "mark": look,
                    "encoding": {
                        "x": x,
                        "y": y,
                        "text": {"condition": {"test": f"{room} > 70", "field": "title"}, "value": ""},
                    },
                }
                for look in names
            ),
        ],
    }
    datasets = {"nodes": nodes, "arcs": _arcs(found, layout)}
    is_of_stages = len(nodes) == len({row["stage"] for row in nodes})
    title = found.title if is_of_stages else f"{found.title} (in circles: stages)"
    return [Chart(title, headline(found), spec, datasets, details=("nodes", shown, "Node"))]


def _is_free(place: Point, routes: Sequence[Sequence[Point]]) -> bool:
    """Whether no arc goes through where the node's name stands."""
    x, y = place
    box = x - _WIDE, x + _WIDE, y - _HIGH, y - _LOW
    return not any(_passes(a, b, *box) for route in routes for a, b in pairwise(route))


def _passes(a: Point, b: Point, left: float, right: float, near: float, far: float) -> bool:
    """Whether a piece of an arc, from left to right, goes through a box."""
    start, end = max(a[0], left), min(b[0], right)
    if start > end or b[0] <= a[0]:
        return False
    slope = (b[1] - a[1]) / (b[0] - a[0])
    first, last = sorted((a[1] + slope * (start - a[0]), a[1] + slope * (end - a[0])))
    return first < far and last > near


def _arcs(found: Graph, layout: Layout) -> list[Row]:
    """The points on the way of each arc."""
    largest = max((arc.bytes for arc in found.arcs if arc.is_cut), default=0.0) or 1.0
    return [
        {
            "arc": number,
            "place": place,
            "x": x,
            "y": y,
            "wide": 0.3 + 0.7 * arc.bytes / largest if arc.is_cut else 0.0,
            "is_cut": arc.is_cut,
            "said": amount(arc.bytes, "bytes"),
        }
        for number, (arc, route) in enumerate(zip(found.arcs, layout.routes, strict=True))
        for place, (x, y) in enumerate(route)
    ]
