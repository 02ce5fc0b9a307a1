"""The level model for CP-SAT: is there a plan within a target?

``at[s][r][p]``: node (s, r) is at place p. Places are devices, or groups of devices (`quotient`). Bandwidths fall into
classes, class 0 the fastest. A link has literals "class k or faster"; with one set, both ends support each other over
links of such classes. A node's time is a sum over its links (the ring's slowest one, and its edges), so a target
forbids combinations of classes: the least of them are clauses, and all costs stay floats.

Without edges a ring needs one class alone, and this is the position model. Source: reconstructed.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from formulations.device_mapping.arrays import Arrays, Floats, Mask, loosened

#: More forbidden combinations at one stage than this are not written down.
MAX_COMBINATIONS = 4000
#: So many are looked at, and so many literals are written in clauses that support each other.
_MOST_CHOICES, _MOST_SUPPORTS = 50_000, 20_000_000

Literal = Any


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


def devices_as_places(arrays: Arrays, orbit: Sequence[int] | None = None) -> Places:
    """Every device a place."""
    count = arrays.num_devices
    return Places((1,) * count, arrays.speed, np.full(count, np.inf), tuple(orbit or range(count)))


class TooManyError(Exception):
    """A model would have more constraints than can be built."""


class LevelModel:
    """The model of one target; ``impossible`` if no class of some link meets it."""

    def __init__(self, arrays: Arrays, places: Places, target: float, allowed: Mask | None = None) -> None:
        self.arrays, self.places = arrays, places
        self.cp = cp_model.CpModel()
        self.levels = np.unique(places.speed[places.speed > 0])[::-1]
        capped = places.ring_speed[np.isfinite(places.ring_speed) & (places.ring_speed > 0)]
        if arrays.has_rings:
            self.levels = np.unique(np.concatenate([self.levels, capped]))[::-1]
        self._cuts = _Cuts(arrays, self.levels, target)
        self.impossible = any(self._cuts.impossible)
        if self.impossible:
            self.cp.add_bool_or([])
            return
        if self._supports() > _MOST_SUPPORTS:
            raise TooManyError(f"more than {_MOST_SUPPORTS} literals")
        self.at = self._nodes("at")
        self.ring_at = self._nodes("ring_at") if arrays.separate_rings else self.at
        self._capacities()
        if allowed is not None:
            self._exclude(allowed)
        self._links()
        self._symmetries()

    def _nodes(self, name: str) -> list[list[list[Literal]]]:
        places = range(len(self.places.capacity))
        nodes = []
        for stage in range(self.arrays.num_stages):
            row = [
                [self.cp.new_bool_var(f"{name}[{stage},{slot},{place}]") for place in places]
                for slot in range(self.arrays.replicas)
            ]
            for node in row:
                self.cp.add_exactly_one(node)
            nodes.append(row)
        return nodes

    def _supports(self) -> int:
        """Literals of the clauses in which the ends of links support each other."""
        classes = sum(map(len, self._cuts.edge_classes)) + sum(map(len, self._cuts.ring_classes))
        return 2 * classes * self.arrays.replicas * len(self.places.capacity) ** 2

    def _capacities(self) -> None:
        """Every place is filled; the ring of a stage goes through the stage's own places."""
        for place, capacity in enumerate(self.places.capacity):
            inside = [node[place] for row in self.at for node in row]
            if capacity == 1:
                self.cp.add_exactly_one(inside)
            else:
                self.cp.add(cp_model.LinearExpr.sum(inside) == capacity)
        if self.ring_at is self.at:
            return
        for row, ring in zip(self.at, self.ring_at, strict=True):
            for place, capacity in enumerate(self.places.capacity):
                here, passed = [node[place] for node in row], [node[place] for node in ring]
                if capacity > 1:
                    self.cp.add(cp_model.LinearExpr.sum(here) == cp_model.LinearExpr.sum(passed))
                    continue
                for one in here:
                    self.cp.add_bool_or([one.negated(), *passed])
                for one in passed:
                    self.cp.add_bool_or([one.negated(), *here])

    def _exclude(self, allowed: Mask) -> None:
        for stage, place in zip(*np.nonzero(~allowed), strict=True):
            for row in (self.at[stage], self.ring_at[stage]):
                for node in row:
                    self.cp.add(node[place] == 0)

    def _links(self) -> None:
        arrays, replicas = self.arrays, self.arrays.replicas
        edge_literals = [
            [self._ladder(self._cuts.edge_classes[number]) for _ in range(replicas)]
            for number in range(len(arrays.edges))
        ]
        for number, (a, b, _) in enumerate(arrays.edges):
            for replica in range(replicas):
                for level, literal in edge_literals[number][replica].items():
                    self._support(self.at[a][replica], self.at[b][replica], level, literal)
        for stage in range(arrays.num_stages):
            ring = self._ring(stage)
            for clause in self._cuts.clauses[stage]:
                for replica in range(replicas):
                    literals = [(ring if part < 0 else edge_literals[part][replica])[level] for part, level in clause]
                    self.cp.add_bool_or(literals)

    def _ring(self, stage: int) -> dict[int, Literal]:
        """The literals of a stage's ring: all its links have class k or faster."""
        classes = self._cuts.ring_classes[stage]
        ladder = self._ladder(classes)
        ring, replicas = self.ring_at[stage], self.arrays.replicas
        for level, literal in ladder.items():
            for slot in range(replicas if replicas > 2 else 1):
                self._support(ring[slot], ring[(slot + 1) % replicas], level, literal)
            self._ring_inside(ring, level, literal)
        return ladder

    def _ring_inside(self, ring: list[list[Literal]], level: int, literal: Literal) -> None:
        """A place whose own rings are too slow has no whole ring, and none of it where it cannot be left fast."""
        speed = self.places.speed
        for place, fastest in enumerate(self.places.ring_speed):
            if fastest >= self.levels[level]:
                continue
            leaves = any(speed[place, other] >= self.levels[level] for other in range(len(speed)) if other != place)
            if leaves:
                self.cp.add_bool_or([literal.negated(), *(node[place].negated() for node in ring)])
            else:
                for node in ring:
                    self.cp.add_implication(literal, node[place].negated())

    def _ladder(self, classes: tuple[int, ...]) -> dict[int, Literal]:
        """A literal for each class, each implying the next slower one."""
        ladder = {level: self.cp.new_bool_var(f"class[{level}]") for level in classes}
        for faster, slower in itertools.pairwise(classes):
            self.cp.add_implication(ladder[faster], ladder[slower])
        return ladder

    def _support(self, ones: list[Literal], others: list[Literal], level: int, literal: Literal) -> None:
        near = self.places.speed >= self.levels[level]
        if near.sum() >= len(near) * (len(near) - 1) and self.places.single:
            return
        for place in range(len(near)):
            reached = np.nonzero(near[place])[0]
            for here, there in ((ones, others), (others, ones)):
                self.cp.add_bool_or([literal.negated(), here[place].negated(), *(there[other] for other in reached)])

    def _symmetries(self) -> None:
        """Replicas are renumbered, rings turned and mirrored, and equal stages exchanged, so that this holds."""
        arrays, first = self.arrays, self.at[0]
        for place, least in enumerate(self.places.orbit):
            if least != place:
                self.cp.add(first[0][place] == 0)
        if not arrays.has_rings or arrays.separate_rings:
            for one, other in itertools.pairwise(first):
                self._ordered(one, other)
        if arrays.has_rings:
            rings = range(arrays.num_stages) if arrays.separate_rings or not arrays.edges else range(1)
            for stage in rings:
                self._least_first(self.ring_at[stage])
        if arrays.has_rings and not arrays.edges:
            same = sorted(range(arrays.num_stages), key=lambda stage: self._cuts.ring_classes[stage])
            for one_stage, other_stage in itertools.pairwise(same):
                if self._cuts.ring_classes[one_stage] == self._cuts.ring_classes[other_stage]:
                    low, high = sorted((one_stage, other_stage))
                    self._ordered(self.at[low][0], self.at[high][0])
        if self.places.interchangeable:
            self._first_use()

    def _least_first(self, ring: list[list[Literal]]) -> None:
        for node in ring[1:]:
            self._ordered(ring[0], node)
        if len(ring) > 2:
            self._ordered(ring[1], ring[-1])

    def _ordered(self, one: list[Literal], other: list[Literal]) -> None:
        """The first node's place is before the second's, or the same where both fit."""
        reach = 0 if self.places.single else 1
        for place in range(len(one)):
            self.cp.add_bool_or([other[place].negated(), *one[: place + reach]])

    def _first_use(self) -> None:
        """Places that are all alike are first used in the order of their numbers."""
        before: list[Literal] = []
        for number, node in enumerate(node for row in self.at for node in row):
            for place in range(1, len(node)):
                if number < place:
                    self.cp.add(node[place] == 0)
                else:
                    self.cp.add_bool_or([node[place].negated(), *(earlier[place - 1] for earlier in before)])
            before.append(node)

    def hint(self, devices: Sequence[Sequence[int]]) -> None:
        """Start the search near a placement (places by stage and slot)."""
        for row, hinted in zip(self.at, devices, strict=True):
            for node, device in zip(row, hinted, strict=True):
                for place, literal in enumerate(node):
                    self.cp.add_hint(literal, place == device)

    def placement(self, values: Any) -> tuple[list[list[int]], list[list[int]] | None]:
        """Places by stage and replica, and the rings' orders (replicas) where they are a choice of their own."""

        def read(nodes: list[list[list[Literal]]]) -> list[list[int]]:
            return [[next(p for p, one in enumerate(node) if values[one]) for node in row] for row in nodes]

        devices = read(self.at)
        if self.ring_at is self.at:
            return devices, None
        passed = read(self.ring_at)
        return devices, [[row.index(place) for place in ring] for row, ring in zip(devices, passed, strict=True)]


class _Cuts:
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
            left = loosened(target) - float(arrays.compute[stage])
            if len(levels) ** max(0, len(parts) - 1) > _MOST_CHOICES:
                raise TooManyError(f"stage {stage} has more than {_MOST_CHOICES} combinations of bandwidths")
            found = list(itertools.islice(_least_violating(costs, left), MAX_COMBINATIONS + 1))
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


def _least_violating(costs: Sequence[Sequence[float]], left: float) -> Iterator[tuple[int, ...]]:
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
