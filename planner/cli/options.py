"""Options of problems on the command line: all are taken, and the help shows those of the instance that is named.

With some 100 settings of twelve problems, of which eight are called ``--memory``, one help for all could not be read.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer._coercion import build_runtime_param
from typer.core import TyperCommand
from typer.models import ParameterInfo

from instances.errors import InstanceError
from planner.cli import completion
from planner.cli.common import SOLVERS, Group
from planner.cli.declared import option
from planner.cli.for_trainer import Trainer, question_of
from planner.files import choices
from planner.files.choices import Choice
from planner.files.load import catalog, problem_name, problem_of
from planner.process.errors import UsageError

Command = Callable[..., None]
_ARGUMENTS = "planner.arguments"


@dataclass(frozen=True)
class _Declared(Group):
    """As what problem an instance is read, and what its plans must keep beside the rules."""

    problem: Annotated[str | None, option("NAME", "read it as one of this problem", complete=completion.problems)] = (
        None
    )
    require: Annotated[list[str] | None, option("TEXT", "a further rule: 'num_stages <= 6'")] = None
    trainer: Trainer = None


#: From the values on a command line (texts by parameter) to the choices that they make worth showing.
About = Callable[[Mapping[str, Any]], list[Choice]]


def with_choices(
    command: Command,
    offered: Callable[[], Iterable[Choice]] = list,
    given: Sequence[str] | None = None,
    *,
    problem: bool = False,
    require: bool = False,
    trainer: bool = False,
) -> Command:
    """The command with the options of its groups, a hidden one for each choice, and ``--problem``, ``--require``.

    Choices are ``offered`` only where one of the words ``given`` is no option of the command's own (``None``: it may).
    ``trainer``: ``--for`` as well, which the command gets where it has a parameter of that name; settings are its.
    """
    signature = inspect.signature(command, eval_str=True)
    groups = {each.name: each for each in signature.parameters.values() if isinstance(each.default, Group)}
    first, *fixed = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in signature.parameters.values()
        if each.kind is not inspect.Parameter.VAR_KEYWORD
        for option in (_options_of(each.default) if each.name in groups else (each,))
    ]
    own = {each.name for each in (first, *fixed)}
    offers = {"problem": problem, "require": require, "trainer": trainer}
    reads_as = [each for each in _options_of(_Declared()) if offers[each.name] and each.name not in own]
    parameters = [first, *reads_as, *fixed]
    flags = {flag for each in parameters for flag in _flags(each)}
    if given is None or any(word.startswith("-") and word.partition("=")[0] not in flags for word in given):
        parameters += [_parameter(choice) for choice in offered() if choice.name not in own]

    def run_command(**values: Any) -> None:
        for name, group in groups.items():
            given = {each.name: values.pop(each.name) for each in _options_of(group.default)}
            values[name] = replace(group.default, **given)
        asked = values.get("trainer") if trainer else None
        if trainer and "trainer" not in own:
            values.pop("trainer")
        if asked is not None:
            values = question_of(asked, {name: value for name, value in values.items() if value is not None})
        try:
            command(**values)
        except UsageError as error:
            if asked is None or not str(error).startswith("--problem is "):
                raise
            rule = f"none with {values.get('instance')}: trainers run chains of layers"
            raise UsageError.at("--for", asked, rule) from None

    run_command.__doc__ = command.__doc__
    run_command.__name__ = command.__name__
    run_command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = {each.name: each.annotation for each in parameters}
    return run_command


def bring_problems(arguments: Iterable[str]) -> None:
    """Import the problems of users that a command line names by ``--problem``: their settings are options as others."""
    for name, value in pairwise(("", *(part for each in arguments for part in each.split("=", 1)), "")):
        if name == "--problem":
            problem_name(value)


def _flags(parameter: inspect.Parameter) -> tuple[str, ...]:
    """What may stand on the command line for a parameter."""
    declared = next(each for each in get_args(parameter.annotation) if isinstance(each, ParameterInfo))
    return tuple(declared.param_decls or (f"--{parameter.name.replace('_', '-')}",))


@cache  # commands share groups
def _options_of(group: Group) -> list[inspect.Parameter]:
    """The options that a group stands for, with its values as defaults."""
    hints = get_type_hints(type(group), include_extras=True)
    return [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(group, each.name), annotation=hints[each.name]
        )
        for each in fields(group)
        if get_origin(hints[each.name]) is Annotated
    ]


class _AsGiven:
    """What a parameter's value becomes: the value itself where it is of the type already, or its few digits.

    Typer would make a validator of pydantic's for every parameter of the command, given or not: a sixth of the time of
    a small instance. Whatever else is given still comes to such a one.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value that the command gets; a ``typer.BadParameter`` says why there is none."""
        described, several = param.type_descriptor, param.multiple or param.nargs == -1
        kind = described.annotation
        if value is None:
            return () if several else None
        if ctx and str(value)[:2] == "--" and any(value in each.opts for each in ctx.command.params):
            raise UsageError.at(param.opts[0], value, f"{param.metavar or 'a value'} before the next option")
        if described.parameter_info.parser is None and not described.is_ranged:
            if kind in (str, int, float) and type(value) is kind:
                return value
            if kind in _DIGITS and isinstance(value, str) and re.fullmatch(_DIGITS[kind], value):
                return kind(value)
            if kind == list[str] and isinstance(value, list | tuple) and all(type(each) is str for each in value):
                return list(value)
        return build_runtime_param(described).coerce(value, param=param, ctx=ctx)


#: Numbers that every reader of numbers reads as Python does.
_DIGITS = {int: "[0-9]{1,15}", float: r"[0-9]{1,15}(\.[0-9]{1,15})?"}


class Reading:
    """A command that reads its words by `_AsGiven`: to be inherited before typer's."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in parameters:
            param._runtime_param = _AsGiven()
        return parameters


class ReadingCommand(Reading, TyperCommand):
    """A command without choices."""


#: Settings of most problems that a command's help shows before an instance is named, if it has panels.
_OF_MOST = {"devices": ("N", "devices of the instance"), "memory": ("SIZE", "of a device, such as 16GiB")}


def help_class(about: About, pointer: str, panels: Mapping[str, str] = MappingProxyType({})) -> type[TyperCommand]:
    """The class of a command whose help shows what is worth showing; ``pointer`` says how, where nothing is named.

    ``panels`` are those of its own options by their names.
    """

    class Explained(Reading, TyperCommand):
        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            with suppress(InstanceError, UsageError):  # no instance yet
                self.params = _reveal(self.params, about(completion.values_on_line(ctx.params)))
            return super().shell_complete(ctx, incomplete)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            ctx.meta[_ARGUMENTS] = list(args)
            return super().parse_args(ctx, args)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            values, _, _ = self.make_parser(ctx).parse_args(ctx.meta[_ARGUMENTS])
            shown = about(values)
            self.params = _reveal(self.params, shown)
            own: list[Any] = self.params
            for param in own:
                param.rich_help_panel = panels.get(param.name or "", getattr(param, "rich_help_panel", None))
                if panels and not shown and param.name in _OF_MOST:
                    param.hidden, (param.metavar, param.help) = False, _OF_MOST[param.name]
                elif param.name in panels:
                    param.hidden = False
            if not shown:
                self.epilog = "\n\n".join(filter(None, (pointer, self.epilog)))
            super().format_help(ctx, formatter)

    return Explained


def of_instances(*, methods: bool = True, reads_as: bool = True) -> About:
    """The options of the problem of the instances that are named, read as ``--problem`` says if they are."""

    def about(values: Mapping[str, Any]) -> list[Choice]:
        named = values.get("instance") or values.get("instances") or ()
        names = [named] if isinstance(named, str) else list(named)
        inputs, problem = values.get("inputs"), values.get("problem") if reads_as else None
        found = {family.name: family for family in (problem_of(name, inputs, problem) for name in names)}
        families = list(found.values()) if names else choices.find_families(problem)
        entries = [catalog()[name] for name in names if name in catalog()]
        options = choices.options_of(families) if methods else []
        return [*choices.overrides_of(families), *options, *choices.parameters_of(entries)]

    return about


def of_sources(*, methods: bool = True) -> About:
    """The same of the first instance of each source that is named (`planner.experiments.validation.sources`)."""

    def about(values: Mapping[str, Any]) -> list[Choice]:
        from planner.experiments.validation.sources import first_name

        named = values.get("instances") or ()
        return of_instances(methods=methods)({**values, "instances": [first_name(name) for name in named]})

    return about


def of_listed(values: Mapping[str, Any]) -> list[Choice]:
    """The overrides of the instance that is named; of a problem, none: it is listed with them."""
    name = values.get("name")
    named = [] if name is None or choices.find_families(name) else [name]
    return of_instances(methods=False)({**values, "instances": named}) if named else []


def of_entry(values: Mapping[str, Any]) -> list[Choice]:
    """The parameters of the catalog entry that is named, and the overrides of its problem."""
    entry = catalog().get(values.get("name") or "")
    if entry is None:
        return []
    return [*choices.parameters_of([entry]), *choices.overrides_of(choices.find_families(entry.family))]


def of_methods(values: Mapping[str, Any]) -> list[Choice]:
    """The options of the methods that are named, of the problem that is named or of every one that has them."""
    named = {str(values[name]) for name in ("method", "against") if values.get(name)}
    families = choices.find_families(values.get("problem")) or choices.families_with(named)
    return choices.options_of(
        [replace(each, methods=tuple(own for own in each.methods if own.name in named)) for each in families]
    )


def of_claim(values: Mapping[str, Any] | None = None) -> list[Choice]:
    """The options of the claim that is named, or (``None``) of all that can be reproduced."""
    from planner.reproduction import CLAIMS

    return choices.claim_options(claim for claim in CLAIMS if values is None or claim.name == values.get("claim"))


def _reveal(params: list[Any], shown: list[Choice]) -> list[Any]:
    """The parameters of a command, those that are shown last and with their words."""
    by_flag = {f"--{choice.name}": choice for choice in shown}
    headings = {choice.heading for choice in shown} | ({SOLVERS} if shown else set())
    last = []
    for param in params:
        choice = by_flag.get(param.opts[0])
        if choice is not None and param.hidden:
            param.hidden, param.help = False, choice.help.replace("[", "\\[")  # the help is markup; a bracket is meant
            param.rich_help_panel, param.metavar = choice.heading, choice.metavar
            if param.is_flag:
                param.metavar = ""
            last.append(param)
        elif getattr(param, "rich_help_panel", None) in headings:
            param.hidden = False  # an option of the command for this problem alone
    order = {f"--{choice.name}": place for place, choice in enumerate(shown)}
    last.sort(key=lambda param: order[param.opts[0]])
    return [param for param in params if param not in last] + last


def _parameter(choice: Choice) -> inspect.Parameter:
    flag = f"--{choice.name}"
    if choice.is_flag:
        kind: Any = Annotated[bool, typer.Option(flag, hidden=True)]
        default: Any = False
    else:
        kind, default = Annotated[str | None, typer.Option(flag, hidden=True)], None
    return inspect.Parameter(
        choice.name.replace("-", "_"), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
    )
