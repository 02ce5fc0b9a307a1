"""The command on two plans: ``diff``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.common import READING, Instance, Reading


def diff_command(
    plan_a: Annotated[str, typer.Argument(metavar="PLAN_A", help="from solve --out or solve --json")],
    plan_b: Annotated[str, typer.Argument(metavar="PLAN_B", help="the one to compare with it")],
    instance: Instance,
    picture: Annotated[str | None, typer.Option("--plot", metavar="FILE.png|svg", help="draw both plans")] = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Compare two plans of an instance: what differs, by layer and by stage, and what it costs."""
    from planner.analysis.difference import diff
    from planner.display.differences import panels, show_difference
    from planner.display.plots.files import require_drawable, save
    from planner.files.destinations import refuse_outputs
    from planner.results.check import read_plan

    refuse_outputs({"--plot": picture}, instance)
    require_drawable(picture)
    declared = view.load(instance, settings)
    found = diff(read_plan(plan_a), read_plan(plan_b), declared, where=(plan_a, plan_b))
    drawn = [] if picture is None else panels(found)
    view.show(found, show_difference)
    if picture is not None:
        save(drawn, picture)
