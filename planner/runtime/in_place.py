"""In-place operations of an exported graph replaced by those that leave their input as it is.

Stages run a graph in an order of their own, and tensors that came from other stages are not written to: what flows must
be what the arguments of operations say.
"""

from __future__ import annotations

from typing import Any

from planner.errors import UsageError


def without_in_place(graph_module: Any) -> None:
    """Replace every operation such as ``relu_`` by ``relu``; whatever used its input later takes its result.

    Raises
    ------
    UsageError
        If an operation writes into a part of a tensor (a view) that is used later, or has no such counterpart.
    """
    import torch

    places = {node: place for place, node in enumerate(graph_module.graph.nodes)}
    for node in list(graph_module.graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if not node.target._schema.is_mutable:
            continue
        written = node.args[0]
        if _shares(written) and any(places[user] > places[node] for user in _relatives(written, node)):
            raise UsageError.at(
                "--model", f"{node.name} writing into a part of a tensor", "a model that writes into none"
            )
        node.target = _counterpart(node)
        written.replace_all_uses_with(node, delete_user_cb=lambda user, node=node: places.get(user, -1) > places[node])
    graph_module.graph.eliminate_dead_code()
    graph_module.graph.lint()
    graph_module.recompile()


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


def _relatives(view: Any, writer: Any) -> set[Any]:
    """What uses the tensor that a view is of, or another view of it, beside the operation that writes into the view."""
    base = view
    while _shares(base):
        base = base.all_input_nodes[0]
    found: set[Any] = set()
    left = [base]
    while left:
        for user in left.pop().users:
            if user not in found and user is not writer:
                found.add(user)
                if _shares(user):
                    left.append(user)
    return found
