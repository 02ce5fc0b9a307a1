"""The command line's options for families, methods and catalog entries, built from their settings.

A new family's settings appear in ``planner solve --help`` without a change here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from planner.inputs.loading import catalog

Command = Callable[..., None]


@dataclass(frozen=True)
class Choice:
    """A setting as the help shows it: under which heading, and with which words; or not at all."""

    name: str
    panel: str
    help: str
    metavar: str
    is_flag: bool
    hidden: bool = False


def override_choices() -> list[Choice]:
    """The overrides of all families; one that several share appears once, for all of them. First, ``problem``.

    Last and hidden, the parameters of catalog entries: ``planner make NAME --help`` shows them.
    """
    shown = _family_choices()
    taken = {choice.name for choice in (*shown, *option_choices())}
    return [*shown, *(replace(each, hidden=True) for each in _entry_choices(catalog()) if each.name not in taken)]


def _family_choices() -> list[Choice]:
    problems = [family.name for family in _families() if family.also_reads]
    text = "read an instance of stage_partitioning as one of this problem"
    return [
        Choice("problem", ", ".join(problems), text, "|".join(problems), is_flag=False),
        *_merged((family.name, setting) for family in _families() for setting in family.overrides),
    ]


def option_choices() -> list[Choice]:
    """The methods' options of all families."""
    taken = {choice.name for choice in _family_choices()}
    return [
        choice
        for choice in _merged(
            (f"{family.name}: {method.name}", setting)
            for family in _families()
            for method in family.methods
            for setting in method.options
        )
        if choice.name not in taken
    ]


def setting_choices() -> list[Choice]:
    """Overrides and options together."""
    return [*override_choices(), *option_choices()]


def parameter_choices(entries: Mapping[str, Any]) -> list[Choice]:
    """The parameters of all catalog entries, and the overrides that can be written into a file."""
    own = _entry_choices(entries)
    taken = {choice.name for choice in own}
    return own + [choice for choice in _family_choices() if choice.name not in taken]


def _entry_choices(entries: Mapping[str, Any]) -> list[Choice]:
    return _merged((entry.name, parameter) for entry in entries.values() for parameter in entry.parameters)


def claim_choices() -> list[Choice]:
    """The options of the claims that can be reproduced."""
    from planner.claims import CLAIMS

    return _merged((claim.name, option) for claim in CLAIMS for option in claim.options)


def with_choices(command: Command, choices: Iterable[Choice]) -> Command:
    """The command with one option for each choice in place of its ``**settings``."""
    signature = inspect.signature(command, eval_str=True)
    fixed = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    own = {each.name for each in fixed}
    parameters = fixed + [_parameter(choice) for choice in choices if choice.name not in own]

    def called(**values: Any) -> None:
        command(**values)

    called.__doc__ = command.__doc__
    called.__name__ = command.__name__
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was given, parted into the instance's overrides and the methods' options."""
    overriding = {choice.name.replace("-", "_") for choice in override_choices()}
    given = {name: value for name, value in settings.items() if value is not None and value is not False}
    return (
        {name: value for name, value in given.items() if name in overriding},
        {name: value for name, value in given.items() if name not in overriding},
    )


def _families() -> tuple[Any, ...]:
    from formulations import FAMILIES  # imported only for commands that take settings

    return FAMILIES


def _merged(settings: Iterable[tuple[str, Any]]) -> list[Choice]:
    """One choice for each name; words that differ between owners are shown for each of them."""
    owners: dict[str, list[tuple[str, Any]]] = {}
    for owner, setting in settings:
        owners.setdefault(setting.name, []).append((owner, setting))
    return [_choice(name, found) for name, found in owners.items()]


def _choice(name: str, found: list[tuple[str, Any]]) -> Choice:
    first = found[0][1]
    names = list(dict.fromkeys(owner for owner, _ in found))
    texts = {_help(setting) for _, setting in found}
    text = texts.pop() if len(texts) == 1 else "; ".join(f"{owner}: {_help(setting)}" for owner, setting in found)
    return Choice(name, ", ".join(names), text, first.metavar, first.is_flag)


def _help(setting: Any) -> str:
    return f"{setting.help} (default: {setting.default})" if setting.default else setting.help


def _parameter(choice: Choice) -> inspect.Parameter:
    flag = f"--{choice.name}"
    text = choice.help.replace("[", "\\[")  # the help is markup; a bracket is meant
    if choice.is_flag:
        kind: Any = Annotated[bool, typer.Option(flag, help=text, rich_help_panel=choice.panel, hidden=choice.hidden)]
        default: Any = False
    else:
        panel, metavar = choice.panel, choice.metavar
        option = typer.Option(flag, help=text, rich_help_panel=panel, metavar=metavar, hidden=choice.hidden)
        kind, default = Annotated[str | None, option], None
    return inspect.Parameter(
        choice.name.replace("-", "_"), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
    )
