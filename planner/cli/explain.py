"""The command that says why there is no plan, or what binds the best one: ``explain``."""

from __future__ import annotations

from functools import partial
from typing import Any

from planner.cli.common import (
    INFEASIBLE,
    NO_PROOF,
    Inputs,
    Instance,
    Json,
    ProofsTime,
    Quiet,
    Seed,
    leave,
    limits_of,
    loaded,
)


def explain_command(
    instance: Instance,
    time_limit: ProofsTime = None,
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
    from planner.process.signals import defer
    from solvers.outcome import Status, Stop

    declared = loaded(instance, settings, inputs, quiet)
    limits = limits_of(time_limit, seed=seed)
    with defer():
        with counter(quiet, "proofs") as listen:
            found = explain(declared, limits=limits, listen=listen, notice=partial(note, quiet))
        print_json(found.to_json()) if json else show(found)
    code = INFEASIBLE if found.status is Status.INFEASIBLE else 0
    leave(found.signal, code if found.stop is Stop.PROVED else NO_PROOF)
