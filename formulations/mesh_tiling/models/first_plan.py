"""What the declarative models begin with: regular tilings, their stages ordered by the nearest tile and then by moves.

Source: the usual construction and neighbourhoods of travelling salesmen; made for this project.
"""

import random
from collections.abc import Iterator
from itertools import pairwise, takewhile

from formulations.mesh_tiling.definition.problem import evaluate
from formulations.mesh_tiling.paper import random_tiling
from formulations.mesh_tiling.placements import Placements, regular_tilings
from formulations.modelling.warm_start import First
from solvers.outcome import Limits, Watch

#: A move must save more than this part of what an order sends.
_NOISE = 1e-12


def first_plan(places: Placements, limits: Limits) -> First:
    """The best of the regular tilings; of a random one where there is none."""

    def find(watch: Watch) -> None:
        rng = random.Random(limits.seed)
        tilings: list[list[int] | None] = [*regular_tilings(places)]
        for tiling in tilings or [random_tiling(places, rng, watch)]:
            if tiling is None or watch.stopped():
                return
            order = _Order(places, watch).best(tiling) if places.instance.ordered else tiling
            plan = places.plan(order)
            watch.plan(plan, evaluate(places.instance, plan))

    return First("regular tiling, reordered", find)


class _Order:
    def __init__(self, places: Placements, watch: Watch) -> None:
        self.kinds, self.sending, self.watch = places.kinds, places.send_times(), watch

    def best(self, tiling: list[int]) -> list[int]:
        """From the nearest neighbours of the best first tile, moves until none helps or the watch is stopped."""
        of_kind = {self.kinds[place]: place for place in tiling}
        order = min((self._nearest(tiling, first) for first in of_kind.values()), key=self._seconds)
        while (better := self._better(order)) is not None:
            order = better
        return order

    def _better(self, order: list[int]) -> list[int] | None:
        most = self._seconds(order) * (1 - _NOISE)
        moved = takewhile(lambda _: not self.watch.stopped(), _moves(order))
        return next((each for each in moved if self._seconds(each) < most), None)

    def _nearest(self, tiling: list[int], first: int) -> list[int]:
        order, left = [first], set(tiling) - {first}
        while left:
            here = self.kinds[order[-1]]
            after = min(left, key=lambda place: (self.sending[here, self.kinds[place]], place))
            order.append(after)
            left.remove(after)
        return order

    def _seconds(self, order: list[int]) -> float:
        return sum(self.sending[self.kinds[a], self.kinds[b]] for a, b in pairwise(order))


def _moves(order: list[int]) -> Iterator[list[int]]:
    """One tile moved to another place in the order, or a part of the order reversed."""
    for here in range(len(order)):
        rest = order[:here] + order[here + 1 :]
        for there in range(len(order)):
            if there != here:
                yield [*rest[:there], order[here], *rest[there:]]
    for start in range(len(order)):
        for end in range(start + 2, len(order) + 1):
            yield order[:start] + order[start:end][::-1] + order[end:]
