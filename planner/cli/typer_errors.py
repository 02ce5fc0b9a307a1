"""What typer finds wrong with a command line, in the words of every other error."""

from typing import Any

from planner.files.settings import unknown_option
from planner.process.errors import UsageError, closest

#: Where to find what was a command or an option.
_GONE = {
    "hierarchy": "solve --problem hierarchical_partitioning (notebooks/06_strategies.ipynb)",
    "--resource": "none: the model has the rows of precedence, which --resource cap was",
}


def words(error: Any, commands: list[str]) -> str:
    """The one line for an error of typer's: ``FIELD is VALUE; expected RULE`` where it is about one argument.

    ``error``: a ``typer.TyperException``. ``commands``: the names of all commands.
    """
    if hasattr(error, "possibilities"):  # only an unknown option has them
        if error.option_name in _GONE:
            return str(UsageError.at("option", error.option_name, _GONE[error.option_name]))
        known = [name for param in error.ctx.command.get_params(error.ctx) for name in param.opts if name[:2] == "--"]
        return unknown_option(error.option_name, known, error.ctx.command_path)
    param = getattr(error, "param", None)
    if param is not None:
        found: list[Any] = getattr(error.__cause__, "errors", list)()  # pydantic's, of a value that was given
        if found:
            rule = found[0]["msg"].removeprefix("Input should be ").partition(", unable")[0]
            return str(UsageError.at(_name(param), found[0]["input"], rule))
        if hasattr(error, "param_type"):  # one that is required
            return f"{_name(param)} is missing; expected {_metavar(param)}"
    line = str(error.format_message())
    begin = "No such command '"
    if not line.startswith(begin):
        return line
    unknown = line.removeprefix(begin).partition("'")[0]
    return str(UsageError.at("the command", unknown, _GONE.get(unknown) or f"one of {closest(unknown, commands)}"))


def _name(param: Any) -> str:
    return str(param.opts[0]) if param.param_type_name == "option" else _metavar(param)


def _metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper())
