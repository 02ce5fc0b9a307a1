"""The command on whole tables of optima: ``frontier``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.common import NO_PROOF, Inputs, Instance, Quiet, leave, limits_of, loaded

if TYPE_CHECKING:
    from planner.analysis.optima import Optima


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
    from planner.analysis.frontier import frontier
    from planner.analysis.memories import by_memory, parse_memories
    from planner.display.optima import show_optima, writes
    from planner.display.plots.files import require_drawable
    from planner.display.progress import note
    from planner.display.tables import print_json
    from planner.files.destinations import refuse_outputs
    from planner.files.write import write_all
    from planner.process.signals import defer

    refuse_outputs({"--out": out, "--plot": picture}, instance)
    if picture is not None:
        require_drawable(picture)
    limits = limits_of(time_limit)
    declared, notice = loaded(instance, settings, inputs, quiet), partial(note, quiet)
    found: Optima
    with defer():
        if memories is None and more_devices is None:
            found = frontier(declared, limits=limits, notice=notice)
        else:
            wanted = () if memories is None else parse_memories(memories)
            found = by_memory(declared, wanted, more_devices or 0, limits=limits, notice=notice)
        print_json(found.to_json()) if json else show_optima(found)
    write_all(*writes(found, out, picture))
    leave(found.signal, NO_PROOF if found.times is None else 0)
