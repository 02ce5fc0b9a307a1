"""A model and its inputs, from a function of the user's file."""

import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.process.errors import UsageError
from planner.process.target import LoadError, Target, words


@dataclass(frozen=True)
class Example:
    """A model (``torch.nn.Module``) and the arguments of one call, a micro-batch."""

    name: str
    model: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def expect_packages(*names: str, for_what: str) -> None:
    """`UsageError` that names the extra, unless all of the packages are installed; imports none of them."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise UsageError(f"{for_what} needs {name}: pip install '.[torch]'")


@contextmanager
def quiet() -> Iterator[None]:
    """No remarks of torch and transformers about their own insides; torch prints graphs that it cannot trace."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        nowhere = io.StringIO()
        with warnings.catch_warnings(), redirect_stdout(nowhere), redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def example_in(name: str, *, meta: bool) -> Example:
    """The model that ``FILE.py:FUNCTION`` returns, with inputs.

    The function takes nothing and returns ``(model, args)`` or ``(model, args, kwargs)``, ``args`` a tuple; or
    ``(model, kwargs)``, ``kwargs`` a dict.

    ``meta``: call it on PyTorch's device ``meta``: no weight is made. Inputs are moved there.
    `UsageError` if there is no such file or function, the function fails, or it returns something else.
    """
    import torch

    file, colon, function = name.rpartition(":")
    if not colon or not file.endswith(".py") or not function.isidentifier():
        raise UsageError.at("MODEL", name, "FILE.py:FUNCTION")
    path = Path(file)
    if not path.is_file():
        raise UsageError.at("MODEL", file, "a file that is there")
    try:
        call = Target(name, file=str(path.resolve()), function=function).load()
        with torch.device("meta") if meta else nullcontext():
            found = call()
    except LoadError as error:
        raise UsageError(str(error)) from None
    except (Exception, SystemExit) as error:  # whatever the user's function raises
        on = " on the device meta (no data)" if meta else ""
        rule = f"a function that returns{on}"
        raise UsageError(f"{name}: call is {words(error, str(path.resolve()))!r}; expected {rule}") from error
    model, args, kwargs = _parts(found, name)
    if meta and all(parameter.device.type == "meta" for parameter in model.parameters()):
        args, kwargs = _on_meta(args), _on_meta(kwargs)
    return Example(function, model, args, kwargs)


def _parts(found: Any, name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import torch

    rule = "a pair of a torch.nn.Module and a tuple or dict of its inputs, or the three of them"
    if not isinstance(found, tuple) or len(found) not in (2, 3) or not isinstance(found[0], torch.nn.Module):
        raise UsageError(f"{name}: result is of type {type(found).__name__}; expected {rule}")
    model, *rest = found
    args = tuple(rest[0]) if isinstance(rest[0], tuple | list) else ()
    kwargs = rest[-1] if isinstance(rest[-1], dict) else {}
    if len(rest) != isinstance(rest[0], tuple | list) + isinstance(rest[-1], dict):
        raise UsageError(
            f"{name}: inputs are of type {', '.join(type(each).__name__ for each in rest)}; expected {rule}"
        )
    return model, args, dict(kwargs)


def _on_meta(value: Any) -> Any:
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda each: each.to("meta") if isinstance(each, torch.Tensor) else each, value)
