"""Pictures of stages: the strip of layers, stacked bars, and the pipeline as a Gantt chart."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any

from formulations.figures.plan_figures import Item, Passes, Stack, Stage, Strip
from planner.display.headlines import amount, bottleneck, percent, scaled
from planner.display.palette import BOTTLENECK, PART_PATTERNS, mixed, part_colour, patterns, stage_colour, text_on
from planner.display.plots.marks import (
    SMALL,
    TEXT,
    label_of,
    pixels,
    quiet_frame,
    stage_ticks,
    theme_of,
    width_of,
)

#: Narrower layers, in pixels, are drawn without lines between them.
_LAYER = 4.0


def strip(axes: Any, picture: Strip) -> Any:
    """Layers from left to right in the colours of their stages; replicas as height, TMPCs as patterns."""
    theme, sizes = theme_of(axes), widths(picture.items)
    look = patterns([item.pattern for item in picture.items])
    most = max((stage.replicas for stage in picture.stages), default=1)
    per_unit = pixels(axes)[0] / (sum(sizes) or 1.0)
    left, blocks = 0.0, []
    for stage, run in groupby(range(len(sizes)), key=lambda place: picture.items[place].stage):
        places = list(run)
        start, colour = left, stage_colour(stage, theme)
        tall = 1.0 if stage is None else height_of(picture.stages[stage].replicas, most)
        ink = text_on(colour)
        for pattern, same in groupby(places, key=lambda place: picture.items[place].pattern):
            wide = [sizes[place] for place in same]
            edges = [left + sum(wide[:count]) for count in range(len(wide) + 1)]
            drawn = {"color": colour, "hatch": look[pattern], "edgecolor": mixed(ink, colour, 0.45), "linewidth": 0}
            axes.bar(left, tall, sum(wide), align="edge", **drawn)
            if sum(wide) / len(wide) * per_unit >= _LAYER:
                axes.vlines(edges[1:-1], 0, tall, color=mixed(ink, colour, 0.35), linewidth=0.5)
            left = edges[-1]
        axes.vlines(left, 0, tall, color=theme.paper, linewidth=1.2 if (left - start) * per_unit > 3 else 0.3)
        blocks.append((stage, start, left, tall))
    narrow = _name_blocks(axes, picture.stages, blocks, per_unit)
    _brackets(axes, picture.stages, blocks, per_unit)
    axes.set_xlim(0, left or 1.0)
    axes.set_ylim(-0.42 if any(stage.degrees for stage in picture.stages) else -0.06, 1.24)
    axes.set_yticks([])
    axes.set_xticks([])
    quiet_frame(axes)
    said = [f"width: {picture.measure}"]
    if len({stage.replicas for stage in picture.stages}) > 1:
        said.append("height: replicas")
    if narrow:
        said.append("too narrow for a number: " + (f"{len(narrow)} stages" if len(narrow) > 6 else ", ".join(narrow)))
    lines = textwrap.wrap("; ".join(said), max(20, int(pixels(axes)[0] / width_of(axes, "x", TEXT))))
    axes.set_xlabel("\n".join(lines), loc="left", color=theme.quiet)
    _key(axes, look, -0.14 * len(lines))
    return axes


def widths(items: Sequence[Item]) -> list[float]:
    """Of every layer; the same for all where all are 0, and wide enough to be seen."""
    sizes = [item.size for item in items]
    least = sum(sizes) / (8 * max(1, len(sizes)))
    return [max(size, least) for size in sizes] if any(sizes) else [1.0] * len(sizes)


def height_of(replicas: int, most: int) -> float:
    """A step up for every doubling; 1 for the most.

    >>> height_of(1, 4), height_of(2, 4), height_of(4, 4)
    (0.5, 0.75, 1.0)
    """
    return 1.0 if most <= 1 else 0.5 + 0.5 * math.log2(max(1, replicas)) / math.log2(most)


def _name_blocks(axes: Any, stages: Sequence[Stage], blocks: Sequence[tuple[Any, ...]], per_unit: float) -> list[str]:
    """Numbers of stages in their blocks, upright in narrow ones, and the bottleneck's mark; the numbers left out."""
    theme = theme_of(axes)
    left_out: list[str] = []
    for stage, start, end, tall in blocks:
        if stage is None:
            continue
        middle, room = (start + end) / 2, (end - start) * per_unit
        text = label_of(stages[stage].label)
        if stages[stage].is_bottleneck:
            axes.plot([start, start, end, end, start], [0, tall, tall, 0, 0], color=theme.ink, linewidth=2.2, zorder=4)
            said = f"{BOTTLENECK} bottleneck: stage {text}"
            half = width_of(axes, said) / 2 / per_unit
            at = min(max(middle, half), blocks[-1][2] - half)
            axes.text(
                at, tall + 0.04, said, ha="center", va="bottom", fontsize=SMALL, color=theme.ink, parse_math=False
            )
        upright = room >= width_of(axes, text) + 5
        if not upright and room < 1.1 * SMALL * axes.figure.dpi / 72:
            left_out.append(text)
        else:
            colour = stage_colour(stage, theme)
            box = {"boxstyle": "round,pad=0.15", "facecolor": colour, "edgecolor": "none"}
            axes.text(
                middle,
                tall / 2,
                text,
                ha="center",
                va="center",
                fontsize=TEXT if upright else SMALL,
                rotation=0 if upright else 90,
                color=text_on(colour),
                bbox=box,
                fontweight="bold" if stages[stage].is_bottleneck else "normal",
                parse_math=False,
            )
    return left_out


def _brackets(axes: Any, stages: Sequence[Stage], blocks: Sequence[tuple[Any, ...]], per_unit: float) -> None:
    """Below the blocks: degrees, once for a run of stages that have the same."""
    theme = theme_of(axes)
    for degrees, run in groupby(blocks, key=lambda block: "" if block[0] is None else stages[block[0]].degrees):
        same = list(run)
        start, end = same[0][1], same[-1][2]
        if not degrees:
            continue
        pad = min(2 / per_unit, (end - start) / 4)
        axes.plot(
            [start + pad, start + pad, end - pad, end - pad],
            [-0.03, -0.09, -0.09, -0.03],
            color=theme.quiet,
            linewidth=0.8,
        )
        room = (end - start) * per_unit
        for text in (label_of(degrees), label_of(degrees.replace(" x ", "\n")), ""):
            if text and room >= width_of(axes, text):
                axes.text(
                    (start + end) / 2,
                    -0.13,
                    text,
                    ha="center",
                    va="top",
                    fontsize=SMALL,
                    color=theme.ink,
                    parse_math=False,
                )
                break


def _key(axes: Any, look: dict[str, str], below: float) -> None:
    """What patterns mean, so far below the picture, as a share of its height."""
    from matplotlib.patches import Patch

    theme, named = theme_of(axes), [name for name in look if name]
    if len(named) < 2:
        return
    handles = [
        Patch(facecolor=theme.faint, edgecolor=theme.ink, hatch=look[name], label=label_of(name)) for name in named
    ]
    columns = max(1, int(pixels(axes)[0] / max(width_of(axes, label_of(name)) + 40 for name in named)))
    axes.legend(
        handles=handles,
        ncols=columns,
        loc="upper left",
        bbox_to_anchor=(0, below),
        frameon=False,
        fontsize=SMALL,
        borderaxespad=0,
    )


def stack(axes: Any, picture: Stack, top: float = 0.0, looks: Sequence[int] | None = None) -> Any:
    """A bar for each stage, its parts one above the other, with the largest sum's line, or the limit and slack.

    Bars that add up to the objective begin where the one before them ends.

    ``top`` is shown at least, in the picture's unit: so that two pictures have one scale. ``looks`` are the numbers of
    the stages' colours, where these are not their positions.
    """
    theme, count = theme_of(axes), len(picture.stages)
    totals = [picture.total(stage) for stage in range(count)]
    limits = [limit for limit in picture.limits or () if math.isfinite(limit)]
    whole = math.fsum(totals) if picture.adds_up else max(totals, default=0.0)
    factor, unit = scaled(picture.unit, max([whole, *limits, top], default=0.0))
    _bars(axes, picture, factor, range(count) if looks is None else looks)
    if picture.limits is not None:
        _limits(axes, picture, totals, factor)
    elif whole > 0:
        axes.axhline(whole / factor, color=theme.ink, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        axes.text(
            count - 0.4,
            whole / factor,
            f"{'objective ' if picture.adds_up else ''}{amount(whole, picture.unit)} ",
            ha="right",
            va="bottom",
            fontsize=SMALL,
            color=theme.ink,
        )
    axes.set_xlim(-0.6, count - 0.4)
    axes.set_ylim(0, 1.14 * max([whole, *limits, top]) / factor or 1.0)
    stage_ticks(axes, picture.stages, with_degrees=True)
    axes.set_xlabel("stage")
    axes.set_ylabel(f"{label_of(picture.measure)}, {unit}" if unit else label_of(picture.measure))
    quiet_frame(axes, "left", "bottom")
    _parts_key(axes, picture)
    return axes


def _bars(axes: Any, picture: Stack, factor: float, looks: Sequence[int]) -> None:
    theme, count = theme_of(axes), len(picture.stages)
    decisive = bottleneck(picture.stages)
    wide = 0.8 if not picture.beside else 0.5
    colours = [stage_colour(look, theme) for look in looks]
    feet = [0.0] * count
    if picture.adds_up:
        feet = list(accumulate((picture.total(stage) / factor for stage in range(count - 1)), initial=0.0))
        axes.hlines(feet[1:], range(count - 1), range(1, count), color=theme.quiet, linewidth=0.7, zorder=0)
    base = list(feet)
    for number, values in enumerate(picture.parts.values()):
        fills = [part_colour(colour, number, theme) for colour in colours]
        heights = [value / factor for value in values]
        lines = [mixed(colour, theme.ink, 0.75) for colour in colours]
        hatch = PART_PATTERNS[number % len(PART_PATTERNS)]
        axes.bar(range(count), heights, wide, base, color=fills, edgecolor=lines, linewidth=0, hatch=hatch)
        base = [low + more for low, more in zip(base, heights, strict=True)]
    for number, values in enumerate(picture.beside.values()):
        left = [stage + wide / 2 + 0.14 * (number + 0.5) for stage in range(count)]
        axes.bar(left, [value / factor for value in values], 0.12, color=theme.quiet)
    if decisive is not None:
        thick = min(2.2, max(0.8, 0.2 * wide * pixels(axes)[0] / count))
        axes.bar(
            decisive,
            base[decisive] - feet[decisive],
            wide,
            feet[decisive],
            fill=False,
            edgecolor=theme.ink,
            linewidth=thick,
            zorder=4,
        )


def _limits(axes: Any, picture: Stack, totals: Sequence[float], factor: float) -> None:
    """The limit of each stage, and slack as an empty bar up to it."""
    theme, limits = theme_of(axes), picture.limits or ()
    count = len(totals)
    for stage, (total, limit) in enumerate(zip(totals, limits, strict=True)):
        if math.isfinite(limit):
            slack = max(0.0, limit - total) / factor
            axes.bar(stage, slack, 0.8, total / factor, fill=False, edgecolor=theme.faint, linewidth=0.8, zorder=0)
    same = len(set(limits)) == 1
    for stage, limit in enumerate(limits):
        if math.isfinite(limit):
            axes.hlines(
                limit / factor,
                stage - (0.6 if same else 0.4),
                stage + (0.6 if same else 0.4),
                color=theme.alarm,
                linewidth=1.4,
            )
    if limits and math.isfinite(limits[-1]):
        said = "limit" if not same else f"limit {amount(limits[-1], picture.unit)}"
        axes.text(
            count - 0.4, limits[-1] / factor, f"{said} ", ha="right", va="bottom", fontsize=SMALL, color=theme.alarm
        )
    _filled(axes, picture, totals, factor)


def _filled(axes: Any, picture: Stack, totals: Sequence[float], factor: float) -> None:
    """How full each stage is, above its bar or at its top; upright where bars are narrow, left out of slim ones."""
    theme, long = theme_of(axes), width_of(axes, "100 %")
    room, high = pixels(axes)[0] / max(1, len(totals)), pixels(axes)[1]
    upright = room <= long + 4
    if room < 1.6 * SMALL * axes.figure.dpi / 72:
        return
    for stage, (total, limit) in enumerate(zip(totals, picture.limits or (), strict=True)):
        if math.isfinite(limit) and limit > 0:
            share = total / limit
            above = share < (1 - 1.3 * long / high if upright else 0.9)
            fill = theme.paper if above else _top_colour(axes, picture, stage)
            axes.annotate(
                percent(share),
                (stage, total / factor),
                (0, 2.5 if above else -3),
                textcoords="offset points",
                ha="center",
                va="bottom" if above else "top",
                rotation=90 if upright else 0,
                fontsize=SMALL,
                color=theme.quiet if above else text_on(fill),
                bbox={"boxstyle": "round,pad=0.1", "facecolor": fill, "edgecolor": "none"},
                zorder=5,
            )


def _top_colour(axes: Any, picture: Stack, stage: int) -> str:
    """The colour of the highest part that is there."""
    used = [number for number, values in enumerate(picture.parts.values()) if values[stage] > 0]
    return part_colour(stage_colour(stage, theme_of(axes)), used[-1] if used else 0, theme_of(axes))


def _parts_key(axes: Any, picture: Stack) -> None:
    """What the parts are, from the bottom up, above the picture."""
    from matplotlib.patches import Patch

    theme = theme_of(axes)
    handles = [
        Patch(
            facecolor=part_colour(theme.quiet, number, theme),
            edgecolor=theme.ink,
            linewidth=0,
            hatch=PART_PATTERNS[number % len(PART_PATTERNS)],
            label=label_of(name),
        )
        for number, (name, values) in enumerate(picture.parts.items())
        if any(values)
    ]
    handles += [Patch(facecolor=theme.quiet, label=f"{label_of(name)} (thin)") for name in picture.beside]
    if len(handles) < 2:
        return
    columns = max(1, int(pixels(axes)[0] / max(width_of(axes, str(handle.get_label())) + 34 for handle in handles)))
    axes.legend(
        handles=handles,
        ncols=columns,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        frameon=False,
        fontsize=SMALL,
        borderaxespad=0.1,
    )


def gantt(axes: Any, picture: Passes) -> Any:
    """A row for each stage, the first on top: forward passes pale, backward passes full, bubbles empty."""
    theme, count = theme_of(axes), len(picture.stages)
    end = max((task.end for task in picture.tasks), default=0.0)
    factor, unit = scaled(picture.unit, end)
    per_unit = pixels(axes)[0] / (end / factor or 1.0)
    lanes = [1] * count
    for task in picture.tasks:
        lanes[task.stage] = max(lanes[task.stage], task.replica + 1)
    high = pixels(axes)[1] / max(1, count)
    for stage in range(count):
        axes.axhspan(stage - 0.42, stage + 0.42, color=mixed(theme.faint, theme.paper, 0.35), zorder=0, linewidth=0)
    ordered, unnumbered = sorted(picture.tasks, key=lambda task: (task.stage, task.replica, task.kind)), 0
    for (stage, replica, kind), run in groupby(ordered, key=lambda task: (task.stage, task.replica, task.kind)):
        tasks = list(run)
        fill = part_colour(stage_colour(stage, theme), 0 if kind == "B" else 1, theme)
        tall = 0.84 / lanes[stage]
        low = stage - 0.42 + replica * tall
        spans = [(task.start / factor, (task.end - task.start) / factor) for task in tasks]
        gaps = min(wide for _, wide in spans) * per_unit > 3
        axes.broken_barh(
            spans,
            (low, tall * (0.94 if lanes[stage] > 1 else 1.0)),
            facecolor=fill,
            edgecolor=theme.paper if kind == "B" else mixed(stage_colour(stage, theme), theme.ink, 0.75),
            linewidth=0.5 if gaps else 0,
        )
        flat = tall * high < SMALL * axes.figure.dpi / 72
        for task, (start, wide) in zip(tasks, spans, strict=True):
            text = str(task.microbatch)
            if flat or wide * per_unit < width_of(axes, text) + 1:
                unnumbered += 1
            else:
                axes.text(
                    start + wide / 2,
                    low + tall / 2,
                    text,
                    ha="center",
                    va="center_baseline",
                    fontsize=SMALL - 1,
                    color=text_on(fill),
                    clip_on=True,
                )
    stage_ticks(axes, picture.stages, vertical=True)
    axes.set_ylim(count - 0.4, -0.6)
    axes.set_xlim(0, end / factor or 1.0)
    left_out = "; numbers left out" if unnumbered == len(picture.tasks) else "; some numbers left out"
    axes.set(xlabel=f"time, {unit}{left_out if unnumbered else ''}", ylabel="stage")
    quiet_frame(axes, "bottom")
    return axes
