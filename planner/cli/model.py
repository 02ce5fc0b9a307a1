"""The commands on declarative methods' models: ``model``, and ``formulations``, which compares them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli import completion
from planner.cli.common import (
    CONTRADICTION,
    NO_PROOF,
    READING,
    Instance,
    Methods,
    Reading,
    Search,
    Seed,
    Solver,
    SolverLog,
    SolverOption,
    Threads,
    View,
    leave,
    names_of,
)
from planner.cli.declared import flag, option
from planner.files.destinations import refuse_outputs
from planner.files.load import family_of
from planner.process.errors import UsageError
from planner.process.signals import defer, pending
from solvers.outcome import DEFAULT_SOLVER

if TYPE_CHECKING:
    from planner.analysis.model_view import OpenModel
    from solvers.outcome import Watch


def model_command(
    instance: Instance,
    method: Annotated[
        str | None, option("NAME", "a declarative method (default: the first)", complete=completion.methods)
    ] = None,
    complete: Annotated[bool, flag("--complete", "leave out nothing that a known plan makes superfluous")] = False,
    root: Annotated[bool, flag("--root", "solve the linear relaxation")] = False,
    write: Annotated[
        str | None, option("FILE", "write the model (.lp, .mps, .nl, .json, .pb.txt), and FILE.json next to it")
    ] = None,
    read: Annotated[str | None, option("FILE.sol", "judge a solution that another solver found")] = None,
    time_limit: Annotated[float | None, option("SECONDS", "of building the model and of its relaxation")] = None,
    solver: Solver = DEFAULT_SOLVER,
    solver_option: SolverOption = None,
    solver_log: SolverLog = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Look at a method's model: groups of variables and constraints, coefficients, root bound, files."""
    from planner.analysis.model_view import declarative, look
    from planner.analysis.model_view import model as opened
    from planner.display.models import show_model
    from planner.display.progress import words_line
    from solvers.outcome import Watch

    refuse_outputs({"--write": write, "--solver-log": solver_log}, instance, *([] if read is None else [read]))
    if not root and (solver != DEFAULT_SOLVER or solver_option or solver_log):
        raise UsageError("--solver, --solver-option and --solver-log are for the relaxation; expected --root with them")
    if read is not None and (root or write is not None):
        raise UsageError.at("--read", read, "neither --root nor --write with it")
    declared = view.load(instance, settings)
    limits = Search(time_limit, solver=solver, solver_option=solver_option, solver_log=solver_log).limits()
    watch = Watch(limits)
    chosen = next(iter(declarative(family_of(declared))), "cpsat")  # which is then refused by name
    found = opened(declared, method or chosen, complete=complete, watch=watch)
    if read is not None:
        _judge(found, read, watch, view)
    with defer():
        with words_line(view.quiet) as listen:
            seen = look(found, limits, watch, root=root, doing=listen)
        shown = seen.to_json(found)
        if write is not None and seen.sizes is not None and pending() is None:
            wide = found.write(write)
            if wide:
                view.note(f"warning: {write}: {wide}")
            shown["files"] = [write, f"{write}.json"]
        view.show(shown, show_model)
    leave(seen.signal or pending(), NO_PROOF if seen.missing else 0)


def _judge(found: OpenModel, path: str, watch: Watch, view: View) -> None:
    """Print what a solution is worth, and end: 1 if its plan breaks a rule, 3 if a limit came before the model."""
    from formulations.modelling.solve_model import Stopped
    from planner.analysis.model_view import unbuilt
    from planner.display.models import show_model
    from planner.display.tables import show_result

    try:
        result = found.read_solution(path)
    except Stopped:
        view.show(unbuilt(watch).to_json(found), show_model)
        raise typer.Exit(NO_PROOF) from None
    view.show(result, show_result)
    raise typer.Exit(0 if result.verified else 1)


def formulations_command(
    instance: Instance,
    methods: Methods = None,
    time_limit: Annotated[float, option("SECONDS", "of each method, and of each relaxation")] = 60.0,
    seed: Seed = 0,
    threads: Threads = 1,
    plot: Annotated[str | None, option("FILE.png|svg", "draw root bounds and gaps")] = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Compare an instance's declarative models with each other and with the exact search: sizes, roots, seconds."""
    from planner.analysis.compare_models import formulations
    from planner.display.models import panels_of_formulations, show_formulations
    from planner.display.plots.files import require_drawable, save
    from planner.files.write import write_all

    refuse_outputs({"--plot": plot}, instance)
    require_drawable(plot)
    declared = view.load(instance, settings)
    limits = Search(time_limit, seed=seed, threads=threads).limits()
    with defer():
        found = formulations(declared, methods=names_of(methods), limits=limits, notice=view.note)
        view.show(found, show_formulations)
    write_all(*([] if plot is None else [partial(save, panels_of_formulations(found), plot, found.instance)]))
    leave(found.report.signal or pending(), 0 if found.report.agree else CONTRADICTION)
