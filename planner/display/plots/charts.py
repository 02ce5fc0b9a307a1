"""Charts of plain numbers: bars, gap over time, histograms of gaps, frontiers."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from planner.display.headlines import percent, scaled
from planner.display.palette import dashes, line_colour
from planner.display.plots.marks import SMALL, apart, label_of, pixels, plain_log, quiet_frame, theme_of, width_of
from planner.results.events import Event
from solvers.outcome import OPTIMAL_GAP

#: What the lines of `gap_over_time` are.
LINES_SAY = "whole: incumbents; dashed: bounds"
#: More bars than this are labelled at every few.
_LABELLED = 24
#: Signs of a line of names that stand together.
_TIED = 22


def bars(
    axes: Any,
    labels: Sequence[str],
    values: Sequence[float],
    ylabel: str,
    limit: float | None = None,
    xlabel: str = "stage",
) -> Any:
    """A bar for each value with its number, the largest marked if it is one; ``limit`` is a line that no bar may cross.

    Parameters
    ----------
    ylabel
        With its unit.
    """
    theme, top = theme_of(axes), max(values, default=0.0)
    is_one = list(values).count(top) == 1
    edges = [theme.ink if is_one and value == top else "none" for value in values]
    axes.bar(range(len(values)), values, color=line_colour(0), edgecolor=edges, linewidth=2.0)
    step = -(-len(labels) // _LABELLED) or 1
    axes.set_xticks(range(0, len(labels), step), [label_of(each) for each in labels[::step]], parse_math=False)
    if step == 1 and pixels(axes)[0] / max(1, len(values)) > width_of(axes, "0.00e+00") + 4:
        for place, value in enumerate(values):
            axes.text(place, value, f"{value:.3g}", ha="center", va="bottom", fontsize=SMALL, color=theme.ink)
    if limit is not None and math.isfinite(limit):
        axes.axhline(limit, color=theme.alarm, linewidth=1.4)
        axes.text(len(values) - 0.5, limit, "limit ", ha="right", va="bottom", fontsize=SMALL, color=theme.alarm)
    axes.set_ylabel(ylabel)
    axes.set_xlabel(xlabel)
    quiet_frame(axes, "left", "bottom")
    return axes


def gap_over_time(axes: Any, events: Sequence[Event], unit: str = "s") -> Any:
    """Incumbents (falling, whole lines) and bounds (rising, dashed) of each method over its own seconds.

    Each line bears the name of its method at its end.
    """
    methods = list(dict.fromkeys(event.method for event in events))
    last = max((event.seconds for event in events), default=0.0) or 1e-3
    ends: list[tuple[float, str, str]] = []
    for index, method in enumerate(methods):
        own = [event for event in events if event.method == method]
        for name, dash in (("objective", "-"), ("bound", "--")):
            points = [(e.seconds, getattr(e, name)) for e in own if getattr(e, name) is not None]
            if not points:
                continue
            colour = line_colour(index)
            points.append((last, points[-1][1]))
            axes.step(*zip(*points, strict=True), where="post", color=colour, linestyle=dash, linewidth=1.6)
            axes.plot(*points[0], marker="o", markersize=4, color=colour)
            if name == "objective" or all(event.objective is None for event in own):
                ends.append((points[-1][1], method, colour))
    axes.set_xscale("symlog", linthresh=1e-3)
    axes.set_xlim(0, last)
    axes.margins(y=0.12)
    _name_lines(axes, ends)
    axes.set(xlabel="seconds of the method", ylabel=f"incumbent and bound, {unit}" if unit else "incumbent and bound")
    quiet_frame(axes, "left", "bottom")
    return axes


def _together(axes: Any, ends: Sequence[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Texts for the ends of lines; where more than two end at one value, their names are one text of a few lines."""
    groups: dict[str, list[tuple[float, str, str]]] = {}
    for end in ends:
        groups.setdefault(f"{end[0]:.6g}", []).append(end)
    found = []
    for own in groups.values():
        if len(own) < 3:
            found += [(value, label_of(name), colour) for value, name, colour in own]
            continue
        whole = [label_of(name).replace(" ", "\N{NO-BREAK SPACE}") for _, name, _ in own]
        names = f"{len(own)} tied: {', '.join(whole)}"
        # The first text is the lowest one.
        found += [
            (own[0][0], line, theme_of(axes).ink)
            for line in reversed(textwrap.wrap(names, _TIED, break_on_hyphens=False))
        ]
    return found


def _name_lines(axes: Any, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names at the right ends of lines, far enough from each other."""
    ends = _together(axes, ends)
    if not ends:
        return
    is_log = axes.get_yscale() == "log"
    levels = [math.log(end[0]) if is_log else end[0] for end in ends]
    low, high = map(math.log, axes.get_ylim()) if is_log else axes.get_ylim()
    least = (high - low) * 1.45 * SMALL * axes.figure.dpi / 72 / max(1.0, pixels(axes)[1])
    for (value, name, colour), level in zip(ends, apart(levels, least), strict=True):
        place = math.exp(level) if is_log else level
        axes.annotate(
            name,
            (1.0, value),
            (1.02, place),
            xycoords=("axes fraction", "data"),
            textcoords=("axes fraction", "data"),
            va="center",
            fontsize=SMALL,
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "relpos": (0.0, 0.5)},
            annotation_clip=False,
        )


def losses(axes: Any, found: Sequence[tuple[str, float | None]], reference: str) -> Any:
    """A bar for the loss of each method, the first on top, with its number or what else is to say.

    Parameters
    ----------
    found
        Names, and objective / reference - 1 (``None``: no plan, or nothing to compare it with).
    reference
        What the loss is to, such as "optimum".
    """
    theme = theme_of(axes)
    shares = [0.0 if loss is None else 100 * loss for _, loss in found]
    optimal = [loss is not None and loss <= OPTIMAL_GAP for _, loss in found]
    axes.barh(range(len(found)), shares, 0.7, color=line_colour(1))
    for place, ((_, loss), is_optimal) in enumerate(zip(found, optimal, strict=True)):
        said = "no loss known" if loss is None else "optimal" if is_optimal else percent(loss)
        colour = line_colour(0) if is_optimal else theme.ink
        axes.text(shares[place], place, f" {said}", va="center", fontsize=SMALL + 1, color=colour)
    axes.plot([0, 0], [-0.5, len(found) - 0.5], color=theme.ink, linewidth=1.2)
    axes.set_yticks(range(len(found)), [label_of(name) for name, _ in found], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(shares, default=0.0) or 1.0)
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel=f"loss to the {reference}, %")
    quiet_frame(axes, "bottom")
    return axes


def gap_histogram(axes: Any, bins: Sequence[Mapping[str, Any]]) -> Any:
    """Instances in each bin ``{"above", "up_to", "count"}`` (``up_to`` None: no end), up to the last used."""
    last = max((place for place, each in enumerate(bins) if each["count"]), default=-1)
    bins = bins[: last + 1]
    labels = [
        f"> {100 * each['above']:g} %" if each["up_to"] is None else f"{100 * each['up_to']:g} %" for each in bins
    ]
    counts = [each["count"] for each in bins]
    theme = theme_of(axes)
    colours = [line_colour(0), *[line_colour(1)] * (len(counts) - 1)]
    axes.bar(range(len(counts)), counts, color=colours)
    for place, count in enumerate(counts):
        axes.text(
            place, count, f"{count:,}" if count else "", ha="center", va="bottom", fontsize=SMALL, color=theme.ink
        )
    if any(counts):
        axes.set_yscale("symlog", linthresh=1)
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right")
    axes.set(xlabel="gap to the optimum, at most", ylabel="instances")
    quiet_frame(axes, "left", "bottom")
    return axes


def frontier(axes: Any, times: Sequence[Sequence[float | None]], unit: str) -> Any:
    """Least time per sample over devices: ``times[k - 1][s - 1]``, a line for each of a few bounds on the sum s."""
    sums = len(times[0]) if times else 0
    shown = sorted({max(1, sums >> shift) for shift in range(4)}, reverse=True) if sums else []
    return over_devices(axes, {f"sum <= {s}": [row[s - 1] for row in times] for s in shown}, unit)


def over_devices(axes: Any, lines: Mapping[str, Sequence[float | None]], unit: str) -> Any:
    """Least time per sample over devices, a line for each name, which stands at its end: ``lines[name][k - 1]``."""
    known = [time for times in lines.values() for time in times if time]
    factor, unit = scaled(unit, min(known, default=0.0))
    ends, first, most = [], math.inf, max(map(len, lines.values()), default=0)
    for number, (name, times) in enumerate(lines.items()):
        values = [math.nan if time is None else time / factor for time in times]
        colour = line_colour(number)
        axes.plot(range(1, len(values) + 1), values, linestyle=dashes(number), color=colour)
        first = min([first, *(k for k, value in enumerate(values, 1) if not math.isnan(value))])
        if values and not math.isnan(values[-1]):
            ends.append((values[-1], name, colour))
    axes.set(xscale="log", yscale="log", xlabel="devices", ylabel=f"time per sample, {unit}")
    plain_log(axes)
    axes.set_xlim(min(first, most / 2) or 1, max(2, most))
    low, high = axes.get_ylim()
    axes.set_ylim(low / (high / low) ** 0.08, high)
    _name_lines(axes, ends)
    quiet_frame(axes, "left", "bottom")
    return axes
