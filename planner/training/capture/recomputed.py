"""Parts of a node that are computed again alone: the attention's core and the MLP, found in the graph.

The core goes from the product of queries and keys over a softmax to that with the values, or is one op; copies that
repeat heads in front of it belong to it. The MLP goes from products by columns to those by rows without attention
between them, in a node without a router. A part keeps its inputs, and what ops outside it keep.

Source: reconstructed from Megatron core 0.16.1 (``--recompute-modules core_attn`` and ``mlp``), whose mixtures of
experts have other modules.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from planner.training.capture.captured import Captured, Node
from planner.training.capture.ops import ATTENTION, PRODUCTS, aten, is_attention
from planner.training.capture.sharding import Walk, parameters_of

_SOFTMAX = frozenset({aten.softmax.int, aten._softmax.default})


@dataclass(frozen=True)
class Part:
    """Ops of a node that are computed again together.

    ``dropped`` and ``added``: bytes of what is no longer kept and of inputs that are kept for it, by the ops that make
    them. ``rows``: products by rows in it; ``taken``: what its products by columns take, each tensor once.
    """

    ops: frozenset[str]
    dropped: tuple[tuple[str, float], ...]
    added: tuple[tuple[str, float], ...]
    rows: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()


class Parts:
    """The parts of the nodes of a captured model."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        #: Of each storage the op that made it first, and those that keep it.
        self.maker: dict[int, str] = {}
        self.keepers: dict[int, set[str]] = {}
        for name, cost in captured.costs.items():  # in the order of the graph
            for number in cost.outputs:
                self.maker.setdefault(number, name)
            for number in cost.keeps:
                self.keepers.setdefault(number, set()).add(name)

    def attention_core(self, node: Node) -> Part | None:
        """``None`` if the node has no attention."""
        walk = Walk(self.captured, node)
        found = {op for op in node.ops if walk.graph[op].target in ATTENTION}
        for op in (walk.graph[name] for name in node.ops):
            if _is_product(walk, op) and op.target not in ATTENTION:
                found |= _to_values(walk, op)
        return self._part(node, walk, self._with_copies(walk, found)) if found else None

    def mlp(self, node: Node) -> Part | None:
        """``None`` if the node has none, or experts."""
        walk = Walk(self.captured, node)
        own = [walk.graph[name] for name in node.ops]
        products = [op for op in own if op.target in PRODUCTS and walk.reads(op.args[PRODUCTS[op.target]])]
        is_known = all(walk.see(op) for op in own)
        if not is_known or any(walk.chooses(op) for op in products):
            return None
        split, names, ops, rows, taken = walk.found.split, _names(products), set(), set(), set()
        for op in (each for each in products if each.name not in split):
            behind = _before(op, split)
            columns = [each for each in products if each.name in behind]
            if columns and not any(is_attention(walk.graph[name]) for name in behind - names):
                ops |= behind | {op.name}
                rows.add(op.name)
                taken |= {each.args[PRODUCTS[each.target] - 1].name for each in columns}
        return self._part(node, walk, ops, rows, taken) if ops else None

    def _with_copies(self, walk: Walk, found: set[str]) -> set[str]:
        """Ops in front that make a larger tensor of one, for these ops alone, as those that repeat heads."""
        costs, wide, waiting = self.captured.costs, set(found), [walk.graph[name] for name in found]
        while waiting:
            for each in waiting.pop().all_input_nodes:
                source = (
                    each.all_input_nodes[0] if each.name in walk.inside and len(each.all_input_nodes) == 1 else None
                )
                if source is None or source.op != "call_function" or each.target in PRODUCTS or each.name in wide:
                    continue
                made, taken = (sum(costs[name].outputs.values()) for name in (each.name, source.name))
                if all(user.name in wide for user in each.users) and (made > taken or not costs[each.name].moved_bytes):
                    wide.add(each.name)
                    waiting.append(each)
        return wide

    def _part(self, node: Node, walk: Walk, ops: set[str], rows: Iterable[str] = (), taken: Iterable[str] = ()) -> Part:
        """What the node keeps otherwise: nothing that these ops make for themselves alone, and what they take."""
        costs = self.captured.costs
        sizes = {number: (name, size) for name in ops for number, size in costs[name].keeps.items()}
        dropped = [
            (self.maker.get(number, name), size)
            for number, (name, size) in sizes.items()
            if self.keepers[number] <= ops and self.maker.get(number, name) in ops
        ]
        first = {each.op for each in self.captured.transfers if min(each.targets) == node.id}
        inputs: dict[int, float] = {}
        for each in (each for name in ops for each in walk.graph[name].all_input_nodes):
            if each.name not in ops and each.name in walk.inside | first and not parameters_of(self.captured, each):
                inputs |= costs[each.name].outputs
        added = [(self.maker[number], size) for number, size in inputs.items() if not self._is_kept(number, node)]
        return Part(frozenset(ops), tuple(dropped), tuple(added), frozenset(rows), frozenset(taken))

    def _is_kept(self, number: int, node: Node) -> bool:
        """Whether an op of the node, or of one in front, keeps a storage."""
        return any(self.captured.node_of.get(name, node.id) <= node.id for name in self.keepers.get(number, ()))


def _names(ops: Iterable[Any]) -> set[str]:
    return {op.name for op in ops}


def _before(op: Any, among: set[str]) -> set[str]:
    """Those of some ops that lead to an op over such ones."""
    found: set[str] = set()
    waiting = [op]
    while waiting:
        new = [each for each in waiting.pop().all_input_nodes if each.name in among and each.name not in found]
        found |= _names(new)
        waiting += new
    return found


def _is_product(walk: Walk, op: Any) -> bool:
    """Whether an op is a product of activations alone."""
    return is_attention(op) and not any(walk.reads(each) for each in op.all_input_nodes)


def _to_values(walk: Walk, scores: Any) -> set[str]:
    """The ops from a product of activations over a softmax to the next such products; empty if there are none."""
    behind, ends, waiting = {scores.name}, [], [scores]
    while waiting:
        for user in waiting.pop().users:
            if user.name not in walk.inside or user.name in behind:
                continue
            if _is_product(walk, user):
                ends.append(user)
            elif user.target not in PRODUCTS:
                behind.add(user.name)
                waiting.append(user)
    found = {name for end in ends for name in _before(end, behind)} | _names(ends)
    return found if any(walk.graph[name].target in _SOFTMAX for name in found) else set()
