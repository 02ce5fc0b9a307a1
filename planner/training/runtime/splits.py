"""How the processes of a tensor-parallel stage share a node: which products by columns, which by rows. No process here.

What can be shared, and what is exchanged for it, is found by `capture.sharding`, as it was for the instance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from planner.process.errors import UsageError
from planner.training.capture.captured import Captured, Node

if TYPE_CHECKING:
    from planner.training.capture.sharding import Sharding


@dataclass(frozen=True)
class Cut:
    """A parameter in equal shares along a dimension.

    ``parts`` are widths of which each is shared for itself: a matrix that makes queries, keys and values at once is
    three of them, and every process has its heads of each.
    """

    dim: int
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Column:
    """A product by columns: its matrix, which dimension of it is the result's, its bias, and the whole result's shape.

    Matrix and bias are attributes of the graph.
    """

    matrix: str
    out: int
    bias: str | None
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Sequences:
    """What processes that share a node have of sequences between its products.

    ``dims``: tensors that come from other nodes or go to them, of which each process has its part: the dimension of
    tokens.
    ``gathered``: products by columns, those together whose operand is gathered once.
    ``viewed``: views between such an operand and its products, for which they have no need.
    ``scattered``: where the sum of a product by rows is scattered: the dimension.
    """

    dims: Mapping[str, int]
    gathered: tuple[Mapping[str, Column], ...]
    viewed: frozenset[str]
    scattered: Mapping[str, int]


@dataclass(frozen=True)
class Split:
    """A node that ``degree`` processes share.

    ``columns``: products by columns: for each op the place of the operand that all have whole, whose gradient is
    summed.
    ``rows``: products by rows and look-ups in a part of a table: ops whose results are summed.
    ``apart``: ops that take apart what a product by columns gives, each part of which is shared for itself (`Cut`).
    ``cuts``: parameters of which a process has a share, by the graph's attribute.
    ``forward_bytes``, ``backward_bytes``: bytes that a process sends in each pass of a sample to sum these, in rings.
    ``sequences``: with sequence parallelism: gathers and scatters in place of sums. ``None`` without.
    """

    degree: int
    columns: Mapping[str, int]
    rows: frozenset[str]
    apart: frozenset[str]
    cuts: Mapping[str, Cut]
    forward_bytes: float
    backward_bytes: float
    sequences: Sequences | None = None


def splits(captured: Captured, degrees: Sequence[int], sequences: Collection[int] = ()) -> dict[int, Split]:
    """The nodes that several processes share, of those whose stage has a degree; others each of them computes whole.

    ``degrees``: of the nodes of the captured model, or of others: all 1.
    ``sequences``: the nodes between whose products sequences are shared, too.
    `UsageError` if a product that the instance counts as shared cannot be cut by columns or rows, or a sequence by the
    degree.
    """
    from planner.training.capture.sharding import exchanged_bytes, sharding

    found = {}
    for place, degree in enumerate(degrees):
        rule = sharding(captured, captured.nodes[place]) if degree > 1 else None
        if rule is not None and rule.allows(degree):
            found[place] = _split(captured, captured.nodes[place], rule, degree)
        if place in sequences:  # one without products has its tokens apart
            made = found.get(place, Split(degree, {}, frozenset(), frozenset(), {}, 0.0, 0.0))
            apart = _sequences(captured, captured.nodes[place], made)
            moved = exchanged_bytes(rule, degree, True) if place in found and rule is not None else (0.0, 0.0)
            found[place] = replace(made, sequences=apart, forward_bytes=moved[0], backward_bytes=moved[1])
    return found


def _split(captured: Captured, node: Node, rule: Sharding, degree: int) -> Split:
    from planner.training.capture.ops import LOOKUPS, PRODUCTS
    from planner.training.capture.sharding import exchanged_bytes

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
    moved = exchanged_bytes(rule, degree, False)
    return Split(degree, columns, frozenset(rows), frozenset(apart), cuts, *moved)


def _sequences(captured: Captured, node: Node, split: Split) -> Sequences:
    """Where sequences are gathered and scattered in a node: around its products, and views of these."""
    import torch

    aten: Any = torch.ops.aten
    views = (aten.view.default, aten.reshape.default, aten.flatten.using_ints)
    graph = {each.name: each for each in captured.module.graph.nodes}
    shapes = {
        name: captured.costs[name].shapes[0] for name in graph if name in captured.costs and captured.costs[name].shapes
    }

    def dim(name: str) -> int:
        found = max(0, len(shapes[name]) - 2)
        if shapes[name][found] % split.degree:
            what = f"{name} of {node.name}, {shapes[name][found]} tokens, shared by {split.degree}"
            raise UsageError.at("PLAN", what, "sequences that a degree divides")
        return found

    moved = [each for each in captured.transfers if node.id in (each.source, *each.targets) and each.gradient]
    moved = [each for each in moved if len(captured.costs[each.op].shapes) == 1]
    dims = {each.op: dim(each.op) for each in moved if 1 < len(shapes[each.op]) < 4}
    gathered: dict[str, dict[str, Column]] = {}
    viewed = set[str]()
    for name, place in split.columns.items():
        op, left = graph[name], graph[name].args[place]
        if left.name not in captured.costs or not captured.costs[left.name].gradient:
            continue
        while (
            left.target in views
            and left.name in node.ops
            and all(each.name in split.columns for each in left.users if each.name not in viewed)
        ):
            viewed.add(left.name)
            left = left.args[0]
        dim(left.name)
        if op.kwargs:
            raise _unknown(node, op, "scaled")
        matrix, out = _matrix(captured, node, op, place + 1)
        biases = [str(each.target) for each in op.all_input_nodes if each.op == "get_attr" and each is not matrix]
        made = Column(str(matrix.target), out, next(iter(biases), None), shapes[name])
        gathered.setdefault(left.name, {})[name] = made
    scattered = {}
    for name in split.rows:
        op = graph[name]
        while len(shapes[op.name]) < 3 and len(op.users) == 1 and next(iter(op.users)).target in views:
            op = next(iter(op.users))
        scattered[op.name] = dim(op.name)
    return Sequences(dims, tuple(gathered.values()), frozenset(viewed), scattered)


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
    from planner.training.capture.ops import PRODUCTS

    waiting, seen, ops, parts = [op], {op}, set[str](), set[tuple[int, int]]()
    while waiting:
        source = waiting.pop()
        for user in source.users:
            if user in seen:
                continue
            seen.add(user)
            if user.op != "call_function" or user.target in PRODUCTS:
                return (width,), set()
            found = _parts(captured, source, user, width)
            if found:
                ops.add(user.name)
                parts |= found
            else:
                waiting.append(user)
    ends = sorted(parts)
    covers = [end for _, end in ends] == [*(start for start, _ in ends[1:]), width] and ends[:1] and not ends[0][0]
    if not covers or any((end - start) % degree for start, end in ends):
        return (width,), set()
    return tuple(end - start for start, end in ends), ops


def _parts(captured: Captured, source: Any, op: Any, width: int) -> set[tuple[int, int]]:
    """The places of the last dimension of a tensor, of this width, that an op gives apart; empty for other ops."""
    import torch

    aten: Any = torch.ops.aten
    shape = captured.costs[source.name].shapes[0]
    if op.target is aten.slice.Tensor and len(op.args) < 5:
        dim, *ends = slice_of(shape, op.args[1:])
        places = {(ends[0], ends[1])}
    elif op.target in (aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default):
        dim = op.args[2] if len(op.args) > 2 else 0
        widths = [each[dim] for each in captured.costs[op.name].shapes]
        places = set(pairwise(accumulate(widths, initial=0)))
    else:
        return set()
    return places if dim % len(shape) == len(shape) - 1 and shape[-1] == width else set()


def slice_of(shape: Sequence[int], given: Sequence[Any]) -> tuple[int, int, int]:
    """Dimension, start and end of a slice of a tensor of this shape, from its arguments behind the tensor."""
    dim, start, end = [*given, *(None,) * 3][:3]
    places = range(shape[dim or 0])[slice(start, end)]
    return dim or 0, places.start, places.stop
