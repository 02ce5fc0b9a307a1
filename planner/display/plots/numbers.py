"""Charts of plain numbers: bars, lines over time or devices, and what many instances have together."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.display.palette import LINES, dashes, line_colour
from planner.display.plots.chart import Chart, Row
from planner.display.plots.marks import Encoding, layer, mark, nominal, tooltip, when, x_of
from planner.display.terminal import printable
from planner.results.events import Event
from planner.results.texts import format_loss, unit_for
from solvers.outcome import OPTIMAL_GAP

#: Points of a line: where, and how much; ``None``: nothing is known.
Points = Sequence[tuple[float, float | None]]
#: What the lines of `gap_over_time` are.
LINES_SAY = "whole: incumbents; dashed: bounds"
_HEIGHT, _BAR = 260, 26
#: Losses below this, in percent, are drawn on a linear scale, and so are seconds below this.
_LINEAR, _FIRST_S = 0.1, 1e-3
#: Strokes of `quantiles`, where there are more values.
_STROKES = 12
#: Fewer points than this are marked.
_MARKED = 24
#: The axis of numbers some of which are 0.
_ZERO = {"scale": {"domainMin": 0, "padding": 8}}
#: The axis of names of rows.
NAMES = {"ticks": False, "labelFontSize": 11}
_PLAIN = {"labelExpr": "format(datum.value, '~g')", "labelOverlap": True}


def bars(
    labels: Sequence[str],
    values: Sequence[float],
    ylabel: str,
    limit: float | None = None,
    xlabel: str = "stage",
    title: str = "",
    text: str = "",
) -> Chart:
    """A bar for each value with its number, the largest marked if it is one; ``limit`` is a line that no bar may cross.

    Parameters
    ----------
    ylabel
        With its unit.
    """
    top = max(values, default=0.0)
    rows: list[Row] = [
        {"place": place, "label": label, "value": value, "said": f"{value:.3g}"}
        for place, (label, value) in enumerate(zip(labels, values, strict=True))
    ]
    most = 1.1 * max([top, *([limit] if limit is not None and math.isfinite(limit) else [])]) or 1.0
    names = {str(row["place"]): printable(row["label"]) for row in rows}
    x = {
        **{"field": "place", "type": "ordinal", "title": xlabel},
        "axis": {
            "labelAngle": 0,
            "labelOverlap": True,
            "ticks": False,
            "labelExpr": f"{json.dumps(names)}[datum.value]",
        },
    }
    y = x_of("value", title=ylabel, scale={"domain": [0, most], "nice": False}, axis={"tickCount": 5})
    is_most = f"datum.value === {top!r}" if list(values).count(top) == 1 else "false"
    layers = [
        layer(
            mark("bar", color="@line"),
            x=x,
            y=y,
            stroke=when(is_most, "@ink", "transparent"),
            tooltip=tooltip({"label": "of", "value": "value"}),
        ),
        layer(
            mark("text", baseline="bottom", dy=-2),
            x=x,
            y=y,
            text={"condition": {"test": f"width / {max(1, len(rows))} > 60", "field": "said"}, "value": ""},
        ),
    ]
    if limit is not None and math.isfinite(limit):
        at = {"datum": limit, "type": "quantitative"}
        layers.append(layer(mark("rule", color="@alarm", strokeWidth=1.4), y=at))
    return Chart(title, text, {"data": {"name": "bars"}, "height": _HEIGHT, "layer": layers}, {"bars": rows})


def ranked(rows: Sequence[Row], xlabel: str, title: str = "", text: str = "") -> Chart:
    """A bar along the page for each row, the first on top, with what is said of it at its end.

    Parameters
    ----------
    rows
        ``name``, ``value`` (``None``: no bar), ``tooltip``, and the number of the bar's ``colour``.
    """
    known = [row["value"] for row in rows if row["value"]]
    most = 1.35 * max(known, default=0.0) or 1.0
    axis = {"tickCount": 4} if known else {"labels": False, "ticks": False, "grid": False}
    x = x_of("value", title=xlabel, scale={"type": "linear", "domain": [0.0, most], "nice": False}, axis=axis)
    y = nominal("name", sort=None, title=None, axis={**NAMES, "domain": False, "labelLimit": 400})
    colours = nominal("colour", legend=None, scale={"domain": list(range(len(LINES))), "range": list(LINES)})
    placed = [{**row, "end": row["value"] or 0.0} for row in rows]
    spec = {
        "data": {"name": "methods"},
        "height": _BAR * len(rows),
        "encoding": {"y": y},
        "layer": [
            layer(
                mark("bar", height={"band": 0.6}),
                x=x,
                x2={"datum": 0},
                color=colours,
                tooltip=tooltip({"name": "of", "said": "value"}),
            ),
            layer(mark("text", align="left", dx=5, color="@ink"), x=x_of("end"), text={"field": "said"}),
        ],
    }
    return Chart(title, text, spec, {"methods": placed})


def losses(found: Sequence[tuple[str, float | None]], reference: str, title: str = "", text: str = "") -> Chart:
    """A bar for the loss of each method, the first on top, with its number or what else is to say.

    Parameters
    ----------
    found
        Names, and objective / reference - 1 (``None``: no plan, or nothing to compare it with).
    reference
        What the loss is to, such as "optimum".
    """
    rows = [(name, loss, "no loss known" if loss is None else format_loss(loss, True)) for name, loss in found]
    return losses_said(rows, reference, title, text)


def losses_said(rows: Sequence[tuple[str, float | None, str]], reference: str, title: str, text: str) -> Chart:
    """The same with what stands at the end of each bar."""
    bars_of = [
        {"name": name, "value": loss and 100 * loss, "said": said_of_it, "colour": 0} for name, loss, said_of_it in rows
    ]
    return ranked(bars_of, f"loss to the {reference}, %", title, text)


def curves(
    lines: Sequence[tuple[str, Points]],
    x: Encoding,
    y: Encoding,
    *,
    title: str = "",
    text: str = "",
    is_step: bool = False,
    looks: Sequence[tuple[int, tuple[int, ...]]] = (),
) -> Chart:
    """A line for each name through the points that are known, with the names beside the picture unless it is one.

    Parameters
    ----------
    looks
        The number of each line's colour and its dashes, where these are not those of its place.
    """
    looks = looks or [(place, dashes(place)) for place in range(len(lines))]
    rows: list[Row] = [
        {"line": place, "name": name, "x": at, "y": value}
        for place, (name, points) in enumerate(lines)
        for at, value in points
        if value is not None
    ]
    names = {str(place): printable(name) for place, (name, _) in enumerate(lines)}
    order = list(range(len(lines)))
    key = (
        None
        if len(lines) == 1
        else {
            "orient": "right",
            "title": None,
            "labelExpr": f"{json.dumps(names)}[datum.value]",
            "symbolType": "stroke",
            "symbolSize": 400,
            "labelLimit": 240,
        }
    )
    styles = {
        "color": {"domain": order, "range": [line_colour(colour) for colour, _ in looks]},
        "strokeDash": {"domain": order, "range": [list(dash) for _, dash in looks]},
    }
    shown = {channel: nominal("line", scale=scale, legend=key) for channel, scale in styles.items()}
    spec = {
        "data": {"name": "lines"},
        "height": _HEIGHT,
        **layer(
            mark(
                "line",
                strokeWidth=1.8,
                **({"interpolate": "step-after"} if is_step else {"point": len(rows) <= _MARKED}),
            ),
            x={**x_of("x"), **x},
            y={**x_of("y"), **y},
            tooltip=tooltip({"name": "of", "x": "at", "y": "value"}),
            **shown,
        ),
    }
    return Chart(title, text, spec, {"lines": rows})


def gap_over_time(events: Sequence[Event], unit: str = "s", title: str = "Incumbents and bounds") -> Chart:
    """Incumbents (falling, whole lines) and bounds (rising, dashed) of each method over its own seconds."""
    last = max((event.seconds for event in events), default=0.0) or _FIRST_S
    lines: list[tuple[str, Points]] = []
    looks = []
    for place, method in enumerate(dict.fromkeys(event.method for event in events)):
        for field, name, dash in (("objective", method, (1, 0)), ("bound", f"{method}, bound", (6, 3))):
            own = [
                (e.seconds, value) for e in events if e.method == method and (value := getattr(e, field)) is not None
            ]
            if own:
                lines.append((name, [*own, (last, own[-1][1])]))
                looks.append((place, dash))
    x = {"title": "seconds of the method", **_symlog(_FIRST_S, last)}
    y = {"title": f"incumbent and bound, {unit}" if unit else "incumbent and bound", "scale": {"zero": False}}
    return curves(lines, x, y, title=title, text=LINES_SAY, is_step=True, looks=looks)


def _symlog(constant: float, most: float, least: float = 0.0) -> Encoding:
    """The scale and axis of numbers that are linear below a constant and logarithmic above it.

    >>> _symlog(0.1, 35.0)["axis"]["values"]
    [0.0, 0.1, 1.0, 10.0]
    """
    powers = range(max(0, math.floor(math.log10(max(most, constant) / constant) + 1e-9)) + 1)
    return {
        "scale": {"type": "symlog", "constant": constant, "domain": [least, most], "nice": False},
        "axis": {**_PLAIN, "values": [0.0, *(constant * 10**power for power in powers)]},
    }


def over_devices(lines: Mapping[str, Sequence[float | None]], unit: str, title: str = "", text: str = "") -> Chart:
    """Least time per sample over devices, a line for each name: ``lines[name][k - 1]``."""
    factor, unit = unit_for(unit, min((time for times in lines.values() for time in times if time), default=0.0))
    points = [
        (name, [(k, None if time is None else time / factor) for k, time in enumerate(times, 1)])
        for name, times in lines.items()
    ]
    log = {"scale": {"type": "log", "nice": False, "padding": 8}, "axis": {**_PLAIN, "tickCount": 6}}
    has_zero = any(time == 0 for times in lines.values() for time in times)
    y = {**(_ZERO if has_zero else log), "title": f"time per sample, {unit}"}
    return curves(points, {**log, "title": "devices"}, y, title=title, text=text)


def frontier(times: Sequence[Sequence[float | None]], unit: str, title: str = "", text: str = "") -> Chart:
    """Least time per sample over devices: ``times[k - 1][s - 1]``, a line for each of a few bounds on the sum s."""
    sums = len(times[0]) if times else 0
    shown = sorted({max(1, sums >> shift) for shift in range(4)}, reverse=True) if sums else []
    return over_devices({f"sum <= {s}": [row[s - 1] for row in times] for s in shown}, unit, title, text)


def gap_histogram(bins: Sequence[Mapping[str, Any]], title: str = "", text: str = "") -> Chart:
    """Instances in each bin ``{"above", "up_to", "count"}`` (``up_to`` None: no end), up to the last used."""
    last = max((place for place, each in enumerate(bins) if each["count"]), default=-1)
    rows: list[Row] = [
        {
            "bin": f"> {100 * each['above']:g} %" if each["up_to"] is None else f"{100 * each['up_to']:g} %",
            "count": each["count"],
            "said": f"{each['count']:,}" if each["count"] else "",
            "colour": line_colour(0 if place == 0 else 1),
        }
        for place, each in enumerate(bins[: last + 1])
    ]
    x = nominal("bin", sort=None, title="gap to the optimum, at most", axis={"labelAngle": -45})
    most = max((row["count"] for row in rows), default=1)
    y = x_of("count", title="instances", **_symlog(1, 2 * most))
    layers = [
        layer(mark("bar"), x=x, y=y, color=nominal("colour", scale=None)),
        layer(mark("text", baseline="bottom", dy=-2), x=x, y=y, text={"field": "said"}),
    ]
    return Chart(
        title, text, {"data": {"name": "bins"}, "height": _HEIGHT, "layer": layers}, {"bins": rows}, is_wide=True
    )


def ecdf(found: Mapping[str, Sequence[float | None]], reference: str = "optimum", title: str = "") -> Chart:
    """Share of the instances with at most a loss, a line for each method; without a plan a loss is beyond all others.

    Parameters
    ----------
    found
        By method its loss on every instance; ``None``: it has no plan, or nothing is known to compare it with.
    reference
        What the loss is to.
    """
    most = max([_LINEAR, *(100 * loss for losses in found.values() for loss in losses if loss is not None)])
    lines: list[tuple[str, Points]] = []
    for method, losses in found.items():
        known = sorted(0.0 if loss <= OPTIMAL_GAP else 100 * loss for loss in losses if loss is not None)
        name = method if known else f"{method} (no loss known)"
        lines.append((name, list(_shares([*known, most] if known else [], len(losses), len(known)))))
    x = {"title": f"loss to the {reference}, % (0: optimal)", **_symlog(_LINEAR, 1.05 * most)}
    y = {"title": "share of instances with at most this loss", "scale": {"domain": [0, 1.02], "nice": False}}
    return replace(curves(lines, x, y, title=title, is_step=True), is_wide=True)


def _shares(ends: Sequence[float], count: int, most: int) -> Iterator[tuple[float, float]]:
    """The share of so many that lies at or below each end; no more than ``most`` of them do."""
    for place, end in enumerate(ends, 1):
        yield end, min(place, most) / count


def profile(found: Mapping[str, Sequence[float | None]], title: str = "") -> Chart:
    """Performance profile of seconds: share of the instances on which a method was at most so many times slower.

    Parameters
    ----------
    found
        By method its seconds on every instance; ``None``: it has no plan.

    Source
    ------
    Dolan and Moré, Benchmarking optimization software with performance profiles (2002).
    """
    best = [min((each for each in row if each is not None), default=None) for row in zip(*found.values(), strict=True)]
    ratios = {
        method: sorted(
            own / quickest if quickest else 1.0
            for own, quickest in zip(seconds, best, strict=True)
            if own is not None and quickest is not None
        )
        for method, seconds in found.items()
    }
    most = 1.05 * max([2.0, *(each[-1] for each in ratios.values() if each)])
    lines: list[tuple[str, Points]] = [
        (method, [(1.0, 0.0), *_shares([*own, most], len(best), len(own))] if own else [])
        for method, own in ratios.items()
    ]
    log = {"type": "log", "domain": [1, most], "nice": False}
    x = {"title": "seconds over those of the quickest method", "scale": log, "axis": _PLAIN}
    y = {"title": "share of instances with a plan within this", "scale": {"domain": [0, 1.02], "nice": False}}
    return replace(curves(lines, x, y, title=title, is_step=True), is_wide=True)


def quantiles(feature: Sequence[float | None], found: Mapping[str, Sequence[float | None]], name: str) -> list[Chart]:
    """Losses over a feature of the instance, a chart for each method, which share an axis of losses.

    Instances of one value, or of a range of values, are one stroke with the quantiles of their losses, so that a
    thousand of them can be read as well as ten.

    Parameters
    ----------
    feature
        Of every instance; ``None``: unknown, not drawn.
    found
        As of `ecdf`.
    name
        What the feature is called.
    """
    points = {
        method: [(x, 100 * loss) for x, loss in zip(feature, losses, strict=True) if x is not None and loss is not None]
        for method, losses in found.items()
    }
    most = max([_LINEAR, *(loss for own in points.values() for _, loss in own)])
    x = x_of("x", title=name, scale={"zero": False, "padding": 10}, axis=_PLAIN)
    axis = _symlog(_LINEAR, 1.2 * most, -_LINEAR / 4)
    layers = [
        layer(
            mark("rule", color="@line", strokeWidth=1.2),
            x=x,
            y=x_of("q5", title="loss, %", **axis),
            y2={"field": "q95"},
        ),
        layer(mark("rule", color="@line", strokeWidth=5), x=x, y=x_of("q25"), y2={"field": "q75"}),
        layer(mark("point", color="@line", fill="@paper", size=40, opacity=1), x=x, y=x_of("q50")),
        layer(mark("point", color="@line", fill="@line", size=24, opacity=1), x=x, y=x_of("worst")),
    ]
    shown = tooltip(
        {"count": "instances", "x": name, "q50": "median, %", "q95": "95th percentile, %", "worst": "worst, %"}
    )
    spec = {"data": {"name": "strokes"}, "height": _HEIGHT, "encoding": {"tooltip": shown}, "layer": layers}
    says = "median (ring), the middle half (thick) and nine tenths (thin), the worst (dot)"
    return [Chart(f"{method} over {name}", says, spec, {"strokes": _strokes(own)}) for method, own in points.items()]


def _strokes(points: Sequence[tuple[float, float]]) -> list[Row]:
    """Ranges of about as many points, equal values in one of them, with the quantiles (nearest rank) of each."""
    ranges: dict[int, list[tuple[float, float]]] = {}
    values = [x for x, _ in points]
    below = {x: place for place, x in reversed(list(enumerate(sorted(values))))}
    for x, loss in points:
        part = below[x] if len(below) <= _STROKES else _STROKES * below[x] // len(values)
        ranges.setdefault(part, []).append((x, loss))
    rows: list[Row] = []
    for own in (ranges[part] for part in sorted(ranges)):
        losses, last = sorted(loss for _, loss in own), len(own)
        ranks = {f"q{share}": losses[math.ceil(share * last / 100) - 1] for share in (5, 25, 50, 75, 95)}
        rows.append({"x": sorted(x for x, _ in own)[(last - 1) // 2], "count": last, **ranks, "worst": losses[-1]})
    return rows
