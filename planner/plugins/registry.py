"""Functions that were registered in this process, installed packages' methods, and files: from names to targets."""

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from formulations.contract.family import Claim
from planner.plugins.method_names import AUTO, PORTFOLIO
from planner.process.errors import UsageError
from planner.process.target import DECLARED, LoadError, Target, also_taken, in_file

#: Installed packages name their functions in this group of entry points.
GROUP = "dnn_planner.methods"
_SUFFIX = ".py:"

#: Texts of files, by path, that stand for the files (`texts`).
_TEXTS: ContextVar[Mapping[str, bytes]] = ContextVar("_TEXTS", default=MappingProxyType({}))

Function = TypeVar("Function", bound=Callable[..., Any])
#: By problem, then by name.
_REGISTERED: dict[str, dict[str, Callable[..., Any]]] = {}


def method(problem: str, *, name: str | None = None, claim: str = "heuristic") -> Callable[[Function], Function]:
    """Make a function a method of a problem, for this process; it stays the function that it was.

    Parameters
    ----------
    problem
        As ``planner list`` names it.
    name
        What the method is called; default: the function's name. Registering the name again replaces it.
    claim
        ``heuristic`` or ``exact``. An exact one has to report its bounds (``watch.bound``); without a bound its plan
        proves nothing.

    Returns
    -------
    decorator
        For a function of an instance, or of ``(instance, limits, watch)``, that returns a plan: an object of the
        problem's, the dict of its JSON form, a `Result`, or ``None`` if there is none or the watch has it.

    Raises
    ------
    UsageError
        If the problem, the claim or the function's signature is wrong, or a method of the problem has the name.
    """
    from planner.files.load import family_named

    family = family_named(problem)
    if claim not in list(Claim):
        raise UsageError.at("claim", claim, "heuristic or exact")

    def register(function: Function) -> Function:
        own = name or function.__name__
        if own in {AUTO, PORTFOLIO, *(each.name for each in family.methods)} or "," in own:
            raise UsageError.at("name", own, f"a name that no method of {problem} has")
        try:
            also_taken(function, own)
        except LoadError as error:
            raise UsageError(str(error)) from None
        setattr(function, DECLARED, {"problem": problem, "name": own, "claim": str(claim)})
        _REGISTERED.setdefault(problem, {})[own] = function
        return function

    return register


def functions_of(problem: str) -> Mapping[str, Callable[..., Any]]:
    """The functions that were registered for a problem, by name."""
    return _REGISTERED.get(problem, {})


def pickle_by_value(name: str, function: Callable[..., Any]) -> Target:
    """A function of this process as a process of its own gets it: by value, with what it uses of its module."""
    import cloudpickle

    module = sys.modules.get(function.__module__)
    by_value = module is not None and module.__name__ != "__main__"
    try:
        if by_value:
            cloudpickle.register_pickle_by_value(module)
        return Target(name, pickled=cloudpickle.dumps(function))
    except Exception as error:  # whatever a function holds on to
        rule = "a function that a process of its own can get"
        raise UsageError.at(name, f"{type(error).__name__}: {error}", rule) from None
    finally:
        if by_value:
            with suppress(ValueError):
                cloudpickle.unregister_pickle_by_value(module)


def installed_methods() -> Mapping[str, Target]:
    """The functions that installed packages offer, by name."""
    from importlib import metadata  # 20 ms that commands without such names save

    return {
        point.name: Target(point.name, module=point.module, function=point.attr)
        for point in metadata.entry_points(group=GROUP)
    }


def target_of(name: str) -> Target | None:
    """Where the function of this name is: installed, or ``FILE.py:FUNCTION``; ``None`` if it is neither.

    `UsageError` if it looks like a file, and there is none, or no function is named.
    """
    found = in_file(name, "method", "FILE.py:FUNCTION", _TEXTS.get())
    return found or installed_methods().get(name)


@contextmanager
def texts(known: Mapping[str, bytes]) -> Iterator[None]:
    """Inside, files with these paths have these texts, whatever became of them since they were read (`texts_of`)."""
    before = _TEXTS.set(known)
    try:
        yield
    finally:
        _TEXTS.reset(before)


def texts_of(names: Iterable[str]) -> dict[str, bytes]:
    """The texts of the files among methods' names, by path; `UsageError` as of `target_of`."""
    found = (target_of(name) for name in names if _SUFFIX in name)
    return {target.file: target.source for target in found if target is not None and target.file}


def functions_in(file: str) -> list[str]:
    """``FILE.py:FUNCTION`` for every function of a file, which is read and not run; empty if there is none."""
    if not file.endswith(".py"):
        return []
    with suppress(OSError, SyntaxError, ValueError):
        parsed = ast.parse(Path(file).read_bytes())
        return [f"{file}:{node.name}" for node in parsed.body if isinstance(node, ast.FunctionDef)]
    return []
