"""The sweep over gradient accumulation g and micro-batch size b' of Piper's Appendix A.

A batch of at most B' sequences is g * s * b' of them, s being the sum of data-parallel degrees; so for every (g, b')
the sum is bounded by N = B' / (g b'), rounded down, and the layers are profiled at b'. Plans of different b' are
compared by time per sequence: time per sample over b'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from instances.parameters import parse_count
from planner.errors import UsageError
from planner.loading import catalog, load
from planner.result import Result
from planner.run import solve
from solvers.outcome import Limits

_SIZE = "{b}"


@dataclass(frozen=True)
class Row:
    """One (g, b') and what was found for it; ``time_per_sequence`` is the objective over b'."""

    grad_accum: int
    microbatch_size: int
    microbatches: int
    status: str
    objective: float | None
    time_per_sequence: float | None
    gap: float | None
    seconds: float


def parse_counts(name: str, text: str | Sequence[int]) -> list[int]:
    """``"1,2,4"`` or a sequence as positive integers; `UsageError` that names the option otherwise."""
    parts = text.split(",") if isinstance(text, str) else list(text)
    try:
        return list(dict.fromkeys(parse_count(part.strip() if isinstance(part, str) else part) for part in parts))
    except ValueError:
        raise UsageError.at(name, text, "positive integers, such as 1,2,4") from None


def sweep(
    name: str,
    batch_size: int,
    grad_accum: Sequence[int] = (1,),
    microbatch_sizes: Sequence[int] = (1,),
    *,
    inputs: str | None = None,
    overrides: dict[str, Any] | None = None,
    limits: Limits | None = None,
    **arguments: Any,
) -> tuple[Result, Any, list[Row]]:
    """Solve an instance for every (g, b').

    Parameters
    ----------
    name
        A catalog entry that takes a micro-batch size, or files whose name has ``{b}`` where b' stands; any other
        instance is a profile at the one micro-batch size given.
    overrides
        As for `planner.load`, but for the number of micro-batches.
    limits
        The time is shared: a combination gets what the ones before it left.
    **arguments
        As for `planner.solve`.

    Returns
    -------
    tuple
        The result of least time per sequence (its ``stats["sweep"]`` has all rows), its instance, the rows. A
        combination with g b' > B' is left out.

    Raises
    ------
    UsageError
        If no combination fits the batch, ``microbatches`` is given, or there is no profile for a b'.
    """
    given = dict(overrides or {})
    if given.get("microbatches") is not None:
        raise UsageError.at("--microbatches", given["microbatches"], "nothing: --batch-size sets it")
    fitting = [(g, b) for b in microbatch_sizes for g in grad_accum if g * b <= batch_size]
    if not fitting:
        raise UsageError.at("--batch-size", batch_size, "at least one --grad-accum times --microbatch-sizes")
    left = limits or Limits()
    rows: list[Row] = []
    best: tuple[Result, Any, Row] | None = None
    for g, b in fitting:
        count = batch_size // (g * b)
        instance = load(
            name.replace(_SIZE, str(b)),
            inputs=inputs,
            **given,
            **_profile(name, b, len(set(microbatch_sizes)) > 1),
            microbatches=count,
        )
        result = solve(instance, limits=left, **arguments)
        time = None if result.objective is None else result.objective / b
        row = Row(g, b, count, str(result.status), result.objective, time, result.gap, result.seconds)
        rows.append(row)
        if best is None or _height(row) < _height(best[2]):
            best = result, instance, row
        if result.signal:
            best = (replace(best[0], signal=result.signal), *best[1:])
            break
        if left.time_s is not None:
            left = replace(left, time_s=max(0.0, left.time_s - result.seconds))
    assert best is not None
    told, instance, row = best
    reason = f"least time per sequence at g = {row.grad_accum}, b' = {row.microbatch_size}"
    told = replace(
        told,
        reason="; ".join(part for part in (told.reason, reason if row.objective is not None else "") if part),
        options={**told.options, "batch-size": batch_size},
        stats={**told.stats, "sweep": [vars(each) for each in rows]},
    )
    return told, instance, rows


def show_rows(rows: Sequence[Row], unit: str) -> None:
    """Print the table, best first."""
    from rich.table import Table

    from planner.report import console

    table = Table(title="gradient accumulation and micro-batch size")
    for heading in ("g", "b'", "N", "status", f"per sample ({unit})", f"per sequence ({unit})", "gap", "seconds"):
        table.add_column(heading, justify="left" if heading == "status" else "right")
    for row in sorted(rows, key=_height):
        numbers = ["" if value is None else f"{value:.6g}" for value in (row.objective, row.time_per_sequence, row.gap)]
        counts = (row.grad_accum, row.microbatch_size, row.microbatches)
        table.add_row(*map(str, counts), row.status, *numbers, f"{row.seconds:.2f}")
    console().print(table)


def _height(row: Row) -> float:
    return float("inf") if row.time_per_sequence is None else row.time_per_sequence


def _profile(name: str, size: int, several: bool) -> dict[str, Any]:
    """What makes `planner.load` give the profile at this micro-batch size."""
    entry = catalog().get(name)
    if entry is not None and any(parameter.name == "microbatch-size" for parameter in entry.parameters):
        return {"microbatch_size": size}
    if several and _SIZE not in name:
        rule = "one size for one profile; or a name with {b}, or a catalog model, for several"
        raise UsageError.at("--microbatch-sizes", size, rule)
    return {}
