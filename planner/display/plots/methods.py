"""Methods beside each other: their losses as bars, and what each of them knew when."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

from formulations.contract.family import Claim
from planner.display.plots.chart import Chart
from planner.display.plots.marks import layer, mark, nominal, span, tooltip
from planner.display.plots.numbers import NAMES, losses_said
from planner.results.events import Event
from planner.results.result import Result
from planner.results.texts import format_loss, percent
from planner.solving.compare import Report, is_proved
from solvers.outcome import OPTIMAL_GAP

_BAR = 26
#: Pixels for what stands at the end of a method's bars.
_ENDING = 150
#: Seconds before this are drawn as this many.
_FIRST_S = 1e-3
#: And their bars end here.
_LEAST_S = 1.05 * _FIRST_S
#: How far a plan or bound is from the reference, at most, and what it is called.
_NEAR = ((OPTIMAL_GAP, "none"), (1e-3, "0.1 %"), (1e-2, "1 %"), (1e-1, "10 %"), (math.inf, "more"))


def losses_of(report: Report) -> Chart:
    """A bar for the loss of each method, with its number."""
    reference = "best bound" if report.optimum is None else "optimum"
    rows = [(each.method, each.loss, _loss_label(each, report.optimum is not None)) for each in report.results]
    known = [loss for _, loss, _ in rows if loss is not None]
    best = sum(1 for loss in known if loss <= OPTIMAL_GAP)
    says = f"{best} of {len(rows)} methods find the {reference}" + (
        f"; the worst loses {percent(max(known))}" if known and max(known) > OPTIMAL_GAP else ""
    )
    return losses_said(rows, f"proved {reference}", f"Loss of every method to the proved {reference}", says)


def _loss_label(result: Result, is_proved: bool) -> str:
    if result.objective is None:
        return "no plan"
    return "no loss known" if result.loss is None else format_loss(result.loss, is_proved)


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
    names = nominal("method", sort=list(results), title=None, axis=NAMES)
    spec = {
        "height": (_BAR + 8) * len(results),
        "encoding": {"y": names},
        "layer": [
            layer(
                mark("bar", height={"band": 0.75}),
                "spans",
                **span("x", _seconds(last), "start", "end"),
                yOffset={"field": "of", "sort": ["plan", "bound"]},
                color=_nearness(),
                tooltip=tooltip(
                    {"method": "method", "of": "what", "value": "value", "off": "distance", "when": "seconds"}
                ),
            ),
            layer(
                mark("text", align="left", dx=5, color="@ink"),
                "ends",
                x={**_seconds(last), "field": "end"},
                text={"field": "label"},
            ),
        ],
    }
    title = "What every method knew when: its best plan (upper bar) and its proved bound (lower bar)"
    near = {"none": f"at {'the optimum' if is_known else 'the best plan'}", "more": "farther"}
    key = tuple((near.get(word, f"within {word}"), f"@ramp{place}", 1.0) for place, (_, word) in enumerate(_NEAR))
    return Chart(title, _proofs(report), spec, {"spans": rows, "ends": ends}, key=key, is_wide=True)


def _proofs(report: Report) -> str:
    """How many methods proved something, and which did so first."""
    proved = [result for result in report.results if is_proved(result)]
    if not proved:
        return f"none of {len(report.results)} methods ended with a proof"
    first = min(proved, key=lambda result: result.seconds)
    return f"{len(proved)} of {len(report.results)} methods ended with a proof, {first.method} first"


def _seconds(last: float) -> dict[str, Any]:
    """Seconds along the page on a logarithmic scale, with room for what stands at the end of bars."""
    span = max(10.0, last / _FIRST_S)
    most = {"expr": f"{_FIRST_S} * pow({span}, width / max(1, width - {_ENDING}))"}
    labels = "datum.value < 1 ? format(1000 * datum.value, '~g') + ' ms' : format(datum.value, '~g') + ' s'"
    ticks = [10.0**power for power in range(-3, math.floor(math.log10(last)) + 1)]
    return {
        "type": "quantitative",
        "scale": {"type": "log", "domainMin": _FIRST_S, "domainMax": most, "nice": False, "clamp": True},
        "title": "seconds of the method",
        "axis": {"values": ticks, "labelExpr": labels, "labelOverlap": True},
    }


def _nearness() -> dict[str, Any]:
    """The colour of a distance to the reference: the nearer, the stronger."""
    ramp = [f"@ramp{place}" for place in range(len(_NEAR))]
    scale = {"domain": [word for _, word in _NEAR], "range": ramp}
    return {"field": "distance", "type": "ordinal", "scale": scale, "legend": None}


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
