"""Annealing towards targets far below the best mapping, from it and from anywhere, as long as there is time.

`near` lowers the target a little each time, which stays in a local optimum's neighbourhood. Here a target lies half-way
between the best bound and the best mapping, and every third try starts from a random mapping; a target that is missed
still leaves a good mapping behind. Tries have fixed numbers of moves, so the mappings found repeat for a seed as long
as the bounds do. Source: this project.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from formulations.compiled.kernel_deadline import alarm
from formulations.device_mapping.annealing import near
from formulations.device_mapping.data.arrays import arrays
from formulations.device_mapping.data.costs import single_bound, tables
from formulations.device_mapping.definition.problem import evaluate
from instances.problems.device_mapping import DeviceMapping
from solvers.outcome import Watch

#: Moves of the first tries for each device, their growth once targets are as close as `_CLOSE`, and their most.
_MOVES_PER_DEVICE, _GROWTH, _MAX_MOVES = 6_000, 1.5, 20_000_000
_CLOSE = 3e-4
#: Relative temperatures, and parts of a try.
_HOT, _COLD, _PARTS = 0.02, 0.0005, 10
#: Of so many tries one starts anywhere.
_FRESH = 3


class _FarSearch(near._Search):
    """A search with targets of its own."""

    def run_deep(self, tries: int | None) -> None:
        """So many tries (``None``: until the watch stops or the bound is met)."""
        random = np.random.default_rng(self.seed)
        moves, floor, done = _MOVES_PER_DEVICE * len(self.layout.device), 0.0, 0
        while (tries is None or done < tries) and not self.watch.stopped():
            low = max(floor, self.bound, self.watch.best_bound or 0.0)
            if self.best <= low * (1 + 1e-9):
                if floor < low:
                    return
                floor = 0.0
                continue
            done += 1
            target = low + (self.best - low) / 2
            self._try(target, moves, random.permutation(len(self.layout.device)) if done % _FRESH == 0 else self.kept)
            if self.best > target:
                floor = target
                if self.best - target < _CLOSE * self.best:
                    floor, moves = 0.0, min(_MAX_MOVES, int(moves * _GROWTH))

    def _try(self, target: float, moves: int, start: Any) -> None:
        before = self.best
        self.tries += 1
        self._begin_at(start)
        for hot, cold in pairwise(target * _HOT * (_COLD / _HOT) ** (np.arange(_PARTS + 1) / _PARTS)):
            self._part(target, float(hot), float(cold), moves // _PARTS)
            if self.best <= target or self.watch.stopped():
                break
        if self.best < before:
            plan = self.plan()
            self.watch.plan(plan, evaluate(self.instance, plan))


def search(instance: DeviceMapping, seed: int, part: Watch, tries: int | None = None) -> None:
    """Report mappings to the watch, from its best one on, until it stops, or for so many tries."""
    if instance.num_devices == 1:
        return
    table = tables(instance)
    start = part.incumbent()[0] or near.first_mapping(instance, table, seed, part)[0]
    with alarm(part):
        _FarSearch(instance, table, start, seed, single_bound(arrays(instance)), part).run_deep(tries)
