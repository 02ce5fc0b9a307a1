"""``--for TRAINER``: the best strategies of a trainer, answered as one who runs it asks."""

from collections.abc import Callable, Mapping
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
    """What was solved, with the answer if there is a plan, and those of its alternatives or its front.

    ``out`` is the file of the plan; the time of ``limits`` is for both, the plan and the next best degrees, which are
    not looked for beside alternatives.
    """
    from planner.analysis.trainer_answer import answer, answers, export_command, with_next_best

    if found.result.own_plan is None:
        return found
    command = export_command(trainer, instance, settings, out)
    made = answer(found.result.own_plan, found.instance, trainer, command)
    if found.more is None:
        made = with_next_best(made, found.result, found.instance, limits)
    own = () if found.more is None else answers(found.more, found.instance, trainer)
    result = replace(found.result, stats={**found.result.stats, **made.stats()})
    return replace(found, result=result, answer=made, answers=own)


def explain_for(
    study: Callable[..., Any], declared: Any, trainer: str, instance: str, settings: Mapping[str, Any], **watched: Any
) -> Any:
    """An explanation of a trainer's best strategy, with what other decisions cost."""
    from planner.analysis.trainer_answer import explained, export_command

    command = export_command(trainer, instance, settings, None)
    return explained(study(others=True, **watched), declared, trainer, command)
