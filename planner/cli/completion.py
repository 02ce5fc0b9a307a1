"""What the shell offers for words that are names: instances, problems, methods and claims."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from instances.errors import InstanceError
from planner.process.errors import UsageError

#: Where typer's scripts for shells put the words of an unfinished command.
_WORDS = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
#: Beside the names of the catalog, what ``planner make`` makes.
METHOD = "method"
TEMPLATE = "template"


def is_asked() -> bool:
    """Whether a shell started this process for the words that may come next."""
    return "_PLANNER_COMPLETE" in os.environ


def words_to_complete() -> list[str]:
    """The words of the command line that a shell wants to have completed."""
    text = next((os.environ[name] for name in _WORDS if name in os.environ), "")
    return text.split()[1:]


def entries(incomplete: str) -> list[str]:
    """Names of catalog instances; where none fits, shells offer files."""
    from planner.files.load import catalog

    return _starting(incomplete, catalog())


def names_to_make(incomplete: str) -> list[str]:
    """What ``planner make`` makes."""
    return [*_starting(incomplete, [METHOD, TEMPLATE]), *entries(incomplete)]


def problems(incomplete: str) -> list[str]:
    """Names of problems."""
    from formulations import FAMILIES

    return _starting(incomplete, (family.name for family in FAMILIES))


def names_to_list(incomplete: str) -> list[str]:
    """Names of problems and of catalog instances."""
    return [*problems(incomplete), *entries(incomplete)]


def among(words: Iterable[str]) -> Callable[[str], list[str]]:
    """These words."""
    return lambda incomplete: _starting(incomplete, words)


def formats(incomplete: str) -> list[str]:
    """Names of the formats of plans."""
    from planner.training.trainers.formats import FORMATS

    return _starting(incomplete, FORMATS)


def claims(incomplete: str) -> list[str]:
    """Names of claims."""
    from planner.reproduction import CLAIMS

    return _starting(incomplete, (claim.name for claim in CLAIMS))


def methods(incomplete: str) -> list[str]:
    """Names of methods for the instance behind the command, if there is one, and functions in FILE.py.

    Of names between commas, the last is completed.
    """
    from planner.experiments.validation.sources import first_name
    from planner.files.load import problem_of
    from planner.plugins.registry import functions_in, installed_methods

    before, sign, last = incomplete.rpartition(",")
    name = next((word for word in words_to_complete()[1:] if not word.startswith("-")), "")
    offered = [*functions_in(last.rpartition(":")[0]), *installed_methods()]
    with suppress(InstanceError, UsageError):  # no instance yet
        offered = ["auto", *(method.name for method in problem_of(first_name(name)).methods), *offered]
    return [before + sign + each for each in _starting(last, offered)]


def values_on_line(values: Mapping[str, Any]) -> dict[str, Any]:
    """What stands on an unfinished command line; standard input is not read, as the shell's keys come from there."""
    from planner.files.read import STANDARD

    return {name: value for name, value in values.items() if value not in (None, STANDARD)}


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
