"""Read what a caller gave for a family's overrides and its methods' options."""

import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from formulations.contract.family import Method
from instances import requirements
from instances.requirements import Requirement
from planner.process.errors import UsageError, closest
from solvers.outcome import Limits

#: Longer names of settings are cut.
_LONGEST = 80


def unknown_option(option: str, known: Sequence[str], owner: str) -> str:
    """The one line for an option (with its dashes) that is not among the known ones of ``owner``."""
    shown = option if option.isprintable() and len(option) <= _LONGEST else reprlib.repr(option.lstrip("-"))
    rule = f"; expected one of {closest(option, known)}" if known else ", which has none"
    return f"unknown option {shown} for {owner}{rule}"


class UnknownSettingError(UsageError):
    """A setting that is unknown here; ``name`` is its name."""

    name = ""

    @classmethod
    def of(cls, name: str, known: Iterable[str], owner: str) -> "UnknownSettingError":
        """The one line for it; ``owner`` is what has the known settings."""
        error = cls(unknown_option(f"--{name}", [f"--{each}" for each in known], owner))
        error.name = name
        return error


#: What the arguments of the calls in `planner` may be: a type, and the words for it.
_ARGUMENTS: dict[str, tuple[Any, str]] = {
    "path_or_name": (str | os.PathLike | Mapping, "the name of a file or of a catalog entry, or a mapping"),
    "inputs": (str | os.PathLike | None, "a folder, or None"),
    "problem": (str | None, "the name of a problem, or None"),
    "method": (str | None, "the name of a method, or None"),
    "exact": (bool, "True or False"),
    "limits": (Limits | None, "planner.Limits, or None"),
    "options": (Mapping | None, "a mapping from names to values, or None"),
    "plans": (Mapping | None, "a mapping from names to plans or their files, or None"),
    "listen": (Callable | None, "a function of an event, or None"),
    "notice": (Callable, "a function of a line"),
    "ended": (Callable, "a function of a result"),
    "certificates": (str | os.PathLike | None, "a folder, or None"),
    "reproducers": (str | os.PathLike | None, "a folder, or None"),
    "where": (str, "a text"),
    "against": (str | None, "the name of a method, or None"),
    "out": (str | os.PathLike, "a folder"),
    "count": (int | None, "an integer, or None"),
    "jobs": (int, "an integer"),
    "dask": (str | None, "the address of a scheduler, or None"),
    "worst": (int, "an integer"),
}


def expect_types(**given: Any) -> None:
    """Arguments of a call are of the types that calls of `planner` declare; `UsageError` for the first that is not."""
    for name, value in given.items():
        kind, rule = _ARGUMENTS[name]
        if not isinstance(value, kind):
            raise UsageError.at(name, value, rule)


class Readable(Protocol):
    """What overrides, options and catalog parameters have in common."""

    @property
    def name(self) -> str:
        """As on the command line, without the dashes."""

    @property
    def parse(self) -> Callable[[Any], Any]:
        """From text or a value to the value; ``ValueError`` with the rule that is broken."""


def parse(settings: Iterable[Readable], given: Mapping[str, Any], of: str = "this problem") -> dict[str, Any]:
    """The given settings, parsed, by ``Setting.name``; those given as ``None`` (or a flag as ``False``) are left out.

    Names may be written with underscores, as Python must. ``of`` names what has the settings.

    `UsageError` if a name is not among the settings, or a value breaks its rule.
    """
    known = {setting.name: setting for setting in settings}
    parsed = {}
    for spelled, value in given.items():
        if not isinstance(spelled, str):
            raise UsageError.at("the name of a setting", spelled, "a text")
        name = spelled.replace("_", "-")
        if value is None or value is False:
            continue
        if name not in known:
            raise UnknownSettingError.of(name, known, of)
        try:
            parsed[name] = known[name].parse(value)
        except ValueError as broken:
            raise UsageError.at(f"--{name}", value, str(broken)) from None
    return parsed


#: What `planner.solve_least` minimises and bounds.
AMOUNTS = ("devices", "memory", "time")
_BOUND = re.compile(rf"\s*({'|'.join(AMOUNTS)})\s*[<>=]")
_NO_REQUIREMENT = (
    "a requirement of planner list PROBLEM: bounds on time, memory and devices are of planner solve alone "
    "(in Python planner.solve_least); --memory and --devices are of every command"
)


def split_requirements(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Requirement]]:
    """The settings but ``require``, and the requirements that it states; `UsageError` for one that cannot be read."""
    rest = dict(given)
    stated = rest.pop("require", None) or []
    texts = [stated] if isinstance(stated, str | Requirement) else stated
    if not isinstance(texts, list | tuple) or not all(isinstance(each, str | Requirement) for each in texts):
        raise UsageError.at("require", stated, f"{requirements.GRAMMAR}, or a list of such")
    found = []
    for each in texts:
        if isinstance(each, str) and _BOUND.match(each):
            raise UsageError.at("--require", each, _NO_REQUIREMENT)
        try:
            found.append(requirements.parse(each) if isinstance(each, str) else each)
        except ValueError as rule:
            raise UsageError.at("--require", each, str(rule)) from None
    return rest, found


def method_options(methods: Sequence[Method[Any, Any]], given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For every method its own share of the given options; one that belongs to none of them is a `UsageError`."""
    every = {option.name: option for method in methods for option in method.options}
    names = [method.name for method in methods]
    parsed = parse(every.values(), given, f"method{'s' * (len(names) > 1)} {', '.join(names)}")
    return {
        method.name: {option.name: parsed[option.name] for option in method.options if option.name in parsed}
        for method in methods
    }


def declared_options(instance: Any) -> dict[str, Any]:
    """How the instance was made, as far as it remembers, and which cost model and copies of weights its costs count."""
    cost_model, copies = (getattr(instance, name, None) for name in ("cost_model", "weight_copies"))
    return {
        **getattr(instance, "options", {}),
        **({} if cost_model is None else {"cost-model": str(cost_model)}),
        **({} if copies is None else {"weight-copies": copies}),
    }


def as_typed(settings: Mapping[str, Any]) -> list[str]:
    """Settings as they are typed.

    >>> as_typed({"max_stages": 4, "exact": True, "require": ["a <= 1", "b >= 2"], "memory": None})
    ['--max-stages', '4', '--exact', '--require', 'a <= 1', '--require', 'b >= 2']
    """
    given: list[str] = []
    for setting, value in settings.items():
        option = f"--{setting.replace('_', '-')}"
        for each in value if isinstance(value, list) else [value]:
            if each is not None and each is not False:
                given += [option] if each is True else [option, str(each)]
    return given
