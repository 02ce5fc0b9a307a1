"""The methods on the page: their losses as bars, and what each of them knew when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

from formulations.contract.family import Claim
from planner.display.page.chart import Chart, Row
from planner.display.tables import percent
from planner.results.events import Event
from planner.results.optimality_loss import shown
from planner.results.result import Result
from planner.solving.compare import Report, is_proved
from solvers.outcome import OPTIMAL_GAP

_BAR = 26
#: The axis of the methods' names.
_NAMES = {"ticks": False, "labelFontSize": 11}
#: Pixels for what stands at the end of a method's bars.
_ENDING = 150
#: Seconds before this are drawn as this many.
_FIRST_S = 1e-3
#: And their bars end here.
_LEAST_S = 1.05 * _FIRST_S
#: How far a plan or bound is from the reference, at most, and what it is called.
_NEAR = ((OPTIMAL_GAP, "none"), (1e-3, "0.1 %"), (1e-2, "1 %"), (1e-1, "10 %"), (math.inf, "more"))


def losses(report: Report) -> Chart | None:
    """A bar for the loss of each method, with its number; ``None`` if none is known, or nothing is lost."""
    if not any(result.loss for result in report.results):
        return None
    reference = "best bound" if report.optimum is None else "optimum"
    rows: list[Row] = [
        {
            "method": result.method,
            "loss": None if result.loss is None else 100 * result.loss,
            "label": _loss_label(result, report.optimum is not None),
            "claim": str(result.claim),
        }
        for result in report.results
    ]
    longest = max(row["loss"] or 0.0 for row in rows)
    y = {"field": "method", "type": "nominal", "sort": None, "title": None, "axis": {**_NAMES, "domain": False}}
    spec = {
        "data": {"name": "methods"},
        "height": _BAR * len(rows),
        "encoding": {"y": y, "tooltip": _tooltip(method="method", claim="claim", label="loss")},
        "layer": [
            {
                "mark": {"type": "bar", "color": "@line", "height": {"band": 0.55}},
                "encoding": {
                    "x": {
                        "field": "loss",
                        "type": "quantitative",
                        "title": f"loss to the proved {reference}, %",
                        "scale": {"domain": [0, 1.35 * longest or 1.0], "nice": False},
                        "axis": {"tickCount": 4} if longest else None,
                    }
                },
            },
            {
                "transform": [{"calculate": "datum.loss || 0", "as": "end"}],
                "mark": {"type": "text", "align": "left", "dx": 5, "color": "@ink"},
                "encoding": {
                    "x": {"field": "end", "type": "quantitative"},
                    "text": {"field": "label"},
                },
            },
        ],
    }
    words = "; ".join(f"{row['method']} {row['label']}" for row in rows)
    return Chart(f"Loss of every method to the proved {reference}", words, spec, {"methods": rows})


def _loss_label(result: Result, is_proved: bool) -> str:
    if result.objective is None:
        return "no plan"
    return "no loss known" if result.loss is None else shown(result.loss, is_proved)


def over_time(events: Sequence[Event], report: Report) -> Chart | None:
    """For each method how far its best plan lay above the reference, and its bound below it, and when.

    The reference is the proved optimum, else the best plan. ``None`` if nothing was reported.
    """
    reference = report.optimum
    if reference is None:
        reference = min((r.objective for r in report.results if r.objective is not None), default=None)
    results = {result.method: result for result in report.results}
    rows = [
        row
        for method, result in results.items()
        for row in _spans([event for event in events if event.method == method], result, reference)
    ]
    if not rows or reference is None:
        return None
    last = max(_FIRST_S, *(row["end"] for row in rows))
    is_known = report.optimum is not None
    ends = [
        {"method": method, "end": max(_LEAST_S, result.seconds), "label": _ending(result, is_known)}
        for method, result in results.items()
    ]
    span = max(10.0, last / _FIRST_S)  # and room for the labels, in pixels
    most = {"expr": f"{_FIRST_S} * pow({span}, width / max(1, width - {_ENDING}))"}
    scale = {"type": "log", "domainMin": _FIRST_S, "domainMax": most, "nice": False, "clamp": True}
    ticks = [10.0**power for power in range(-3, math.floor(math.log10(last)) + 1)]
    labels = "datum.value < 1 ? format(1000 * datum.value, '~g') + ' ms' : format(datum.value, '~g') + ' s'"
    x = {"type": "quantitative", "scale": scale, "title": "seconds of the method"}
    ramp = [f"@ramp{place}" for place in range(len(_NEAR))]
    spec = {
        "height": (_BAR + 8) * len(results),
        "encoding": {
            "y": {
                "field": "method",
                "type": "nominal",
                "sort": list(results),
                "title": None,
                "axis": _NAMES,
            }
        },
        "layer": [
            {
                "data": {"name": "spans"},
                "mark": {"type": "bar", "height": {"band": 0.75}},
                "encoding": {
                    "x": {**x, "field": "start", "axis": {"values": ticks, "labelExpr": labels, "labelOverlap": True}},
                    "x2": {"field": "end"},
                    "yOffset": {"field": "of", "sort": ["plan", "bound"]},
                    "color": {
                        "field": "distance",
                        "type": "ordinal",
                        "scale": {
                            "domain": [word for _, word in _NEAR],
                            "range": ramp,
                        },
                        "legend": None,
                    },
                    "tooltip": _tooltip(method="method", of="what", value="value", off="distance", when="seconds"),
                },
            },
            {
                "data": {"name": "ends"},
                "mark": {"type": "text", "align": "left", "dx": 5, "color": "@ink"},
                "encoding": {"x": {**x, "field": "end"}, "text": {"field": "label"}},
            },
        ],
    }
    words = "; ".join(f"{each['method']}: {each['label']}" for each in ends)
    title = "What every method knew when: its best plan (upper bar) and its proved bound (lower bar)"
    of = "the optimum" if is_known else "the best plan"
    near = {"none": f"at {of}", "more": "farther"}
    key = tuple((near.get(word, f"within {word}"), f"@ramp{place}", 1.0) for place, (_, word) in enumerate(_NEAR))
    return Chart(title, words, spec, {"spans": rows, "ends": ends}, key=key)


def _spans(events: Sequence[Event], result: Result, reference: float | None) -> Iterator[dict[str, Any]]:
    """From when to when the method's plan and bound had which distance to the reference."""
    for name, field in (("plan", "objective"), ("bound", "bound")):
        known = [(event.seconds, value) for event in events if (value := getattr(event, field)) is not None]
        known.append((max(result.seconds, known[-1][0] if known else 0.0), math.nan))
        spans = [(start, end, value, _off(value, reference)) for (start, value), (end, _) in pairwise(known)]
        for distance, same in groupby(spans, key=lambda span: next(word for most, word in _NEAR if span[3] <= most)):
            equal = list(same)
            start, (_, end, value, off) = equal[0][0], equal[-1]
            yield {
                "method": result.method,
                "of": name,
                "start": max(start, _FIRST_S),
                "end": max(end, _LEAST_S),
                "distance": distance,
                "value": value,
                "off": "0" if off <= OPTIMAL_GAP else percent(off) if math.isfinite(off) else "unknown",
                "when": f"{start:.3g} to {end:.3g} s",
            }


def _off(value: float, reference: float | None) -> float:
    """How far a value is from the reference, as a share of it."""
    if reference:
        return abs(value - reference) / abs(reference)
    return 0.0 if value == reference else math.inf


def _ending(result: Result, has_optimum: bool) -> str:
    """What stands at the end of a method's bars: a proof, the gap of a method that tried one, or the plan's loss."""
    seconds = f"{result.seconds:.3g} s" if result.seconds >= 1 else f"{1000 * result.seconds:.3g} ms"
    if is_proved(result):
        return f"proved, {seconds}"
    if result.claim == Claim.EXACT and result.gap is not None:
        return f"gap {percent(result.gap)}, {seconds}"
    return f"{_loss_label(result, has_optimum)}, {seconds}"


def _tooltip(**titles: str) -> list[dict[str, str]]:
    return [{"field": column, "title": title, "type": "nominal"} for column, title in titles.items()]
