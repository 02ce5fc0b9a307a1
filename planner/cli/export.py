"""The command that writes plans for trainers: ``export``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli import completion
from planner.cli.common import READING, Instance, Out, Reading, Search, TimeLimit, leave
from planner.process.errors import UsageError

_FORMATS = "megatron, torchtitan, torch, deepspeed, galvatron, vllm, sglang or accelerate"
#: The format cannot express the plan.
REFUSED = 1


def export_command(
    plan: Annotated[str, typer.Argument(metavar="PLAN.json", help="from solve --out or solve --json")],
    instance: Instance,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help=_FORMATS, autocompletion=completion.formats)],
    nearest: Annotated[
        bool, typer.Option("--nearest", metavar="", help="if the format cannot express it: the best plan that it can")
    ] = False,
    out: Out = None,
    time_limit: TimeLimit = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Write a plan as a trainer reads it; exit 1 if the format cannot express it."""
    from planner.display.exported import show_exported
    from planner.files.destinations import refuse_overwriting
    from planner.files.read import STANDARD
    from planner.files.write import write_atomically
    from planner.results.check import read_plan
    from planner.training.trainers.exporting import export, format_named

    format_named(to)
    if plan == instance == STANDARD:
        raise UsageError.at("PLAN", plan, "a file: INSTANCE is standard input")
    if out is not None:
        refuse_overwriting(out, plan, instance)
    declared = view.load(instance, settings)
    found = export(declared, read_plan(plan), to, nearest=nearest, limits=Search(time_limit).limits(), where=plan)
    if out is not None and found.text is not None:
        write_atomically(out, found.text)
    for line in found.notes:
        view.note(f"note: {line}")
    view.show(found.to_json(out), lambda _: show_exported(found, out))
    leave(found.signal, 0 if found.refused is None else REFUSED)
