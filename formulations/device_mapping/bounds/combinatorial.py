"""Lower bounds without a solver: single nodes, bottleneck assignment, arc consistency, cores and components.

Each is a relaxation: what a node or a stage must pay whatever the others do. Bounds are loosened by `arrays.SLACK`
where a comparison of floats decides. Sources: Parmesan, Equations 8 and 9; the others are reconstructed.
"""

import itertools
from collections.abc import Callable

import numpy as np

from formulations.device_mapping.bounds.ladders import ladders_fit
from formulations.device_mapping.bounds.matching import bottleneck_cost, can_deal
from formulations.device_mapping.data.arrays import SLACK, Arrays, Floats, Mask, needed_speed, with_slack
from formulations.device_mapping.data.costs import node_costs, safe

#: A search for the greatest refuted target ends when the interval is relatively so small.
_PRECISION = 1e-5
#: Rounds of arc consistency; each is sound, the fixed point is rarely worth more.
_ROUNDS = 40
#: Models with more groups than this refute little and take long.
MAX_GROUPS = 40
#: So many ways to group devices are tried, those where the bandwidth between groups is clearly lower.
_GROUPINGS, _CLEAR = 3, 1.25
#: Ring speeds are tried in so many steps where edges share the budget.
_RING_STEPS = 48


def assignment_bound(arrays: Arrays) -> float:
    """The same with every device used once: a bottleneck assignment."""
    return safe(bottleneck_cost(node_costs(arrays), arrays.replicas))


class Domains:
    """What a target leaves: ``allowed[s, d]`` and ``arcs[e][d, d']``; shrunk until nothing changes.

    An arc goes if its cost and the best completions at either end exceed a budget; a device if its best arcs do, or if
    no ring of its stage can pass it.
    """

    def __init__(self, arrays: Arrays, target: float) -> None:
        self.arrays = arrays
        self.target = with_slack(target)
        self.allowed: Mask = np.ones((arrays.num_stages, arrays.num_devices), dtype=np.bool_)
        self.arcs: list[Mask] = [arrays.speed > 0 for _ in arrays.edges]
        self.possible = self._shrink()

    def _shrink(self) -> bool:
        before = -1
        for _ in range(_ROUNDS):
            least = self._sending()
            self._rings(least)
            left = self.allowed.sum()
            if (self.allowed.sum(axis=1) < self.arrays.replicas).any() or not self.allowed.any(axis=0).all():
                return False
            if left == before:
                break
            before = left
        return can_deal(self.allowed, self.arrays.replicas)

    def _sending(self) -> Floats:
        """Drop arcs and devices that edges rule out; returns the least seconds of a node beside its ring, (S, D)."""
        arrays = self.arrays
        fastest_ring = arrays.ring[:, None] * arrays.ring_floor
        costs = arrays.compute[:, None] + fastest_ring + np.zeros((1, arrays.num_devices))
        ends = []
        for number, (a, b, volume) in enumerate(arrays.edges):
            arcs = self.arcs[number]
            arcs &= self.allowed[a][:, None] & self.allowed[b][None, :]
            seconds = np.where(arcs, volume * arrays.seconds_per_byte, np.inf)
            ends.append((seconds.min(axis=1), seconds.min(axis=0)))
            costs[a] += ends[-1][0]
            costs[b] += ends[-1][1]
        self.allowed &= costs <= self.target
        with np.errstate(invalid="ignore"):
            for number, (a, b, volume) in enumerate(arrays.edges):
                # What an arc may cost: the budget less the other links at each end.
                room_a = np.where(self.allowed[a], self.target - (costs[a] - ends[number][0]), -np.inf)
                room_b = np.where(self.allowed[b], self.target - (costs[b] - ends[number][1]), -np.inf)
                seconds = volume * arrays.seconds_per_byte
                self.arcs[number] &= (seconds <= room_a[:, None]) & (seconds <= room_b[None, :])
        return np.asarray(np.where(self.allowed, costs - fastest_ring, np.inf), dtype=np.float64)

    def _rings(self, least: Floats) -> None:
        """Keep the devices that some ring speed of their stage allows.

        All replicas share the ring's speed. Between two steps the slower one decides about links and the faster one
        about the time that is left for edges, so nothing is lost.
        """
        arrays = self.arrays
        degree = 1 if arrays.replicas == 2 else 2
        for stage in range(arrays.num_stages):
            if arrays.ring[stage] <= 0 or not self.allowed[stage].any():
                continue
            slack = self.target - float(least[stage].min())
            if slack <= 0:
                self.allowed[stage] = False
                continue
            kept = np.zeros(arrays.num_devices, dtype=np.bool_)
            for slow, fast in _steps(arrays, float(arrays.ring[stage]) / slack, exact=not arrays.edges):
                spent = 0.0 if np.isinf(fast) else float(arrays.ring[stage]) / fast
                inside = self.allowed[stage] & (least[stage] + spent <= self.target) & ~kept
                if inside.any():
                    inside = self.allowed[stage] & (least[stage] + spent <= self.target)
                    core = _core(arrays.speed >= slow, inside, degree)
                    if core.sum() >= arrays.replicas:
                        kept |= core
            self.allowed[stage] = kept


def _steps(arrays: Arrays, slowest: float, exact: bool) -> list[tuple[float, float]]:
    """Ring speeds as intervals (slow, fast], from the slowest that may do to the fastest there are."""
    slowest *= 1 - SLACK
    if exact:
        return [(slowest, np.inf)]
    levels = arrays.levels[arrays.levels >= slowest][::-1]
    if not len(levels):
        return []
    if len(levels) > _RING_STEPS:
        levels = levels[np.linspace(0, len(levels) - 1, _RING_STEPS).astype(int)]
        return list(zip(levels.tolist(), [*levels[1:].tolist(), float(levels[-1])], strict=True))
    return [(level, level) for level in levels.tolist()]


def _core(near: Mask, inside: Mask, degree: int) -> Mask:
    """The devices left when those with fewer than ``degree`` neighbours inside are dropped again and again."""
    while True:
        kept = inside & ((near & inside[None, :]).sum(axis=1) >= degree)
        if (kept == inside).all():
            return inside
        inside = kept


def rings_fit(arrays: Arrays, target: float) -> bool:
    """Whether cores and components leave room for the rings at a target; false is a proof.

    The graphs of links that are fast enough are nested. The k most demanding stages need k R devices in the core of
    the k-th's graph, and room for k rings in its components; the least demanding one needs every device, and
    components that are multiples of R.
    """
    needed = needed_speed(arrays, target)
    if arrays.edges:
        rest = node_costs(arrays) - np.where(arrays.ring > 0, arrays.ring, 0.0)[:, None] * arrays.ring_floor
        left = with_slack(target) - rest.min(axis=1)
        with np.errstate(divide="ignore"):
            needed = np.where(arrays.ring > 0, np.where(left > 0, arrays.ring / np.maximum(left, 1e-300), np.inf), 0.0)
    order = np.argsort(-needed, kind="stable")
    everything = np.ones(arrays.num_devices, dtype=np.bool_)
    for count, stage in enumerate(order, 1):
        if needed[stage] == 0:
            break
        near = arrays.speed >= needed[stage] * (1 - SLACK)
        core = _core(near, everything, 1 if arrays.replicas == 2 else 2)
        if core.sum() < count * arrays.replicas:
            return False
        sizes = [int(each.sum()) for each in components(near & core[:, None] & core[None, :], core)]
        if sum(size // arrays.replicas for size in sizes) < count:
            return False
        if count == arrays.num_stages and any(size % arrays.replicas for size in sizes):
            return False
    return True


def components(near: Mask, inside: Mask) -> list[Mask]:
    """The connected components among the devices inside, each as a mask; in the order of their first devices."""
    unseen = inside.copy()
    found = []
    while unseen.any():
        component = np.zeros_like(unseen)
        component[np.argmax(unseen)] = True
        while True:
            wider = component | (near[component].any(axis=0) & unseen)
            if (wider == component).all():
                break
            component = wider
        found.append(component)
        unseen &= ~component
    return found


def groupings(arrays: Arrays, most: int = MAX_GROUPS) -> list[list[Mask]]:
    """Groups, at most so many, at the bandwidths below which devices fall apart, the clearest hierarchy first."""
    found: dict[tuple[int, ...], tuple[float, list[Mask]]] = {}
    everything = np.ones(arrays.num_devices, dtype=np.bool_)
    for slower, threshold in _drops(arrays):
        groups = components(arrays.speed >= threshold, everything)
        if threshold < _CLEAR * slower or not 1 < len(groups) < min(arrays.num_devices, most + 1):
            continue
        key = tuple(int(np.argmax([group[device] for group in groups])) for device in range(arrays.num_devices))
        found.setdefault(key, (threshold / slower, groups))
    ranked = sorted(found.values(), key=lambda each: -each[0])
    return [groups for _, groups in ranked[:_GROUPINGS]]


def _drops(arrays: Arrays) -> list[tuple[float, float]]:
    """Bandwidths of a widest spanning tree, ascending, each with the next slower one: where groups fall apart."""
    inside = np.zeros(arrays.num_devices, dtype=np.bool_)
    inside[0] = True
    reach = arrays.speed[0].copy()
    joined = set()
    while not inside.all():
        nearest = int(np.argmax(np.where(inside, -1.0, reach)))
        joined.add(float(reach[nearest]))
        inside[nearest] = True
        reach = np.maximum(reach, arrays.speed[nearest])
    speeds = sorted(joined)
    drops = list(itertools.pairwise(speeds))
    return sorted(drops, key=lambda drop: drop[0] / drop[1])[: 4 * _GROUPINGS]


def refutes_target(arrays: Arrays, target: float, is_stopped: Callable[[], bool] = lambda: False) -> bool:
    """Whether cores, components, two rings side by side or arc consistency refute a target."""
    if arrays.has_rings and not (rings_fit(arrays, target) and ladders_fit(arrays, target, is_stopped)):
        return True
    return not Domains(arrays, target).possible


def greatest_refutable(
    low: float, high: float, refutes: Callable[[float], bool], go_on: Callable[[], bool] = lambda: True
) -> float:
    """A lower bound between ``low`` (one already) and ``high``: the greatest target that a test refutes, by halving."""
    while high - low > _PRECISION * high and go_on():
        middle = (low + high) / 2
        if refutes(middle):
            low = middle
        else:
            high = middle
    return low
