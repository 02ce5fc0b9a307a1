"""How the processes of a tensor-parallel stage share a node: which products by columns, which by rows. No process here.

What can be shared, and what is exchanged for it, is found by `planner.capture.sharding`, as it was for the instance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.capture.captured import Captured, Node
from planner.errors import UsageError

if TYPE_CHECKING:
    from planner.capture.sharding import Sharding


@dataclass(frozen=True)
class Cut:
    """A parameter in equal shares along a dimension.

    ``parts`` are widths of which each is shared for itself: a matrix that makes queries, keys and values at once is
    three of them, and every process has its heads of each.
    """

    dim: int
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """A node that ``degree`` processes share.

    Parameters
    ----------
    columns
        Products by columns: for each op the place of the operand that all have whole, whose gradient is summed.
    rows
        Products by rows and look-ups in a part of a table: ops whose results are summed.
    apart
        Ops that take apart what a product by columns gives, each part of which is shared for itself (`Cut`).
    cuts
        Parameters of which a process has a share, by the graph's attribute.
    forward_bytes, backward_bytes
        Bytes that a process sends in each pass of a sample to sum these, in rings.
    """

    degree: int
    columns: Mapping[str, int]
    rows: frozenset[str]
    apart: frozenset[str]
    cuts: Mapping[str, Cut]
    forward_bytes: float
    backward_bytes: float


def splits(captured: Captured, degrees: Sequence[int]) -> dict[int, Split]:
    """The nodes that several processes share, of those whose stage has a degree; others each of them computes whole.

    Parameters
    ----------
    degrees
        Of the nodes of the captured model, or of others: all 1.

    Raises
    ------
    UsageError
        If a product that the instance counts as shared cannot be cut by columns or rows.
    """
    from planner.capture.sharding import sharding

    found = {}
    for place, degree in enumerate(degrees):
        rule = sharding(captured, captured.nodes[place]) if degree > 1 else None
        if rule is not None and rule.allows(degree):
            found[place] = _split(captured, captured.nodes[place], rule, degree)
    return found


def _split(captured: Captured, node: Node, rule: Sharding, degree: int) -> Split:
    from planner.capture.ops import LOOKUPS, PRODUCTS
    from planner.capture.sharding import ring

    columns: dict[str, int] = {}
    rows: set[str] = set()
    apart: set[str] = set()
    cuts: dict[str, Cut] = {}
    graph = {each.name: each for each in captured.module.graph.nodes}
    for op in (graph[name] for name in node.ops):
        table: Any = op.args[0] if op.args else None
        if op.target in LOOKUPS and captured.names.get(str(getattr(table, "target", ""))) in rule.parameters:
            rows.add(op.name)
            wanted = [(table, Cut(0, _shape(captured, table)[:1]))]
        elif op.target in PRODUCTS and op.name in rule.shared and _reads(captured, op.args[PRODUCTS[op.target]]):
            place = PRODUCTS[op.target]
            matrix, out = _matrix(captured, node, op, place)
            width = _shape(captured, matrix)
            if op.name in rule.split:
                columns[op.name] = place - 1
                parts, ops = _taken_apart(captured, op, width[out], degree)
                apart |= ops
                wanted = [(matrix, Cut(out, parts))]
                biases = (each for each in op.all_input_nodes if each.op == "get_attr" and each is not matrix)
                wanted += [(each, Cut(len(_shape(captured, each)) - 1, parts)) for each in biases]
            else:
                rows.add(op.name)
                wanted = [(matrix, Cut(1 - out, (width[1 - out],)))]
        else:
            continue
        for parameter, cut in wanted:
            if cuts.setdefault(str(parameter.target), cut) != cut:
                raise _unknown(node, op, "one matrix for two products")
    sums = ring(degree)
    moved = sums * rule.forward_bytes, sums * rule.backward_bytes
    return Split(degree, columns, frozenset(rows), frozenset(apart), cuts, *moved)


def _unknown(node: Node, op: Any, what: str) -> UsageError:
    return UsageError.at("PLAN", f"{op.name} in a shared {node.name}, {what}", "products by columns and rows")


def _shape(captured: Captured, parameter: Any) -> tuple[int, ...]:
    return tuple(captured.module.get_parameter(str(parameter.target)).shape)


def _reads(captured: Captured, operand: Any) -> bool:
    """Whether an operand is a parameter, or made of parameters alone."""
    if operand.op == "get_attr":
        return str(operand.target) in captured.names
    inputs = operand.all_input_nodes if operand.op == "call_function" else ()
    return bool(inputs) and all(_reads(captured, each) for each in inputs)


def _matrix(captured: Captured, node: Node, op: Any, place: int) -> tuple[Any, int]:
    """The parameter that an op multiplies with, and which of its two dimensions is the result's."""
    import torch

    aten: Any = torch.ops.aten
    operand, out = op.args[place], 0 if op.target is aten.linear.default else 1
    while operand.op == "call_function" and operand.target in (aten.t.default, aten.numpy_T.default):
        operand, out = operand.args[0], 1 - out
    if operand.op == "call_function" and operand.target is aten.transpose.int and len(operand.all_input_nodes) == 1:
        operand, out = operand.args[0], 1 - out
    if operand.op != "get_attr" or len(_shape(captured, operand)) != 2:
        raise _unknown(node, op, "not the product with a matrix")
    return operand, out


def _taken_apart(captured: Captured, op: Any, width: int, degree: int) -> tuple[tuple[int, ...], set[str]]:
    """The widths into which all that uses the result of a product takes it apart, and the ops that do.

    The whole width and no ops, if something uses it otherwise: then processes have neighbouring columns.
    """
    from planner.capture.ops import PRODUCTS

    waiting, seen, found = [op], {op}, dict[str, tuple[int, ...]]()
    while waiting:
        for user in waiting.pop().users:
            if user in seen:
                continue
            seen.add(user)
            if user.op != "call_function" or user.target in PRODUCTS:
                return (width,), set()
            if is_taking_apart(user.target):
                dim = user.args[2] if len(user.args) > 2 else 0
                found[user.name] = tuple(shape[dim] for shape in captured.costs[user.name].shapes)
            else:
                waiting.append(user)
    parts = set(found.values())
    if len(parts) != 1 or sum(min(parts)) != width or any(each % degree for each in min(parts)):
        return (width,), set()
    return parts.pop(), set(found)


def is_taking_apart(target: Any) -> bool:
    """Whether an op takes a tensor apart into several along a dimension, its third argument."""
    import torch

    aten: Any = torch.ops.aten
    return target in (aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default)
