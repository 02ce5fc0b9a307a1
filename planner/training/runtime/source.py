"""From ``FILE.py:function`` to a program: the user's model, exported, with the inputs of every sample."""

import io
from collections.abc import Collection, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from typing import Any

from instances.rules import NodeId
from planner.process.errors import UsageError
from planner.training.capture.models import example_in, expect_packages
from planner.training.runtime.in_place import without_in_place
from planner.training.runtime.origin import granularity_of, other_bytes, other_graph
from planner.training.runtime.program import Program, by_modules, names_modules
from planner.training.runtime.splits import splits

_NEEDS = "planner run"
#: Bytes of numbers so coarse that runs are compared with the graph that is not split.
_COARSE = 2


def require_torch() -> None:
    """`UsageError` if PyTorch is not installed."""
    expect_packages("torch", for_what=_NEEDS)


def program(
    named: str, instance: Any, num_samples: int, degrees: Mapping[NodeId, int], sequences: Collection[NodeId] = ()
) -> Program:
    """The program of ``FILE.py:function``, whose operations belong to the nodes of an instance.

    ``degrees``: tensor-parallel degrees of nodes; other than 1 for imported instances alone.
    ``sequences``: nodes between whose products the processes of a replica share sequences.
    `UsageError` if the file cannot be imported, its function returns no model and inputs, torch.export cannot trace the
    model, or the instance was made of another one.
    """
    import torch

    torch.manual_seed(0)
    example = given_example = example_in(named, meta=False)
    if hasattr(instance, "minibatch"):
        example = replace(example, args=_first(example.args), kwargs=_first(example.kwargs))
    captured, node_of = _bind(named, example, instance, given_example)
    traced = captured.program.example_inputs[1]  # keyword arguments in the order of the graph
    given = example.args, {name: example.kwargs[name] for name in traced}
    ids = list(modules_of(instance))
    apart = [place for place, node in enumerate(ids) if node in sequences]
    shared = splits(captured, [degrees.get(node, 1) for node in ids], apart)
    for operation, writer in without_in_place(captured.module).items():
        if writer in node_of:
            node_of[operation] = node_of[writer]
    # Kernels that the model itself calls may round otherwise than those of its graph, in two bytes by percents.
    is_coarse = any(each.element_size() <= _COARSE for each in example.model.parameters())
    whole = captured.module if _without_dropout(named, captured.module) or is_coarse else example.model
    samples = tuple(_draw(given, sample) for sample in range(num_samples))
    return Program(
        example.model, whole, captured.module, node_of, samples, {ids[each]: shared[each] for each in shared}
    )


def _first(inputs: Any) -> Any:
    """The first sample alone, where the function's inputs have several: in a stage graph passes run them one by one."""
    import torch
    from torch.utils import _pytree

    count = _samples(inputs)

    def first(each: Any) -> Any:
        return each[:1] if isinstance(each, torch.Tensor) and each.dim() and each.shape[0] == count else each

    return _pytree.tree_map(first, inputs)


def _samples(inputs: Any) -> int:
    """How many samples the inputs have: rows of the first tensor."""
    import torch
    from torch.utils import _pytree

    tensors = [each for each in _pytree.tree_leaves(inputs) if isinstance(each, torch.Tensor) and each.dim()]
    return int(tensors[0].shape[0]) if tensors else 1


def _bind(named: str, example: Any, instance: Any, whole: Any) -> tuple[Any, dict[str, NodeId]]:
    """The captured model, and the node of the instance of each of its operations.

    An instance that was imported or profiled has the bytes of the model, too; one made by hand may have its own.
    """
    made_as = granularity_of(instance)
    for granularity in [made_as] if made_as else ["block", "op"]:
        captured = _capture(named, example, granularity)
        other = other_graph(captured, instance)
        if made_as and other is None:
            all_samples = partial(_with_samples, named, whole, granularity)
            other = other_bytes(captured, instance, all_samples)
        if made_as and other is not None:
            raise UsageError.at("--model", other[0], f"{other[1]}, as in the model that {instance.name} was made of")
        if other is None:
            ids = list(modules_of(instance))
            return captured, {operation: ids[node] for operation, node in captured.node_of.items()}
        if granularity == "block":
            names = modules_of(instance)
            if names_modules(captured.module, names):
                return captured, by_modules(captured.module, names)
    nodes = ", ".join(node.name for node in captured.nodes[:3])
    raise UsageError.at("--model", f"a model of nodes {nodes}, ...", f"the model that {instance.name} was made of")


def _capture(named: str, example: Any, granularity: str) -> Any:
    from planner.training.capture.trace import capture

    with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):  # graphs that torch.export prints
        return capture(example.model, example.args, example.kwargs, name=named, granularity=granularity)


def _with_samples(named: str, example: Any, granularity: str) -> tuple[Any, int]:
    return _capture(named, example, granularity), _samples((example.args, dict(example.kwargs)))


def modules_of(instance: Any) -> dict[NodeId, str]:
    """The modules that an instance's nodes name: its layers' ``module`` or else their names, or operators' names."""
    if hasattr(instance, "layers"):
        return {layer.id: layer.module or layer.name for layer in instance.layers}
    if hasattr(instance, "tensors"):
        return {each.id: each.name or str(each.id) for each in instance.operators}
    return {instance.id_of(node): operator.name for node, operator in enumerate(instance.operators)}


def _without_dropout(named: str, graph_module: Any) -> bool:
    """Switch off dropout in a graph; whether there was any.

    `UsageError` if another operation draws random numbers: no two runs could be compared.
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


def _draw(arguments: Any, sample: int) -> Any:
    """Arguments of a sample like those of sample 0: whole numbers are shuffled, other ones drawn with their spread."""
    import torch
    from torch.utils import _pytree

    generator = torch.Generator().manual_seed(sample)
    drawn: dict[int, Any] = {}  # torch.export takes a tensor that is given twice for one input

    def draw_once(leaf: Any) -> Any:
        if id(leaf) not in drawn:
            drawn[id(leaf)] = draw(leaf)
        return drawn[id(leaf)]

    def draw(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype == torch.bool or not leaf.numel() or sample == 0:
            return leaf
        if not leaf.is_floating_point():
            return leaf.flatten()[torch.randperm(leaf.numel(), generator=generator)].reshape(leaf.shape)
        spread, mean = torch.std_mean(leaf.detach().double(), correction=0)
        return (
            torch.randn(leaf.shape, generator=generator)
            .mul_(float(spread))
            .add_(float(mean))
            .to(leaf.device, leaf.dtype)
        )

    return _pytree.tree_map(draw_once, arguments)
