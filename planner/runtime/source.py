"""From ``FILE.py:function`` to a program: the user's model, exported, with the inputs of every sample."""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from instances.rules import NodeId
from planner.brought.target import LoadError, Target, words
from planner.errors import UsageError
from planner.runtime.program import Program, by_modules

_FUNCTION = "a function without arguments that returns a model and the inputs of one call of it"


def require_torch() -> None:
    """`UsageError` if PyTorch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise UsageError.at("planner run", "without PyTorch", "it (pip install 'dnn-planner[torch]')") from None


def program(named: str, instance: Any, num_samples: int) -> Program:
    """The program of a model whose modules the instance's nodes name.

    Raises
    ------
    UsageError
        If the file cannot be imported, its function returns no model and inputs, torch.export cannot trace the model,
        or the nodes of the instance are no modules of it.
    """
    model, args, kwargs = _called(named)
    graph_module = _exported(named, model, args, kwargs)
    samples = tuple(_drawn((args, kwargs), sample) for sample in range(num_samples))
    node_of = by_modules(graph_module, modules_of(instance))
    whole = graph_module if _without_dropout(named, graph_module) else model
    return Program(model, whole, graph_module, node_of, samples)


def modules_of(instance: Any) -> dict[NodeId, str]:
    """The modules that an instance's nodes name: its layers' ``module`` or else their names, or operators' names."""
    if hasattr(instance, "layers"):
        return {layer.id: layer.module or layer.name for layer in instance.layers}
    return {instance.id_of(node): operator.name for node, operator in enumerate(instance.operators)}


def _called(named: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What the user's function returns: the model, and arguments of one call of it."""
    import torch

    file, colon, name = named.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise UsageError.at("--model", named, "FILE.py:function")
    try:
        function: Callable[..., Any] = Target(named, file=os.path.abspath(file), function=name).load()
    except LoadError as error:
        raise UsageError(str(error)) from None
    torch.manual_seed(0)
    try:
        returned = function()
    except Exception as error:  # whatever a user's function raises
        raise UsageError.at(file, f"{name}() raising {words(error, file)!r}", _FUNCTION) from None
    is_pair = isinstance(returned, tuple | list) and len(returned) == 2
    if not is_pair or not isinstance(returned[0], torch.nn.Module):
        raise UsageError.at(file, f"{name}() returning {type(returned).__name__}", _FUNCTION)
    model, inputs = returned
    if isinstance(inputs, Mapping):
        return model, (), dict(inputs)
    return model, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {}


def _exported(named: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The graph of the model for these arguments, without guards."""
    import torch

    try:
        with _silent():
            module = torch.export.export(model, args, kwargs, strict=False).module(check_guards=False)
    except Exception as error:  # torch.export fails in many ways of its own
        what = words(error, named.rpartition(":")[0])
        raise UsageError.at("--model", f"torch.export failing with {what!r}", "a model that it can trace") from None
    for node in list(module.graph.nodes):
        if node.op == "call_module":  # what is left of the guards
            module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


@contextmanager
def _silent() -> Iterator[None]:
    """No remarks and no graphs of torch's: what it cannot do is an exception, which is one line here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _without_dropout(named: str, graph_module: Any) -> bool:
    """Switch off dropout in a graph; whether there was any.

    Raises
    ------
    UsageError
        If another operation draws random numbers: no two runs could be compared.
    """
    import torch

    aten: Any = torch.ops.aten
    places = {aten.dropout.default: 1, aten.scaled_dot_product_attention.default: 4}
    found = False
    for node in graph_module.graph.nodes:
        if node.op != "call_function" or torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
            continue
        place = places.get(node.target)
        if place is None:
            raise UsageError.at("--model", f"random operation {node.name}", f"a model without one; {named} has it")
        if len(node.args) > place and node.args[place]:
            node.update_arg(place, 0.0)
            found = True
        elif node.kwargs.get("dropout_p"):
            node.update_kwarg("dropout_p", 0.0)
            found = True
    if found:
        graph_module.recompile()
    return found


def _drawn(arguments: Any, sample: int) -> Any:
    """Arguments of a sample like those of sample 0: whole numbers are shuffled, other ones drawn with their spread."""
    import torch
    from torch.utils import _pytree

    generator = torch.Generator().manual_seed(sample)

    def drawn(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype == torch.bool or not leaf.numel() or sample == 0:
            return leaf
        if not leaf.is_floating_point():
            return leaf.flatten()[torch.randperm(leaf.numel(), generator=generator)].reshape(leaf.shape)
        spread, mean = torch.std_mean(leaf.detach().double(), correction=0)
        return torch.randn(leaf.shape, generator=generator).mul_(float(spread)).add_(float(mean)).to(leaf.dtype)

    return _pytree.tree_map(drawn, arguments)
