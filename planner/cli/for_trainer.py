"""``solve --for TRAINER``: the best strategy of a trainer, answered as one who runs it asks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from planner.cli.declared import option
from planner.cli.outputs import Solved
from solvers.outcome import Limits

Trainer = Annotated[str | None, option("TRAINER", "the best that it runs (--realizable)", "--for")]


def question_of(trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an instance for that question; errors as of `as_settings`."""
    from planner.analysis.trainer_answer import as_settings

    return as_settings(trainer, settings)


def answered(
    found: Solved, trainer: str, instance: str, settings: Mapping[str, Any], out: str | None, limits: Limits
) -> Solved:
    """What was solved, with the answer if there is a plan.

    ``out`` is the file of the plan; the time of ``limits`` is for both, the plan and the next best degrees.
    """
    from planner.analysis.trainer_answer import answer, export_command, with_next_best

    if found.result.own_plan is None:
        return found
    command = export_command(trainer, instance, settings, out)
    made = with_next_best(answer(found.result, found.instance, trainer, command), found.result, found.instance, limits)
    result = replace(found.result, stats={**found.result.stats, **made.stats()})
    return replace(found, result=result, answer=made)
