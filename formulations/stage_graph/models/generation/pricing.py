"""Pricing: which stages, among all convex sets of operators on r devices, are worth the most within a target.

Operators have prices. What a set takes of the target is a sum along the walk (`walk`): passes of its operators and
their share of the all-reduce, tensors on the edges that it cuts; and so is what it holds of a device's memory. So the
sets that are worth the most are labels of a knapsack along the walk, of which those are dropped that another beats.

Of micro-batches in flight a stage is said to hold one, if no edge leaves it, or two: the cover of all columns knows
better.

Source: this project; labels as in the lists of Kellerer, Pferschy and Pisinger, "Knapsack Problems", 2004, chapter 3.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.modelling.solve_model import Stopped, check_stop
from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.definition.problem import held_samples, replica_samples
from formulations.stage_graph.kernels.pricing import FULL, STOPPED, Labels, Steps, label
from formulations.stage_graph.models.generation.label_order import walk_over
from formulations.stage_graph.upsets.branches import largest
from solvers.outcome import Watch

#: Labels in all: a tenth of a gigabyte. Of one state so many are exact.
_LABELS, _MOST = 4_000_000, 2_000
#: What sums are off in another order, relatively.
_ROUNDING = 1e-11

Floats = NDArray[np.float64]


class Kind(NamedTuple):
    """Of a stage: its devices, samples of a micro-batch, samples held on a device; ``is_last``: no edge leaves it."""

    devices: int
    size: int
    held: int = 0
    is_last: bool = False


def kinds(costs: Costs, sizes: Sequence[int], devices: int) -> Iterator[Kind]:
    """What the stages on so many devices can be, with micro-batches of any of these sizes.

    Time is that of sizes that divide no other one, which are never slower; what is held is the least of any. Nothing
    is where everything would fit.
    """
    instance = costs.instance
    fitting = [size for size in sizes if size >= devices]
    last, other = (
        min((held_samples(instance.minibatch, b, devices, count * b) for b in fitting), default=0) for count in (1, 2)
    )
    sums = costs.sums(costs.everything)
    sent = sum(edge.bytes_per_sample for edge in instance.edges)
    if instance.weight_copies * sums.weight_bytes + other * (sums.kept_bytes + sent) <= instance.memory_bytes:
        last = other = 0
    for size in largest(fitting):
        yield Kind(devices, size, other)
        if last < other:
            yield Kind(devices, size, last, is_last=True)


class Priced(NamedTuple):
    """The most that a stage of some kind is worth, at least, and some sets of operators that are worth as much."""

    worth: float
    sets: Sequence[int]


class Amounts(NamedTuple):
    """Of each step seconds per sample and bytes on a device; seconds per sample that a stage waits whatever it has."""

    takes: Floats
    holds: Floats
    waiting: float


class Pricing:
    """The stages of an instance within ``target_s`` seconds per sample, which may be set anew.

    `formulations.modelling.solve_model.Stopped` is raised wherever the watch is found stopped.
    """

    def __init__(self, costs: Costs, watch: Watch) -> None:
        self.costs, self.watch = costs, watch
        self.walk = walk_over(costs.instance, watch)
        self.target_s, self.room = 0.0, costs.instance.memory_bytes * (1 + _ROUNDING)
        self._flag = np.frombuffer(watch.flag, np.uint8)
        taken, held, gained = np.empty((3, _LABELS))
        parent, by = np.empty((2, _LABELS), np.int32)
        self._labels = Labels(np.zeros(len(self.walk.start), np.int64), taken, held, gained, parent, by)
        self._most, self._amounts = _MOST, dict[Kind, Amounts]()

    def best(self, prices: Floats, kind: Kind) -> Priced:
        """The stages of a kind that are worth the most, ``prices`` being those of each operator, at least 0."""
        self._label(prices, kind)
        begin, end = self._labels.first[-2:].tolist()
        if begin == end:
            return Priced(0.0, [])
        gained = self._labels.gained[begin:end]
        sets = [self._set(begin + int(number)) for number in np.argsort(-gained, kind="stable")[:3]]
        return Priced(float(gained.max()) * (1 + _ROUNDING), [nodes for nodes in sets if nodes])

    def sets(self, prices: Floats, kind: Kind, least: float, most: int) -> set[int] | None:
        """All sets of operators (and perhaps others) that stages of a kind may have and are worth so much at least.

        ``None`` if the walk has more than ``most`` of them at once. From the end of the walk back to its beginning, as
        far as some label of a state makes up for what is missing.
        """
        capacity, steps, walk = self._label(prices, kind), self._steps(prices, kind), self.walk
        least = least * (1 - _ROUNDING) - _ROUNDING
        found = {(len(walk.start) - 2, 0): (0.0, 0.0, 0.0)}
        while found and next(iter(found))[0]:
            check_stop(self.watch)
            earlier: dict[tuple[int, int], tuple[float, float, float]] = {}
            for (state, nodes), (taken, held, gained) in found.items():
                for step in range(walk.start[state], walk.start[state + 1]):
                    tail, gain = int(walk.tail[step]), gained + steps.worth[step]
                    take, hold = taken + steps.takes[step], held + steps.holds[step]
                    if self._most_gain(tail, capacity - take, self.room - hold) >= least - gain:
                        joined = nodes | 1 << int(walk.operator[step]) if walk.inside[step] else nodes
                        earlier[tail, joined] = take, hold, gain
            found = earlier
            if len(found) > most:
                return None
        return {nodes for _, nodes in found} - {0}

    def _most_gain(self, state: int, capacity: float, room: float) -> float:
        """The most that a label of a state has gained within what is left; ``-inf`` if there is none."""
        labels = self._labels
        begin, end = labels.first[state], labels.first[state + 1]
        end = begin + np.searchsorted(labels.taken[begin:end], capacity, side="right")
        gained = labels.gained[begin:end][labels.held[begin:end] <= room]
        return float(gained.max(initial=-np.inf))

    def amounts(self, kind: Kind) -> Amounts:
        """What the steps of the walk take and hold in a stage of a kind."""
        if kind not in self._amounts:
            instance, walk, samples = self.costs.instance, self.walk, replica_samples(kind.size, kind.devices)
            waiting = self.costs.all_reduce(0, kind.devices)
            seconds = [
                self.costs.compute_s(1 << v, samples) / kind.size
                + (self.costs.all_reduce(1 << v, kind.devices) - waiting) / instance.minibatch
                for v in range(instance.num_operators)
            ]
            moved = walk.cut_bytes * samples / instance.bandwidth_bytes_per_s + walk.cut_edges * instance.latency_s
            takes = walk.inside * np.array(seconds)[walk.operator] + 2 * moved / kind.size
            if kind.is_last:
                takes[walk.outgoing] = np.inf
            operators = instance.operators
            own = [instance.weight_copies * o.weight_bytes + kind.held * o.activation_bytes for o in operators]
            holds = walk.inside * np.array(own)[walk.operator] + kind.held * walk.incoming
            if not kind.held:
                holds[:] = 0.0
            self._amounts[kind] = Amounts(takes, holds, waiting / instance.minibatch)
        return self._amounts[kind]

    def _steps(self, prices: Floats, kind: Kind) -> Steps:
        walk, found = self.walk, self.amounts(kind)
        return Steps(walk.start, walk.tail, found.takes, found.holds, walk.inside * prices[walk.operator])

    def _label(self, prices: Floats, kind: Kind) -> float:
        """Lay out the labels; the seconds that they share, below 0 if a stage waits longer than that: then none."""
        capacity = self.target_s * (1 + _ROUNDING) - self.amounts(kind).waiting
        steps, found = self._steps(prices, kind), FULL
        if capacity < 0.0:
            self._labels.first[:] = 0
            return capacity
        while found == FULL:
            found = label(steps, capacity, self.room, self._most, self._labels, self._flag)
            self._most = max(1, self._most // 4) if found == FULL else self._most
        if found == STOPPED:
            raise Stopped
        return capacity

    def _set(self, number: int) -> int:
        """The operators of a label."""
        nodes = 0
        while number > 0:
            step = self._labels.by[number]
            nodes |= int(self.walk.inside[step]) << int(self.walk.operator[step])
            number = self._labels.parent[number]
        return nodes
