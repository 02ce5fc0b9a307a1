"""How a layer's products are shared by tensor-parallel devices: found in the graph, not declared by the model.

A matrix product with a whole input is split by columns, one with a split input by rows; what row products give is
summed by an all-reduce, and so is the gradient of what column products take.

Source: reconstructed from Megatron-LM's description (columns, then rows: two all-reduces forward and two backward in a
transformer block; the vocabulary of an embedding split by rows).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from planner.training.capture.captured import Captured, Node
from planner.training.capture.dims import MIXED, follow_split
from planner.training.capture.ops import (
    LOOKUPS,
    PRODUCTS,
    REDUCTIONS,
    SELECTIONS,
    is_attention,
    is_elementwise,
    is_norm,
)


@dataclass
class Sharding:
    """Which ops of a node are split, and what the devices exchange.

    ``split`` are ops with split outputs, ``shared`` those that compute a share of the work (row products besides);
    ``parameters`` are names of split ones. ``forward_bytes`` are outputs to be summed, ``backward_bytes`` inputs whose
    gradients are, ``forward_sums`` and ``backward_sums`` how many tensors these are. A degree must divide all of
    ``sizes``.
    """

    split: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    forward_bytes: float = 0.0
    backward_bytes: float = 0.0
    sizes: set[int] = field(default_factory=set)
    forward_sums: int = 0
    backward_sums: int = 0

    def sums(self) -> "Sharding":
        """The same with a byte in each tensor: what is exchanged of it counts collectives."""
        return replace(self, forward_bytes=self.forward_sums, backward_bytes=self.backward_sums)

    def allows(self, degree: int) -> bool:
        """Whether so many devices can share the node."""
        return all(size % degree == 0 for size in self.sizes)


def ring(degree: int) -> float:
    """Bytes that a device sends for each byte of a tensor that so many devices sum in a ring, 2 (t-1)/t."""
    return 2 * (degree - 1) / degree


def exchanged_bytes(rule: Sharding, degree: int, sequence: bool) -> tuple[float, float]:
    """Bytes that each of the devices that share a node sends in a forward and in a backward pass.

    All-reduces without sequence parallelism. With it the inputs of column products are gathered and the outputs of row
    products scattered, backwards the other way round, and the inputs are gathered again for the gradients of weights.
    """
    sums = ring(degree)
    if not sequence:
        return sums * rule.forward_bytes, sums * rule.backward_bytes
    once = sums / 2 * (rule.forward_bytes + rule.backward_bytes)
    return once, once + sums / 2 * rule.backward_bytes


def sharding(captured: Captured, node: Node) -> Sharding | None:
    """How a node is split among devices; ``None`` where no rule is known, and each device computes the whole.

    A rule is not known where a split tensor leaves the node, or is reduced as a whole (a norm over a split dimension).
    It allows no degree where what a product gives is taken apart into parts that cannot be shared (`dims`).
    """
    walk = Walk(captured, node)
    for op in node.ops:
        if not walk.see(walk.graph[op]):
            return None
    found = walk.found
    leaving = {transfer.op for transfer in captured.transfers if transfer.source == node.id}
    return found if found.parameters and not leaving & found.split else None


def takes_tokens_apart(captured: Captured, node: Node, degree: int) -> bool:
    """Whether a node without products, as a norm, treats tokens one by one, and takes them from a node that is shared.

    Its devices then have their tokens of it where that node's devices have shared sequences.
    """
    graph, own = {each.name: each for each in captured.module.graph.nodes}, set(node.ops)
    taken = [each for each in captured.transfers if node.id in each.targets and each.gradient]
    rules = [sharding(captured, captured.nodes[source]) for source in {each.source for each in taken}]
    if not node.parameters or not any(rule is not None and rule.allows(degree) for rule in rules):
        return False
    tokens = captured.costs[taken[0].op].shapes[0][:-1]
    known = own | {each.op for each in taken}
    for op in (graph[name] for name in node.ops):
        inputs = [each for each in op.all_input_nodes if each.op != "get_attr"]
        shapes = [shape for each in (op, *inputs) for shape in captured.costs[each.name].shapes]
        if any(each.name not in known for each in inputs) or any(shape[:-1] != tokens for shape in shapes):
            return False
        if not (is_elementwise(op) or is_norm(op)):
            return False
    return len(tokens) == 2


def computed_whole(captured: Captured, degree: int) -> list[Node]:
    """The nodes with products of parameters that no rule shares among so many devices: each computes all of them."""
    found = []
    for node in captured.nodes:
        rule = sharding(captured, node)
        if (rule is None or not rule.allows(degree)) and any(weight_products(captured, node)):
            found.append(node)
    return found


def weight_products(captured: Captured, node: Node, *, routers: bool = True) -> Iterator[str]:
    """The products of a node with its parameters, with those that choose experts or without."""
    walk = Walk(captured, node)
    for op in (walk.graph[name] for name in node.ops if walk.graph[name].target in PRODUCTS):
        if walk.reads(op.args[PRODUCTS[op.target]]) and (routers or not walk.chooses(op)):
            yield op.name


def parameters_of(captured: Captured, operand: Any) -> list[str]:
    """Names of the parameters that an operand of an op is, or is a view of."""
    if getattr(operand, "op", "") == "get_attr":
        name = captured.names.get(str(operand.target))
        return [] if name is None else [name]
    if getattr(operand, "op", "") == "call_function" and not captured.costs[operand.name].moved_bytes:
        return [name for source in operand.all_input_nodes for name in parameters_of(captured, source)]
    return []


class Walk:
    """The ops of a node in their order, with what is known of those before."""

    def __init__(self, captured: Captured, node: Node) -> None:
        self.captured = captured
        self.inside = set(node.ops)
        self.graph = {each.name: each for each in captured.module.graph.nodes}
        self.known = {each.name for each in node.parameters}
        self.shapes = {each.name: each.shape for each in node.parameters}
        self.found = Sharding()
        self.taken: set[str] = set()
        self.widths: dict[str, set[int]] = {}
        self.dims: dict[str, int] = {}  # which dimension of a split tensor is split, where that is known
        self.scores: set[str] = set()  # products of queries and keys, and what is made of them before the values
        self.products = any(self.graph[op].target in PRODUCTS for op in node.ops)

    def see(self, op: Any) -> bool:
        """Learn one op; false where no rule is known."""
        name, split = op.name, self.found.split
        matrix = PRODUCTS.get(op.target)
        if matrix is not None and self.reads(op.args[matrix]):
            self._product(op, matrix)
            return True
        if op.target in LOOKUPS and self.reads(op.args[0]) and not self.products:
            self._lookup(op)
            return True
        inputs = [each for each in op.all_input_nodes if each.name in self.inside]
        self.widths[name] = set().union(*(self.widths.get(each.name, set()) for each in inputs))
        if not any(each.name in split for each in inputs):
            return True
        shapes = self.captured.costs[name].shapes
        if op.target in REDUCTIONS and len(self.shape(inputs[0])) < 4:
            return False
        if is_attention(op) and shapes:
            self._heads(op, shapes[0])
        elif any(each.name in self.scores for each in inputs):
            self.scores.add(name)
        split.add(name)
        self.found.shared.add(name)
        self._follow(op, [each for each in inputs if each.name in split])
        return True

    def _follow(self, op: Any, given: list[Any]) -> None:
        """Shares of the split dimension stay equal: a degree has to divide it in every result."""
        shapes = self.captured.costs[op.name].shapes
        known = [each for each in given if each.name in self.dims] if shapes else []
        found = {follow_split(op, self.shape(each), shapes[0], self.dims[each.name]) for each in known} - {None}
        if len(found) > 1 or MIXED in found:
            self.found.sizes.add(1)
        elif found:
            self.dims[op.name] = dim = next(each for each in found if each is not None)
            self.found.sizes.update(shape[dim] for shape in shapes)

    def shape(self, op: Any) -> tuple[int, ...]:
        """Of the first result of an op."""
        shapes = self.captured.costs[op.name].shapes if op.name in self.captured.costs else ()
        return shapes[0] if shapes else ()

    def reads(self, operand: Any) -> list[str]:
        """The node's parameters that an operand is, or is a view of."""
        return [name for name in parameters_of(self.captured, operand) if name in self.known]

    def _product(self, op: Any, matrix: int) -> None:
        """By columns, or by rows where the input is split; a router, whose outputs choose experts, is left whole."""
        found, name = self.found, op.name
        left = op.args[matrix - 1]
        out = self.captured.costs[name].shapes[0][-1]
        matrices = [each for source in op.all_input_nodes for each in self.reads(source)]
        if left.name in found.split:
            if self.dims.get(left.name, len(self.shape(left)) - 1) != len(self.shape(left)) - 1:
                found.sizes.add(1)  # no process has a share of the columns
            found.shared.add(name)
            found.parameters.update(each for each in matrices if len(self.shapes[each]) > 1)
            found.forward_bytes += self.captured.costs[name].output_bytes
            found.forward_sums += 1
            found.sizes.add(self.shape(left)[-1])
        elif not self.chooses(op):
            found.split.add(name)
            found.shared.add(name)
            found.parameters.update(matrices)
            found.sizes.add(out)
            self.widths[name] = {out}
            self.dims[name] = len(self.captured.costs[name].shapes[0]) - 1
            cost = self.captured.costs.get(left.name)
            if left.name not in self.taken and cost is not None and cost.gradient:
                found.backward_bytes += cost.output_bytes
                found.backward_sums += 1
            self.taken.add(left.name)

    def chooses(self, op: Any) -> bool:
        """Whether what follows, before the next product, selects."""
        waiting, seen = [op], set()
        while waiting:
            for user in waiting.pop().users:
                if user.target in SELECTIONS:
                    return True
                if user.name in self.inside and user.target not in PRODUCTS and user.name not in seen:
                    seen.add(user.name)
                    waiting.append(user)
        return False

    def _lookup(self, op: Any) -> None:
        """The largest table of a node that only looks up is split by rows, if inputs of the model choose among them."""
        name = self.reads(op.args[0])[0]
        if self._depends_on_input(op.args[1]) and self.shapes[name] == max(
            shape for shape in self.shapes.values() if len(shape) == 2
        ):
            self.found.parameters.add(name)
            self.found.forward_bytes += self.captured.costs[op.name].output_bytes
            self.found.forward_sums += 1
            self.found.sizes.add(self.shapes[name][0])

    def _depends_on_input(self, op: Any) -> bool:
        """Whether an op depends on an input of the model."""
        waiting, seen = [op], {op}
        while waiting:
            each = waiting.pop()
            if each.op == "placeholder":
                return True
            waiting += [before for before in each.all_input_nodes if before not in seen]
            seen.update(each.all_input_nodes)
        return False

    def _heads(self, op: Any, shape: tuple[int, ...]) -> None:
        """Whole heads go to a device: those of the product, and those of the columns that its operands come from."""
        if len(shape) < 3:
            return
        self.found.sizes.add(shape[-3])
        inputs = {each.name for each in op.all_input_nodes}
        if op.target not in PRODUCTS or inputs & self.scores:  # gives as many columns as a head has
            self.found.sizes.update(width // shape[-1] for width in self.widths[op.name] if width % shape[-1] == 0)
        else:
            self.scores.add(op.name)
