"""The command on networks of two levels: ``hierarchy``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.common import Inputs, Instance, Json, limits_of


def hierarchy_command(
    instance: Instance,
    time_limit: Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="wall time of each plan")] = None,
    json: Json = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Compare plans of a flat network model on machines (default: 8 with 8 devices, 300 and 25 GB/s)."""
    from planner.analysis.hierarchy import compare
    from planner.display.hierarchy import show_comparison
    from planner.display.tables import print_json

    found = compare(instance, inputs=inputs, limits=limits_of(time_limit), **settings)
    print_json(found.to_json()) if json else show_comparison(found)
