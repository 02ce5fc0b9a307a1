"""The command on two plans: ``diff``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.common import Inputs, Instance, Json, Quiet, loaded


def diff_command(
    plan_a: Annotated[str, typer.Argument(metavar="PLAN_A", help="from solve --out or solve --json")],
    plan_b: Annotated[str, typer.Argument(metavar="PLAN_B", help="the one to compare with it")],
    instance: Instance,
    picture: Annotated[str | None, typer.Option("--plot", metavar="FILE.png|svg", help="draw both plans")] = None,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Compare two plans of an instance: what differs, by layer and by stage, and what it costs."""
    from planner.analysis.difference import diff, plan_within
    from planner.display.differences import panels, show_difference
    from planner.display.plots.files import require_drawable, save
    from planner.display.tables import print_json
    from planner.files.destinations import refuse_outputs
    from planner.results.check import read_plan

    refuse_outputs({"--plot": picture}, instance)
    if picture is not None:
        require_drawable(picture)
    declared = loaded(instance, settings, inputs, quiet)
    one, other = read_plan(plan_a), read_plan(plan_b)
    found = diff(one, other, declared, where=(plan_a, plan_b))
    drawn = [] if picture is None else panels(found, declared, [plan_within(one), plan_within(other)])
    print_json(found.to_json()) if json else show_difference(found)
    if picture is not None:
        save(drawn, picture)
