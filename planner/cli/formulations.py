"""The command that compares models: ``formulations``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from planner.cli.common import CONTRADICTION, Inputs, Instance, Json, Quiet, Seed, Threads, leave, limits_of, loaded


def formulations_command(
    instance: Instance,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="of each method, and of each relaxation")] = 60.0,
    seed: Seed = 0,
    threads: Threads = 1,
    plot: Annotated[str | None, typer.Option(metavar="FILE.png|svg", help="draw root bounds and gaps")] = None,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Compare an instance's declarative models with each other and with the exact search: sizes, roots, seconds."""
    from planner.analysis.compare_models import formulations
    from planner.display.models import draw_formulations, show_formulations
    from planner.display.plots.files import require_drawable
    from planner.display.progress import note
    from planner.display.tables import print_json
    from planner.files.destinations import refuse_outputs
    from planner.files.write import write_all
    from planner.process.signals import defer, pending

    refuse_outputs({"--plot": plot}, instance)
    if plot is not None:
        require_drawable(plot)
    declared = loaded(instance, settings, inputs, quiet)
    limits = limits_of(time_limit, seed=seed, threads=threads)
    with defer():
        found = formulations(declared, limits=limits, notice=partial(note, quiet))
        print_json(found.to_json()) if json else show_formulations(found)
    write_all(*([] if plot is None else [partial(draw_formulations, plot, found)]))
    leave(found.report.signal or pending(), 0 if found.report.agree else CONTRADICTION)
