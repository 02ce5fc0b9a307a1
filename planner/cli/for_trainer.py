"""``solve --for TRAINER``: the best strategy of a trainer, answered as one who runs it asks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from planner.cli.outputs import Solved

Trainer = Annotated[str | None, typer.Option("--for", metavar="TRAINER", help="the best that it runs (--realizable)")]


def question_of(trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an instance for that question; errors as of `as_settings`."""
    from planner.analysis.trainer_answer import as_settings

    return as_settings(trainer, settings)


def answered(found: Solved, trainer: str, instance: str, settings: Mapping[str, Any], out: str | None) -> Solved:
    """What was solved, with the answer if there is a plan; ``out`` is the file of the plan."""
    from planner.analysis.trainer_answer import answer, export_command

    if found.result.own_plan is None:
        return found
    command = export_command(trainer, instance, settings, out)
    made = answer(found.result, found.instance, trainer, command)
    result = replace(found.result, stats={**found.result.stats, **made.stats()})
    return replace(found, result=result, answer=made)
