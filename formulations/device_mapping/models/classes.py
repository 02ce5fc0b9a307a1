"""Classes of bandwidth: where nodes can be, and which combinations of classes a target forbids.

Shared by the models of both solvers (`cpsat`, `milp`).
"""

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from formulations.device_mapping.data.arrays import Arrays, Floats, with_slack

#: The level models take so many distinct bandwidths as they are.
FEW_LEVELS = 24
#: Otherwise they are rounded up to so many.
_ROUNDED = 12
#: More forbidden combinations at one stage than this are not modelled.
MAX_COMBINATIONS = 4000
#: So many are tried.
_MAX_CHOICES = 50_000


@dataclass(frozen=True)
class Places:
    """Where nodes can be.

    ``capacity[p]`` nodes fit at place p. ``speed[p, q]`` is the best bandwidth between a device of p and one of q; on
    the diagonal between two of p (0 where there is one). ``ring_speed[p]`` is the fastest a ring of R devices of p can
    be (infinite: not known). ``orbit[p]`` is the least place that a symmetry can exchange p with.
    """

    capacity: tuple[int, ...]
    speed: Floats
    ring_speed: Floats
    orbit: tuple[int, ...]
    interchangeable: bool = False

    @property
    def single(self) -> bool:
        """Whether each place is one device."""
        return max(self.capacity) == 1

    def speeds(self, arrays: Arrays) -> Floats:
        """The bandwidths of the classes, descending."""
        found = [self.speed[self.speed > 0]]
        if arrays.has_rings:
            found.append(self.ring_speed[np.isfinite(self.ring_speed) & (self.ring_speed > 0)])
        return np.unique(np.concatenate(found))[::-1]

    def neighbours(self, speed: float) -> list[list[int]]:
        """Places that links of a bandwidth or faster ones lead to, from each place; none if they lead everywhere."""
        near = self.speed >= speed
        everywhere = near.sum() >= len(near) * (len(near) - 1) and self.single
        return [] if everywhere else [np.nonzero(row)[0].tolist() for row in near]


def devices_as_places(arrays: Arrays, orbit: Sequence[int] | None = None) -> Places:
    """Every device a place."""
    count = arrays.num_devices
    return Places((1,) * count, arrays.speed, np.full(count, np.inf), tuple(orbit or range(count)))


class TooManyError(Exception):
    """A model would have more constraints than can be built."""


class Cuts:
    """The least forbidden combinations of classes at each stage, and the classes that they speak of.

    A clause is a list of (part, k): one of these parts has class k or faster. Parts are edges' numbers, and -1 the
    ring.
    """

    def __init__(self, arrays: Arrays, levels: Floats, target: float) -> None:
        self.clauses: list[list[list[tuple[int, int]]]] = []
        self.impossible: list[bool] = []
        self._last = len(levels) - 1
        for stage in range(arrays.num_stages):
            parts = [(-1, float(arrays.ring[stage]))] if arrays.ring[stage] > 0 else []
            parts += [(number, volume) for number, volume in arrays.incident[stage]]
            costs = [[volume / level for level in levels] for _, volume in parts]
            left = with_slack(target) - float(arrays.compute[stage])
            if len(levels) ** max(0, len(parts) - 1) > _MAX_CHOICES:
                raise TooManyError(f"stage {stage} has more than {_MAX_CHOICES} combinations of bandwidths")
            found = list(itertools.islice(least_violating(costs, left), MAX_COMBINATIONS + 1))
            if len(found) > MAX_COMBINATIONS:
                raise TooManyError(f"stage {stage} forbids more than {MAX_COMBINATIONS} combinations of bandwidths")
            self.impossible.append(any(not any(combination) for combination in found))
            self.clauses.append(
                [[(part, k - 1) for (part, _), k in zip(parts, each, strict=True) if k] for each in found if any(each)]
            )
        spoken = [{(part, level) for clause in clauses for part, level in clause} for clauses in self.clauses]
        self.ring_classes = [tuple(sorted(level for part, level in each if part < 0)) for each in spoken]
        self.edge_classes = [
            tuple(sorted({level for each in spoken for part, level in each if part == number}))
            for number in range(len(arrays.edges))
        ]


def least_violating(costs: Sequence[Sequence[float]], left: float) -> Iterator[tuple[int, ...]]:
    """All componentwise least choices of one cost of each (ascending) list whose sum exceeds ``left``."""
    if not costs:
        if left < 0:
            yield ()
        return
    *heads, tail = costs

    def exceeding(spent: float) -> int:
        return bisect.bisect_right(tail, left - spent)

    for choice in itertools.product(*(range(len(head)) for head in heads)):
        spent = sum(head[k] for head, k in zip(heads, choice, strict=True))
        last = exceeding(spent)
        if last == len(tail):
            continue
        if all(exceeding(spent - head[k] + head[k - 1]) > last for head, k in zip(heads, choice, strict=True) if k):
            yield (*choice, last)


def round_up_speeds(arrays: Arrays, count: int = _ROUNDED) -> Arrays:
    """The same instance with bandwidths rounded up to a few of them, more among the fast ones: a relaxation."""
    if not len(arrays.levels):
        return arrays
    steps = 1 - np.linspace(0, 1, count) ** 2
    levels: Floats = np.unique(arrays.levels[::-1][(steps * (len(arrays.levels) - 1)).astype(int)])
    up = levels[np.minimum(np.searchsorted(levels, arrays.speed), len(levels) - 1)]
    return replace(arrays, speed=np.where(arrays.speed > 0, up, 0.0))
