"""Layouts of several chunks on a device: branch and bound over the ways to fill each device.

With fixed orders an iteration is the longest path of one graph, and each path a sum over chunks. A layout is one of the
`device_ways` of each device, so it takes no less than the best mixture of them (`device_program`) by the paths so far;
the longest path of that mixture is the next one. A way whose reduced cost lifts the bound above the time that is aimed
at is in no layout below that time, and is left out.

The first times are halfway between the bound and what is not refuted yet: where all ways together, of which few are
left then, take as long, that is the next bound. Then it is the best plan's less one part in a hundred, and at last the
best plan's.

Source: cutting planes (Kelley 1960), also halfway to the best point (Ben-Ameur and Neto 2007); times that are refuted
(destructive bounds: Klein and Scholl 1999); this use: this project.
"""

import heapq
import math
from itertools import count, islice, pairwise
from typing import NamedTuple

import numpy as np

from formulations.training_strategy.costs import BOUND_NOISE, Choice, Table, plan_of
from formulations.training_strategy.device_program import DeviceProgram, Left
from formulations.training_strategy.device_ways import Numbers, Runs, device_ways
from formulations.training_strategy.fixed_orders import Path
from formulations.training_strategy.layouts import NOISE, Search
from solvers.outcome import Limits

#: What is aimed at once bounds are near, as a part of the best plan's time; without a plan a multiple of the bound.
_NEAR, _BEYOND = 0.991, 1.5
#: A bound so near to the time that is aimed at counts as that: proofs need 1e-6.
_CLOSE = 2e-7
#: What a longest path may be longer than its bound before a node branches, and points that are looked at for that.
_LOOSE, _MOST_POINTS = 1e-3, 40
#: Nodes of a turn.
_TURN = 10
#: Parts of a way below this are none.
_NOTHING = 1e-6


class _Node(NamedTuple):
    """A bound on layouts of the ways that are left, and those of one device that one of two branches has of it."""

    bound: float
    serial: int
    left: Left
    part: Numbers


class DeviceSearch:
    """Layouts at given degrees that are faster than the best plan, if the ways to fill devices are few enough.

    ``bound`` holds for all layouts that are no plan so far; the first one is another search's.
    """

    def __init__(self, given: Search, limits: Limits) -> None:
        self.given, self.limits, self.bound = given, limits, given.bound
        self.layouts, self.best, self.orders = given.layouts, given.best, given.orders
        self.turns = 0
        self._runs, self._paths, self._serial = Runs(given.layouts.chain), dict.fromkeys(given.device_paths), count()
        self._open: list[_Node] = []
        self._root: Left | None = None
        #: The least time at which all ways together were not refuted.
        self._open_at = math.inf
        #: Else the search that was given goes on, with the bound of this one.
        self.is_small = self._aim()

    @property
    def is_done(self) -> bool:
        """Whether no layout is left that is faster than the best plan by more than a proof allows."""
        return self.bound >= self.best.time * (1 - 2 * _CLOSE)

    @property
    def given_up(self) -> float:
        """A bound on layouts that were not looked at, once this is done."""
        return self.bound if self.is_done else math.inf

    @property
    def _below(self) -> float:
        """Layouts that take so long are of no interest."""
        return min(self._aimed, self.best.time * self._part_of_best) * (1 - _CLOSE)

    def _aim(self) -> bool:
        """Aim at the next time, with all ways below it; whether these are few enough."""
        time, longest = self.best.time, self._longest
        self._part_of_best = _NEAR if self.bound < time * _NEAR * (1 - 2 * _CLOSE) else 1.0
        self._aimed = min(self.bound * _BEYOND, longest) if math.isinf(time) else time * self._part_of_best
        most = min(self._open_at, time)
        self._refutes = self.bound < most * _NEAR < math.inf
        if self._refutes:
            self._aimed = (self.bound + most) / 2
        if math.isinf(time) and self.bound >= longest * (1 - 2 * _CLOSE):
            self.bound = math.inf
            return True
        ways = device_ways(self.layouts, self._runs, self._aimed) if self._aimed > 0 else None
        if ways is None:
            self.given.bound = max(self.given.bound, self.bound)
            return False
        self._ways = ways
        self._of_device = [np.flatnonzero(ways.device == i) for i in range(self.layouts.degrees.p)]
        self._root, self._open = None, []
        if all(map(len, self._of_device)):
            self._program = DeviceProgram(self.layouts, self._runs, ways, self._aimed, self.limits, self.best.watch)
            for path in self._paths:
                self._program.add(path)
            layers, again = ways.counts.sum(axis=2), ways.again
            # What nodes branch by: what a device holds, what it recomputes, the same of each chunk, single ways.
            self._by = [[layers.sum(axis=1)], [again.sum(axis=1)], [*layers.T, *again.T], [np.arange(len(layers))]]
            self._root = np.ones(len(layers), dtype=bool)
        return True

    @property
    def _longest(self) -> float:
        """No layout takes as long: all of its passes and sums one after the other, with all recomputation, and more."""
        chain, degrees = self.layouts.chain, self.layouts.degrees
        again = math.fsum(max(way.again for way in ways) for ways in chain.ways)
        sums = float(chain.behind(degrees)[0, -1] + chain.summed[0, -1])
        return 2 * (degrees.m * (3 * degrees.num_chunks * float(self.layouts.forward.max()) + again) + sums)

    def turn(self) -> None:
        """A plunge from the least bound, and the nodes of least bounds."""
        self.turns += 1
        nodes, node, plunges = 0, None, True
        if self._root is not None:
            self._push(self._solve(self._root, self.bound))
            self._root = None
            if self._open and self._refutes:
                self.bound, self._open_at = max(self.bound, self._open[0].bound), self._aimed
                self.is_small = self._aim()
                return
        while not self.best.watch.stopped() and (node is not None or (self._open and nodes < _TURN)):
            node = heapq.heappop(self._open) if node is None else node
            nodes += 1
            device = self._ways.device[node.part[0]]
            with_part, without = node.left & (self._ways.device != device), node.left.copy()
            with_part[node.part], without[node.part] = True, False
            found = [self._solve(left, node.bound) for left in (with_part, without)] if node.bound < self._below else []
            children = sorted(each for each in found if each is not None)
            plunges &= bool(children)
            node = children.pop(0) if plunges else None
            for each in children:
                self._push(each)
        self._push(node)
        self.bound = max(self.bound, min(self._below, self._open[0].bound if self._open else math.inf))
        if not self._open and not self.best.watch.stopped() and not self.is_done:
            self.is_small = self._aim()

    def _push(self, node: _Node | None) -> None:
        if node is not None and node.bound < self._below:
            heapq.heappush(self._open, node)

    def _solve(self, left: Left, bound: float) -> _Node | None:
        """Bound layouts of the ways that are left, and look where to branch; ``None``: there are none of interest."""
        program, unit, inner, least = self._program, self._aimed, None, math.inf
        number = len(self._ways.device)
        for _ in range(_MOST_POINTS):
            solved = program.run(left)
            if solved is None:
                return self._node(bound, left, None)
            bound = max(bound, solved.bound * unit * (1 - BOUND_NOISE))
            if bound >= self._below:
                return None
            dead = left & (solved.bound + solved.reduced[:number] >= self._below / unit)
            left = left & ~dead
            values = solved.values
            chosen = self._chosen(values, left | dead)
            if values[chosen].min() > 1 - _NOTHING:
                if self._simulate(chosen):
                    continue
                return self._node(bound, left, values, chosen)
            is_new = False
            for point in (values,) if inner is None else ((inner + values) / 2, values):
                time, path = self.orders.run(program.times(point))
                is_new = self._learn(path)
                total = time + unit * float(point[program.behind])
                if total < least:
                    least, inner = total, point
            if not dead.any() and (not is_new or time <= unit * float(values[program.path]) + _LOOSE * bound):
                break
        self._simulate(chosen)
        return self._node(bound, left, values)

    def _chosen(self, values: Table, left: Left) -> Numbers:
        """The way of each device that has the largest part."""
        return np.array([own[np.where(left[own], values[own], -1.0).argmax()] for own in self._of_device])

    def _node(self, bound: float, left: Left, values: Table | None, chosen: Numbers | None = None) -> _Node | None:
        """Where to branch: as a device is filled in two ways, else one of all that are left, else nowhere."""
        part = None if values is None or chosen is not None else self._split(values, left)
        if part is None:
            own = max((each[left[each]] for each in self._of_device), key=len)
            if not len(own):
                return None
            if len(own) == 1:
                self._simulate(np.array([each[left[each]][0] for each in self._of_device]))
                return None
            part = own[: len(own) // 2]
            if chosen is not None and np.isin(own, chosen).any():
                part = own[np.isin(own, chosen)]
        return _Node(bound, next(self._serial), left, part)

    def _split(self, values: Table, left: Left) -> Numbers | None:
        """Ways of a device that hold or recompute no more than its mixture on average, which has more of others."""
        for group in self._by:
            found: Numbers | None = None
            score = _NOTHING
            for quantity in group:
                for device in self._of_device:
                    own = device[left[device]]
                    parts, amounts = values[own], quantity[own]
                    used = amounts[parts > _NOTHING]
                    if not len(used) or np.ptp(used) <= NOISE * abs(used).max():
                        continue
                    below = amounts <= used[used <= max(used.min(), parts @ amounts / parts.sum())].max()
                    share = min(parts[below].sum(), parts[~below].sum())
                    if share > score and not below.all():
                        found, score = own[below], share
            if found is not None:
                return found
        return None

    def _learn(self, path: Path) -> bool:
        """Whether a path is new."""
        if path in self._paths:
            return False
        self._paths[path] = None
        self._program.add(path)
        return True

    def _simulate(self, chosen: Numbers) -> bool:
        """Simulate the layout of one way for each device, if it is one; whether its longest path is new."""
        layouts, runs, ways = self.layouts, self._runs, self._ways
        chain, degrees = layouts.chain, layouts.degrees
        S, L = degrees.num_chunks, len(chain.ids)
        counts, again, option = np.zeros((S, len(runs.sizes)), int), [0.0] * S, [0] * S
        for way, own in zip(chosen.tolist(), degrees.held, strict=True):
            for k, g in enumerate(own):
                counts[g], again[g] = ways.counts[way, k], float(ways.again[way, k])
                option[g] = int(ways.option[way, k])
        ends = counts.sum(axis=1).cumsum().tolist()
        if ends[-1] != L or (runs.before[ends] != counts.cumsum(axis=0)).any():
            return False
        time, path = chain.batch(degrees, ends, again)
        self.best.simulated += 1
        if time < self.best.time * (1 - NOISE):
            kept = [
                next(islice(chain.options(*chunk), k, None))
                for chunk, k in zip(pairwise((0, *ends)), option, strict=True)
            ]
            choices = [Choice((), tuple(way.id for g in own for way in kept[g])) for own in degrees.held]
            self.best.improve(time, plan_of(chain, degrees, ends, choices))
        return self._learn(path)
