"""Appendix A.3: a transformer without branches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from instances.problems.stage_graph import AffineTime
from planner.files.load import load
from planner.reproduction.claim import Evidence, Note, verified_result
from planner.reproduction.graphpipe.plans import (
    COLUMNS,
    DEVICES,
    INPUTS,
    METHODS,
    TIME_LIMIT_S,
    columns,
    effort,
    ratio,
    spread,
)
from solvers.outcome import Limits

MODEL = "sequential-transformer"
#: Printed throughput, samples per second, by devices.
PRINTED: dict[str, dict[int, float]] = {
    "piper-dp": {4: 113.94, 8: 187.92, 16: 286.83, 32: 609.76},
    "pipedream": {4: 113.2, 8: 190.1, 16: 277.00, 32: 592.4},
    "graphpipe": {4: 113.6, 8: 189.5, 16: 287.52, 32: 608.82},
}


def run(
    _inputs: str | None,
    note: Note,
    devices: Sequence[int] = DEVICES,
    methods: Sequence[str] = METHODS,
    speed: float = 1.0,
    bandwidth: float | None = None,
    time_limit: float = TIME_LIMIT_S,
) -> Evidence:
    """Every number of devices and method, with as many layers and samples as the multi-modal transformer.

    ``speed`` divides the times of all operators; it and ``bandwidth`` (bytes per second; ``None``: the catalog's) are
    two constants that the printed throughputs may calibrate.
    """
    given: dict[str, Any] = {} if bandwidth is None else {"bandwidth": bandwidth}
    rows: list[dict[str, Any]] = []
    for count in devices:
        cell = []
        instance = _quicker(load(MODEL, devices=count, **given), speed)
        for method in methods:
            note(f"{MODEL}, devices {count}: {method}")
            found = verified_result(instance, method, limits=Limits(time_s=time_limit))
            printed = PRINTED.get(method, {}).get(count)
            cell.append(
                {
                    "model": found.instance,
                    "devices": count,
                    **columns(found),
                    **effort(found),
                    "paper_samples_per_s": printed,
                }
            )
        base = next((row["samples_per_s"] for row in cell if row["method"] == "pipedream"), None)
        paper = PRINTED["pipedream"].get(count)
        rows += [
            {
                **row,
                "speedup": ratio(row["samples_per_s"], base),
                "paper_speedup": ratio(row["paper_samples_per_s"], paper),
            }
            for row in cell
        ]
    return Evidence(tuple(rows), INPUTS, notes=(COLUMNS, "speedup: over pipedream", *_sentences(rows)))


def _quicker(instance: Any, speed: float) -> Any:
    """The stage graph with its operators' times divided by ``speed``."""

    def divided(time: AffineTime) -> AffineTime:
        return AffineTime(time.fixed_s / speed, time.per_sample_s / speed)

    operators = (
        replace(each, forward=divided(each.forward), backward=divided(each.backward)) for each in instance.operators
    )
    return replace(instance, operators=tuple(operators))


def _sentences(rows: Sequence[dict[str, Any]]) -> list[str]:
    notes = []
    for method in ("piper-dp", "graphpipe", "graphpipe-plus"):
        own = [row for row in rows if row["method"] == method]
        found = spread((row["speedup"] for row in own), 3)
        if found != "-":
            paper = spread((row["paper_speedup"] for row in own), 3)
            printed = f" (printed: {paper})" if paper != "-" else ""
            notes.append(f"{method}: {found} times pipedream's throughput{printed}")
    factors = [
        row["samples_per_s"] / row["paper_samples_per_s"]
        for row in rows
        if row["samples_per_s"] is not None and row["paper_samples_per_s"] is not None
    ]
    if factors:
        notes.append(f"predicted throughput is {spread(factors)} times the printed one")
    return notes
