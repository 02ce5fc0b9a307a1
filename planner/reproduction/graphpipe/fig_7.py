"""Figure 7: branches of CANDLE-Uno, and micro-batch sizes of the multi-modal transformer."""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.files.load import load
from planner.reproduction.claim import Evidence, Note
from planner.reproduction.graphpipe.plans import (
    COLUMNS,
    INPUTS,
    MEMORY,
    METHODS,
    TERMINALS,
    TIME_LIMIT_S,
    columns,
    effort,
    memory_near,
    plan_by,
    ratio,
    settings_of,
    sizes,
    spread,
)
from planner.results.result import Result

DEVICES = (4, 8, 16)
BRANCHES = (2, 4, 8, 16)
#: Section 7.3: eight devices, four branches, 128 samples.
RIGHT = {"branches": 4, "minibatch": 128}
RIGHT_DEVICES = 8
Row = dict[str, Any]


def run(
    _inputs: str | None,
    note: Note,
    devices: Sequence[int] = DEVICES,
    branches: Sequence[int] = BRANCHES,
    microbatches: Sequence[int] = (),
    methods: Sequence[str] = METHODS,
    memory: float | None = None,
    near: float | None = None,
    terminals: str = TERMINALS[0],
    time_limit: float = TIME_LIMIT_S,
) -> Evidence:
    """Both sides of the figure; ``microbatches``: those of the right side (none given: all that have a plan)."""
    rows: list[Row] = []

    def found_by_all(model: str, count: int, shape: Mapping[str, int]) -> tuple[Row, list[Result]]:
        given = settings_of(count, shape, memory)
        given |= memory_near(model, near, time_limit, note, **given)
        instance: Any = load(model, **given)
        named = {"model": model, "branches": shape["branches"], "devices": count, "memory_bytes": instance.memory_bytes}
        return named, [plan_by(model, method, time_limit, note, terminals, **given) for method in methods]

    for count in devices:
        for number in branches:
            named, found = found_by_all("candle-uno", count, {"branches": number})
            rows += _compared([{"side": "left", **named, **columns(each), **effort(each)} for each in found])
    named, found = found_by_all("mmt", RIGHT_DEVICES, RIGHT)
    for size in sorted({size for each in found for size in sizes(each)}):
        if not microbatches or size in microbatches:
            cell = [{**named, **columns(each, size), **effort(each), "tps_microbatch": size} for each in found]
            rows += _compared([{"side": "right", **row, "microbatch": size} for row in cell])
    notes = (COLUMNS, "speedup: over pipedream; rows of the right side are at one micro-batch size each")
    return Evidence(tuple(rows), INPUTS, notes=(*notes, MEMORY, *_left(rows), *_right(rows)))


def _compared(cell: list[Row]) -> list[Row]:
    base = next((row["samples_per_s"] for row in cell if row["method"] == "pipedream"), None)
    return [{**row, "speedup": ratio(row["samples_per_s"], base)} for row in cell]


def _left(rows: Sequence[Row]) -> list[str]:
    own = [row for row in rows if row["side"] == "left" and row["method"] == "graphpipe"]
    notes = []
    for count in dict.fromkeys(row["devices"] for row in own):
        here = [row for row in own if row["devices"] == count]
        factors = ", ".join(f"{row['branches']}: {spread([row['speedup']])}" for row in here)
        notes.append(
            f"CANDLE-Uno on {count} devices: graphpipe over pipedream by branches {factors} (printed: up to 2 at 16)"
        )
    return notes


def _right(rows: Sequence[Row]) -> list[str]:
    notes = []
    for method in ("graphpipe", "graphpipe-plus"):
        own = [row for row in rows if row["side"] == "right" and row["method"] == method]
        factors = [row["speedup"] for row in own if row["speedup"] is not None]
        if factors:
            best = max(own, key=lambda row: row["samples_per_s"] or 0.0)
            notes.append(
                f"MMT: {method} is {spread(factors)} times as fast as pipedream at the same micro-batch size, faster "
                f"at {sum(factor > 1 for factor in factors)} of {len(factors)} sizes (printed: at all), fastest at "
                f"{best['microbatch']}"
            )
    return notes
