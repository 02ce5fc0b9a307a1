"""The command on how far an optimal plan can be trusted: ``sensitivity``."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from planner.cli.common import INFEASIBLE, NO_PROOF, Inputs, Instance, Json, Quiet, limits_of, warn


def sensitivity_command(
    instance: Instance,
    noise: Annotated[str, typer.Option(metavar="SHARE", help="how far times and bandwidth may be off")] = "10%",
    samples: Annotated[int, typer.Option(metavar="N", help="instances with noise", min=1)] = 100,
    scenarios: Annotated[
        str | None, typer.Option(metavar="FILE.json", help="a list of instances, names or overrides to be ready for")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="seed of the noise")] = 0,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="wall time of all proofs together")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Show within which factors of its numbers the best plan stays best, and what it loses beyond."""
    from planner.analysis.sensitivity import sensitivity
    from planner.display.progress import counter, note
    from planner.display.sensitivity import show
    from planner.display.tables import print_json
    from planner.files.load import load
    from planner.files.scenarios import read_scenarios
    from planner.process.signals import defer
    from solvers.outcome import Status, Stop

    share = _share(noise)
    loaded = load(instance, inputs=inputs, **settings)
    others = [] if scenarios is None else read_scenarios(scenarios, instance, inputs, settings)
    warn(loaded, quiet)
    with defer():
        with counter(quiet, "proofs") as listen:
            found = sensitivity(
                loaded,
                noise=share,
                samples=samples,
                scenarios=others,
                limits=limits_of(time_limit, seed=seed),
                listen=listen,
                notice=lambda line: note(quiet, line),
            )
        print_json(found.to_json()) if json else show(found)
    if found.signal:
        raise typer.Exit(128 + found.signal)
    if found.stop is not Stop.PROVED:
        raise typer.Exit(NO_PROOF)
    raise typer.Exit(INFEASIBLE if found.status is Status.INFEASIBLE else 0)


def _share(text: str) -> float:
    """A share, as "10%" or 0.1; `UsageError` if it is not above 0 and below 1."""
    from planner.process.errors import UsageError

    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise UsageError.at("--noise", text, "a share above 0 and below 100 %, such as 10% or 0.1")
    return value
