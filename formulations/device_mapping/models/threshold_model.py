"""The level model for CP-SAT: is there a plan within a target t?

Parmesan's Equations 5 to 7 as one question: is there a bijection p with, at every stage s and replica r,

    c_u(s) + sum over neighbours of M(s, s') / B(p(s), p(s')) + max over ring(repl(s)) of 2 (R - 1) P(s) / (R B) <= t ?

Places are devices, or groups of devices (`quotient`). Bandwidths fall into classes, class 0 the fastest:

    at[s,r,p]         node (s, r) is at place p        edge_class[e,r,k]    edge e in replica r has class k or faster
    ring_at[s,i,p]    the i-th node of the ring of s   ring_class[s,k]      all links of the ring of s have

A node's time is a sum over its links (the ring's slowest one, and its edges), so a target forbids combinations of
classes: the least of them are clauses, and all costs stay floats. Without edges a ring needs one class alone, and this
is the position model. Source: this project.
"""

import itertools
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from formulations.device_mapping.data.arrays import Arrays, Mask
from formulations.device_mapping.models.classes import Cuts, Places, TooManyError
from solvers.cpsat import backend as cpsat

#: So many literals are written in clauses that support each other.
_MAX_SUPPORTS = 20_000_000

Literal = Any


class LevelModel(cpsat.Runnable):
    """The model of one target; ``impossible`` if no class of some link meets it."""

    def __init__(self, arrays: Arrays, places: Places, target: float, allowed: Mask | None = None) -> None:
        self.arrays, self.places = arrays, places
        self.model = cp_model.CpModel()
        self.levels = places.speeds(arrays)
        self._cuts = Cuts(arrays, self.levels, target)
        self.impossible = any(self._cuts.impossible)
        if self.impossible:
            self.model.add_bool_or([]).with_name("no_class_is_fast_enough")
            return
        if self._supports() > _MAX_SUPPORTS:
            raise TooManyError(f"more than {_MAX_SUPPORTS} literals")
        self._neighbours_at: dict[int, list[list[int]]] = {}
        self.at = self._nodes("at")
        self.ring_at = self._nodes("ring_at") if arrays.separate_rings else self.at
        self._capacities()
        if allowed is not None:
            self._exclude(allowed)
        self._links()
        self._symmetries()

    def _nodes(self, name: str) -> list[list[list[Literal]]]:
        """Every node, or position of a ring, has one place."""
        places = range(len(self.places.capacity))
        nodes = []
        for stage in range(self.arrays.num_stages):
            row = [
                [self.model.new_bool_var(f"{name}[{stage},{slot},{place}]") for place in places]
                for slot in range(self.arrays.replicas)
            ]
            for slot, node in enumerate(row):
                self.model.add_exactly_one(node).with_name(f"one_place_{name}[{stage},{slot}]")
            nodes.append(row)
        return nodes

    def _supports(self) -> int:
        """Literals of the clauses in which the ends of links support each other."""
        classes = sum(map(len, self._cuts.edge_classes)) + sum(map(len, self._cuts.ring_classes))
        return 2 * classes * self.arrays.replicas * len(self.places.capacity) ** 2

    def _capacities(self) -> None:
        """p is a bijection: every place is filled. The ring of a stage goes through the stage's own places."""
        model, total = self.model, cp_model.LinearExpr.sum
        for place, capacity in enumerate(self.places.capacity):
            inside = [node[place] for row in self.at for node in row]
            filled = model.add_exactly_one(inside) if capacity == 1 else model.add(total(inside) == capacity)
            filled.with_name(f"filled[{place}]")
        if self.ring_at is self.at:
            return
        for stage, (row, ring) in enumerate(zip(self.at, self.ring_at, strict=True)):
            for place, capacity in enumerate(self.places.capacity):
                here, passed = [node[place] for node in row], [node[place] for node in ring]
                if capacity > 1:
                    model.add(total(here) == total(passed)).with_name(f"ring_of_stage[{stage},{place}]")
                    continue
                for slot, one in enumerate(here):
                    model.add_bool_or([one.negated(), *passed]).with_name(f"ring_passes[{stage},{slot},{place}]")
                for slot, one in enumerate(passed):
                    model.add_bool_or([one.negated(), *here]).with_name(f"ring_stays[{stage},{slot},{place}]")

    def _exclude(self, allowed: Mask) -> None:
        """No node is where arc consistency excludes it."""
        tables = {"excluded": self.at, **({} if self.ring_at is self.at else {"ring_excluded": self.ring_at})}
        for stage, place in zip(*np.nonzero(~allowed), strict=True):
            for name, nodes in tables.items():
                for slot, node in enumerate(nodes[stage]):
                    self.model.add(node[place] == 0).with_name(f"{name}[{stage},{slot},{place}]")

    def _links(self) -> None:
        """The classes of all links, and the target: each stage's clauses of `Cuts`, in each replica."""
        arrays, replicas = self.arrays, self.arrays.replicas
        edge_literals = [
            [self._ladder(self._cuts.edge_classes[number], f"edge_class[{number},{r},") for r in range(replicas)]
            for number in range(len(arrays.edges))
        ]
        for number, (a, b, _) in enumerate(arrays.edges):
            for r in range(replicas):
                for level, literal in edge_literals[number][r].items():
                    self._support(self.at[a][r], self.at[b][r], level, literal, f"edge_reaches[{number},{r},{level}")
        for stage in range(arrays.num_stages):
            ring = self._ring(stage)
            for number, clause in enumerate(self._cuts.clauses[stage]):
                for r in range(replicas):
                    literals = [(ring if part < 0 else edge_literals[part][r])[level] for part, level in clause]
                    self.model.add_bool_or(literals).with_name(f"stage_time[{stage},{r},{number}]")

    def _ring(self, stage: int) -> dict[int, Literal]:
        """The literals of a stage's ring: all its links have class k or faster."""
        ladder = self._ladder(self._cuts.ring_classes[stage], f"ring_class[{stage},")
        ring, replicas = self.ring_at[stage], self.arrays.replicas
        for level, literal in ladder.items():
            for i in range(replicas if replicas > 2 else 1):
                name = f"ring_reaches[{stage},{i},{level}"
                self._support(ring[i], ring[(i + 1) % replicas], level, literal, name)
            self._ring_inside(stage, level, literal)
        return ladder

    def _ring_inside(self, stage: int, level: int, literal: Literal) -> None:
        """A place whose own rings are too slow has no whole ring, and none of it where it cannot be left fast."""
        speed, ring = self.places.speed, self.ring_at[stage]
        for place, fastest in enumerate(self.places.ring_speed):
            if fastest >= self.levels[level]:
                continue
            leaves = any(speed[place, other] >= self.levels[level] for other in range(len(speed)) if other != place)
            if leaves:
                whole = self.model.add_bool_or([literal.negated(), *(node[place].negated() for node in ring)])
                whole.with_name(f"ring_leaves[{stage},{level},{place}]")
            else:
                for i, node in enumerate(ring):
                    avoided = self.model.add_implication(literal, node[place].negated())
                    avoided.with_name(f"ring_avoids[{stage},{level},{place},{i}]")

    def _ladder(self, classes: tuple[int, ...], name: str) -> dict[int, Literal]:
        """A literal for each class, each implying the next slower one; ``name`` is theirs up to the class."""
        ladder = {level: self.model.new_bool_var(f"{name}{level}]") for level in classes}
        for faster, slower in itertools.pairwise(classes):
            self.model.add_implication(ladder[faster], ladder[slower]).with_name(f"nested_{name}{faster}]")
        return ladder

    def _support(self, ones: list[Literal], others: list[Literal], level: int, literal: Literal, name: str) -> None:
        """With the class, the other end of a link is at a place that such a link reaches from this one."""
        slower = literal.negated()
        for place, reached in enumerate(self._neighbours(level)):
            for end, (here, there) in enumerate(((ones, others), (others, ones))):
                clause = [slower, here[place].negated(), *[there[other] for other in reached]]
                self.model.add_bool_or(clause).with_name(f"{name},{place},{end}]")

    def _neighbours(self, level: int) -> list[list[int]]:
        """Where links of a class or faster ones lead to, from each place; none if they lead everywhere."""
        if level not in self._neighbours_at:
            self._neighbours_at[level] = self.places.neighbours(float(self.levels[level]))
        return self._neighbours_at[level]

    def _symmetries(self) -> None:
        """Replicas are renumbered, rings turned and mirrored, and equal stages exchanged, so that this holds.

        Parmesan's Equations 5 to 7 do not change under any of these, nor under a symmetry of the topology.
        """
        arrays, first = self.arrays, self.at[0]
        for place, least in enumerate(self.places.orbit):
            if least != place:
                self.model.add(first[0][place] == 0).with_name(f"least_of_orbit[{place}]")
        if not arrays.has_rings or arrays.separate_rings:
            for r, (one, other) in enumerate(itertools.pairwise(first)):
                self._order(one, other, f"replicas_ordered[{r}")
        if arrays.has_rings:
            rings = range(arrays.num_stages) if arrays.separate_rings or not arrays.edges else range(1)
            for stage in rings:
                self._least_first(stage)
        if arrays.has_rings and not arrays.edges:
            same = sorted(range(arrays.num_stages), key=lambda stage: self._cuts.ring_classes[stage])
            for one_stage, other_stage in itertools.pairwise(same):
                if self._cuts.ring_classes[one_stage] == self._cuts.ring_classes[other_stage]:
                    low, high = sorted((one_stage, other_stage))
                    self._order(self.at[low][0], self.at[high][0], f"stages_ordered[{low},{high}")
        if self.places.interchangeable:
            self._first_use()

    def _least_first(self, stage: int) -> None:
        """A ring begins at its least place, and goes on to the lesser of the two next to it."""
        ring = self.ring_at[stage]
        for i, node in enumerate(ring[1:], start=1):
            self._order(ring[0], node, f"ring_begins[{stage},{i}")
        if len(ring) > 2:
            self._order(ring[1], ring[-1], f"ring_direction[{stage}")

    def _order(self, one: list[Literal], other: list[Literal], name: str) -> None:
        """The first node's place is before the second's, or the same where both fit."""
        reach = 0 if self.places.single else 1
        for place in range(len(one)):
            before = self.model.add_bool_or([other[place].negated(), *one[: place + reach]])
            before.with_name(f"{name},{place}]")

    def _first_use(self) -> None:
        """Identical places are first used in the order of their numbers."""
        before: list[list[Literal]] = []
        for number, node in enumerate(node for row in self.at for node in row):
            for place in range(1, len(node)):
                if number < place:
                    rule = self.model.add(node[place] == 0)
                else:
                    rule = self.model.add_bool_or([node[place].negated(), *(earlier[place - 1] for earlier in before)])
                rule.with_name(f"first_use[{number},{place}]")
            before.append(node)

    def decode(self, values: Any) -> tuple[list[list[int]], list[list[int]] | None]:
        """Places by stage and replica, and the rings' orders (replicas) where they are a choice of their own."""

        def read(nodes: list[list[list[Literal]]]) -> list[list[int]]:
            return [[next(p for p, one in enumerate(node) if values[one]) for node in row] for row in nodes]

        devices = read(self.at)
        if self.ring_at is self.at:
            return devices, None
        passed = read(self.ring_at)
        return devices, [[row.index(place) for place in ring] for row, ring in zip(devices, passed, strict=True)]
