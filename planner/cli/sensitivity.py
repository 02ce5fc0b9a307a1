"""The command on how far an optimal plan can be trusted: ``sensitivity``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.common import INFEASIBLE, NO_PROOF, READING, Instance, ProofsTime, Reading, leave, limits_of, share_of


def sensitivity_command(
    instance: Instance,
    noise: Annotated[str, typer.Option(metavar="SHARE", help="how far times and bandwidth may be off")] = "10%",
    samples: Annotated[int, typer.Option(metavar="N", help="instances with noise", min=1)] = 100,
    scenarios: Annotated[
        str | None, typer.Option(metavar="FILE.json", help="a list of instances, names or overrides to be ready for")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="seed of the noise")] = 0,
    time_limit: ProofsTime = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Show within which factors of its numbers the best plan stays best, and what it loses beyond."""
    from planner.analysis.sensitivity import sensitivity
    from planner.display.progress import counter
    from planner.display.sensitivity import show
    from planner.files.scenarios import read_scenarios
    from planner.process.signals import defer
    from solvers.outcome import Status, Stop

    rule = "a share above 0 and below 100 %, such as 10% or 0.1"
    share = share_of("--noise", noise, rule, lambda share: 0 < share < 1)
    declared = view.load(instance, settings)
    others = [] if scenarios is None else read_scenarios(scenarios, instance, view.inputs, settings)
    with defer():
        with counter(view.quiet, "proofs") as listen:
            found = sensitivity(
                declared,
                noise=share,
                samples=samples,
                scenarios=others,
                limits=limits_of(time_limit, seed=seed),
                listen=listen,
                notice=view.note,
            )
        view.show(found, show)
    code = INFEASIBLE if found.status is Status.INFEASIBLE else 0
    leave(found.signal, code if found.stop is Stop.PROVED else NO_PROOF)
