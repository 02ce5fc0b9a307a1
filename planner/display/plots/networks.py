"""Pictures of networks: bandwidths, topologies, devices with their loads, and tilings."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from formulations.figures.plan_figures import Matrix, Network, Place, Tiles
from planner.display.headlines import amount
from planner.display.palette import BOTTLENECK, mixed, stage_colour, text_on
from planner.display.plots.marks import SMALL, TEXT, label_of, pixels, quiet_frame, theme_of, width_of

_GB = 1e9
#: More links than this are drawn as thin straight lines.
_CURVED = 400


def bandwidth(axes: Any, matrix: Sequence[Sequence[float]]) -> Any:
    """A heat map of bandwidths in bytes per second; light is fast, the diagonal is left empty."""
    shown = np.array(matrix) / _GB
    np.fill_diagonal(shown, math.nan)
    image = axes.imshow(shown, cmap="cividis", norm=_scale(shown), interpolation="nearest")
    _scale_beside(axes, image)
    axes.set(xlabel="device", ylabel="device")
    return axes


def _scale(shown: Any) -> Any:
    """Logarithmic where bandwidths differ by much."""
    from matplotlib.colors import LogNorm

    known = shown[shown > 0]
    return LogNorm(known.min(), known.max()) if known.size and known.max() > 4 * known.min() else None


def _scale_beside(axes: Any, image: Any) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import LogLocator, NullLocator

    is_log = isinstance(image.norm, LogNorm)
    ticks = LogLocator(subs=(1.0, 2.0, 5.0)) if is_log else None
    beside = axes.inset_axes((1.04, 0.0, 0.05, 1.0))
    bar = axes.figure.colorbar(image, cax=beside, label="bandwidth, GB/s", ticks=ticks, format="%g")
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_minor_locator(NullLocator())


def topology(axes: Any, matrix: Sequence[Sequence[float]]) -> Any:
    """Devices on a circle; the faster a link, the darker and thicker its line (the slowest kind is left out)."""
    theme, count = theme_of(axes), len(matrix)
    places = [_on_circle(device, count) for device in range(count)]
    speeds = sorted({matrix[i][j] for i in range(count) for j in range(i)})
    slowest, fastest = (speeds[0], speeds[-1]) if speeds else (0.0, 1.0)
    for i in range(count):
        for j in range(i):
            if matrix[i][j] > slowest or slowest == fastest:
                share = matrix[i][j] / fastest
                ends = list(zip(places[i], places[j], strict=True))
                axes.plot(
                    *ends, color=mixed(theme.ink, theme.paper, 0.15 + 0.85 * share), linewidth=0.5 + 2 * share, zorder=1
                )
    axes.scatter(*zip(*places, strict=True), s=120, color=theme.paper, edgecolor=theme.ink, zorder=2)
    for device, (x, y) in enumerate(places):
        axes.text(x, y, str(device), ha="center", va="center", fontsize=7, color=theme.ink, zorder=3)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title(
        f"links faster than {slowest / _GB:g} GB/s" if slowest < fastest else f"links, {fastest / _GB:g} GB/s"
    )
    return axes


def _on_circle(index: int, count: int) -> tuple[float, float]:
    angle = 2 * math.pi * index / max(count, 1)
    return math.sin(angle), math.cos(angle)


def matrix(axes: Any, picture: Matrix) -> Any:
    """Bandwidths with devices in the order of their stages, whose colours are on both sides; light is fast.

    What a stage's replicas use among themselves lies in the squares on the diagonal.
    """
    theme, known = theme_of(axes), picture.bandwidth_bytes_per_s
    order = [device for stage in picture.devices for device in stage]
    shown = np.array(known)[np.ix_(order, order)] / _GB
    np.fill_diagonal(shown, math.nan)
    image = axes.imshow(shown, cmap="cividis", norm=_scale(shown), interpolation="nearest")
    _scale_beside(axes, image)
    size = len(order)
    band = max(0.6, size / 22)
    side = min(pixels(axes)) / (size + band)
    edge = -0.5
    for number, own in enumerate(picture.devices):
        colour = stage_colour(number, theme)
        axes.barh(edge + len(own) / 2, band, len(own), left=-0.5 - band, color=colour, linewidth=0)
        axes.bar(edge + len(own) / 2, band, len(own), bottom=-0.5 - band, color=colour, linewidth=0)
        is_decisive = picture.stages[number].is_bottleneck
        label = label_of(picture.stages[number].label)
        if is_decisive and band * side > width_of(axes, f"{BOTTLENECK}{label}"):
            label = f"{BOTTLENECK}{label}"
        if len(own) * side > 1.3 * SMALL * axes.figure.dpi / 72 and band * side > width_of(axes, label):
            for x, y in ((-0.5 - band / 2, edge + len(own) / 2), (edge + len(own) / 2, -0.5 - band / 2)):
                axes.text(
                    x, y, label, ha="center", va="center", fontsize=SMALL, color=text_on(colour), parse_math=False
                )
        if is_decisive:
            ends = edge, edge + len(own)
            square = [ends[0], ends[1], ends[1], ends[0], ends[0]], [ends[0], ends[0], ends[1], ends[1], ends[0]]
            axes.plot(*square, color=theme.paper, linewidth=4.5, zorder=4)
            axes.plot(*square, color=theme.ink, linewidth=2.2, zorder=4)
        edge += len(own)
        if number < len(picture.devices) - 1 and len(picture.devices) * 12 < min(pixels(axes)):
            axes.axhline(edge, color=theme.paper, linewidth=0.8)
            axes.axvline(edge, color=theme.paper, linewidth=0.8)
    axes.set_xlim(-0.5 - band, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5 - band)
    axes.set_xticks([])
    axes.set_yticks([])
    quiet_frame(axes)
    axes.set(xlabel="devices in the order of stages", ylabel="devices in the order of stages")
    return axes


def network(axes: Any, picture: Network) -> Any:
    """Devices where they stand, in the colours of their stages; the longer a link takes, the thicker it is."""
    at = {place.device: place for place in picture.places}
    xs, ys = [place.x for place in picture.places] or [0.0], [place.y for place in picture.places] or [0.0]
    axes.set_xlim(min(xs) - 0.9, max(xs) + 0.9)
    axes.set_ylim(max(ys) + 0.9, min(ys) - 0.9)
    axes.set_aspect("equal", anchor="W")
    unit = min(pixels(axes)[0] / (max(xs) - min(xs) + 1.8), pixels(axes)[1] / (max(ys) - min(ys) + 1.8))
    _machines(axes, picture, unit)
    _links(axes, picture, at)
    big = 0.62
    for place in picture.places:
        _device(axes, picture, place, big, unit)
    axes.set_xticks([])
    axes.set_yticks([])
    quiet_frame(axes)
    slowest = next((link for link in picture.links if link.is_slowest), None)
    if slowest is not None:
        capacity = slowest.capacity_bytes_per_s
        speed = f"{capacity / _GB:.3g} GB/s" if capacity >= 1e6 else f"{capacity:.3g} B/s"
        said = f"thick line: {amount(slowest.load_bytes, 'bytes')} at {speed}, the slowest link of the bottleneck"
        axes.set_xlabel("\n".join(textwrap.wrap(said, int(pixels(axes)[0] / width_of(axes, "x", TEXT)))), loc="left")
    return axes


def _device(axes: Any, picture: Network, place: Place, big: float, unit: float) -> None:
    from matplotlib.patches import Rectangle

    theme = theme_of(axes)
    colour = stage_colour(place.stage, theme)
    decisive = place.stage is not None and picture.stages[place.stage].is_bottleneck
    edge: dict[str, Any] = {
        "edgecolor": theme.ink if decisive else theme.paper,
        "linewidth": 2.0 if decisive else (0.5 if unit > 8 else 0),
    }
    axes.add_patch(Rectangle((place.x - big / 2, place.y - big / 2), big, big, facecolor=colour, zorder=3, **edge))
    label = "" if place.stage is None else label_of(picture.stages[place.stage].label)
    if label and unit * big > max(width_of(axes, label), SMALL * axes.figure.dpi / 72) + 1:
        axes.text(
            place.x,
            place.y,
            label,
            ha="center",
            va="center",
            fontsize=TEXT if unit > 34 else SMALL,
            color=text_on(colour),
            zorder=5,
            parse_math=False,
            fontweight="bold" if decisive else "normal",
        )


def _machines(axes: Any, picture: Network, unit: float) -> None:
    """A box around the devices of each machine, with its name above where there is room."""
    from matplotlib.patches import FancyBboxPatch

    theme = theme_of(axes)
    for number, name in enumerate(picture.machines):
        own = [place for place in picture.places if place.machine == number]
        if not own:
            continue
        left, top = min(place.x for place in own) - 0.45, min(place.y for place in own) - 0.45
        wide, tall = max(place.x for place in own) + 0.45 - left, max(place.y for place in own) + 0.45 - top
        style: dict[str, Any] = {"facecolor": mixed(theme.faint, theme.paper, 0.45), "edgecolor": "none", "zorder": 0}
        axes.add_patch(FancyBboxPatch((left, top), wide, tall, boxstyle="round,pad=0.02,rounding_size=0.12", **style))
        text = label_of(name)
        if wide * unit > width_of(axes, text, SMALL) and 0.3 * unit > 4:
            axes.text(
                left + wide / 2,
                top - 0.04,
                text,
                ha="center",
                va="bottom",
                fontsize=SMALL,
                color=theme.quiet,
                parse_math=False,
                zorder=2.7,
                bbox={"facecolor": theme.paper, "edgecolor": "none", "pad": 0.6},
            )


def _links(axes: Any, picture: Network, at: dict[int, Place]) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import FancyArrowPatch

    theme = theme_of(axes)
    most = max((link.seconds for link in picture.links), default=0.0) or 1.0
    if len(picture.links) > _CURVED:
        ends = [((at[link.a].x, at[link.a].y), (at[link.b].x, at[link.b].y)) for link in picture.links]
        axes.add_collection(LineCollection(ends, colors=theme.faint, linewidths=0.3, zorder=1), autolim=False)
    for link in sorted(picture.links, key=lambda each: each.seconds):
        if len(picture.links) > _CURVED and not link.is_slowest:
            continue
        a, b = at[link.a], at[link.b]
        share = link.seconds / most
        colour = theme.ink if link.is_slowest else mixed(theme.quiet, theme.paper, 0.35 + 0.4 * share)
        style: dict[str, Any] = {
            "arrowstyle": "-",
            "color": colour,
            "linewidth": 3.4 if link.is_slowest else 0.6 + 2.0 * share,
        }
        bend = 0.0 if math.hypot(a.x - b.x, a.y - b.y) < 1.2 else 0.22
        curve = FancyArrowPatch(
            (a.x, a.y), (b.x, b.y), connectionstyle=f"arc3,rad={bend}", shrinkA=0, shrinkB=0, **style
        )
        curve.set_zorder(2.5 if link.is_slowest else 2)
        axes.add_patch(curve)


def tiles(axes: Any, picture: Tiles) -> Any:
    """Stages as rectangles in their colours on a mesh; a column is a machine."""
    from matplotlib.patches import Rectangle

    theme = theme_of(axes)
    unit = min(pixels(axes)[0] / max(1, picture.columns), pixels(axes)[1] / max(1, picture.rows))
    for tile in picture.tiles:
        colour, stage = stage_colour(tile.stage, theme), picture.stages[tile.stage]
        edge: dict[str, Any] = (
            {"edgecolor": theme.ink, "linewidth": 2.6, "zorder": 3}
            if stage.is_bottleneck
            else {"edgecolor": theme.paper, "linewidth": 1.6, "zorder": 2}
        )
        axes.add_patch(Rectangle((tile.column, tile.row), tile.columns, tile.rows, facecolor=colour, **edge))
        if unit * min(tile.rows, tile.columns) > SMALL * axes.figure.dpi / 72:
            text = f"{BOTTLENECK} {stage.label}" if stage.is_bottleneck else stage.label
            axes.text(
                tile.column + tile.columns / 2,
                tile.row + tile.rows / 2,
                label_of(text),
                ha="center",
                va="center",
                fontsize=TEXT,
                color=text_on(colour),
                zorder=4,
                parse_math=False,
            )
    axes.set_xlim(-0.05, picture.columns + 0.05)
    axes.set_ylim(picture.rows + 0.05, -0.05)
    axes.set_aspect("equal")
    for name, count in (("x", picture.columns), ("y", picture.rows)):
        step = max(1, math.ceil(count / max(1.0, pixels(axes)[0 if name == "x" else 1] / 28)))
        getattr(axes, f"set_{name}ticks")([place + 0.5 for place in range(0, count, step)], range(0, count, step))
    axes.tick_params(length=0)
    axes.set(xlabel="machine", ylabel="device of the machine")
    quiet_frame(axes)
    return axes
