"""Parmesan's Theorems 4.4 and 4.5: how many fronted subgraphs a graph has.

A fronted subgraph holds all predecessors of its nodes (Definition 4.2): a downset of the graph with its edges turned
round. The paper counts those that are not empty.
"""

from itertools import chain, combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from instances.graph import downsets, topological_order

Graph = tuple[int, list[tuple[int, int]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Acyclic graphs of up to seven nodes, numbered in any order."""
    n = draw(st.integers(1, 7))
    names = draw(st.permutations(range(n)))
    pairs = list(combinations(names, 2))
    kept = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    path = list(pairwise(names)) if draw(st.booleans()) else []
    return n, sorted({*path, *(pair for pair, keep in zip(pairs, kept, strict=True) if keep)})


def fronted(n: int, edges: list[tuple[int, int]]) -> set[frozenset[int]]:
    """All of them by trying every set."""
    subsets = chain.from_iterable(combinations(range(n), size) for size in range(1, n + 1))
    return {frozenset(nodes) for nodes in subsets if all(a in nodes or b not in nodes for a, b in edges)}


@given(graphs())
def test_fronted_subgraphs_are_downsets_of_the_turned_graph(graph: Graph) -> None:
    n, edges = graph
    found = downsets(n, [(b, a) for a, b in edges], 2**n) or []
    assert fronted(n, edges) == {frozenset(v for v in range(n) if bits >> v & 1) for bits in found if bits}


@given(graphs())
def test_theorem_4_4_there_are_at_least_as_many_as_nodes(graph: Graph) -> None:
    n, edges = graph
    assert len(fronted(n, edges)) >= n


@given(graphs())
def test_theorem_4_5_as_many_as_nodes_exactly_where_the_order_is_unique(graph: Graph) -> None:
    """The paper states one direction; the other holds too: two orders differ in some prefix."""
    n, edges = graph
    order = topological_order(n, edges)
    unique = all(pair in edges for pair in pairwise(order))
    assert (len(fronted(n, edges)) == n) == unique
