"""Figure 6: throughput on 4 to 32 devices. The figure prints no numbers; what the text states about it is examined."""

from collections.abc import Iterator, Sequence
from typing import Any

from planner.files.load import load
from planner.reproduction.claim import Evidence, Note
from planner.reproduction.graphpipe.plans import (
    COLUMNS,
    DEVICES,
    INPUTS,
    MEMORY,
    METHODS,
    MODELS,
    SEQUENTIAL,
    SHAPES,
    TERMINALS,
    TIME_LIMIT_S,
    columns,
    effort,
    memory_near,
    plan_by,
    ratio,
    settings_of,
    spread,
)

Row = dict[str, Any]
#: Bottlenecks that differ by less, relative, count as equal.
_EQUAL = 1e-9


def run(
    _inputs: str | None,
    note: Note,
    devices: Sequence[int] = DEVICES,
    models: Sequence[str] = MODELS,
    methods: Sequence[str] = METHODS,
    memory: float | None = None,
    near: float | None = None,
    shapes: str = "appendix",
    terminals: str = TERMINALS[0],
    bandwidth: float | None = None,
    time_limit: float = TIME_LIMIT_S,
) -> Evidence:
    """Every model, number of devices and method, with the mini-batches of Appendix A.2.

    ``bandwidth``: bytes per second of a link; ``None``: the catalog's.
    """
    rows: list[Row] = []
    for model in models:
        for count in devices:
            given = settings_of(count, SHAPES[shapes][model], memory)
            given |= {} if bandwidth is None else {"bandwidth": bandwidth}
            given |= memory_near(model, near, time_limit, note, **given)
            instance: Any = load(model, **given)
            place = {"devices": count, "minibatch": instance.minibatch, "memory_bytes": instance.memory_bytes}
            cell = []
            for method in methods:
                found = plan_by(model, method, time_limit, note, terminals, **given)
                cell.append({"model": found.instance, **place, **columns(found), **effort(found)})
            base = fastest(cell, SEQUENTIAL)
            rows += [{**row, "speedup": ratio(row["samples_per_s"], base)} for row in cell]
    notes = (MEMORY, *_sentences(rows), *_bottlenecks(rows))
    return Evidence(tuple(rows), INPUTS, notes=(COLUMNS, "speedup: over the faster sequential pipeline", *notes))


def fastest(cell: Sequence[Row], methods: Sequence[str]) -> float | None:
    """Samples per second of the fastest of some methods on one instance; ``None`` if none of them has a plan."""
    known = [row["samples_per_s"] for row in cell if row["method"] in methods and row["samples_per_s"] is not None]
    return max(known, default=None)


def _sentences(rows: Sequence[Row]) -> list[str]:
    """What the text states about the figure, beside what is found."""
    notes = []
    for method in ("graphpipe", "graphpipe-plus"):
        own = [row for row in rows if row["method"] == method and row["speedup"] is not None]
        if own:
            ahead = sum(row["speedup"] > 1 for row in own)
            printed = " (printed: in all but one, by up to 1.6)" if method == "graphpipe" else ""
            notes.append(
                f"{method} is ahead of the sequential pipelines in {ahead} of {len(own)} configurations, by factors of "
                f"{spread(row['speedup'] for row in own)}{printed}"
            )
    for model in dict.fromkeys(row["model"] for row in rows):
        found = [f"{row['speedup']:.2f}" for row in _of(rows, model, "graphpipe") if row["speedup"] is not None]
        if len(found) > 1:
            notes.append(f"{model}: graphpipe's factors by devices are {', '.join(found)} (printed: the gap widens)")
    for method in SEQUENTIAL:
        missing = [f"{row['model']} on {row['devices']}" for row in rows if _missing(row, method)]
        if missing:
            beside = " (the paper: Piper, on operators, none for DLRM and CANDLE-Uno)" if method == "piper-dp" else ""
            notes.append(f"{method} has no plan for {', '.join(missing)}{beside}")
    merged = [row for row in rows if row["merged_into"] is not None and row["samples_per_s"] is not None]
    if merged:
        names = dict.fromkeys(row["model"] for row in merged)
        notes.append(f"piper-dp has plans for {', '.join(names)} only with chains of operators merged (merged_into)")
    alone = [row for row in rows if row["method"] == "data-parallel" and (row["speedup"] or 0) > 1]
    if alone:
        cells = ", ".join(f"{row['model']} on {row['devices']}" for row in alone)
        notes.append(f"data parallelism alone is ahead of the sequential pipelines for {cells}")
    return notes


def _bottlenecks(rows: Sequence[Row]) -> Iterator[str]:
    """What the least bottleneck (Equation 1) is for the methods, and the memory that this holds with."""
    by_cell = {(row["model"], row["devices"], row["method"]): row for row in rows if row["tps_s"] is not None}
    pairs = [
        (row["tps_s"], by_cell[model, devices, "graphpipe"]["tps_s"])
        for (model, devices, method), row in by_cell.items()
        if method == "pipedream" and (model, devices, "graphpipe") in by_cell
    ]
    if not pairs:
        return
    below = sum(row < graph * (1 - _EQUAL) for row, graph in pairs)
    above = sum(row > graph * (1 + _EQUAL) for row, graph in pairs)
    yield (
        f"Equation 1: pipedream's least bottleneck is below graphpipe's in {below} of {len(pairs)} configurations, "
        f"equal in {len(pairs) - below - above} and above in {above}"
    )
    found = (f"{method} in {_whole(rows, method)}" for method in ("pipedream", "graphpipe"))
    yield (
        f"the plan of the least bottleneck has b = B for {', '.join(found)}; this and the previous sentence hold for "
        "the memory of these devices: where it is short, Equation 2 decides (--near 25)"
    )


def _whole(rows: Sequence[Row], method: str) -> str:
    """In how many configurations a method's plan of the least bottleneck has one micro-batch."""
    own = [row for row in rows if row["method"] == method and row["tps_s"] is not None]
    return f"{sum(row['tps_microbatch'] == row['minibatch'] for row in own)} of {len(own)}"


def _missing(row: Row, method: str) -> bool:
    return bool(row["method"] == method and row["samples_per_s"] is None)


def _of(rows: Sequence[Row], model: str, method: str) -> list[Row]:
    return [row for row in rows if row["model"] == model and row["method"] == method]
