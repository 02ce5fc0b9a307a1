"""Pictures of choices: time against memory, and values over two settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from formulations.figures.plan_figures import Heat, Options, Tradeoff
from planner.display.headlines import amount, scaled
from planner.display.palette import line_colour, mixed, text_on
from planner.display.plots.marks import (
    SMALL,
    apart,
    label_of,
    pixels,
    plain_numbers,
    quiet_frame,
    step_of,
    theme_of,
    width_of,
)

#: Pixels of a cell that has no room for a frame.
_NARROW = 14
#: More kinds of nodes than this are drawn without labels.
_LABELLED = 8


def totals(axes: Any, picture: Tradeoff) -> Any:
    """Whole choices: the hull of those that nothing dominates, the capacity, the plan, and what the heuristic chose."""
    theme = theme_of(axes)
    everything = [*picture.totals, *picture.frontier]
    factor, unit = scaled("bytes", max([each.memory_bytes for each in everything] + [picture.capacity_bytes]))
    x, y = [each.memory_bytes / factor for each in picture.frontier], [each.time for each in picture.frontier]
    axes.plot(x, y, color=theme.quiet, linewidth=1.2, marker="." if len(x) < 60 else None, markersize=4, zorder=1)
    limit = picture.capacity_bytes / factor
    axes.axvline(limit, color=theme.alarm, linewidth=1.4)
    axes.axvspan(limit, max([limit, *x]) * 1.05, color=mixed(theme.alarm, theme.paper, 0.08), linewidth=0, zorder=0)
    low, high = min(y + [each.time for each in picture.totals]), max(y + [each.time for each in picture.totals])
    span, across = high - low or 1.0, max([limit, *x]) - min(x) or 1.0
    groups: dict[tuple[float, float], list[str]] = {}
    for total in picture.totals:
        groups.setdefault((total.memory_bytes / factor, total.time), []).append(total.name)
    wide = pixels(axes)[0] / (1.1 * across)
    for number, ((at, time), names) in enumerate(groups.items()):
        text = f"{label_of(' and '.join(names))}: {amount(time, picture.unit)}"
        long = width_of(axes, text) / wide
        # Nothing is below the hull: the last text is above it, the others below it.
        above = at == max(place for place, _ in groups) and at + long < max([limit, *x]) * 1.05
        edge = min(x) - 0.05 * across
        side = "left" if above or at - long / 2 < edge else "right" if at - long > edge else "center"
        aside = {"left": 0.04, "right": -0.04, "center": 0.0}[side] * across
        axes.plot([at], [time], marker="os"[number == 0], markersize=8, color=line_colour(number), zorder=3)
        axes.annotate(
            text,
            (at, time),
            (at + aside, time + (0.14 if above else -0.16) * span),
            ha=side,
            va="center",
            fontsize=SMALL,
            color=theme.ink,
            arrowprops={"arrowstyle": "-", "color": theme.quiet, "linewidth": 0.8},
            bbox={"boxstyle": "round,pad=0.15", "facecolor": theme.paper, "edgecolor": "none", "alpha": 0.85},
            parse_math=False,
        )
    axes.text(limit, high + 0.12 * span, " capacity ", ha="right", va="top", fontsize=SMALL, color=theme.alarm)
    axes.set_ylim(low - 0.3 * span, high + 0.3 * span)
    axes.set(
        xlabel=f"memory of all nodes, {unit}",
        ylabel="time of all nodes" + (f", {picture.unit}" if picture.unit else ""),
    )
    quiet_frame(axes, "left", "bottom")
    return axes


def options(axes: Any, picture: Tradeoff) -> Any:
    """Each kind of node: its options as a line, how many nodes choose which (filled), and what the heuristic chose."""
    theme = theme_of(axes)
    kinds: dict[tuple[Any, ...], list[Options]] = {}
    for node in picture.nodes:
        kinds.setdefault(tuple((o.memory_bytes, o.time) for o in node.options), []).append(node)
    most = max((o.memory_bytes for node in picture.nodes for o in node.options), default=0.0)
    factor, unit = scaled("bytes", most)
    labels: list[tuple[float, float, str]] = []
    for number, (points, nodes) in enumerate(kinds.items()):
        few = len(kinds) <= _LABELLED
        colour = line_colour(number) if few else theme.quiet
        ordered = _undominated(points)
        line = colour if few else theme.faint
        axes.plot([m / factor for m, _ in ordered], [t for _, t in ordered], color=line, linewidth=0.8, zorder=1)
        own, other = Counter(node.chosen for node in nodes), Counter(node.heuristic for node in nodes)
        for place, (memory, time) in enumerate(points):
            size = 14 + 110 * own[place] / len(picture.nodes) if own[place] else 8
            if not (own[place] or other[place] or (memory, time) in ordered):
                continue
            face = colour if own[place] else theme.paper
            edge = colour if few or own[place] else theme.faint
            axes.scatter([memory / factor], [time], s=size, color=face, edgecolor=edge, linewidth=0.8, zorder=2)
            differs = None not in other and other[place] != own[place]
            if differs:
                ring = {"facecolor": "none", "edgecolor": theme.ink, "linewidth": 1.4, "zorder": 3}
                axes.scatter([memory / factor], [time], s=size + 70, **ring)
            if few and (own[place] or differs):
                labels.append((memory / factor, time, _chosen_by(nodes, place, own[place], other[place], differs)))
    _beside(axes, labels)
    axes.set(
        xlabel=f"memory of a node, {unit}", ylabel="time of a node" + (f", {picture.unit}" if picture.unit else "")
    )
    quiet_frame(axes, "left", "bottom")
    return axes


def _undominated(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other is below in memory and time, by memory."""
    found: list[tuple[float, float]] = []
    for memory, time in sorted(points):
        if not found or time < found[-1][1]:
            found.append((memory, time))
    return found


def _chosen_by(nodes: Sequence[Options], place: int, own: int, other: int, differs: bool) -> str:
    """How many of nodes with the same options choose this one, and of how many the heuristic does."""
    option = label_of(nodes[0].options[place].id)
    if len(nodes) == 1:
        return f"{option}: {'chosen' if own else 'by the heuristic'}"
    return f"{option}: {own} of {len(nodes)}" + (f", heuristic {other}" if differs else "")


def _beside(axes: Any, labels: Sequence[tuple[float, float, str]]) -> None:
    """Texts right of their points, far enough from each other; the axes get room for them."""
    if not labels:
        return
    axes.margins(x=0.06, y=0.12)
    left, right = axes.get_xlim()
    wide = max(width_of(axes, text) for *_, text in labels)
    share = min(0.6, wide / max(1.0, pixels(axes)[0]))
    axes.set_xlim(left, right + (right - left) * share / (1 - share))
    low, high = axes.get_ylim()
    least = (high - low) * SMALL * 1.5 * axes.figure.dpi / 72 / max(1.0, pixels(axes)[1])
    theme, step = theme_of(axes), 0.02 * (axes.get_xlim()[1] - left)
    for (x, y, text), place in zip(labels, apart([label[1] for label in labels], least), strict=True):
        line = {"arrowstyle": "-", "color": theme.faint, "linewidth": 0.6}
        axes.annotate(
            text,
            (x, y),
            (x + step, place),
            va="center",
            fontsize=SMALL,
            color=theme.ink,
            bbox={"boxstyle": "round,pad=0.05", "facecolor": theme.paper, "edgecolor": "none", "alpha": 0.8},
            arrowprops=line if abs(place - y) > least / 2 else None,
        )


def heat(axes: Any, picture: Heat) -> Any:
    """A cell for each pair of settings, dark is little; hatched ones have no value, the least and one's own a frame."""
    from matplotlib.colors import LogNorm

    theme = theme_of(axes)
    values = [[math.nan if value is None else value for value in row] for row in picture.values]
    known = [value for row in values for value in row if not math.isnan(value)]
    factor, unit = scaled(picture.unit, min((each for each in known if each > 0), default=0.0))
    values, known = [[value / factor for value in row] for row in values], [value / factor for value in known]
    spread = bool(known) and min(known) > 0 and max(known) > 4 * min(known)
    norm = LogNorm(min(known), max(known)) if spread else None
    axes.set_facecolor(mixed(theme.faint, theme.paper, 0.5))
    axes.patch.set(hatch="///", edgecolor=theme.quiet, linewidth=0)
    image = axes.imshow(values, cmap="cividis", norm=norm, aspect="auto", origin="lower", interpolation="nearest")
    rows, columns = len(picture.ys), len(picture.xs)
    texts = [f"{value:.3g}" for value in known]
    wide, tall = pixels(axes)[0] / max(1, columns), pixels(axes)[1] / max(1, rows)
    measure = f"{picture.measure}, {unit}" if unit else picture.measure
    if known and wide > max(width_of(axes, text) for text in texts) + 4 and tall > 1.6 * SMALL * axes.figure.dpi / 72:
        _cells(axes, image, values)
        axes.set_title(label_of(measure), loc="right", fontsize=SMALL, color=theme.quiet)
    elif known:
        bar = axes.figure.colorbar(image, ax=axes, label=label_of(measure))
        bar.outline.set_visible(False)
        plain_numbers(bar.ax.yaxis, is_log=spread)
        if min(rows, columns) > 2 and max(known) > min(known):
            _isolines(axes, image, values, known)
    _framed(axes, picture, len(known) < rows * columns)
    for name, settings, kind, room in (("x", picture.xs, picture.xunit, wide), ("y", picture.ys, picture.yunit, tall)):
        texts = [amount(setting, kind) if kind else f"{setting:g}" for setting in settings]
        needed = max((width_of(axes, text) for text in texts), default=0.0) if name == "x" else 1.5 * SMALL
        step = step_of((needed + 6) / max(room, 1.0))
        shown = [place for place in range(len(settings)) if not (place + 1) % step]
        getattr(axes, f"set_{name}ticks")(shown, [texts[place] for place in shown])
    axes.set(xlabel=label_of(picture.xlabel), ylabel=label_of(picture.ylabel))
    quiet_frame(axes)
    return axes


def _framed(axes: Any, picture: Heat, has_empty: bool) -> None:
    """Frames around the least value and one's own settings, and above what they and the hatched cells are."""
    from matplotlib.patches import Patch, Rectangle

    theme = theme_of(axes)
    handles: list[Any] = []
    small = min(pixels(axes)[0] / max(1, len(picture.xs)), pixels(axes)[1] / max(1, len(picture.ys))) < _NARROW
    for place, colour, name, wide in (
        (picture.best, theme.alarm, "least", 2.5),
        (picture.here, theme.ink, "here", 1.8),
    ):
        if place is None:
            continue
        row, column = place
        frame: dict[str, Any] = {"fill": False, "edgecolor": colour, "linewidth": wide}
        for order, look in enumerate(({**frame, "edgecolor": theme.paper, "linewidth": wide + 2.0}, frame), 4):
            if small:
                marker = {"facecolor": "none", "edgecolor": look["edgecolor"], "linewidth": look["linewidth"]}
                axes.scatter([column], [row], marker="s", s=70, zorder=order, clip_on=False, **marker)
            else:
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, zorder=order, clip_on=False, **look))
        handles.append(Patch(label=name, **frame))
    if has_empty:
        hatched: dict[str, Any] = {
            "facecolor": axes.get_facecolor(),
            "edgecolor": theme.quiet,
            "hatch": "///",
            "linewidth": 0,
        }
        handles.append(Patch(label=label_of(picture.empty), **hatched))
    if handles:
        axes.legend(
            handles=handles,
            ncols=len(handles),
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            frameon=False,
            fontsize=SMALL,
            borderaxespad=0.1,
        )


def _isolines(axes: Any, image: Any, values: Sequence[Sequence[float]], known: Sequence[float]) -> None:
    """Lines along cells between lesser and larger values than 1.1, 1.5, 2 and 4 times the least, with these values."""
    from matplotlib.colors import to_hex

    least, most = min(known), max(known)
    levels = [factor * least for factor in (1.1, 1.5, 2.0, 4.0) if least < factor * least < most]
    if levels:
        colours = [text_on(to_hex(image.cmap(image.norm(level)))) for level in levels]
        corners = [[value for value in row for _ in "ab"] for row in values for _ in "ab"]
        ends = [
            [place + side for place in range(count) for side in (-0.499, 0.499)]
            for count in (len(values[0]), len(values))
        ]
        lines = axes.contour(*ends, corners, levels=levels, colors=colours, linewidths=0.9)
        axes.clabel(lines, fontsize=SMALL, fmt="%.3g")


def _cells(axes: Any, image: Any, values: Sequence[Sequence[float]]) -> None:
    """Values in their cells, in black or white."""
    from matplotlib.colors import to_hex

    for row, line in enumerate(values):
        for column, value in enumerate(line):
            if not math.isnan(value):
                fill = to_hex(image.cmap(image.norm(value)))
                axes.text(column, row, f"{value:.3g}", ha="center", va="center", fontsize=SMALL, color=text_on(fill))
