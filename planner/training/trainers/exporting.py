"""Write a plan in a format that a trainer reads, or say why it has none and what the nearest plan costs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from instances.errors import InstanceError
from planner.files.load import family_of, validate
from planner.process.errors import UsageError
from planner.results.check import check, other_settings
from planner.solving.solve import solve
from planner.training.trainers.formats import FORMATS, Format
from planner.training.trainers.plans import TranslatedPlan, layout_of
from planner.types import Instance, Json, JsonObject
from solvers.outcome import Limits, Status

#: More reasons than this are counted.
_SHOWN = 4


@dataclass(frozen=True)
class Nearest:
    """The best plan that the format can express, in JSON form, its objective, and objective / the plan's - 1."""

    plan: JsonObject
    objective: float
    loss: float | None
    proved: bool


@dataclass(frozen=True)
class Exported:
    """What a plan is in a format.

    ``text`` is that of the plan; where it was ``refused`` (why, in words), that of the ``nearest`` plan, if one was
    searched for and found. ``lossless``: reading the text back gives all of the layout of the plan that it has.
    ``signal`` interrupted the search.
    """

    format: str
    text: str | None
    lossless: bool
    refused: str | None = None
    nearest: Nearest | None = None
    notes: tuple[str, ...] = ()
    unit: str = "s"
    signal: int | None = None

    def to_json(self, file: str | None = None) -> dict[str, Json]:
        """The object that ``planner export --json`` prints; ``file`` is where the text was written."""
        near = self.nearest
        return {
            "format": self.format,
            **({"text": self.text} if file is None or self.text is None else {"file": file}),
            "lossless": self.lossless,
            "refused": self.refused,
            "nearest": None if near is None else {"objective": near.objective, "loss": near.loss},
        }


def format_named(name: str) -> Format:
    """The format of that name; `UsageError` with the closest if there is none."""
    if name not in FORMATS:
        raise UsageError.unknown("--to", name, FORMATS)
    return FORMATS[name]


def export(
    instance: Instance,
    plan: JsonObject,
    to: str,
    *,
    nearest: bool = False,
    limits: Limits | None = None,
    where: str = "plan",
) -> Exported:
    """A plan in a format of `FORMATS`.

    Parameters
    ----------
    plan
        A plan in its JSON form, a plan file's content, or a result object.
    nearest
        Where the format cannot express the plan, search for the best plan that it can.
    limits
        Of that search.
    where
        Names the plan in errors.

    Raises
    ------
    InstanceError
        If the plan is none of the instance, or breaks a rule.
    UsageError
        If there is no such format, or the problem's plans have no stages of layers.
    """
    wanted = format_named(to)
    instance = validate(instance)
    family = family_of(instance)
    content = _plan_of(plan, family.name, instance.name, where)
    verdict = check(instance, content, where=where)
    if verdict.violations:
        first = verdict.violations[0]
        rule = f"a plan that keeps the rules of {instance.name} (planner check)"
        raise InstanceError.at(where, first.rule, first.message, rule)
    found = layout_of(instance, family.plan_from_json(instance, content), wanted)
    unit = family.unit(instance)
    others = other_settings(instance, plan, where)
    if found.layout is not None:
        text, lossless = _write(found, wanted)
        return Exported(wanted.name, text, lossless, notes=(*others, *found.notes), unit=unit)
    refused = _list(found.refused)
    if not nearest:
        return Exported(wanted.name, None, False, refused, notes=(*others, *_none_near(instance)), unit=unit)
    near = _nearest(instance, verdict.objective, wanted, refused, limits, unit)
    return replace(near, notes=(*others, *near.notes))


def _plan_of(plan: JsonObject, problem: str, name: str, where: str) -> Mapping[str, Any]:
    """The plan in a plan file or a result; `InstanceError` if it is one of another problem or instance."""
    if not isinstance(plan, Mapping):
        raise InstanceError.at(where, "plan", plan, "an object")
    for field, value in (("problem", problem), ("instance", name)):
        if plan.get(field, value) != value:
            raise InstanceError.at(where, field, plan[field], f"{value}, as the instance has it")
    held = plan["plan"] if "plan" in plan and "status" in plan else plan
    if not isinstance(held, Mapping):
        raise InstanceError.at(where, "plan", held, "a result that holds a plan")
    return held


def _write(found: TranslatedPlan, wanted: Format) -> tuple[str, bool]:
    """The text, with the notes at the end of a script, and whether it has the whole layout."""
    layout = found.layout
    assert layout is not None
    comments = [f"# {note}\n" for note in found.notes] if wanted.is_script else []
    text = "".join([wanted.write(layout), *(["\n", *comments] if comments else [])])
    return text, wanted.read(text) == (layout.by_count() if wanted.trainer.counts else layout.by_module())


def _list(reasons: tuple[str, ...]) -> str:
    more = len(reasons) - _SHOWN
    return "; ".join([*reasons[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def _none_near(instance: Any) -> tuple[str, ...]:
    """Why there is no search for the nearest plan."""
    if family_of(instance).name == "stage_partitioning" and not instance.requirements:
        return ()
    return ("no nearest plan: it is searched for in stage_partitioning, without requirements",)


def _nearest(
    instance: Any, objective: float | None, wanted: Format, refused: str, limits: Limits | None, unit: str
) -> Exported:
    """The best plan that the format can express, on all devices of the instance."""
    if none := _none_near(instance):
        return Exported(wanted.name, None, False, refused, notes=none, unit=unit)
    from formulations.stage_partitioning.definition.settings import apply

    limited = apply(instance, {"realizable": wanted.name}, instance.name)
    result = solve(limited, exact=True, limits=limits)
    if result.plan is None:
        why = "proved" if result.status is Status.INFEASIBLE else "none was found in time"
        note = f"no plan of {instance.name} on all {instance.num_devices} devices fits {wanted.name} ({why})"
        return Exported(wanted.name, None, False, refused, notes=(note,), unit=unit, signal=result.signal)
    found = layout_of(instance, result.own_plan, wanted)
    assert result.objective is not None
    loss = None if not objective else result.objective / objective - 1
    near = Nearest(result.plan, result.objective, loss, result.status is Status.OPTIMAL)
    if found.layout is None:
        return Exported(wanted.name, None, False, refused, None, notes=found.refused, unit=unit)
    text, lossless = _write(found, wanted)
    return Exported(wanted.name, text, lossless, refused, near, found.notes, unit, result.signal)
