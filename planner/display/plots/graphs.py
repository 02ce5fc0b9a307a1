"""Graphs of operators or stages, in layers from the input side on."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from formulations.contract.figures.plan_figures import Graph
from planner.display.headlines import headline
from planner.display.kinds import kind_key
from planner.display.layers import Layout, Point, place_in_layers
from planner.display.plots.chart import Chart, Row
from planner.display.plots.marks import (
    CHOSEN,
    DECISIVE,
    Encoding,
    figures,
    layer,
    mark,
    over_lines,
    pixels_per,
    stage_colour,
    stage_fields,
    stage_texts,
    text_where,
    tooltip,
    when,
    x_of,
)
from planner.results.texts import short_amount

_ROW, _HIGHEST = 40, 600
#: Bytes are written on at most so many cuts, the largest first.
_WRITTEN = 8
#: Names stand above their nodes: from and to so many rows, and so much of the way to the next layers on both sides.
_LOW, _HIGH, _WIDE = 0.3, 0.65, 0.45
#: Pixels that names leave to the bytes of a cut beside them.
_CUT = 70


def graph(found: Graph) -> list[Chart]:
    """Nodes with the numbers of their stages; arcs between stages as wide as their bytes.

    A name, and of a chain its length, stands above its node unless an arc would go through it.
    """
    if not found.nodes:
        return []
    layout = place_in_layers(found)
    places, deep = layout.places, layout.depth + 1
    across = [y for route in layout.routes for _, y in route] + [y for _, y in places.values()]
    texts, titles = figures([node.figures for node in found.nodes])
    nodes: list[Row] = [
        {
            "index": index,
            "name": node.name,
            **stage_fields(found.stages, node.stage),
            "count": node.count,
            "text": node.text,
            "title": f"{node.count} × {node.name}" if node.count > 1 else node.name,
            "is_free": _is_free(places[node.id], layout.routes),
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
    span = max(across) - min(across) + 1
    at = {
        "x": x_of("x", axis=None, scale={"domain": [-0.6, deep - 0.4], "nice": False}),
        "y": x_of("y", axis=None, scale={"domain": [max(across) + 0.7, min(across) - 0.7], "nice": False}),
    }
    room = pixels_per(deep)
    fits = f"min(0.75 * {room}, 24) > 6 * datum.label.length + 2 && {room} > 24"
    spec: dict[str, Any] = {
        "height": int(min(_HIGHEST, max(70, _ROW * (span + 0.4)))),
        "params": [{"name": "chosen", "value": -1}],
        "resolve": {"scale": {"color": "independent"}},
        "layer": [
            _lines(at, room),
            _circles(at, room, found, shown),
            stage_texts("nodes", found.stages, at, fits, fontSize=10, fontWeight="bold"),
            *over_lines(
                {"fontSize": 11, "dy": -19, "tooltip": None, "limit": {"expr": f"max({room} / 2, {room} - {_CUT})"}},
                "nodes",
                "datum.is_free",
                **at,
                text=text_where(f"{room} > 70", "title"),
            ),
            *over_lines({"fontSize": 11, "dy": -9}, "cuts", **at, text=text_where(f"{room} > 70", "said")),
        ],
    }
    datasets = {"nodes": nodes, "arcs": _arcs(found, layout), "cuts": _cuts(found, layout)}
    is_of_stages = len(nodes) == len({row["stage"] for row in nodes})
    title = found.title if is_of_stages else f"{found.title} (in circles: stages)"
    key = () if is_of_stages else tuple(kind_key(found.stages))
    return [Chart(title, headline(found), spec, datasets, details=("nodes", shown, "Node"), key=key, is_wide=True)]


def _lines(at: Encoding, room: str) -> Encoding:
    """Arcs, between stages as wide as their bytes."""
    wide = {"domain": [0, 1], "range": [0.8, {"expr": f"clamp(0.22 * {room}, 1.6, 4.5)"}]}
    return layer(
        mark("line", interpolate="monotone", strokeCap="round"),
        "arcs",
        **at,
        detail={"field": "arc"},
        order=x_of("place"),
        strokeWidth=x_of("wide", scale=wide, legend=None),
        color=when("datum.is_cut", "@ink", "@quiet"),
        tooltip=tooltip({"said": "sends"}),
    )


def _circles(at: Encoding, room: str, found: Graph, shown: Mapping[str, str]) -> Encoding:
    """Nodes in the colours of their stages; the bottleneck's and the chosen one have an edge."""
    edges = [{"test": CHOSEN, "value": "@alarm"}, {"test": DECISIVE, "value": "@ink"}]
    widths = [{"test": CHOSEN, "value": 4}, {"test": DECISIVE, "value": 2}]
    return layer(
        mark("circle", opacity=1, cursor="pointer", size={"expr": f"pow(clamp(0.75 * {room}, 6, 24), 2)"}),
        "nodes",
        **at,
        color=stage_colour(found.stages),
        stroke={"condition": edges, "value": "@quiet"},
        strokeWidth={"condition": widths, "value": 0.5},
        tooltip=tooltip(shown),
    )


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
    largest = max((arc.bytes for arc in found.arcs if arc.is_cut), default=0.0) or 1.0
    return [
        {
            "arc": number,
            "place": place,
            "x": x,
            "y": y,
            "wide": 0.3 + 0.7 * arc.bytes / largest if arc.is_cut else 0.0,
            "is_cut": arc.is_cut,
            "said": short_amount(arc.bytes, "bytes"),
        }
        for number, (arc, route) in enumerate(zip(found.arcs, layout.routes, strict=True))
        for place, (x, y) in enumerate(route)
    ]


def _cuts(found: Graph, layout: Layout) -> list[Row]:
    """The bytes of the largest cuts, in the middle of their lines, where no other ones stand."""
    cuts = [(arc, route) for arc, route in zip(found.arcs, layout.routes, strict=True) if arc.is_cut and arc.bytes > 0]
    rows: list[Row] = []
    for arc, route in sorted(cuts, key=lambda each: -each[0].bytes)[:_WRITTEN]:
        (x, y), (u, v) = route[(len(route) - 1) // 2], route[(len(route) - 1) // 2 + 1]
        row = {"x": (x + u) / 2, "y": (y + v) / 2, "said": short_amount(arc.bytes, "bytes")}
        if not any(abs(row["x"] - each["x"]) < 1 and abs(row["y"] - each["y"]) < _LOW for each in rows):
            rows.append(row)
    return rows
