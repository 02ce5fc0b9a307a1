"""The settings of families, methods, catalog entries and claims as a user is offered them: names and help texts.

A new family's settings are taken by the command line, and shown in its help, without a change here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.files.load import catalog, problem_name


@dataclass(frozen=True)
class Choice:
    """A setting as the help shows it: under which heading, and with which words."""

    name: str
    heading: str
    help: str
    metavar: str
    is_flag: bool


def every_override() -> list[Choice]:
    """The overrides of all families and the parameters of all catalog entries, but for names of methods' options."""
    shown = overrides_of(_families())
    taken = {choice.name for choice in (*shown, *options_of(_families()))}
    return [*shown, *(choice for choice in parameters_of(catalog().values()) if choice.name not in taken)]


def every_setting() -> list[Choice]:
    """The options of all methods as well."""
    return _distinct([*every_override(), *options_of(_families())])


def every_option() -> list[Choice]:
    """The options of all methods."""
    return options_of(_families())


def every_parameter() -> list[Choice]:
    """The parameters of all catalog entries, and the overrides that can be written into a file."""
    return _distinct([*parameters_of(catalog().values()), *overrides_of(_families())])


def find_families(name: str | None) -> list[Any]:
    """The family of that name in a list; an empty one if there is none."""
    wanted = None if name is None else problem_name(name)
    return [family for family in _families() if family.name == wanted]


def families_with(names: Iterable[str]) -> list[Any]:
    """The families that have methods of these names."""
    wanted = set(names)
    return [family for family in _families() if wanted & {method.name for method in family.methods}]


def overrides_of(families: Sequence[Any]) -> list[Choice]:
    """The overrides of the instances of some families."""
    return _merge(
        ((family.name, setting) for family in families for setting in family.overrides), "Options of {}".format
    )


def options_of(families: Sequence[Any]) -> list[Choice]:
    """The options of the methods of some families; every help text says of which methods."""
    owners = [
        (method.name if len(families) == 1 else f"{family.name}/{method.name}", option)
        for family in families
        for method in family.methods
        for option in method.options
    ]
    return _merge(owners, lambda _: "Options of its methods", always_named=True)


def parameters_of(entries: Iterable[Any]) -> list[Choice]:
    """The parameters of catalog entries."""
    owners = ((entry.name, parameter) for entry in entries for parameter in entry.parameters)
    return _merge(owners, "Parameters of {}".format)


def claim_options(claims: Iterable[Any]) -> list[Choice]:
    """The options of claims."""
    return _merge(((claim.name, option) for claim in claims for option in claim.options), "Options of {}".format)


def split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was given: the instance's overrides, with ``problem`` and ``require``, and the methods' options."""
    given = {name: value for name, value in settings.items() if value not in (None, False, [])}
    overriding = {"problem", "require"}
    if not given.keys() <= overriding:  # finding the others imports the families
        overriding.update(choice.name.replace("-", "_") for choice in every_override())
    return (
        {name: value for name, value in given.items() if name in overriding},
        {name: value for name, value in given.items() if name not in overriding},
    )


def _families() -> tuple[Any, ...]:
    from formulations import FAMILIES  # imported only for commands that take settings

    return FAMILIES


def _distinct(choices: Iterable[Choice]) -> list[Choice]:
    found: dict[str, Choice] = {}
    for choice in choices:
        found.setdefault(choice.name, choice)
    return list(found.values())


def _merge(
    settings: Iterable[tuple[str, Any]], heading: Callable[[str], str], *, always_named: bool = False
) -> list[Choice]:
    """One choice for each name; owners with equal words share them."""
    found: dict[str, dict[str, list[str]]] = {}
    first: dict[str, Any] = {}
    for owner, setting in settings:
        first.setdefault(setting.name, setting)
        found.setdefault(setting.name, {}).setdefault(describe_setting(setting), []).append(owner)
    choices = []
    for name, texts in found.items():
        owners = ", ".join(dict.fromkeys(owner for each in texts.values() for owner in each))
        named = always_named or len(texts) > 1
        words = "; ".join(f"{', '.join(each)}: {text}" if named else text for text, each in texts.items())
        choices.append(Choice(name, heading(owners), words, first[name].metavar, first[name].is_flag))
    return choices


def describe_setting(setting: Any) -> str:
    """The help text of a setting, with its default if there is one."""
    return f"{setting.help} (default: {setting.default})" if setting.default else setting.help
