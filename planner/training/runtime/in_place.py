"""In-place operations of an exported graph replaced by those that leave their input as it is.

Stages run a graph in an order of their own, and tensors that came from other stages are not written to: what flows must
be what the arguments of operations say.
"""

from typing import Any

from planner.process.errors import UsageError


def without_in_place(graph_module: Any) -> dict[str, str]:
    """Replace every operation such as ``relu_`` by ``relu``; whatever used its input later takes its result.

    What is written into a slice of a tensor is put into a copy of the tensor, which takes its place.

    Returns: the operations that were added, and for each the name of the one that wrote.
    `UsageError` if an operation writes into another kind of view, or has no such counterpart.
    """
    import torch

    graph = graph_module.graph
    added: dict[str, str] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if not node.target._schema.is_mutable:
            continue
        written = node.args[0]
        node.target = _counterpart(node)
        later = _behind(graph, node)
        is_used = any(user in later for user in _relatives(_root(written), written))
        written.replace_all_uses_with(node, delete_user_cb=later.__contains__)
        made = node
        while is_used and _shares(written):
            made = _put_back(graph, node, made, written)
            added[made.name] = node.name
            written = written.all_input_nodes[0]
            written.replace_all_uses_with(made, delete_user_cb=_behind(graph, made).__contains__)
    graph.eliminate_dead_code()
    graph.lint()
    graph_module.recompile()
    return added


def _behind(graph: Any, position: Any) -> set[Any]:
    """The nodes after a node of the graph."""
    nodes = list(graph.nodes)
    return set(nodes[nodes.index(position) + 1 :])


def _put_back(graph: Any, writer: Any, made: Any, view: Any) -> Any:
    """A copy of the tensor that a slice is of, right behind ``made``, which is in place of the slice."""
    import torch

    aten: Any = torch.ops.aten
    scatter = {aten.slice.Tensor: aten.slice_scatter.default, aten.select.int: aten.select_scatter.default}
    base, later = view.all_input_nodes[0], _behind(graph, made)
    others = [each for each in base.users if each is not view and each not in later and _shares(each)]
    if view.target not in scatter or any(user in later for each in others for user in _relatives(each, view)):
        raise UsageError.at("--model", f"{writer.name} writing into a view", "a model that writes into slices alone")
    with graph.inserting_after(made):
        return graph.call_function(scatter[view.target], (base, made, *view.args[1:]), dict(view.kwargs))


def _counterpart(node: Any) -> Any:
    """The operation of the same arguments that returns a new tensor."""
    import torch

    name, overload = node.target._schema.name.partition("::")[2], node.target._overloadname
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    found = getattr(packet, overload, None) if packet is not None and name.endswith("_") else None
    if found is None or found._schema.is_mutable:
        raise UsageError.at("--model", f"{node.name}, which writes into its input", "a model that writes into none")
    return found


def _shares(node: Any) -> bool:
    """Whether a value is a view of another one."""
    returns = getattr(getattr(node.target, "_schema", None), "returns", ())
    return node.op == "call_function" and any(each.alias_info is not None for each in returns)


def _root(node: Any) -> Any:
    """The tensor that a view is of, through all views between."""
    while _shares(node):
        node = node.all_input_nodes[0]
    return node


def _relatives(tensor: Any, view: Any) -> set[Any]:
    """What uses a tensor or a view of it, but for one ``view`` and what uses that."""
    found: set[Any] = set()
    left = [tensor]
    while left:
        for user in left.pop().users:
            if user not in found and user is not view:
                found.add(user)
                if _shares(user):
                    left.append(user)
    return found
