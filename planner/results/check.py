"""Check a plan against its instance: the family's definition, and no solver."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from formulations.contract.family import Violation
from instances.errors import InstanceError
from planner.files.load import family_of, validate
from planner.files.read import read_object
from planner.files.settings import declared_options, expect_types
from planner.types import Instance, Json, JsonObject

#: Two numbers that should be one may differ by this much, relatively.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Verdict:
    """The verdict of the family's definition on a plan: the rules it breaks, or its objective if it breaks none.

    ``of`` is the instance and ``plan`` what was judged, decoded: notebooks show its pictures.
    """

    problem: str
    instance: str
    violations: tuple[Violation, ...]
    objective: float | None
    unit: str
    of: Any = field(default=None, repr=False, compare=False)
    plan: Any = field(default=None, repr=False, compare=False)

    @property
    def feasible(self) -> bool:
        """Whether the plan breaks no rule."""
        return not self.violations

    def to_json(self) -> dict[str, Json]:
        """The object that ``planner check --json`` prints."""
        broken = [{"rule": found.rule, "message": found.message} for found in self.violations]
        shown = {name: value for name, value in vars(self).items() if name not in ("of", "plan")}
        return {**shown, "feasible": self.feasible, "violations": broken}


def check(instance: Instance, plan: JsonObject, *, where: str = "plan") -> Verdict:
    """Check a plan in its JSON form (or a whole result object that holds one).

    Raises
    ------
    InstanceError
        If it does not have the form of a plan (``where`` names it in the message), or the instance breaks a rule.
    """
    expect_types(where=where)
    instance = validate(instance)
    family = family_of(instance)
    if not isinstance(plan, Mapping):
        raise InstanceError.at(where, "plan", plan, "an object")
    content: Any = plan
    if "plan" in plan and "status" in plan:
        content = plan["plan"]
        if content is None:
            raise InstanceError.at(where, "plan", None, "a result that holds a plan")
    try:
        decoded = family.plan_from_json(instance, content)
    except InstanceError as error:
        made_for = plan.get("problem", family.name)
        if made_for != family.name:
            rule = f"{family.name}, as the instance has; or the settings with which the plan was found"
            raise InstanceError.at(where, "problem", made_for, rule) from None
        text = str(error)
        raise InstanceError(text if text.startswith(where) else " ".join(f"{where}: {text}".split())) from None
    broken = family.judge(instance, decoded)
    objective = None if broken else family.evaluate(instance, decoded)
    return Verdict(family.name, instance.name, broken, objective, family.unit(instance), instance, decoded)


def other_settings(instance: Instance, plan: JsonObject, where: str = "plan") -> tuple[str, ...]:
    """What a plan's file or result says of the overrides it was made with, where the instance has others; in words."""
    made = plan.get("options") if isinstance(plan, Mapping) else None
    if not isinstance(made, Mapping):
        return ()
    here = declared_options(instance)
    return tuple(
        f"{override.name} was {_setting_text(made, override.name)} when {where} was made"
        f" and is {_setting_text(here, override.name)}"
        " here, where the plan is judged"
        for override in family_of(instance).overrides
        if made.get(override.name) != here.get(override.name)
    )


def _setting_text(options: Mapping[str, Any], name: str) -> str:
    value = options.get(name, "not given")
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def read_plan(path: str) -> Mapping[str, Any]:
    """The JSON object in a plan file, or (``-``) on standard input; `InstanceError`."""
    return read_object(path, "a plan, as planner solve --out writes it")


def agree(first: float, second: float, tolerance: float = TOLERANCE) -> bool:
    """Whether two numbers that should be one are as close as float arithmetic and solvers can promise."""
    return math.isclose(first, second, rel_tol=tolerance, abs_tol=1e-15)


def exceeds(bound: float, objective: float) -> bool:
    """Whether a lower bound lies above a verified objective, beyond what rounding excuses."""
    return bound > objective and not agree(bound, objective)
