"""An exported model as the runtime needs it: its graph, and which of its operations belong to which node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from instances.rules import NodeId
from planner.process.errors import UsageError
from planner.training.runtime.splits import Split


@dataclass(frozen=True)
class Program:
    """A model, its exported graph, and where its operations belong.

    ``model``: the module that was exported; its parameters are those of ``graph_module``.
    ``whole``: what the stages together compute: the model, or its graph where dropout was switched off in it.
    ``graph_module``: ``torch.export`` of it, without guards.
    ``node_of``: node of the instance for each operation that depends on a parameter, by the operation's name in the
    graph. What depends on no parameter (masks, positions) is computed by every stage that needs it.
    ``samples``: arguments of one call of the model, ``(args, kwargs)``, for each sample of an iteration.
    ``splits``: how the processes of a tensor-parallel stage share its nodes; each of them computes the others whole.
    """

    model: Any
    whole: Any
    graph_module: Any
    node_of: Mapping[str, NodeId]
    samples: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...]
    splits: Mapping[NodeId, Split] = field(default_factory=dict)

    def leaves(self, sample: int) -> list[Any]:
        """The tensors and numbers in the arguments of a sample, in the order of the graph's inputs."""
        from torch.utils import _pytree

        args, kwargs = self.samples[sample]
        return list(_pytree.tree_leaves((args, kwargs)))


def ops_of_stages(graph_module: Any) -> list[Any]:
    """The operations of a graph that depend on a parameter, in its order: those that belong to one stage."""
    import torch

    found: dict[Any, None] = {}
    parameters = {
        node
        for node in graph_module.graph.nodes
        if node.op == "get_attr" and isinstance(attribute(graph_module, node.target), torch.nn.Parameter)
    }
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and any(each in parameters or each in found for each in node.all_input_nodes):
            found[node] = None
    return list(found)


def attribute(module: Any, path: str) -> Any:
    """The parameter, buffer or module at a path of names, which ``get_parameter`` does not find for buffers."""
    for name in path.split("."):
        module = getattr(module, name)
    return module


def settle(graph_module: Any, node_of: Mapping[str, NodeId]) -> dict[Any, NodeId]:
    """The node of every owned operation: an element of a tuple goes where the tuple is.

    `UsageError` if an operation has no node: the graph is not the one that the instance was made of.
    """
    import operator

    found: dict[Any, NodeId] = {}
    for each in ops_of_stages(graph_module):
        if each.target is operator.getitem and each.args[0] in found:
            found[each] = found[each.args[0]]
        elif each.name in node_of:
            found[each] = node_of[each.name]
        else:
            raise UsageError.at("--model", f"operation {each.name}", "operations of the model that the instance has")
    return found


def node_order(places: Mapping[Any, NodeId]) -> list[NodeId]:
    """The nodes in a topological order of what flows between their operations.

    `UsageError` if nodes need each other.
    """
    from graphlib import CycleError, TopologicalSorter

    sorter: TopologicalSorter[NodeId] = TopologicalSorter(dict.fromkeys(places.values(), ()))
    for each, node in places.items():
        for before in each.all_input_nodes:
            if before in places and places[before] != node:
                sorter.add(node, places[before])
    try:
        return list(sorter.static_order())
    except CycleError as error:
        cycle = ", ".join(map(str, dict.fromkeys(error.args[1])))
        raise UsageError.at("--model", f"nodes {cycle}", "nodes that do not need each other") from None


def names_modules(graph_module: Any, names: Mapping[NodeId, str]) -> bool:
    """Whether all nodes are named like modules, and every operation that reads parameters lies in one of them."""
    paths = _paths(names)
    modules = {path for path, _ in graph_module.named_modules()} | _stacks(graph_module)
    reading = [each for each in ops_of_stages(graph_module) if _reads(graph_module, each)]
    return paths.keys() <= modules and all(_longest(_path(each), paths) is not None for each in reading)


def by_modules(graph_module: Any, names: Mapping[NodeId, str]) -> dict[str, NodeId]:
    """The nodes of operations where the nodes are named like modules of the model (`names_modules`).

    A name is the path of a module, such as ``layers.3``; several are separated by commas. An operation belongs to the
    node of the longest path that it lies in; one that lies in none, to the last of the nodes before it.
    """
    paths = _paths(names)
    order = {node: place for place, node in enumerate(names)}
    found: dict[str, NodeId] = {}
    for each in ops_of_stages(graph_module):
        named = _longest(_path(each), paths)
        inputs = [found[other.name] for other in each.all_input_nodes if other.name in found]
        found[each.name] = max(inputs, key=order.__getitem__) if named is None else named
    return found


def _paths(names: Mapping[NodeId, str]) -> dict[str, NodeId]:
    return {path.strip(): node for node, name in names.items() for path in name.split(",")}


def _reads(graph_module: Any, operation: Any) -> bool:
    import torch

    given = [each.target for each in operation.all_input_nodes if each.op == "get_attr"]
    return any(isinstance(attribute(graph_module, target), torch.nn.Parameter) for target in given)


def _path(operation: Any) -> str:
    stack = operation.meta.get("nn_module_stack") or {}
    return str(list(stack.values())[-1][0]) if stack else ""


def _stacks(graph_module: Any) -> set[str]:
    """The paths of the modules that operations come from."""
    stacks = [each.meta.get("nn_module_stack") or {} for each in graph_module.graph.nodes]
    return {str(path) for stack in stacks for path, _ in stack.values()}


def _longest(path: str, paths: Mapping[str, NodeId]) -> NodeId | None:
    inside: Iterable[str] = (each for each in paths if path == each or path.startswith(each + "."))
    best = max(inside, key=len, default=None)
    return None if best is None else paths[best]
