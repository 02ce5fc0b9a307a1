"""The command that compares models: ``formulations``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from planner.cli.common import CONTRADICTION, READING, Instance, Reading, Search, Seed, Threads, leave


def formulations_command(
    instance: Instance,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="of each method, and of each relaxation")] = 60.0,
    seed: Seed = 0,
    threads: Threads = 1,
    plot: Annotated[str | None, typer.Option(metavar="FILE.png|svg", help="draw root bounds and gaps")] = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Compare an instance's declarative models with each other and with the exact search: sizes, roots, seconds."""
    from planner.analysis.compare_models import formulations
    from planner.display.models import draw_formulations, show_formulations
    from planner.display.plots.files import require_drawable
    from planner.files.destinations import refuse_outputs
    from planner.files.write import write_all
    from planner.process.signals import defer, pending

    refuse_outputs({"--plot": plot}, instance)
    require_drawable(plot)
    declared = view.load(instance, settings)
    limits = Search(time_limit, seed=seed, threads=threads).limits()
    with defer():
        found = formulations(declared, limits=limits, notice=view.note)
        view.show(found, show_formulations)
    write_all(*([] if plot is None else [partial(draw_formulations, plot, found)]))
    leave(found.report.signal or pending(), 0 if found.report.agree else CONTRADICTION)
