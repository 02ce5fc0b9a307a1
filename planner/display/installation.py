"""What `planner doctor` found, on a terminal."""

from __future__ import annotations

from planner.display.terminal import console
from planner.process.installation import Finding


def show_findings(findings: list[Finding]) -> None:
    """Print a line for each."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for found in findings:
        health = Text("ok", "green") if found.healthy else Text("FAILED", "bold red")
        table.add_row(health, found.name, found.detail)
    out = console()
    out.print(table)
    failed = sum(not found.healthy for found in findings)
    out.print("all checks passed" if not failed else f"{failed} of {len(findings)} checks failed")
