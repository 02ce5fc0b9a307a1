"""The command on whole tables of optima: ``frontier``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.common import NO_PROOF, Inputs, Instance, Quiet, limits_of


def frontier_command(
    instance: Instance,
    out: Annotated[str | None, typer.Option(metavar="FILE.csv", help="write the table, a line for each k")] = None,
    picture: Annotated[str | None, typer.Option("--plot", metavar="FILE.png|svg", help="draw it")] = None,
    time_limit: Annotated[float | None, typer.Option(metavar="SECONDS", help="wall time")] = None,
    json: Annotated[bool, typer.Option("--json", metavar="", help="print one JSON object with the table")] = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Find every optimum up to K devices and N micro-batches in one run (stage partitioning)."""
    from planner.inputs.destinations import refuse_outputs
    from planner.inputs.files import write_all
    from planner.inputs.loading import family_of, load
    from planner.show.plots.files import require
    from planner.show.progress import note
    from planner.show.tables import print_json
    from planner.signals import held
    from planner.studies.frontier import frontier, show_frontier, writes

    refuse_outputs({"--out": out, "--plot": picture}, instance)
    if picture is not None:
        require(picture)
    limits = limits_of(time_limit)
    loaded = load(instance, inputs=inputs, **settings)
    for warning in family_of(loaded).warnings(loaded):
        note(quiet, f"warning: {warning}")
    with held():
        found = frontier(loaded, limits=limits, notice=lambda line: note(quiet, line))
        print_json(found.to_json()) if json else show_frontier(found)
    write_all(*writes(found, out, picture))
    if found.signal:
        raise typer.Exit(128 + found.signal)
    raise typer.Exit(NO_PROOF if found.times is None else 0)
