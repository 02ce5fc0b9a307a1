"""The commands that run plans and judge the runs: ``run`` and ``fidelity``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.common import NOTES, READING, VIEW, Instance, Reading, View
from planner.process.errors import UsageError


def run_command(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="from solve --out or solve --json")],
    instance: Instance,
    model: Annotated[
        str, typer.Option(metavar="FILE.py:FUNCTION", help="returns the model, and inputs of one call of it")
    ],
    backend: Annotated[str, typer.Option(metavar="gloo|nccl", help="CPU, or a GPU for each process")] = "gloo",
    runtime: Annotated[
        str, typer.Option(metavar="own|pipelining", help="ours, or torch.distributed.pipelining")
    ] = "own",
    check: Annotated[
        bool,
        typer.Option(
            "--check", metavar="", help="compare with the unsplit model: within 1e-6 in float32, 1e-12 in float64"
        ),
    ] = False,
    passes: Annotated[
        str | None, typer.Option(metavar="PLAN", help="of microbatch_schedule: the order of passes (default: 1F1B)")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE.json", help="write measured beside simulated passes as Chrome trace")
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="RUN.json", help="write the run with its passes, for planner fidelity")
    ] = None,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="wall time of the processes")] = 600.0,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Run an iteration of a plan with torch, on processes of this machine; exit 1 if --check or a process fails."""
    from planner.display.runs import show_run
    from planner.files.destinations import refuse_outputs
    from planner.files.read import STANDARD
    from planner.files.write import as_json, write_atomically
    from planner.process.signals import defer, end_if_pending, pending
    from planner.results.check import other_settings, read_plan
    from planner.training.runtime.launch import InterruptedRunError, RunError
    from planner.training.runtime.run import read_orders, run_plan
    from planner.training.runtime.trace import chrome_trace

    if plan == instance == STANDARD:
        raise UsageError.at("PLAN", plan, "a file: INSTANCE is standard input")
    sources = [plan, instance, model.rpartition(":")[0], *([] if passes is None else [passes])]
    refuse_outputs({"--trace": trace, "--out": out}, *sources)
    declared = view.load(instance, settings)
    content = read_plan(plan)
    for other in other_settings(declared, content, plan):
        view.note(f"note: {other}")
    with defer():
        try:
            found = run_plan(
                content,
                declared,
                model,
                backend=backend,
                check=check,
                time_limit=time_limit,
                runtime=runtime,
                orders=None if passes is None else read_orders(passes),
                where=plan,
            )
        except RunError as error:
            NOTES.note(str(error))
            raise typer.Exit(1) from None
        except InterruptedRunError:
            end_if_pending()  # with --json there is one object
            raise typer.Exit(128 + (pending() or 0)) from None
        for line in found.printed.splitlines():
            view.note(line)
        view.show(found, show_run)
        files = {"--trace": (trace, chrome_trace(found)), "--out": (out, found.record(declared.name))}
        for option, (file, content) in files.items():
            if file is not None:
                write_atomically(file, as_json(content) + "\n", option)
    raise typer.Exit(0 if found.ok else 1)


def fidelity_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="from run --out")],
    view: View = VIEW,
) -> None:
    """Compare what a plan predicts with what its run measured, term by term."""
    from planner.display.runs import show_fidelity
    from planner.results.check import read_plan
    from planner.training.runtime.fidelity import fidelity

    found = fidelity(read_plan(run), run)
    view.show(found, show_fidelity)
