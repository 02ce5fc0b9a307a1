"""The command on how far an optimal plan can be trusted: ``sensitivity``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from planner.cli.common import (
    INFEASIBLE,
    NO_PROOF,
    Inputs,
    Instance,
    Json,
    ProofsTime,
    Quiet,
    leave,
    limits_of,
    loaded,
    share_of,
)


def sensitivity_command(
    instance: Instance,
    noise: Annotated[str, typer.Option(metavar="SHARE", help="how far times and bandwidth may be off")] = "10%",
    samples: Annotated[int, typer.Option(metavar="N", help="instances with noise", min=1)] = 100,
    scenarios: Annotated[
        str | None, typer.Option(metavar="FILE.json", help="a list of instances, names or overrides to be ready for")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="seed of the noise")] = 0,
    time_limit: ProofsTime = None,
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
    from planner.files.scenarios import read_scenarios
    from planner.process.signals import defer
    from solvers.outcome import Status, Stop

    share = _share(noise)
    declared = loaded(instance, settings, inputs, quiet)
    others = [] if scenarios is None else read_scenarios(scenarios, instance, inputs, settings)
    with defer():
        with counter(quiet, "proofs") as listen:
            found = sensitivity(
                declared,
                noise=share,
                samples=samples,
                scenarios=others,
                limits=limits_of(time_limit, seed=seed),
                listen=listen,
                notice=partial(note, quiet),
            )
        print_json(found.to_json()) if json else show(found)
    code = INFEASIBLE if found.status is Status.INFEASIBLE else 0
    leave(found.signal, code if found.stop is Stop.PROVED else NO_PROOF)


def _share(text: str) -> float:
    """A share, as "10%" or 0.1; `UsageError` if it is not above 0 and below 1."""
    from planner.process.errors import UsageError

    value = share_of(text)
    if not 0 < value < 1:
        raise UsageError.at("--noise", text, "a share above 0 and below 100 %, such as 10% or 0.1")
    return value
