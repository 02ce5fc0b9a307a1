"""Pictures of networks: bandwidths, topologies, graphs of stages, mappings and tilings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.show.plots.charts import PLAIN, label_of

_GB = 1e9


def bandwidth(axes: Any, matrix: Sequence[Sequence[float]]) -> Any:
    """A heat map of bandwidths in bytes per second; dark is fast, the diagonal is left white."""
    shown = [
        [math.nan if row == column else value / _GB for column, value in enumerate(line)]
        for row, line in enumerate(matrix)
    ]
    image = axes.imshow(shown, cmap="Greys", interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, label="bandwidth, GB/s")
    axes.set(xlabel="device", ylabel="device")
    return axes


def topology(axes: Any, matrix: Sequence[Sequence[float]]) -> Any:
    """Devices on a circle; the faster a link, the darker and thicker its line (the slowest kind is left out)."""
    count = len(matrix)
    places = [_on_circle(device, count) for device in range(count)]
    speeds = sorted({matrix[i][j] for i in range(count) for j in range(i)})
    slowest, fastest = (speeds[0], speeds[-1]) if speeds else (0.0, 1.0)
    for i in range(count):
        for j in range(i):
            if matrix[i][j] > slowest or slowest == fastest:
                share = matrix[i][j] / fastest
                ends = list(zip(places[i], places[j], strict=True))
                axes.plot(*ends, color=str(round(0.85 * (1 - share), 3)), linewidth=0.5 + 2 * share, zorder=1)
    axes.scatter(*zip(*places, strict=True), s=120, color="white", edgecolor="black", zorder=2)
    for device, (x, y) in enumerate(places):
        axes.text(x, y, str(device), ha="center", va="center", fontsize=7, zorder=3)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title(
        f"links faster than {slowest / _GB:g} GB/s" if slowest < fastest else f"links, {fastest / _GB:g} GB/s"
    )
    return axes


def mapping(axes: Any, devices: Sequence[Sequence[int]], matrix: Sequence[Sequence[float]]) -> Any:
    """The bandwidth matrix with devices in the order of their stages; lines part the stages.

    What a stage's replicas use among themselves lies in the squares on the diagonal.
    """
    order = [device for stage in devices for device in stage]
    bandwidth(axes, [[matrix[i][j] for j in order] for i in order])
    axes.set_xticks(range(len(order)), order, rotation=90, fontsize=6)
    axes.set_yticks(range(len(order)), order, fontsize=6)
    edge = -0.5
    for stage, own in enumerate(devices):
        axes.text(len(order), edge + len(own) / 2, f"stage {stage}", fontsize=6, va="center")
        edge += len(own)
        if stage < len(devices) - 1:
            axes.axhline(edge, color="black", linewidth=0.8)
            axes.axvline(edge, color="black", linewidth=0.8)
    axes.set(xlabel="device, in the order of stages", ylabel="device, in the order of stages")
    return axes


def graph(axes: Any, edges: Sequence[tuple[int, int]], labels: Mapping[int, str]) -> Any:
    """An acyclic graph, inputs at the left; a vertex stands right of everything it needs."""
    depth = dict.fromkeys(labels, 0)
    for _ in labels:  # as many rounds as the longest path at most
        moved = [(target, depth[source] + 1) for source, target in edges if depth[target] <= depth[source]]
        if not moved:
            break
        for target, at in moved:
            depth[target] = max(depth[target], at)
    rows: dict[int, int] = {}
    places: dict[int, tuple[int, float]] = {}
    for vertex in sorted(labels, key=lambda each: (depth[each], each)):
        row = rows.get(depth[vertex], 0)
        rows[depth[vertex]] = row + 1
        places[vertex] = (depth[vertex], row)
    places = {vertex: (x, y - (rows[x] - 1) / 2) for vertex, (x, y) in places.items()}
    for source, target in edges:
        axes.annotate(
            "", xy=places[target], xytext=places[source], arrowprops={"arrowstyle": "->", "shrinkA": 12, "shrinkB": 12}
        )
    for vertex, (x, y) in places.items():
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "black"}
        axes.text(x, y, label_of(labels[vertex]), ha="center", va="center", fontsize=7, bbox=box, parse_math=False)
    axes.set_xlim(-0.6, max(rows, default=0) + 0.6)
    tall = max(rows.values(), default=1)
    axes.set_ylim(-tall / 2 - 0.3, tall / 2 + 0.3)
    axes.axis("off")
    return axes


def tiling(axes: Any, rows: int, columns: int, tiles: Sequence[Mapping[str, int]]) -> Any:
    """Stages as rectangles ``{"stage", "row", "column", "rows", "columns"}`` on a mesh; a column is a node."""
    fills = ("0.95", PLAIN, "0.62")
    for tile in tiles:
        x = [tile["column"], tile["column"] + tile["columns"]]
        y = tile["row"], tile["row"] + tile["rows"]
        fill = fills[tile["stage"] % len(fills)]
        axes.fill_between(x, *y, facecolor=fill, edgecolor="black", linewidth=1.5)
        axes.text(sum(x) / 2, sum(y) / 2, str(tile["stage"]), ha="center", va="center", fontsize=8)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_aspect("equal")
    axes.set(xlabel="node", ylabel="device of the node")
    return axes


def _on_circle(index: int, count: int) -> tuple[float, float]:
    angle = 2 * math.pi * index / max(count, 1)
    return math.sin(angle), math.cos(angle)
