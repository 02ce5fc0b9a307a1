"""The parts of the interface that stand in the code: commands with their options, an instance's fields and settings.

A page marks the place with a comment: ``commands`` becomes a section for each command of ``planner`` with its options,
as its help has them. ``fields`` on a problem's page becomes the table of what its instance files hold, as
``planner schema`` has it, and ``settings`` the options that change an instance as it is read.
"""

from __future__ import annotations

import json
import re
from typing import Any

from sphinx.application import Sphinx

COMMANDS, FIELDS, SETTINGS = "<!-- commands -->", "<!-- fields -->", "<!-- settings -->"
#: Fields of every problem's files, which the page on instances and files explains.
_OF_ALL = {"problem", "schema_version", "requirements", "origin", "options", "warnings"}
#: Fields that are an instance of another problem, whose page has its fields.
_INSIDE = {"flat": "stage_partitioning", "operators": "operator_partitioning"}
#: Rules of most fields, in few words; the same page has the range of numbers.
_SHORT = {
    "a positive number from 1e-30 to 1e+30": "a positive number",
    "an integer of at most 63 bits or text, printable and not empty": "an id",
    "printable text that is not empty": "a name",
    "printable text": "text",
}


def on_source_read(_app: Sphinx, page: str, content: list[str]) -> None:
    """Fill in what is marked; called by Sphinx for every page, and ``content[0]`` is its text."""
    text, name = content[0], page.rpartition("/")[2]
    if COMMANDS in text:
        text = text.replace(COMMANDS, commands())
    if FIELDS in text:
        text = text.replace(FIELDS, fields(name))
    if SETTINGS in text:
        text = text.replace(SETTINGS, settings(name))
    content[0] = text


def commands() -> str:
    """A section for each command: what it does, its arguments and options, its examples."""
    import typer

    from planner.cli.app import application

    sections = []
    for name, command in typer.main.get_command(application()).commands.items():  # type: ignore[attr-defined]
        shown = [parameter for parameter in command.params if not parameter.hidden]
        options = [each for each in shown if each.param_type_name == "option" and each.name != "help"]
        arguments = [each.metavar or each.name.upper() for each in shown if each.param_type_name == "argument"]
        rows = [f"| {_names(each)} | {_cell(each.help or '')}{_default(each)} |" for each in options]
        table = ["| option | is |", "|---|---|", *rows] if rows else []
        examples = (command.epilog or "").removeprefix("Examples:").strip("\n")
        console = re.sub(r"^ *", "$ ", examples, flags=re.MULTILINE)
        sections += [
            f"## `planner {name}`",
            f"`planner {' '.join([name, *arguments])}`: {_cell(' '.join((command.help or '').split()))}",
            "\n".join(table),
            f"```console\n{console}\n```" if examples else "",
        ]
    return "\n\n".join(filter(None, sections))


def _names(option: Any) -> str:
    """An option as it is written, with what it takes."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    return f"`{names}{'' if option.is_flag or not option.metavar else f' {option.metavar}'}`".replace("|", "\\|")


def _default(option: Any) -> str:
    value = option.default
    return "" if option.is_flag or value in (None, "", [], ()) or callable(value) else f" (default: {value})"


def _cell(text: str) -> str:
    """Text in a cell of a table, as it is."""
    return re.sub(r"([\\*_|\[\]<>`$])", r"\\\1", text)


def fields(problem: str) -> str:
    """The table of the fields of a problem's instance files: the file itself, then what it is made of."""
    from planner.files.schema import schema

    declared: Any = schema(problem)
    inside = {
        field: of for field, of in _INSIDE.items() if declared["properties"].get(field, {}).get("type") == "object"
    }
    elsewhere: set[str] = set().union(*(schema(of)["$defs"] for of in inside.values()))  # type: ignore[arg-type]
    parts = {"": declared, **declared.get("$defs", {})}
    rows = [
        f"| {f'`{part}`' if part else 'the file'} | `{field}` | {_value(rule)} | {_left_out(field, rule, declares)} |"
        if part or field not in inside
        else f"| the file | `{field}` | an instance of [{inside[field]}]({inside[field]}.md#fields) | required |"
        for part, declares in parts.items()
        for field, rule in declares.get("properties", {}).items()
        if (part or field not in _OF_ALL) and part not in elsewhere
    ]
    return "\n".join(["| of | field | is | if left out |", "|---|---|---|---|", *rows])


def _value(rule: dict[str, Any]) -> str:
    """What a field takes, in words; a part of the file by its name."""
    if "$ref" in rule and "description" not in rule:
        return f"`{rule['$ref'].rpartition('/')[2]}`"
    if "description" in rule:
        return _in_few_words(rule["description"])
    if "anyOf" in rule:
        return " or ".join(dict.fromkeys(_value(each) for each in rule["anyOf"]))
    if rule.get("type") == "array":
        listed = rule.get("prefixItems") or [rule.get("items") or {}]
        return f"list of {', '.join(_value(each) for each in listed)}"
    if rule.get("type") == "object":
        of = rule.get("additionalProperties")
        return f"object: {_value(of)}" if isinstance(of, dict) else "object"
    return _cell(str(rule.get("const", rule.get("type", "any value"))))


def _in_few_words(says: str) -> str:
    for long, short in _SHORT.items():
        says = says.replace(long, short)
    return _cell(says)


def _left_out(field: str, rule: dict[str, Any], declares: dict[str, Any]) -> str:
    """What a field is where it is left out, or that it must stand there."""
    if field in declares.get("required", ()):
        return "required"
    return f"`{json.dumps(rule['default'])}`" if "default" in rule else "empty"


def settings(problem: str) -> str:
    """The table of the options that change an instance of a problem as it is read."""
    from planner.files import choices

    rows = [
        f"| {_option(each)} | {_cell(each.help)} |" for each in choices.overrides_of(choices.find_families(problem))
    ]
    return "\n".join(["| option | is |", "|---|---|", *rows]) if rows else "None."


def _option(choice: Any) -> str:
    """A setting as it is written, with what it takes."""
    takes = "" if choice.is_flag else f" {choice.metavar}"
    return f"`--{choice.name}{takes}`".replace("|", "\\|")


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to Sphinx; called by it."""
    app.connect("source-read", on_source_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
