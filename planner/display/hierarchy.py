"""What a network of two levels changes, on a terminal."""

from __future__ import annotations

from planner.analysis.hierarchy import Comparison, Row


def show_comparison(found: Comparison) -> None:
    """Print the table."""
    from rich.table import Table

    from planner.display.terminal import console

    title = (
        f"{found.instance}: {found.options['num-machines']} machines of {found.options['devices-per-machine']} devices"
    )
    table = Table(title=title)
    for heading in ("network model", "status", f"its own time ({found.unit})", "on the machines", "loss", "seconds"):
        table.add_column(heading, justify="left" if heading in ("network model", "status") else "right")
    for row in found.rows:
        loss = "" if row.loss is None else f"{row.loss:.1%}"
        table.add_row(row.model, row.status, _number(row.own_time), _placed(row), loss, f"{row.seconds:.2f}")
    console().print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _placed(row: Row) -> str:
    return "no room" if row.own_time is not None and row.time_on_machines is None else _number(row.time_on_machines)
