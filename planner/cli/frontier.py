"""The command on whole tables of optima: ``frontier``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.common import NO_PROOF, Inputs, Instance, Quiet, limits_of


def frontier_command(
    instance: Instance,
    out: Annotated[str | None, typer.Option(metavar="FILE.csv", help="write the table, a line for each k")] = None,
    memories: Annotated[
        str | None, typer.Option(metavar="SIZE,...", help="by memory of a device instead of by micro-batches")
    ] = None,
    more_devices: Annotated[int | None, typer.Option(metavar="N", min=0, help="N devices more than it has")] = None,
    picture: Annotated[str | None, typer.Option("--plot", metavar="FILE.png|svg", help="draw it")] = None,
    time_limit: Annotated[float | None, typer.Option(metavar="SECONDS", help="wall time")] = None,
    json: Annotated[bool, typer.Option("--json", metavar="", help="print one JSON object with the table")] = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Find every optimum up to K devices and N micro-batches in one run, or by memory (stage partitioning)."""
    from planner.inputs.destinations import refuse_outputs
    from planner.inputs.files import write_all
    from planner.inputs.loading import family_of, load
    from planner.show.plots.files import require
    from planner.show.progress import note
    from planner.show.tables import print_json
    from planner.signals import held
    from planner.studies import frontier as table
    from planner.studies import memories as sizes

    refuse_outputs({"--out": out, "--plot": picture}, instance)
    if picture is not None:
        require(picture)
    limits = limits_of(time_limit)
    loaded = load(instance, inputs=inputs, **settings)
    for warning in family_of(loaded).warnings(loaded):
        note(quiet, f"warning: {warning}")
    run: dict[str, Any] = {"limits": limits, "notice": lambda line: note(quiet, line)}
    with held():
        if memories is None and more_devices is None:
            found: Any = table.frontier(loaded, **run)
            show: Any = table.show_frontier
        else:
            wanted = () if memories is None else sizes.parse_memories(memories)
            found = sizes.by_memory(loaded, wanted, more_devices or 0, **run)
            show = sizes.show_memories
        print_json(found.to_json()) if json else show(found)
    writes: Any = table.writes if isinstance(found, table.Frontier) else sizes.writes
    write_all(*writes(found, out, picture))
    if found.signal:
        raise typer.Exit(128 + found.signal)
    raise typer.Exit(NO_PROOF if found.times is None else 0)
