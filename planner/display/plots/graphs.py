"""Pictures of graphs: a model's operators, or stages, in layers from the input side on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from formulations.figures.plan_figures import Graph, Node
from planner.display.headlines import amount
from planner.display.layers import Layout, Point, layered
from planner.display.palette import BOTTLENECK, stage_colour, text_on
from planner.display.plots.marks import SMALL, label_of, pixels, quiet_frame, theme_of, width_of

#: Bytes are written on at most so many cuts, the largest first.
_WRITTEN = 8
#: Layers nearer to each other than so many of a picture's pixels, of which an inch has so many, stand below each other.
_NEAR, _DOTS = 16, 100
#: Inches of the highest graph.
_TALLEST = 9.0


def graph(axes: Any, picture: Graph, layout: Layout | None = None) -> Any:
    """Nodes in the colours of their stages; cuts are thick, the largest with their bytes; chains have their length."""
    found = layout or layered(picture)
    upright = _is_upright(found, pixels(axes)[0])
    if upright:
        found = found.turned()
    across = [y for route in found.routes for _, y in route] + [y for _, y in found.places.values()] or [0.0]
    along = [x for route in found.routes for x, _ in route] + [x for x, _ in found.places.values()] or [0.0]
    axes.set_xlim(min(along) - (1.2 if upright else 0.6), max(along) + 0.6)
    axes.set_ylim(max(across) + 0.6, min(across) - 0.9)
    wide = pixels(axes)[0] / (max(along) - min(along) + 1.2)
    tall = pixels(axes)[1] / (max(across) - min(across) + 1.5)
    boxes = _boxes(axes, picture.nodes, wide, tall)
    _arcs(axes, picture, found)
    for node in picture.nodes:
        _node(axes, node, found.places[node.id], boxes[node.id], picture, min(wide, tall))
    if not any(boxes.values()):
        _stages(axes, picture, found.places, wide, tall, upright)
    _bytes(axes, picture, found, wide, tall)
    axes.set_xticks([])
    axes.set_yticks([])
    quiet_frame(axes)
    return axes


def inches(layout: Layout, width: float) -> float:
    """How high the picture of a graph is where it is so many inches wide."""
    if _is_upright(layout, width * _DOTS):
        return min(_TALLEST, 0.6 + 0.19 * layout.depth)
    return min(6.0, 1.1 + 0.5 * layout.breadth)


def _is_upright(layout: Layout, wide: float) -> bool:
    """Whether the inputs stand on top, as layers would be too near to each other side by side."""
    return layout.depth > layout.breadth and wide / (layout.depth + 1.2) < _NEAR


def _boxes(axes: Any, nodes: Sequence[Node], wide: float, tall: float) -> dict[int, str]:
    """What is written into each node: as much for all as there is room for; empty: nothing."""
    choices = (
        {node.id: "\n".join(filter(None, (node.name, node.text.replace(", ", "\n")))) for node in nodes},
        {node.id: node.name for node in nodes},
        {node.id: _number(node) for node in nodes},
    )
    for texts in choices:
        labels = {each: label_of(text) for each, text in texts.items()}
        lines = max((text.count("\n") + 1 for text in labels.values()), default=1)
        longest = max((width_of(axes, text) for text in labels.values()), default=0.0)
        if longest + 14 <= wide and lines * 1.4 * SMALL * axes.figure.dpi / 72 + 6 <= tall:
            return labels
    return {node.id: "" for node in nodes}


def _number(node: Node) -> str:
    return f"×{node.count}" if node.count > 1 else ("" if node.stage is None else str(node.stage))


def _node(axes: Any, node: Node, place: Point, text: str, picture: Graph, room: float) -> None:
    theme = theme_of(axes)
    colour = stage_colour(node.stage, theme)
    decisive = node.stage is not None and picture.stages[node.stage].is_bottleneck
    edge = {"edgecolor": theme.ink if decisive else theme.paper, "linewidth": 1.8 if decisive else 0.6}
    if text:
        box = {"boxstyle": "round,pad=0.35", "facecolor": colour, **edge}
        axes.text(
            *place,
            text,
            ha="center",
            va="center",
            fontsize=SMALL,
            color=text_on(colour),
            bbox=box,
            zorder=3,
            parse_math=False,
        )
        if decisive and len(picture.nodes) == len(picture.stages):
            axes.annotate(
                f"{BOTTLENECK} bottleneck",
                place,
                (0, 24),
                textcoords="offset points",
                ha="center",
                fontsize=SMALL,
                color=theme.ink,
                zorder=4,
            )
        return
    points = max(2.0, min(12.0, 0.6 * room * 72 / axes.figure.dpi))
    axes.scatter(*place, s=points**2, color=colour, zorder=3, **edge)


def _arcs(axes: Any, picture: Graph, layout: Layout) -> None:
    from matplotlib.collections import LineCollection

    theme = theme_of(axes)
    largest = max((arc.bytes for arc in picture.arcs if arc.is_cut), default=0.0)
    for cut, colour in ((False, theme.quiet), (True, theme.ink)):
        routes = [route for arc, route in zip(picture.arcs, layout.routes, strict=True) if arc.is_cut == cut]
        thick = [
            0.8 + (2.2 * arc.bytes / largest if cut and largest else 0.0) for arc in picture.arcs if arc.is_cut == cut
        ]
        if routes:
            lines = LineCollection(routes, colors=colour, linewidths=thick, joinstyle="round", zorder=1)
            axes.add_collection(lines, autolim=False)


def _bytes(axes: Any, picture: Graph, layout: Layout, wide: float, tall: float) -> None:
    """Bytes of the largest cuts, in the middle of their lines, where they meet no node and no other text."""
    theme = theme_of(axes)
    cuts = [
        (arc, route) for arc, route in zip(picture.arcs, layout.routes, strict=True) if arc.is_cut and arc.bytes > 0
    ]
    used = [(*place, 14.0) for place in layout.places.values()]
    high = 1.4 * SMALL * axes.figure.dpi / 72
    for arc, route in sorted(cuts, key=lambda each: -each[0].bytes)[:_WRITTEN]:
        (x, y), (u, v) = route[(len(route) - 1) // 2], route[(len(route) - 1) // 2 + 1]
        x, y = (x + u) / 2, (y + v) / 2
        text = amount(arc.bytes, "bytes")
        long = width_of(axes, text)
        if any(abs(x - a) * wide < (long + other) / 2 and abs(y - b) * tall < high for a, b, other in used):
            continue
        used.append((x, y, long))
        box = {"boxstyle": "round,pad=0.1", "facecolor": theme.paper, "edgecolor": "none", "alpha": 0.9}
        axes.text(x, y, text, ha="center", va="center", fontsize=SMALL, color=theme.ink, bbox=box, zorder=2)


def _stages(
    axes: Any, picture: Graph, places: Mapping[int, Point], wide: float, tall: float, upright: bool = False
) -> None:
    """Above nodes without texts, or left of them: the number of each stage, at the middle of its nodes."""
    theme, last = theme_of(axes), -1e9
    middles = []
    for number, stage in enumerate(picture.stages):
        own = [places[node.id] for node in picture.nodes if node.stage == number]
        if own and upright:
            middle = sum(y for _, y in own) / len(own)
            middles.append((middle, min(x for x, _ in own), stage, number))
        elif own:
            middles.append((sum(x for x, _ in own) / len(own), min(y for _, y in own), stage, number))
    for along, edge, stage, number in sorted(middles, key=lambda each: each[0]):
        text = f"{BOTTLENECK} {stage.label}" if stage.is_bottleneck else stage.label
        needed = 2.2 * SMALL * axes.figure.dpi / 72 if upright else width_of(axes, text) + 6
        if (along - last) * (tall if upright else wide) < needed:
            continue
        last = along
        x, y = (edge - 12 / wide, along) if upright else (along, edge - 16 / tall)
        box = {
            "boxstyle": "round,pad=0.2",
            "facecolor": stage_colour(number, theme),
            "edgecolor": theme.ink if stage.is_bottleneck else "none",
        }
        axes.text(
            x,
            y,
            text,
            ha="right" if upright else "center",
            va="center" if upright else "bottom",
            fontsize=SMALL,
            color=text_on(stage_colour(number, theme)),
            bbox=box,
            zorder=4,
            parse_math=False,
        )
