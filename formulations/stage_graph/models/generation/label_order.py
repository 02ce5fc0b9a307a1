"""A walk over all operators, one by one, that knows what every convex set of them costs: the graph of pricing.

A set is convex if and only if operators can be called *before*, *inside* or *behind* it so that along no edge an
earlier call follows a later one (what has nothing to do with the set is before it). So convexity and the edges that a
set cuts are a matter of both ends of an edge, and a walk need know the calls of those operators alone that have
neighbours still to come: on trees, in the right order, one or two.

Where more than `WIDEST` would have to be known, edges are left out: any calls may stand at their ends, and their
tensors cost nothing. That only adds sets and makes stages faster, so whatever is excluded along the walk is excluded.

Source: this project; a dynamic program over a tree decomposition.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.modelling.solve_model import check_stop
from instances.problems.stage_graph import OperatorEdge, StageGraph
from solvers.outcome import Watch

#: So many operators with neighbours still to come are known at once.
WIDEST = 5

BEFORE, INSIDE, BEHIND = range(3)


class Step(NamedTuple):
    """From an earlier state, with a call of an operator.

    It settles edges with an end in the set: so many, with so many bytes per sample, of which ``incoming`` enter it;
    whether any is ``outgoing``.
    """

    tail: int
    operator: int
    inside: bool
    cut_edges: int
    cut_bytes: float
    incoming: float
    outgoing: bool


@dataclass(frozen=True)
class Walk:
    """States and the steps between them: every walk leads from state 0 to the last state, and calls each operator once.

    ``start[s]`` to ``start[s + 1]`` are the steps into state s (none for 0), each an entry of the other arrays, which
    are those of `Step`. ``is_relaxed``: some edges are left out.
    """

    start: NDArray[np.int64]
    tail: NDArray[np.int64]
    operator: NDArray[np.int64]
    inside: NDArray[np.bool_]
    cut_edges: NDArray[np.float64]
    cut_bytes: NDArray[np.float64]
    incoming: NDArray[np.float64]
    outgoing: NDArray[np.bool_]
    is_relaxed: bool


def walk_over(instance: StageGraph, watch: Watch, widest: int = WIDEST) -> Walk:
    """The walk over the operators of an instance; `formulations.modelling.solve_model.Stopped` once the watch is."""
    order, kept = _order(instance, watch, widest)
    place = {v: number for number, v in enumerate(order)}
    last = dict(place)  # where the last edge of each operator is settled
    settled: list[list[OperatorEdge]] = [[] for _ in order]
    for edge in (instance.edges[e] for e in sorted(kept)):
        both = max(place[edge.source], place[edge.target])
        settled[both].append(edge)
        for v in (edge.source, edge.target):
            last[v] = max(last[v], both)
    states: dict[tuple[int, ...], int] = {(): 0}
    known: tuple[int, ...] = ()
    start, steps = [0, 0], list[Step]()
    for number, v in enumerate(order):
        check_stop(watch)
        following = tuple(u for u in (*known, v) if last[u] > number)
        entered: dict[tuple[int, ...], list[Step]] = {}
        for (calls, state), call in itertools.product(states.items(), (BEFORE, INSIDE, BEHIND)):
            called = dict(zip(known, calls, strict=True)) | {v: call}
            costs = _settle(settled[number], called)
            if costs is not None:
                entered.setdefault(tuple(called[u] for u in following), []).append(
                    Step(state, v, call == INSIDE, *costs)
                )
        states = {calls: len(start) - 1 + index for index, calls in enumerate(entered)}
        for into in entered.values():
            steps += into
            start.append(len(steps))
        known = following
    tail, operator, inside, *crossing, outgoing = (np.array(each) for each in zip(*steps, strict=True))
    cut_edges, cut_bytes, incoming = (each.astype(np.float64) for each in crossing)
    is_relaxed = len(kept) < len(instance.edges)
    return Walk(np.array(start), tail, operator, inside, cut_edges, cut_bytes, incoming, outgoing, is_relaxed)


def _settle(edges: Sequence[OperatorEdge], called: dict[int, int]) -> tuple[int, float, float, bool] | None:
    """Edges and bytes per sample that are cut, bytes that come in, and if any go out; ``None``: an edge leads back."""
    count, size, incoming, outgoing = 0, 0.0, 0.0, False
    for edge in edges:
        source, target = called[edge.source], called[edge.target]
        if source > target:
            return None
        if (source == INSIDE) != (target == INSIDE):
            count, size = count + 1, size + edge.bytes_per_sample
            incoming += edge.bytes_per_sample if target == INSIDE else 0.0
            outgoing = outgoing or source == INSIDE
    return count, size, incoming, outgoing


def _order(instance: StageGraph, watch: Watch, widest: int) -> tuple[list[int], set[int]]:
    """An order in which few operators stay open (with neighbours still to come), greedily, and the edges it keeps."""
    kept = set(range(len(instance.edges)))
    neighbours: list[dict[int, int]] = [{} for _ in range(instance.num_operators)]
    for e, edge in enumerate(instance.edges):
        neighbours[edge.source][edge.target] = neighbours[edge.target][edge.source] = e
    order, left, opened = list[int](), set(range(instance.num_operators)), list[int]()

    def is_open(u: int, without: int) -> bool:
        return any(w in left and w != without for w in neighbours[u])

    while left:
        check_stop(watch)
        near = {u for v in opened for u in neighbours[v] if u in left}
        v = min(near or left, key=lambda each: (sum(is_open(u, each) for u in (*opened, each)), each))
        left.remove(v)
        order.append(v)
        opened = [u for u in (*opened, v) if is_open(u, u)]
        while len(opened) > widest:
            least = min(opened, key=lambda u: sum(w in left for w in neighbours[u]))
            for w in [w for w in neighbours[least] if w in left]:
                kept.remove(neighbours[least].pop(w))
                del neighbours[w][least]
            opened.remove(least)
    return order, kept
