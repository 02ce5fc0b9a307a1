"""Options and arguments of commands as they are declared: what stands for the value first, then what the help says."""

from collections.abc import Callable
from typing import Any

import typer

Completion = Callable[..., Any] | None


def option(metavar: str, says: str, *names: str, complete: Completion = None, **others: Any) -> Any:
    """An option; without names it is called as its parameter."""
    return typer.Option(*names, metavar=metavar, help=says, autocompletion=complete, **others)


def flag(name: str, says: str, **others: Any) -> Any:
    """An option without a value."""
    return option("", says, name, **others)


def argument(metavar: str, says: str, *, complete: Completion = None, **others: Any) -> Any:
    """An argument."""
    return typer.Argument(metavar=metavar, help=says, autocompletion=complete, **others)
