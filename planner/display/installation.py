"""What `planner doctor` found, on a terminal."""

from __future__ import annotations

from planner.display.terminal import console, grid
from planner.process.installation import Finding


def show_findings(findings: list[Finding]) -> None:
    """Print a line for each."""
    from rich.text import Text

    health = {True: Text("ok", "green"), False: Text("FAILED", "bold red")}
    out = console()
    out.print(grid((health[found.healthy], found.name, found.detail) for found in findings))
    failed = sum(not found.healthy for found in findings)
    out.print("all checks passed" if not failed else f"{failed} of {len(findings)} checks failed")
