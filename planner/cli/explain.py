"""The command that says why there is no plan, or what binds the best one: ``explain``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.common import INFEASIBLE, NO_PROOF, Inputs, Instance, Json, Quiet, Seed, limits_of, warn


def explain_command(
    instance: Instance,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="wall time of all proofs together")
    ] = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Show why there is no plan and what would repair it, or what binds and what more of it would gain."""
    from planner.analysis.explain import explain
    from planner.display.explained import show
    from planner.display.progress import counter, note
    from planner.display.tables import print_json
    from planner.files.load import load
    from planner.process.signals import defer
    from solvers.outcome import Status, Stop

    loaded = load(instance, inputs=inputs, **settings)
    warn(loaded, quiet)
    limits = limits_of(time_limit, seed=seed)
    with defer():
        with counter(quiet, "proofs") as listen:
            found = explain(loaded, limits=limits, listen=listen, notice=lambda line: note(quiet, line))
        print_json(found.to_json()) if json else show(found)
    if found.signal:
        raise typer.Exit(128 + found.signal)
    if found.stop is not Stop.PROVED:
        raise typer.Exit(NO_PROOF)
    raise typer.Exit(INFEASIBLE if found.status is Status.INFEASIBLE else 0)
