"""Stages one after another, each a ring that a beam search finds: first mappings where links have many bandwidths.

Within a target every node has seconds left for tensors whose other ends have no device yet. With k of them it is as
hard to meet as the links that it needs are rare: k times -ln of the share of links that are fast enough. The stage that
is hardest alone comes first, then always the hardest of those next to a stage that is placed. Its ring is the one of
free devices after which the nodes that it touches are least hard to meet, of a few caps for the ring's links.

Of random links many mappings meet a target not far above what one stage needs alone. Swaps do not find them, as each
changes up to eight links at once. Source: this project.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from formulations.device_mapping.data.arrays import Arrays, Floats, Mask
from formulations.device_mapping.data.costs import node_costs

#: Partial rings that are kept, at most, and their most times the number of pairs of devices.
_BEAM, _PAIRS = 100, 3e7
#: Caps for a ring's links: shares of links that meet them, and how many of those, the likeliest, are searched.
_SHARES, _CAPS = 24, 6
#: Targets tried, how far up each is (a low one is refused soon), and the relative width of what is left that ends it.
_TARGETS, _PART, _NARROW = 20, 0.25, 1e-3


def search(arrays: Arrays, low: float, high: float, seed: int, stopped: Callable[[], bool]) -> Any:
    """Devices by stage and replica, shape (S, R), within the least target met; or ``None``.

    With no more bandwidths than devices none is looked for: such networks have an order.
    """
    if len(arrays.levels) <= arrays.num_devices:
        return None
    random, best = np.random.default_rng(seed), None
    for _ in range(_TARGETS):
        if high - low <= _NARROW * high or stopped():
            break
        target = low + (high - low) * _PART
        found = _Placing(arrays, target, random).run(stopped)
        if found is None:
            low = target
        else:
            best, high = found, target
    return best


class _Placing:
    """A mapping in the making: devices of the stages that have them (``rows``), and what their nodes have left.

    ``left[s, r]``: seconds for tensors whose other ends have no device. ``volume[s]``, ``count[s]``: their bytes and
    number. ``speeds``: the bandwidths of all pairs of devices, ascending.
    """

    def __init__(self, arrays: Arrays, target: float, random: np.random.Generator) -> None:
        self.arrays, self.target, self.random = arrays, target, random
        self.speeds = np.sort(arrays.speed[np.triu_indices(arrays.num_devices, 1)])
        self.rows: dict[int, Any] = {}
        self.left = np.zeros((arrays.num_stages, arrays.replicas))
        self.volume = [sum(volume for _, volume in edges) for edges in arrays.incident]
        self.count = [len(edges) for edges in arrays.incident]

    def run(self, stopped: Callable[[], bool]) -> Any:
        """Devices by stage and replica, or ``None``: no ring is found for a stage, or it is stopped."""
        arrays, free = self.arrays, np.ones(self.arrays.num_devices, np.bool_)
        hardest = np.argsort(-node_costs(arrays).min(axis=1), kind="stable").tolist()
        near = [{sum(arrays.edges[e][:2]) - s for e, _ in edges} for s, edges in enumerate(arrays.incident)]
        while hardest:
            stage = next((s for s in hardest if near[s] & self.rows.keys()), hardest[0])
            if stopped() or not self._place(stage, np.nonzero(free)[0]):
                return None
            free[self.rows[stage]] = False
            hardest.remove(stage)
        return np.array([self.rows[stage] for stage in range(arrays.num_stages)])

    def _place(self, stage: int, devices: Any) -> bool:
        """Whether a ring of these devices is found for the stage; if so, it is placed."""
        arrays, every = self.arrays, np.arange(self.arrays.replicas)
        placed = [
            (other, volume, volume * arrays.seconds_per_byte[np.ix_(self.rows[other], devices)])
            for e, volume in arrays.incident[stage]
            if (other := sum(arrays.edges[e][:2]) - stage) in self.rows
        ]
        number, volume = self.count[stage] - len(placed), self.volume[stage] - sum(each[1] for each in placed)
        others = np.zeros((arrays.replicas, len(devices)))
        own = arrays.compute[stage] + sum((each[2] for each in placed), others)
        for other, sent, seconds in placed:
            left = self.left[other][:, None] - seconds
            others = others + self._hardness(self.count[other] - 1, self.volume[other] - sent, left)
        spare, speed = self.target - own, arrays.speed[np.ix_(devices, devices)]
        caps = self._caps(stage, lambda ring_s: others + self._hardness(number, volume, spare - ring_s))
        found = [(*ring, ring_s) for cap, ring_s, hard in caps if (ring := self._ring(hard, speed >= cap)) is not None]
        if not found:
            return False
        _, ring, ring_s = min(found, key=lambda each: each[0])
        self.rows[stage] = devices[ring]
        self.left[stage] = spare[every, ring] - ring_s
        self.count[stage], self.volume[stage] = number, volume
        for other, sent, seconds in placed:
            self.left[other] -= seconds[every, ring]
            self.count[other], self.volume[other] = self.count[other] - 1, self.volume[other] - sent
        return True

    def _hardness(self, number: int, volume: float, left: Floats) -> Floats:
        """How hard it is to exchange so many tensors, of so many bytes in all, in what is left; infinite: none can."""
        if number == 0:
            return np.where(left >= 0, 0.0, np.inf)
        with np.errstate(divide="ignore", over="ignore"):
            needed = np.where(left > 0, volume / np.maximum(left, 1e-300), np.inf)
            return -number * np.log(1 - np.searchsorted(self.speeds, needed) / len(self.speeds))

    def _caps(self, stage: int, hardness: Callable[[float], Floats]) -> list[tuple[float, float, Floats]]:
        """Least bandwidths of the stage's ring, its seconds, ``hardness`` then; first where most rings are expected."""
        likely = []
        for share in np.geomspace(min(0.5, 2 / self.arrays.num_devices), 1.0, _SHARES):
            cap = float(self.speeds[int((1 - share) * (len(self.speeds) - 1))])
            ring_s = float(self.arrays.ring[stage] / cap)
            hard = hardness(ring_s)
            met = np.exp(-hard).mean(axis=1)
            if met.min() > 0:
                likely.append((-float(np.log(met * share).sum()), cap, ring_s, hard))
        return [each[1:] for each in sorted(likely, key=lambda each: each[:2])[:_CAPS]]

    def _ring(self, hard: Floats, fast: Mask) -> tuple[float, Any] | None:
        """Devices of a ring of fast links, with the least sum of ``hard[r, d]`` of a beam search, and that sum."""
        replicas, count = hard.shape
        beam = int(max(8, min(_BEAM, _PAIRS / self.arrays.num_devices**2)))
        first = int(np.argmin(np.isfinite(hard).sum(axis=1)))  # where the fewest devices will do
        hard = np.roll(hard, -first, axis=0) + self.random.random(hard.shape) * 1e-3
        sums, paths, used = np.zeros(1), np.zeros((1, 0), np.int64), np.zeros((1, count), np.bool_)
        for r in range(replicas):
            reached = ~used
            for end in [-1, 0][: (r > 0) + (r == replicas - 1)]:
                reached &= fast[paths[:, end]]
            longer = np.where(reached, sums[:, None] + hard[r], np.inf).ravel()
            kept = min(beam, int(np.isfinite(longer).sum()))
            if kept == 0:
                return None
            chosen = np.argpartition(longer, kept - 1)[:kept]
            before, device = np.divmod(chosen, count)
            sums, paths, used = longer[chosen], np.column_stack([paths[before], device]), used[before]
            used[np.arange(kept), device] = True
        best = int(np.argmin(sums))
        return float(sums[best]), np.roll(paths[best], first)
