"""Devices, links, bandwidths and tiles; what is too large to be seen is folded or left out, as it says."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from formulations.contract.figures.plan_figures import Link, Matrix, Network, Place, Tiles
from planner.display.headlines import headline
from planner.display.plots.chart import Chart, Row
from planner.display.plots.marks import (
    DECISIVE,
    Encoding,
    frames,
    layer,
    mark,
    pixels_per,
    ramp_key,
    span,
    stage_colour,
    stage_fields,
    stage_texts,
    text_where,
    tooltip,
    when,
    x_of,
)
from planner.results.texts import short_amount

#: The most links that are drawn, the slowest first, and rows or columns of a matrix.
_LINKS, _BLOCKS = 1500, 48
_HIGHEST = 560
_GB = 1e9
#: Of so many links those that would pass over other devices go around them; the points on the way, and how far it is.
_CURVED, _POINTS, _ASIDE = 400, 8, 0.4
#: Numbers of stages in devices, and of devices beside them, are drawn where a device has so many pixels.
_NUMBERED, _NAMED = 22, 40
#: With more devices across there is no page on which they have.
_NAMES = 50


def network(found: Network) -> list[Chart]:
    """Devices where they stand in the colours of their stages; the longer a load takes, the wider its link."""
    xs, ys = [place.x for place in found.places] or [0.0], [place.y for place in found.places] or [0.0]
    across, down = max(xs) - min(xs) + 1, max(ys) - min(ys) + 1
    places: list[Row] = [
        {
            "device": place.device,
            "x": place.x,
            "y": place.y,
            "machine": found.machines[place.machine] if place.machine < len(found.machines) else str(place.machine),
            "replica": place.replica,
            **stage_fields(found.stages, place.stage),
        }
        for place in found.places
    ]
    drawn = sorted(found.links, key=lambda link: (not link.is_slowest, -link.seconds))[:_LINKS]
    widest = min(7.0, max(1.2, 96 / across))
    longest = max((link.seconds for link in drawn), default=0.0) or 1.0
    links: list[Row] = [
        {
            "link": number,
            "place": place,
            "x": x,
            "y": y,
            "wide": widest * (0.15 + 0.85 * link.seconds / longest),
            "is_slowest": link.is_slowest,
            **_said_of(link),
        }
        for number, (link, way) in enumerate(zip(reversed(drawn), _ways(found, drawn[::-1]), strict=True))
        for place, (x, y) in enumerate(way)
    ]  # the slowest above the others
    machines = _machines(found) if len(found.machines) > 1 else []
    above = 0.95 if machines else 0.6
    at = {
        "x": x_of("x", axis=None, scale={"domain": [min(xs) - 0.6, max(xs) + 0.6], "nice": False}),
        "y": x_of("y", axis=None, scale={"domain": [max(ys) + 0.6, min(ys) - above], "nice": False}),
    }
    room = pixels_per(across)
    spec: dict[str, Any] = {
        "height": int(min(_HIGHEST, max(90, 62 * (down - 0.4 + above)))),
        "resolve": {"scale": {"color": "independent"}},
        "layer": [*_frames(at, room), _lines(at), *_devices(at, room, found)],
    }
    left = f"; the {_LINKS:,} slowest of {len(found.links):,} links" if len(found.links) > _LINKS else ""
    names = " (in circles: stages, beside them: devices)" if across <= _NAMES else ""
    title = f"{found.title}{left}{names}"
    return [Chart(title, headline(found), spec, {"links": links, "places": places, "machines": machines})]


def _frames(at: Encoding, room: str) -> Iterator[Encoding]:
    """A frame around each machine, with its name where there is room."""
    x, y = at["x"], at["y"]
    yield layer(
        mark("rect", fill=None, stroke="@quiet", strokeDash=[3, 3], cornerRadius=6),
        "machines",
        **span("x", x, "left", "right"),
        **span("y", y, "above", "below"),
    )
    yield layer(
        mark("text", align="left", baseline="bottom", dy=-3, color="@quiet"),
        "machines",
        x={**x, "field": "left"},
        y={**y, "field": "above"},
        text=text_where(f"(datum.right - datum.left) * {room} > 7 * datum.name.length && {room} > 24", "name"),
    )


def _lines(at: Encoding) -> Encoding:
    """Links, as wide as their loads take long."""
    return layer(
        mark("line", interpolate="cardinal", strokeCap="round"),
        "links",
        **at,
        detail={"field": "link"},
        order=x_of("place"),
        strokeWidth=x_of("wide", scale=None),
        color=when("datum.is_slowest", "@ink", "@quiet"),
        opacity=when("datum.is_slowest", 1, 0.55),
        tooltip=tooltip({"ends": "devices", "load": "load", "speed": "bandwidth", "seconds": "takes"}),
    )


def _devices(at: Encoding, room: str, found: Network) -> Iterator[Encoding]:
    """Devices in the colours of their stages, with the stages' numbers inside and their own beside them."""
    size = f"clamp(0.62 * {room}, 3, 30)"
    wide = [{"test": DECISIVE, "value": {"expr": f"{room} > 20 ? 3 : 1"}}]
    titles = {"device": "device", "machine": "machine", "stage_name": "stage", "replica": "replica"}
    yield layer(
        mark("circle", opacity=1, size={"expr": f"pow({size}, 2)"}),
        "places",
        **at,
        color=stage_colour(found.stages),
        stroke=when(DECISIVE, "@ink", "@edge"),
        strokeWidth={"condition": wide, "value": {"expr": f"{room} > 12 ? 1 : 0.4"}},
        tooltip=tooltip(titles),
    )
    fits = f"0.6 * {room} > 7 * datum.label.length && {room} > {_NUMBERED}"
    yield stage_texts("places", found.stages, at, fits, fontSize=11, fontWeight="bold")
    aside = {"dx": {"expr": f"2 + 0.28 * {size}"}, "dy": {"expr": f"6 + 0.36 * {size}"}}
    yield layer(
        mark("text", fontSize=10, align="left", color="@quiet", tooltip=None, **aside),
        "places",
        **at,
        text=text_where(f"{room} > {_NAMED}", "device"),
    )


def topology(speeds: Sequence[Sequence[float]], title: str = "") -> Chart:
    """Devices on a circle; the faster a link, the thicker its line (the slowest kind is left out).

    Parameters
    ----------
    speeds
        Bandwidths between devices, in bytes per second.
    """
    count = len(speeds)
    turns = [2 * math.pi * device / max(count, 1) for device in range(count)]
    devices: list[Row] = [{"device": device, "x": math.sin(t), "y": math.cos(t)} for device, t in enumerate(turns)]
    found = {speeds[i][j] for i in range(count) for j in range(i)} or {0.0}
    slowest, fastest = min(found), max(found)
    links: list[Row] = [
        {"link": f"{i}-{j}", **devices[end], "share": speeds[i][j] / (fastest or 1.0)}
        for i in range(count)
        for j in range(i)
        if speeds[i][j] > slowest or slowest == fastest
        for end in (i, j)
    ]
    scale = {"domain": [-1.2, 1.2], "nice": False}
    at = {"x": x_of("x", axis=None, scale=scale), "y": x_of("y", axis=None, scale=scale)}
    thick = x_of("share", scale={"domain": [0, 1], "range": [0.5, 2.5]}, legend=None)
    layers = [
        layer(mark("line", color="@ink"), "links", **at, detail={"field": "link"}, strokeWidth=thick),
        layer(mark("circle", size=170, opacity=1, color="@paper", stroke="@ink"), "devices", **at),
        layer(mark("text", fontSize=9), "devices", **at, text={"field": "device"}),
    ]
    text = f"links faster than {slowest / _GB:g} GB/s" if slowest < fastest else f"links, {fastest / _GB:g} GB/s"
    spec = {"width": "@square", "height": "@inside", "layer": layers}
    return Chart(title, text, spec, {"links": links, "devices": devices})


def bandwidth(speeds: Sequence[Sequence[float]], title: str = "") -> Chart:
    """Bandwidths in bytes per second between devices in the order of their numbers."""
    [chart] = matrix(Matrix(title, [list(range(len(speeds)))], speeds, ()))
    return chart


def _ways(found: Network, links: Sequence[Link]) -> list[list[tuple[float, float]]]:
    """The points on the way of each link: straight ones have two, those around other devices bend to one side."""
    import numpy

    at = {place.device: place for place in found.places}
    everywhere = numpy.array([(place.x, place.y) for place in found.places]).reshape(-1, 2)
    ways = []
    for link in links:
        a, b = ((at[device].x, at[device].y) for device in (link.a, link.b))
        along = numpy.subtract(b, a)
        length = float(numpy.hypot(*along)) or 1.0
        from_a = everywhere - a
        ahead = from_a @ along / length
        aside = numpy.abs(from_a[:, 0] * along[1] - from_a[:, 1] * along[0]) / length
        is_over = bool(((ahead > 0.3) & (ahead < length - 0.3) & (aside < 0.3)).any())
        if not is_over or len(links) > _CURVED:
            ways.append([a, b])
            continue
        shares = [step / _POINTS for step in range(_POINTS + 1)]
        up = -1 if along[0] > along[1] else 1  # or to the left: names stand below on the right
        bow = [up * 4 * _ASIDE * share * (1 - share) / length for share in shares]
        ways.append(
            [
                (float(a[0] + share * along[0] - far * along[1]), float(a[1] + share * along[1] + far * along[0]))
                for share, far in zip(shares, bow, strict=True)
            ]
        )
    return ways


def _machines(found: Network) -> list[Row]:
    """The frame of each machine around its devices."""
    members: dict[int, list[Place]] = {}
    for place in found.places:
        members.setdefault(place.machine, []).append(place)
    return [
        {
            "name": found.machines[number],
            "left": min(place.x for place in own) - 0.42,
            "right": max(place.x for place in own) + 0.42,
            "above": min(place.y for place in own) - 0.42,
            "below": max(place.y for place in own) + 0.42,
        }
        for number, own in sorted(members.items())
    ]


def _said_of(link: Link) -> dict[str, str]:
    return {
        "ends": f"{link.a} and {link.b}",
        "load": short_amount(link.load_bytes, "bytes"),
        "speed": f"{link.capacity_bytes_per_s / _GB:.4g} GB/s",
        "seconds": short_amount(link.seconds, "s"),
    }


def matrix(found: Matrix) -> list[Chart]:
    """Bandwidths between devices in the order of their stages; of many devices those of blocks, each at its least."""
    order = [device for own in found.devices for device in own]
    step = -(-len(order) // _BLOCKS) or 1
    count = len(order) / step
    cells = _cells(found.bandwidth_bytes_per_s, order, step)
    band = -max(0.6, 0.05 * count) if found.stages else 0.0
    x = {"type": "quantitative", "axis": None, "scale": {"domain": [band, count], "nice": False, "zero": False}}
    y = {"type": "quantitative", "axis": None, "scale": {"domain": [count, band], "nice": False, "zero": False}}
    ends = {**span("x", x, "start", "end"), **span("y", y, "start", "end")}
    spec: dict[str, Any] = {
        "width": "@square",
        "height": "@inside",
        "resolve": {"scale": {"color": "independent"}},
        "layer": [
            _speeds(x, y, cells),
            *_bands(x, y, band, found, pixels_per(count - band)),
            *frames("@ink", "stages", DECISIVE, **ends),  # what the bottleneck's replicas use among themselves
        ],
    }
    folded = f"; blocks of {step} devices, each at its least" if step > 1 else ""
    return [Chart(f"{found.title}{folded}", headline(found), spec, {"cells": cells, "stages": _edges(found, step)})]


def _speeds(x: Encoding, y: Encoding, cells: Sequence[Row]) -> Encoding:
    """A square for each two devices: the faster, the stronger."""
    known = sorted({row["speed"] for row in cells if row["speed"]})
    kind = "log" if known and known[-1] > 20 * known[0] else "linear"
    speed = x_of(
        "speed",
        title="bandwidth, GB/s",
        scale={"type": kind, "range": ["@faint", "@line"], "interpolate": "rgb"},
        legend=ramp_key(known),
    )
    made = layer(
        mark("rect"),
        "cells",
        **span("x", x, "column", "right"),
        **span("y", y, "row", "below"),
        color=speed,
        tooltip=tooltip({"from": "devices", "to": "and", "speed": "bandwidth, GB/s"}),
    )
    ends = (("row", "below"), ("column", "right"))
    made["transform"] = [{"calculate": f"datum.{start} + 1", "as": end} for start, end in ends]
    return made


def _bands(x: Encoding, y: Encoding, band: float, found: Matrix, room: str) -> Iterator[Encoding]:
    """The colours of the stages above and left of their devices, with their numbers where there is room."""
    beside = (
        {**span("x", x, "start", "end"), "y": {**y, "datum": band}, "y2": {"datum": 0}},
        {**span("y", y, "start", "end"), "x": {**x, "datum": band}, "x2": {"datum": 0}},
    )
    names = (
        {"x": {**x, "field": "middle"}, "y": {**y, "datum": band / 2}},
        {"y": {**y, "field": "middle"}, "x": {**x, "datum": band / 2}},
    )
    for place in beside:
        colour, hover = stage_colour(found.stages), tooltip({"stage_name": "stage"})
        yield layer(mark("rect", stroke="@paper"), "stages", **place, color=colour, tooltip=hover)
    fits = f"(datum.end - datum.start) * {room} > 7 * datum.label.length + 2"
    for place in names:
        yield stage_texts("stages", found.stages, place, fits, fontSize=11, fontWeight="bold")


def _cells(speeds: Sequence[Sequence[float]], order: Sequence[int], step: int) -> list[Row]:
    """The least bandwidth between each two blocks of so many devices, in GB/s; of a device with itself none."""
    import numpy

    starts = list(range(0, len(order), step))
    ordered = numpy.array(speeds, dtype=float)[numpy.ix_(order, order)] / _GB
    numpy.fill_diagonal(ordered, numpy.inf)
    least = numpy.minimum.reduceat(numpy.minimum.reduceat(ordered, starts, axis=0), starts, axis=1)
    names = [_range(order[start : start + step]) for start in starts]
    return [
        {
            "row": i,
            "column": j,
            "speed": float(speed) if numpy.isfinite(speed) else None,
            "from": names[i],
            "to": names[j],
        }
        for i, line in enumerate(least)
        for j, speed in enumerate(line)
    ]


def _edges(found: Matrix, step: int) -> list[Row]:
    """From where to where each stage's devices reach, in blocks."""
    rows: list[Row] = []
    end = 0.0
    for place, (own, _) in enumerate(zip(found.devices, found.stages, strict=bool(found.stages))):
        start, end = end, end + len(own) / step
        rows.append({"start": start, "end": end, "middle": (start + end) / 2, **stage_fields(found.stages, place)})
    return rows


def _range(devices: Sequence[int]) -> str:
    return str(devices[0]) if len(devices) == 1 else f"{min(devices)} .. {max(devices)}"


def tiles(found: Tiles) -> list[Chart]:
    """Stages as rectangles on a mesh: a column is a machine."""
    rows: list[Row] = [
        {
            "row": tile.row,
            "column": tile.column,
            "below": tile.row + tile.rows,
            "right": tile.column + tile.columns,
            "middle": tile.column + tile.columns / 2,
            "centre": tile.row + tile.rows / 2,
            "form": f"{tile.rows} x {tile.columns}",
            **stage_fields(found.stages, tile.stage),
        }
        for tile in found.tiles
    ]
    across, down = ({"domain": ends, "nice": False} for ends in ([0, found.columns], [found.rows, 0]))
    x = x_of("column", title="machine", axis=_middles(found.columns), scale=across)
    y = x_of("row", title="device of the machine", axis=_middles(found.rows), scale=down)
    middle = {"x": {**x, "field": "middle"}, "y": {**y, "field": "centre"}}
    box = {**span("x", x, "column", "right"), **span("y", y, "row", "below")}
    spec = {
        "data": {"name": "tiles"},
        "height": int(min(420, max(80, 44 * found.rows))),
        "resolve": {"scale": {"color": "independent"}},
        "layer": [
            layer(
                mark("rect"),
                **box,
                color=stage_colour(found.stages),
                stroke={"value": "@paper"},
                strokeWidth={"value": 2},
                tooltip=tooltip({"stage_name": "stage", "form": "devices x machines"}),
            ),
            *frames("@ink", "tiles", DECISIVE, **box),
            stage_texts(None, found.stages, middle, f"(datum.right - datum.column) * width / {found.columns} > 22"),
        ],
    }
    return [Chart(found.title, headline(found), spec, {"tiles": rows})]


def _middles(count: int) -> dict[str, Any]:
    """An axis whose numbers stand in the middle of what they count."""
    return {
        "grid": False,
        "ticks": False,
        "values": [number + 0.5 for number in range(count)],
        "labelExpr": "format(floor(datum.value), 'd')",
        "labelOverlap": True,
    }
