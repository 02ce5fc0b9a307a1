"""A sweep over micro-batch sizes on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from planner.analysis.sweep import SweepRow, time_per_sequence


def show_rows(rows: Sequence[SweepRow], unit: str) -> None:
    """Print the table, best first."""
    from rich.table import Table

    from planner.display.terminal import console

    table = Table(title="gradient accumulation and micro-batch size", title_justify="left", box=None)
    for heading in ("g", "b'", "N", "status", f"per sample ({unit})", f"per sequence ({unit})", "gap", "seconds"):
        table.add_column(heading, justify="left" if heading == "status" else "right")
    for row in sorted(rows, key=time_per_sequence):
        numbers = ["" if value is None else f"{value:.6g}" for value in (row.objective, row.time_per_sequence, row.gap)]
        counts = (row.grad_accum, row.microbatch_size, row.microbatches)
        table.add_row(*map(str, counts), row.status, *numbers, f"{row.seconds:.2f}")
    console().print(table)
