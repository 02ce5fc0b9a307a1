"""A sweep over micro-batch sizes on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from planner.analysis.sweep import SweepRow, time_per_sequence
from planner.display.terminal import console, table


def show_rows(rows: Sequence[SweepRow], unit: str) -> None:
    """Print the table, best first."""
    heads = ("g", "b'", "N", "status", f"per sample ({unit})", f"per sequence ({unit})", "gap", "seconds")
    shown = []
    for row in sorted(rows, key=time_per_sequence):
        numbers = ["" if value is None else f"{value:.6g}" for value in (row.objective, row.time_per_sequence, row.gap)]
        counts = (row.grad_accum, row.microbatch_size, row.microbatches)
        shown.append([*map(str, counts), row.status, *numbers, f"{row.seconds:.2f}"])
    console().print(table(heads, shown, title="gradient accumulation and micro-batch size", left=["status"]))
