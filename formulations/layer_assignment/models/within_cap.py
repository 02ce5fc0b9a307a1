"""CP-SAT's model of the cheapest sending within a cap on the slowest stage: all its rows are implications.

``begun[j, l]`` is 1 if stage j begins at layer l or before. That no stage is slower than the cap is then said by pairs:
if stage j has begun at layer l, the next one has where stage j would be too slow. Nothing but pairs, so the linear
relaxation is exact (the cost is that of a minimum cut), and CP-SAT proves it at its root.

Source: reconstructed; the cap is that of AMP, section 6.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.memory_budget import demand
from formulations.layer_assignment.models.threshold_search import Cheapest
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Run, Stop, Watch


class WithinCap:
    """The instance in whole units: seconds of the first c layers, and what a cut before layer l costs stage j.

    ``times`` has shape (L,), ``cuts[j - 1][l]`` is for stages j = 1 to S - 1; ``weight`` is N - 1.
    """

    def __init__(self, times: list[int], cuts: list[list[int]], weight: int, limits: Limits, watch: Watch) -> None:
        self.elapsed = np.array([0, *accumulate(times)], np.int64)
        self.cuts, self.weight = cuts, weight
        self.num_stages = len(cuts) + 1
        self.limits, self.watch = limits, watch
        #: Variables and constraints of the largest model so far.
        self.size = (0, 0)

    def caps(self, most: float) -> NDArray[np.int64]:
        """What waiting for the slowest stage may cost, ascending, if less than ``most``.

        It is the time of some interval of layers, and no less than the average stage's or the slowest layer's.
        """
        if not self.weight:
            return np.zeros(1, np.int64)
        elapsed = self.elapsed
        least = max(-(-int(elapsed[-1]) // self.num_stages), int(np.diff(elapsed).max()))
        below = int(min(most / self.weight, 2.0**62)) + 1
        first = np.searchsorted(elapsed, elapsed[:-1] + least, side="left")
        last = np.searchsorted(elapsed, elapsed[:-1] + min(below, 2**62 - int(elapsed[-1])), side="left")
        demand(24.0 * np.maximum(last - first, 0).sum(), "the table of caps on the slowest stage")
        times = [elapsed[a:b] - elapsed[start] for start, (a, b) in enumerate(zip(first, last, strict=True))]
        return np.unique(np.concatenate(times)) * self.weight

    def objective(self, lengths: tuple[int, ...]) -> int:
        """What an assignment costs in these units, without the sum of its stages."""
        starts = [0, *accumulate(lengths)]
        return self.waiting(starts) + self.sending(starts)

    def waiting(self, starts: list[int]) -> int:
        """What waiting for the slowest stage costs; ``starts`` are the first layers of all stages, and L."""
        return self.weight * max(int(self.elapsed[end] - self.elapsed[start]) for start, end in pairwise(starts))

    def sending(self, starts: list[int]) -> int:
        """What all cuts cost."""
        return sum(row[start] for row, start in zip(self.cuts, starts[1:-1], strict=True))

    def cheapest(self, cap: float) -> tuple[Cheapest, list[int]] | None:
        """The cheapest assignment within a cap on what waiting costs, and its first layers; ``None``: there is none."""
        windows = self._windows(int(cap) // self.weight if self.weight else int(self.elapsed[-1]))
        if windows is None:
            return None
        model = _Cuts(self, *windows)
        found: Run = cpsat.run(model.model, self.limits, self.watch, parameters=cpsat.INTEGRAL)
        if found.infeasible:
            return None
        self.size = max(self.size, (len(model.model.proto.variables), len(model.model.proto.constraints)))
        if found.stop is not Stop.PROVED or found.values is None or found.bound is None:
            return Cheapest(None, None, None), []
        starts = model.starts(found.values)
        return Cheapest(cpsat.whole(found.bound), self.waiting(starts), None), starts

    def _windows(self, cap: int) -> tuple[int, list[int], list[int]] | None:
        """The cap, and the first and the last layer at which each stage may begin; ``None`` if no assignment fits."""
        layers, stages = len(self.elapsed) - 1, self.num_stages
        if np.diff(self.elapsed).max() > cap:
            return None
        last = [0]
        for j in range(1, stages):
            last.append(min(self.end(last[-1], cap), layers - stages + j))
        first = [layers]
        for j in range(stages - 1, -1, -1):
            least = int(np.searchsorted(self.elapsed, self.elapsed[first[-1]] - cap, side="left"))
            first.append(max(least, j))
        first = first[:0:-1]
        return (cap, first, last) if all(a <= b for a, b in zip(first, last, strict=True)) else None

    def end(self, start: int, cap: int) -> int:
        """Where a stage ends at the latest that begins at a layer."""
        return int(np.searchsorted(self.elapsed, self.elapsed[start] + cap, side="right")) - 1


class _Cuts:
    """The model for one cap; stage j begins between layers ``first[j]`` and ``last[j]``."""

    def __init__(self, units: WithinCap, cap: int, first: list[int], last: list[int]) -> None:
        self.model = model = cpsat.SpokenModel()
        model.says("begun", "begun[j,l]: stage j begins at layer l or before; known outside its first and last layers")
        self.first, self.last, self.num_layers = first, last, len(units.elapsed) - 1
        self.begun = {
            (j, layer): model.new_bool_var(f"begun[{j},{layer}]")
            for j in range(1, units.num_stages)
            for layer in range(first[j], last[j])
        }
        model.says("stays_begun", "what has begun stays so: begun[j,l] <= begun[j,l+1]")
        model.says("not_empty", "stage j - 1 has a layer before stage j begins: begun[j,l] <= begun[j-1,l-1]")
        model.says(
            "within_cap",
            "a stage that begins at layer l or before ends before it takes longer than the cap: begun[j,l] <= "
            "begun[j+1,r], r the first layer for which layers l to r do [AMP, section 6.4]",
        )
        for j, layer in self.begun:
            for name, after in (
                ("stays_begun", (j, layer + 1)),
                ("not_empty", (j - 1, layer - 1)),
                ("within_cap", (j + 1, units.end(layer, cap))),
            ):
                if after in self.begun:
                    model.add(self.begun[j, layer] <= self.begun[after]).with_name(f"{name}[{j},{layer}]")
        model.minimize(sum(self._sending(units)))

    def _sending(self, units: WithinCap) -> Iterator[Any]:
        """What each cut costs: that of the layer before which its stage begins."""
        for j, row in enumerate(units.cuts, start=1):
            for layer in range(self.first[j], self.last[j] + 1):
                yield row[layer] * (self._has_begun(j, layer) - self._has_begun(j, layer - 1))

    def _has_begun(self, j: int, layer: int) -> Any:
        return self.begun.get((j, layer), int(layer >= self.last[j]))

    def starts(self, values: cpsat.Values) -> list[int]:
        """The first layers of all stages in a solution, and L."""
        found = [0]
        for j in range(1, len(self.first)):
            later = sum(1 - values[self.begun[j, layer]] for layer in range(self.first[j], self.last[j]))
            found.append(self.first[j] + later)
        return [*found, self.num_layers]
