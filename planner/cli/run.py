"""The commands that write plans for trainers, run them, and judge the runs: ``export``, ``run`` and ``fidelity``."""

from typing import Annotated, Any

import typer

from planner.cli import completion
from planner.cli.common import NOTES, READING, VIEW, Instance, Out, Reading, Search, TimeLimit, Topology, View, leave
from planner.cli.declared import argument, flag, option
from planner.files.destinations import refuse_outputs, refuse_overwriting
from planner.files.read import STANDARD
from planner.files.write import as_json, write_atomically
from planner.process.errors import UsageError
from planner.training.trainers.checked import CHECKED

#: The format cannot express the plan.
REFUSED = 1


def export_command(
    plan: Annotated[str, argument("PLAN.json", "from solve --out or solve --json")],
    instance: Instance,
    to: Annotated[str, option("FORMAT", ", ".join(CHECKED), "--to", complete=completion.formats)],
    nearest: Annotated[bool, flag("--nearest", "if the format cannot express it: the best plan that it can")] = False,
    out: Out = None,
    time_limit: TimeLimit = None,
    topology: Topology = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Write a plan as a trainer reads it; exit 1 if the format cannot express it."""
    from planner.display.runs import show_exported
    from planner.results.check import read_plan
    from planner.training.trainers.exporting import export, format_named

    format_named(to)
    if plan == instance == STANDARD:
        raise UsageError.at("PLAN", plan, "a file: INSTANCE is standard input")
    if out is not None:
        refuse_overwriting(out, plan, instance, *([] if topology is None else [topology]))
    declared = view.load(instance, settings, topology)
    found = export(declared, read_plan(plan), to, nearest=nearest, limits=Search(time_limit).limits(), where=plan)
    if out is not None and found.text is not None:
        write_atomically(out, found.text)
    for line in found.notes:
        view.note(f"note: {line}")
    view.show(found.to_json(out), lambda _: show_exported(found, out))
    leave(found.signal, 0 if found.refused is None else REFUSED)


def run_command(
    plan: Annotated[str, argument("PLAN", "from solve --out or solve --json")],
    instance: Instance,
    model: Annotated[str, option("FILE.py:FUNCTION", "returns the model, and inputs of one call of it")],
    backend: Annotated[
        str, option("gloo|nccl|emulated", "CPU, GPUs, or one by one on the device of the model")
    ] = "gloo",
    runtime: Annotated[str, option("own|pipelining", "ours, or torch.distributed.pipelining")] = "own",
    check: Annotated[
        bool, flag("--check", "compare with the unsplit model: within 1e-6 in float32, 1e-12 in float64")
    ] = False,
    alternative: Annotated[int | None, option("N", "the N-th plan of alternatives", min=1)] = None,
    budget: Annotated[int | None, option("N", "of alternatives, or AMP's: run N, the fastest is kept", min=1)] = None,
    passes: Annotated[str | None, option("PLAN", "of microbatch_schedule: the order of passes (default: 1F1B)")] = None,
    trace: Annotated[str | None, option("FILE.json", "write passes as Chrome trace")] = None,
    out: Annotated[str | None, option("RUN.json", "write the run with its passes, for planner fidelity")] = None,
    time_limit: Annotated[float, option("SECONDS", "wall time of the processes")] = 600.0,
    topology: Topology = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Run an iteration of a plan with torch, on processes of this machine; exit 1 if --check or a process fails."""
    from planner.display.runs import show_record, show_run
    from planner.process.signals import defer, end_if_pending, pending
    from planner.results.check import other_settings, read_plan
    from planner.training.record import plans_of, run_in_order
    from planner.training.runtime.launch import InterruptedRunError, RunError
    from planner.training.runtime.run import read_alternative, read_orders, run_plan
    from planner.training.runtime.trace import chrome_trace

    if plan == instance == STANDARD:
        raise UsageError.at("PLAN", plan, "a file: INSTANCE is standard input")
    if budget is not None and (alternative is not None or passes is not None):
        raise UsageError.at("--budget", budget, "none with --alternative or --passes")
    sources = [plan, instance, model.rpartition(":")[0], *(each for each in (passes, topology) if each is not None)]
    refuse_outputs({"--trace": trace, "--out": out}, *sources)
    declared = view.load(instance, settings, topology)
    content = read_plan(plan) if alternative is None else read_alternative(plan, alternative)
    for other in other_settings(declared, content, plan) if budget is None else ():
        view.note(f"note: {other}")
    settled: dict[str, Any] = {"backend": backend, "check": check, "time_limit": time_limit, "runtime": runtime}
    settled["orders"] = None if passes is None else read_orders(passes)

    def run(one: Any) -> Any:
        return run_plan(one, declared, model, where=plan, **settled)

    with defer():
        try:
            record = None if budget is None else run_in_order(plans_of(content, declared, plan), run, budget)
            found = run(content) if record is None else record.kept
        except RunError as error:
            NOTES.note(str(error))
            raise typer.Exit(1) from None
        except InterruptedRunError:
            end_if_pending()  # with --json there is one object
            raise typer.Exit(128 + (pending() or 0)) from None
        for line in found.printed.splitlines():
            view.note(line)
        view.show(found if record is None else record, show_run if record is None else show_record)
        files = {"--trace": (trace, chrome_trace(found)), "--out": (out, found.record(declared.name))}
        for option, (file, content) in files.items():
            if file is not None:
                write_atomically(file, as_json(content) + "\n", option)
    raise typer.Exit(0 if found.ok else 1)


def fidelity_command(
    runs: Annotated[list[str], argument("RUN...", "from run --out; several of one instance")], view: View = VIEW
) -> None:
    """Compare what a plan predicts with what its run measured, term by term; of several plans also their order."""
    from planner.display.runs import show_fidelity, show_order
    from planner.results.check import read_plan
    from planner.training.runtime.fidelity import fidelity, order_fidelity

    if len(runs) == 1:
        view.show(fidelity(read_plan(runs[0]), runs[0]), show_fidelity)
    else:
        view.show(order_fidelity({run: read_plan(run) for run in runs}), show_order)
