"""Orders, cycles and downsets of small graphs, by hand and against plain enumeration."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.graph import depth_first_order, downsets, find_cycle, lifo_order, topological_order

DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


@st.composite
def dags(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A DAG whose nodes are shuffled."""
    n = draw(st.integers(1, 6))
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    kept = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    name = draw(st.permutations(range(n)))
    return n, [(name[u], name[v]) for u, v in kept]


def test_orders_of_a_diamond():
    assert topological_order(4, DIAMOND) == [0, 1, 2, 3]
    assert topological_order(4, DIAMOND, key=lambda node: -node) == [0, 2, 1, 3]
    assert lifo_order(4, DIAMOND) == [0, 2, 1, 3]
    assert depth_first_order(4, DIAMOND) == [0, 1, 2, 3]


@given(dags())
def test_orders_put_sources_before_targets(graph: tuple[int, list[tuple[int, int]]]):
    n, edges = graph
    for order in (topological_order(n, edges), lifo_order(n, edges), depth_first_order(n, edges)):
        assert sorted(order) == list(range(n))
        assert all(order.index(u) < order.index(v) for u, v in edges)
    assert find_cycle(n, edges) == []


def test_a_cycle_is_found_in_the_direction_of_its_edges():
    edges = [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)]
    cycle = find_cycle(5, edges)
    assert sorted(cycle) == [1, 2, 3]
    assert all(pair in edges for pair in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    assert len(topological_order(5, edges)) < 5
    assert find_cycle(1, [(0, 0)]) == [0]


@given(dags())
def test_downsets_are_the_sets_closed_under_successors(graph: tuple[int, list[tuple[int, int]]]):
    n, edges = graph
    closed = {
        sum(bit << node for node, bit in enumerate(bits))
        for bits in product((0, 1), repeat=n)
        if all(bits[v] or not bits[u] for u, v in edges)
    }
    found = downsets(n, edges, 1000)
    assert found is not None
    assert set(found) == closed and len(found) == len(closed)
    assert downsets(n, edges, len(closed)) is not None
    assert downsets(n, edges, len(closed) - 1) is None


@pytest.mark.parametrize("n", [1, 5, 40])
def test_a_chain_has_one_downset_more_than_nodes(n: int):
    assert len(downsets(n, [(i, i + 1) for i in range(n - 1)], 100) or []) == n + 1
