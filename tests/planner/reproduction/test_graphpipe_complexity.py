"""Section 5's time complexity of GraphPipe: what is counted."""

import pytest

from formulations.stage_graph.costs.series_parallel import Leaf, Parallel, Segment
from planner.reproduction.graphpipe.complexity import decompositions, run


def chain(first: int, count: int, label: int = 0) -> Segment:
    return tuple(Leaf(first + place, label + place) for place in range(count))


def test_runs_of_a_chain_and_their_cuts() -> None:
    assert decompositions(chain(0, 4)) == (
        10,
        10,
    )  # 4 + 3 + 2 + 1 runs; 3 pairs are cut once, 2 triples twice, 1 thrice
    assert decompositions(chain(0, 1)) == (1, 0)


def test_equal_branches_count_once() -> None:
    branches = Parallel((chain(0, 2), chain(2, 2)))
    # the branches, the join, both; a branch, its two operators; both branches: one split each but for single operators
    assert decompositions((branches, Leaf(4, 9))) == (7, 3)
    unequal = Parallel((chain(0, 2), chain(2, 2, 5)))
    assert decompositions((unequal, Leaf(4, 9))) == (10, 4)


def test_operations_grow_faster_with_devices_than_the_bound() -> None:
    found = run(None, lambda _: None, devices=(4, 8, 16), layers=(2,))
    few, more, most = found.rows
    assert (few["transitions"], more["transitions"], most["transitions"]) == (1233, 5843, 29509)
    assert few["loops"] == few["splits"] * (1 + 2 + 3) and few["subgraphs"] == most["subgraphs"] == 27
    assert most["over_bound"] > 2 * more["over_bound"] > 4 * few["over_bound"]
    assert most["over_devices"] == pytest.approx(1.25 * more["over_devices"], rel=0.05)
    assert "8 to 16 devices (2 layers): 5.1 times the transitions, 1.8 times the bound" in found.notes
