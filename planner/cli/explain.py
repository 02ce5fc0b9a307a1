"""The commands of many small proofs: ``explain``, and ``sensitivity``, how far an optimal plan can be trusted."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NoReturn

from planner.cli.common import (
    INFEASIBLE,
    NO_PROOF,
    READING,
    Instance,
    ProofsTime,
    Reading,
    Search,
    Seed,
    leave,
    share_of,
)
from planner.cli.declared import option
from planner.cli.for_trainer import Trainer, explain_for


def explain_command(
    instance: Instance,
    time_limit: ProofsTime = None,
    seed: Seed = 0,
    view: Reading = READING,
    trainer: Trainer = None,
    **settings: Any,
) -> None:
    """Show why there is no plan and what would repair it, or what binds, and what other choices and more would take."""
    from planner.analysis.explain import explain
    from planner.display.explained import show

    declared = view.load(instance, settings)
    study = partial(explain, declared, limits=Search(time_limit, seed=seed).limits())
    if trainer is not None:
        study = partial(explain_for, study, declared, trainer, instance, settings)
    _prove(study, show, view)


def sensitivity_command(
    instance: Instance,
    noise: Annotated[str, option("SHARE", "how far times and bandwidth may be off")] = "10%",
    samples: Annotated[int, option("N", "instances with noise", min=1)] = 100,
    scenarios: Annotated[
        str | None, option("FILE.json", "a list of instances, names or overrides to be ready for")
    ] = None,
    seed: Annotated[int, option("N", "seed of the noise")] = 0,
    time_limit: ProofsTime = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Show within which factors of its numbers the best plan stays best, and what it loses beyond."""
    from planner.analysis.sensitivity import sensitivity
    from planner.display.sensitivity import show
    from planner.files.scenarios import read_scenarios

    rule = "a share above 0 and below 100 %, such as 10% or 0.1"
    share = share_of("--noise", noise, rule, lambda share: 0 < share < 1)
    declared = view.load(instance, settings)
    others = [] if scenarios is None else read_scenarios(scenarios, instance, view.inputs, settings)
    limits = Search(time_limit, seed=seed).limits()
    study = partial(sensitivity, declared, noise=share, samples=samples, scenarios=others, limits=limits)
    _prove(study, show, view)


def _prove(study: Callable[..., Any], show: Callable[[Any], None], view: Reading) -> NoReturn:
    """Run a study whose proofs are counted, show what it finds, and exit."""
    from planner.display.progress import counter
    from planner.process.signals import defer
    from solvers.outcome import Status, Stop

    with defer():
        with counter(view.quiet, "proofs") as listen:
            found = study(listen=listen, notice=view.note)
        view.show(found, show)
    code = INFEASIBLE if found.status is Status.INFEASIBLE else 0
    leave(found.signal, code if found.stop is Stop.PROVED else NO_PROOF)
