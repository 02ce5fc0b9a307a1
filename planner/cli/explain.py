"""The command that says why there is no plan, or what binds the best one: ``explain``."""

from __future__ import annotations

from typing import Any

from planner.cli.common import INFEASIBLE, NO_PROOF, READING, Instance, ProofsTime, Reading, Seed, leave, limits_of


def explain_command(
    instance: Instance,
    time_limit: ProofsTime = None,
    seed: Seed = 0,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Show why there is no plan and what would repair it, or what binds and what more of it would gain."""
    from planner.analysis.explain import explain
    from planner.display.explained import show
    from planner.display.progress import counter
    from planner.process.signals import defer
    from solvers.outcome import Status, Stop

    declared = view.load(instance, settings)
    limits = limits_of(time_limit, seed=seed)
    with defer():
        with counter(view.quiet, "proofs") as listen:
            found = explain(declared, limits=limits, listen=listen, notice=view.note)
        view.show(found, show)
    code = INFEASIBLE if found.status is Status.INFEASIBLE else 0
    leave(found.signal, code if found.stop is Stop.PROVED else NO_PROOF)
