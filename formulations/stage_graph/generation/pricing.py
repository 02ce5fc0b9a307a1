"""Pricing: which stages, among all convex sets of operators on r devices, are worth the most within a target.

Operators have prices. What a set takes of the target is a sum along the walk (`walk`): passes of its operators and
their share of the all-reduce, tensors on the edges that it cuts. So the sets that are worth the most are labels of a
knapsack along the walk, of which those are dropped that another beats. Memory is left out here: what does not fit is
only dropped later, and the most that a stage is worth remains an upper bound.

Source: reconstructed; labels as in the knapsack lists of Kellerer, Pferschy and Pisinger, "Knapsack Problems".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.modelled import Stopped, go_on
from formulations.stage_graph.costs import Costs
from formulations.stage_graph.generation.walk import walk_over
from formulations.stage_graph.kernels.pricing import FULL, STOPPED, label
from formulations.stage_graph.problem import replica_samples
from solvers.outcome import Watch

#: Labels in all: a tenth of a gigabyte. Of one state so many are exact.
_LABELS, _MOST = 4_000_000, 2_000
#: What sums are off in another order, relatively.
_ROUNDING = 1e-11

Floats = NDArray[np.float64]


class Kind(NamedTuple):
    """Of a stage: its devices, and the samples of a micro-batch."""

    devices: int
    size: int


class Priced(NamedTuple):
    """The most that a stage of some kind is worth, at least, and some sets of operators that are worth as much."""

    worth: float
    sets: Sequence[int]


class Pricing:
    """The stages of an instance within ``target_s`` seconds per sample, which may be set anew.

    `formulations.modelled.Stopped` is raised wherever the watch is found stopped.
    """

    def __init__(self, costs: Costs, watch: Watch) -> None:
        self.costs, self.watch = costs, watch
        self.walk = walk_over(costs.instance, watch)
        self.target_s = 0.0
        self._flag = np.frombuffer(watch.flag, np.uint8)
        self._first = np.zeros(len(self.walk.start), np.int64)
        self._taken, self._gained = np.empty((2, _LABELS))
        self._parent, self._by = np.empty((2, _LABELS), np.int32)
        self._most, self._times = _MOST, dict[Kind, tuple[Floats, float]]()

    def best(self, prices: Floats, kind: Kind) -> Priced:
        """The stages of a kind that are worth the most, ``prices`` being those of each operator, at least 0."""
        capacity = self._label(prices, kind)
        if capacity < 0.0:
            return Priced(0.0, [])
        begin, end = int(self._first[-2]), int(self._first[-1])
        sets = [self._set(number) for number in range(end - 1, max(begin, end - 3) - 1, -1)]
        return Priced(float(self._gained[end - 1]) * (1 + _ROUNDING), [nodes for nodes in sets if nodes])

    def sets(self, prices: Floats, kind: Kind, least: float, most: int) -> set[int] | None:
        """All sets of operators (and perhaps others) that stages of a kind may have and are worth so much at least.

        ``None`` if the walk has more than ``most`` of them at once. From the end of the walk back to its beginning, as
        far as some label of a state makes up for what is missing.
        """
        capacity, walk = self._label(prices, kind), self.walk
        takes, worth, least = self.takes(kind), walk.inside * prices[walk.operator], least * (1 - _ROUNDING) - _ROUNDING
        last = len(walk.start) - 2
        found: dict[tuple[int, int], tuple[float, float]] = {} if capacity < 0.0 else {(last, 0): (0.0, 0.0)}
        while found and next(iter(found))[0]:
            go_on(self.watch)
            earlier: dict[tuple[int, int], tuple[float, float]] = {}
            for (state, nodes), (taken, gained) in found.items():
                for step in range(walk.start[state], walk.start[state + 1]):
                    tail, after, more = int(walk.tail[step]), taken + takes[step], gained + worth[step]
                    begin, end = self._first[tail], self._first[tail + 1]
                    fitting = int(np.searchsorted(self._taken[begin:end], capacity - after, side="right"))
                    if fitting and more + self._gained[begin + fitting - 1] >= least:
                        joined = nodes | 1 << int(walk.operator[step]) if walk.inside[step] else nodes
                        earlier[tail, joined] = after, more
            found = earlier
            if len(found) > most:
                return None
        return {nodes for _, nodes in found} - {0}

    def takes(self, kind: Kind) -> Floats:
        """Seconds per sample that each step of the walk takes of a stage of a kind."""
        return self._of(kind)[0]

    def _of(self, kind: Kind) -> tuple[Floats, float]:
        """What each step takes, and what a stage waits for whatever it has."""
        if kind not in self._times:
            instance, walk, samples = self.costs.instance, self.walk, replica_samples(kind.size, kind.devices)
            waiting = self.costs.all_reduce(0, kind.devices)
            seconds = [
                self.costs.compute_s(1 << v, samples) / kind.size
                + (self.costs.all_reduce(1 << v, kind.devices) - waiting) / instance.minibatch
                for v in range(instance.num_operators)
            ]
            moved = walk.cut_bytes * samples / instance.bandwidth_bytes_per_s + walk.cut_edges * instance.latency_s
            takes = walk.inside * np.array(seconds)[walk.operator] + 2 * moved / kind.size
            self._times[kind] = takes, waiting / instance.minibatch
        return self._times[kind]

    def _label(self, prices: Floats, kind: Kind) -> float:
        """Lay out the labels; the capacity, below 0 if not even a stage without operators is within the target."""
        walk, waiting = self.walk, self._of(kind)[1]
        capacity = self.target_s * (1 + _ROUNDING) - waiting
        worth, found = walk.inside * prices[walk.operator], FULL
        arrays = (self._first, self._taken, self._gained, self._parent, self._by, self._flag)
        while capacity >= 0.0 and found == FULL:
            found = label(walk.start, walk.tail, self.takes(kind), worth, capacity, self._most, *arrays)
            self._most = max(1, self._most // 4) if found == FULL else self._most
        if found == STOPPED:
            raise Stopped
        return capacity

    def _set(self, number: int) -> int:
        """The operators of a label."""
        nodes = 0
        while number > 0:
            step = self._by[number]
            nodes |= int(self.walk.inside[step]) << int(self.walk.operator[step])
            number = self._parent[number]
        return nodes
