"""The linear program that mixes ways to fill devices: the least longest path so far, and sums of gradients behind it.

Source: ways as columns of Dantzig and Wolfe (1960), paths as rows of Kelley (1960); this use: this project.
"""

from itertools import count
from typing import Any

import numpy as np

from formulations.training_strategy.costs import Table
from formulations.training_strategy.device_ways import Numbers, Runs, Ways
from formulations.training_strategy.fixed_orders import Path
from formulations.training_strategy.layouts import Layouts
from solvers.milp.cutting_planes import Row, Rows, Solved
from solvers.outcome import Limits, Watch

#: Which ways are left.
Left = np.ndarray[Any, np.dtype[np.bool_]]
#: What a layer costs that no way holds, or that comes before an earlier one: in units of the program.
_DEAR = 16.0


class DeviceProgram:
    """Ways of each device in parts that sum to 1; times are in units of ``unit``.

    Besides parts of ways there are, by chunk, layers of each run (`layers`) and recomputation (`again`); whether a run
    ends with a chunk or before (`ended`); what of the first chunk's sum is `exposed`; the longest `path`, and sums of
    gradients `behind` it. What is missing of a run, too much, or out of order is dear.
    """

    def __init__(self, layouts: Layouts, runs: Runs, ways: Ways, unit: float, limits: Limits, watch: Watch) -> None:
        self.layouts, self.runs, self.ways, self.unit = layouts, runs, ways, unit
        chain, degrees = layouts.chain, layouts.degrees
        S, R, C = degrees.num_chunks, len(runs.sizes), len(ways.device)
        place = count(C)
        self.layers = np.array([[next(place) for _ in range(R)] for _ in range(S)])
        self.again = np.array([next(place) for _ in range(S)])
        self.ended = np.array([[next(place) for _ in range(R - 1)] for _ in range(S - 1)], int).reshape(S - 1, R - 1)
        self.exposed, self.path, self.behind = (next(place) for _ in range(3))
        short, long, unordered = ([next(place) for _ in range(R)] for _ in range(3))
        N = next(place)
        self.upper, self.most = np.full(N, np.inf), np.ones(N)
        self.upper[:C] = 1.0
        self.upper[self.layers] = self.most[self.layers] = runs.sizes
        self.upper[self.ended] = 1.0
        dear = [*short, *long, *unordered]
        self.most[dear] = 0.0  # in a layout nothing is missing
        costs = np.zeros(N)
        costs[[self.path, self.behind]], costs[dear] = 1.0, _DEAR
        self._times()
        rows: list[Row] = []
        owner = np.array(degrees.devices)
        within = {g: own.index(g) for own in degrees.held for g in own}
        of_device = [np.flatnonzero(ways.device == i) for i in range(degrees.p)]
        rows += [(own, np.ones(len(own)), 1.0, 1.0) for own in of_device]
        for g in range(S):
            own, k = of_device[owner[g]], within[g]
            for r in range(R):
                rows.append(_equal(own, ways.counts[own, k, r], int(self.layers[g, r])))
            rows.append(_equal(own, ways.again[own, k] / unit, int(self.again[g])))
            if g == 0 and chain.overlaps:
                ends = ways.counts[own, 0].sum(axis=1)
                rows.append(_equal(own, layouts.exposed[ends - 1] / unit, self.exposed))
        for r, size in enumerate(runs.sizes):
            rows.append(([*self.layers[:, r], short[r], long[r]], [*[1.0] * (S + 1), -1.0], size, size))
        for g, r in np.ndindex(*self.ended.shape):
            ended, own = int(self.ended[g, r]), of_device[owner[g]]
            begins = own[ways.counts[own, within[g], r + 1 :].any(axis=1)]
            rows.append(([ended, *begins], [1.0, *[-1.0] * len(begins)], 0.0, np.inf))
            before = [*self.layers[: g + 1, r], ended, unordered[r]]
            rows.append((before, [*[1.0] * (g + 1), -float(runs.sizes[r]), 1.0], 0.0, np.inf))
            later = ([self.ended[g + 1, r]] if g < S - 2 else []) + ([self.ended[g, r - 1]] if r else [])
            rows += [([each, ended], [1.0, -1.0], 0.0, np.inf) for each in later]
        gradients = runs.of(chain.behind(degrees)) / unit
        for chunks in degrees.held:
            places = [self.behind, *self.layers[list(chunks)].ravel()]
            rows.append((places, [1.0, *np.tile(-gradients, len(chunks))], 0.0, np.inf))
        self.rows = Rows(costs, rows, limits, watch)

    def _times(self) -> None:
        """Times of a micro-batch in each chunk, and its sum of gradients beside passes, as factors of variables.

        Of edges those between neighbours alone. Where a cut may be one of two, it is the cheaper one.
        """
        chain, degrees, runs, N = self.layouts.chain, self.layouts.degrees, self.runs, len(self.upper)
        S, R = self.layers.shape
        step, weight, summed = (np.zeros((S, N + 1)) for _ in range(3))  # the last is what does not depend on them
        for g in range(S):
            step[g, self.layers[g]] = chain.time[runs.first]
            summed[g, self.layers[g]] = degrees.share * runs.of(chain.summed)
            if chain.weight_times is not None:
                weight[g, self.layers[g]] = chain.weight_times[runs.first]
        for g in range(S - 1):
            if degrees.is_vee and degrees.devices[g] == degrees.devices[g + 1]:
                continue
            for chunk, number in ((g + 1, 2), (g, 3)):
                of_cut = chain.transfer_times(number)
                inside = [of_cut[first + 1 : first + size] for first, size in zip(runs.first, runs.sizes, strict=True)]
                # Runs before r have ended, and r has not.
                cheapest = [min([*of_cut[[runs.first[r]]][: r > 0], *inside[r]], default=0.0) for r in range(R)]
                if R > 1 and runs.sizes[0] == 1:
                    cheapest[0] = cheapest[1]
                step[chunk, -1] += cheapest[0]
                step[chunk, self.ended[g]] += np.diff(cheapest)
        if degrees.is_split and chain.weight_times is None:
            weight = step / 3
        backward = 2 * step / 3 - weight * degrees.is_split
        backward[np.arange(S), self.again] = self.unit
        exposed = np.zeros((S, N + 1))
        exposed[0, self.exposed] = self.unit
        #: In the order of `Path`.
        self.factors = [each / self.unit for each in (step / 3, backward, weight * degrees.is_split, summed, exposed)]

    def times(self, values: Table) -> list[list[float]]:
        """Of a mixture, in the order of `Path`."""
        point = np.append(values, 1.0)
        return [np.maximum(each @ point, 0.0).tolist() for each in self.factors]

    def add(self, path: Path) -> None:
        """Count a path among those that an iteration is no shorter than."""
        found = np.sum([own @ factors for own, factors in zip(map(np.array, path), self.factors, strict=True)], axis=0)
        places = np.flatnonzero(found[:-1])
        self.rows.add([self.path, *places], [1.0, *-found[places]], float(found[-1]))

    def run(self, left: Left) -> Solved | None:
        """The best mixture of the ways that are left."""
        upper = self.upper.copy()
        upper[: len(self.ways.device)] = left
        return self.rows.run(upper, self.most)


def _equal(places: Numbers, factors: Table, place: int) -> Row:
    """A sum of parts of ways is a variable."""
    used = factors != 0
    return [*places[used], place], [*factors[used], -1.0], 0.0, 0.0
