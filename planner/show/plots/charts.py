"""Charts of plain numbers: bars, gap over time, histograms of gaps, frontiers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.events import Event
from planner.show.terminal import printable
from solvers.outcome import OPTIMAL_GAP

#: Fill of ordinary bars and of the bottleneck, and line styles that distinguish methods without colour.
PLAIN, DECISIVE = "0.78", "0.40"
LINES = ("-", "--", "-.", ":")
GREYS = ("0.0", "0.35", "0.6")
#: More bars than this are labelled at every few.
_LABELLED = 24
#: Longer lines of a label leave no room for the picture.
_LONGEST = 32


def label_of(text: str) -> str:
    r"""A label that holds names, with every line printable and short.

    >>> label_of("stage\x1b\n" + 40 * "x")
    'stage\\x1b\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'
    """
    lines = [printable(line) for line in text.split("\n")]
    return "\n".join(line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…" for line in lines)


def bars(
    axes: Any,
    labels: Sequence[str],
    values: Sequence[float],
    ylabel: str,
    limit: float | None = None,
    xlabel: str = "stage",
) -> Any:
    """A bar for each value, the largest one dark; ``limit`` is a line that no bar may cross.

    Parameters
    ----------
    ylabel
        With its unit.
    """
    top = max(values, default=0.0)
    axes.bar(
        range(len(values)), values, color=[DECISIVE if value == top else PLAIN for value in values], edgecolor="black"
    )
    step = -(-len(labels) // _LABELLED) or 1
    axes.set_xticks(range(0, len(labels), step), [label_of(each) for each in labels[::step]], parse_math=False)
    if limit is not None and math.isfinite(limit):
        axes.axhline(limit, color="black", linestyle="--", label="limit")
        axes.legend(loc="best")
    axes.set_ylabel(ylabel)
    axes.set_xlabel(xlabel)
    return axes


def gap_over_time(axes: Any, events: Sequence[Event], unit: str = "s") -> Any:
    """Incumbents (falling) and bounds (rising) of each method over its own seconds."""
    methods = list(dict.fromkeys(event.method for event in events))
    for index, method in enumerate(methods):
        style = {"color": GREYS[index % len(GREYS)], "linestyle": LINES[index // len(GREYS) % len(LINES)]}
        own = [event for event in events if event.method == method]
        for name, marker in (("objective", "v"), ("bound", "^")):
            points = [(e.seconds, getattr(e, name)) for e in own if getattr(e, name) is not None]
            if points:
                label = {"label": method} if name == "objective" or own[-1].objective is None else {}
                axes.step(*zip(*points, strict=True), where="post", marker=marker, markersize=3, **style, **label)
    axes.set_xscale("symlog", linthresh=1e-3)
    axes.set_xlim(left=0)
    axes.set(xlabel="seconds of the method", ylabel=f"incumbent and bound, {unit}" if unit else "incumbent and bound")
    if methods:
        axes.legend(loc="best", fontsize="small")
    return axes


def losses(axes: Any, found: Sequence[tuple[str, float | None]], reference: str) -> Any:
    """A bar for the loss of each method, the first on top; optimal ones, and those without a plan, have words instead.

    Parameters
    ----------
    found
        Names, and objective / reference - 1 (``None``: no plan, or nothing to compare it with).
    reference
        What the loss is to, such as "optimum".
    """
    percent = [0.0 if loss is None else 100 * loss for _, loss in found]
    axes.barh(range(len(found)), percent, color=PLAIN, edgecolor="black")
    for place, (_, loss) in enumerate(found):
        if loss is None or loss <= OPTIMAL_GAP:
            axes.text(0, place, " no loss known" if loss is None else " optimal", va="center", fontsize=8)
    axes.set_yticks(range(len(found)), [label_of(name) for name, _ in found], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.05 * max(percent, default=0.0) or 1.0)
    axes.set(xlabel=f"loss to the {reference}, %", ylabel="method")
    return axes


def gap_histogram(axes: Any, bins: Sequence[Mapping[str, Any]]) -> Any:
    """How many instances have a gap in each bin ``{"above", "up_to", "count"}`` (``up_to`` None: no end)."""
    labels = [
        f"> {100 * each['above']:g} %" if each["up_to"] is None else f"{100 * each['up_to']:g} %" for each in bins
    ]
    counts = [each["count"] for each in bins]
    axes.bar(range(len(counts)), counts, color=PLAIN, edgecolor="black")
    if any(counts):
        axes.set_yscale("symlog", linthresh=1)
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right")
    axes.set(xlabel="gap to the optimum, at most", ylabel="instances")
    return axes


def frontier(axes: Any, times: Sequence[Sequence[float | None]], unit: str) -> Any:
    """Least time per sample over devices: ``times[k - 1][s - 1]``, a line for each of a few bounds on the sum s."""
    sums = len(times[0]) if times else 0
    shown = sorted({max(1, sums >> shift) for shift in range(4)}, reverse=True) if sums else []
    for s, style, grey in zip(shown, LINES, (*GREYS, "0.75"), strict=False):
        line = [math.nan if (time := row[s - 1]) is None else time for row in times]
        axes.plot(
            range(1, len(times) + 1), line, linestyle=style, color=grey, label=f"sum of data-parallel degrees <= {s}"
        )
    axes.set(xscale="log", yscale="log", xlabel="devices", ylabel=f"time per sample, {unit}")
    if shown:
        axes.legend(loc="best")
    return axes
