"""Series-parallel decomposition of the operators' partial order, and its conversion where it is not series-parallel.

Operators are vertices, so the order is decomposed (an order without an N), not a graph with two terminals:
a set whose comparability graph falls apart is parallel, one whose incomparability graph falls apart is a series, and
one that does neither is prime. A prime set is cut in two between levels, everything below before everything above;
that only adds precedence, so every plan for the converted order is a plan for the instance.

Not networkx: it knows no decomposition of orders, and one made of its closure, complement and components takes eleven
times as long (mmt, 97 operators).

Source: GraphPipe, section 5 (which does not define its conversion); specification of this project.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from formulations.stage_graph.costs.costs import Costs, bits


@dataclass(frozen=True)
class Leaf:
    """One operator; operators at the same place of equal branches have the same label."""

    node: int
    label: int

    @property
    def nodes(self) -> int:
        """The operator as a bitset."""
        return 1 << self.node

    @property
    def key(self) -> Hashable:
        """Equal for leaves that may be exchanged."""
        return self.label


@dataclass(frozen=True, eq=False)
class Parallel:
    """Branches without any order between them, those with equal keys side by side."""

    branches: tuple[Segment, ...]

    @cached_property
    def nodes(self) -> int:
        """Operators of all branches as a bitset."""
        return nodes_of(branch for segment in self.branches for branch in segment)

    @cached_property
    def key(self) -> Hashable:
        """Equal for sets of branches that may be exchanged."""
        return tuple(key_of(branch) for branch in self.branches)


Component = Leaf | Parallel
#: A chain of components, each entirely before the next.
Segment = tuple[Component, ...]


def nodes_of(components: Iterable[Component]) -> int:
    """Operators of components as a bitset."""
    found = 0
    for component in components:
        found |= component.nodes
    return found


def key_of(segment: Segment) -> Hashable:
    """Equal for segments that an exchange of equal branches maps onto each other."""
    return tuple(component.key for component in segment)


def parallel(branches: Iterable[Segment]) -> Segment:
    """A segment of these branches side by side; a single branch is that branch, and nothing is the empty segment."""
    found = sorted((branch for branch in branches if branch), key=lambda branch: repr(key_of(branch)))
    return found[0] if len(found) == 1 else (Parallel(tuple(found)),) if found else ()


@dataclass(frozen=True)
class Decomposition:
    """The order as a segment, and what the conversion cost.

    ``cuts`` are pairs of bitsets (lower, upper) between which precedence was added; ``added_pairs`` counts the pairs of
    operators that were free before; spans are seconds per sample of the longest path before and after.
    """

    segment: Segment
    cuts: tuple[tuple[int, int], ...] = ()
    added_pairs: int = 0
    span_s: float = 0.0
    converted_span_s: float = 0.0

    def loss(self) -> dict[str, float | int]:
        """Figures for a result's ``stats``; nothing where the order was series-parallel."""
        if not self.cuts:
            return {}
        return {
            "conversion_cuts": len(self.cuts),
            "conversion_added_pairs": self.added_pairs,
            "conversion_span_s": self.converted_span_s,
            "original_span_s": self.span_s,
        }


@dataclass
class _Work:
    costs: Costs
    cuts: list[tuple[int, int]] = field(default_factory=list)


def decompose(costs: Costs) -> Decomposition:
    """The series-parallel decomposition of all operators, converted where needed."""
    work = _Work(costs)
    labels = {node: node for node in range(costs.instance.num_operators)}
    segment = _decompose(work, costs.everything, labels)
    added = sum((upper & ~costs.above[node]).bit_count() for lower, upper in work.cuts for node in bits(lower))
    span_s = _span(costs, range(costs.instance.num_operators))
    return Decomposition(segment, tuple(work.cuts), added, span_s, _segment_span(costs, segment))


def chain(costs: Costs) -> Segment:
    """All operators as a chain, by index: what a planner of sequential pipelines sees."""
    return tuple(Leaf(node, node) for node in range(costs.instance.num_operators))


def _decompose(work: _Work, nodes: int, labels: dict[int, int]) -> Segment:
    """``labels``: equal for operators that are identical as seen from outside."""
    if nodes & (nodes - 1) == 0:
        node = nodes.bit_length() - 1
        return (Leaf(node, labels[node]),)
    above, below = work.costs.above, work.costs.below
    pieces = components(nodes, lambda v: above[v] | below[v])
    if len(pieces) > 1:
        return parallel(_decompose(work, piece, labels) for piece in _relabel(work.costs, pieces, labels))
    pieces = components(nodes, lambda v: ~(above[v] | below[v] | 1 << v))
    if len(pieces) == 1:
        lower, upper = _cut(work.costs, nodes)
        work.cuts.append((lower, upper))
        pieces = [lower, upper]
    pieces.sort(key=lambda piece: (below[(piece & -piece).bit_length() - 1] & nodes).bit_count())
    found: Segment = ()
    for piece in pieces:
        found += _decompose(work, piece, labels)
    return found


def components(nodes: int, neighbours: Callable[[int], int]) -> list[int]:
    """Connected components of a graph on the bitset, by flood filling."""
    found = []
    while nodes:
        piece = front = nodes & -nodes
        while front:
            node = (front & -front).bit_length() - 1
            front &= front - 1
            fresh = neighbours(node) & nodes & ~piece
            piece |= fresh
            front |= fresh
        found.append(piece)
        nodes &= ~piece
    return found


def _relabel(costs: Costs, pieces: list[int], labels: dict[int, int]) -> list[int]:
    """Give the operators of equal branches the labels of the first such branch (changes ``labels``)."""
    first: dict[Hashable, list[int]] = {}
    for piece in pieces:
        members = list(bits(piece))
        example = first.setdefault(_signature(costs, members), members)
        for node, like in zip(members, example, strict=True):
            labels[node] = labels[like]
    return pieces


def _signature(costs: Costs, members: list[int]) -> Hashable:
    """Operators and their edges; what is inside is named by its place, what is outside by its index."""
    place = {node: ("inside", rank) for rank, node in enumerate(members)}
    instance = costs.instance
    rows = []
    for node in members:
        operator = instance.operators[node]
        ends = sorted((kind, place.get(other, ("outside", other)), size) for kind, other, size in costs.edges_of(node))
        sizes = (operator.weight_bytes, operator.activation_bytes)
        rows.append((operator.forward, operator.backward, *sizes, tuple(ends)))
    return tuple(rows)


def _cut(costs: Costs, nodes: int) -> tuple[int, int]:
    """The cut between levels of a prime set with the shortest two longest paths, then the most even one."""
    level: dict[int, int] = {}
    for node in bits(nodes):
        level[node] = 1 + max((level[other] for other in bits(costs.below[node] & nodes)), default=0)
    choices = []
    for highest in range(1, max(level.values())):
        lower = [node for node in level if level[node] <= highest]
        upper = [node for node in level if level[node] > highest]
        length = _span(costs, lower) + _span(costs, upper)
        choices.append((length, abs(len(lower) - len(upper)), highest))
    _, _, highest = min(choices)
    lower_set = sum(1 << node for node in level if level[node] <= highest)
    return lower_set, nodes & ~lower_set


def _span(costs: Costs, members: Iterable[int]) -> float:
    """Seconds per sample of the longest path within the operators, given in a topological order."""
    ends: dict[int, float] = {}
    inside = 0
    for node in members:
        before = max((ends[other] for other in bits(costs.below[node] & inside)), default=0.0)
        ends[node] = before + costs.work_s(1 << node)
        inside |= 1 << node
    return max(ends.values(), default=0.0)


def _segment_span(costs: Costs, segment: Segment) -> float:
    return math.fsum(
        costs.work_s(component.nodes)
        if isinstance(component, Leaf)
        else max(_segment_span(costs, branch) for branch in component.branches)
        for component in segment
    )
