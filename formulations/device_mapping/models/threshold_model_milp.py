"""The level model as a MILP (Pyomo): is there a plan within a target t?

Parmesan's Equations 5 to 7 as one question, with places and classes of bandwidth as in CP-SAT's `level`. All numbers
are 0, 1, and how many nodes a place holds, so HiGHS's tolerances say nothing wrong. Source: this project.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

import itertools
from typing import Any

import pyomo.environ as pyo

from formulations.device_mapping.data.arrays import Arrays, plan_of
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.models.classes import Cuts, Places, TooManyError
from formulations.modelling.solve_model import go_on
from solvers.milp import backend as milp
from solvers.outcome import Watch

#: So many terms are written in the rows in which places support each other.
_MAX_SUPPORTS = 1_000_000

Node = tuple[str, int, int]


class LevelMilp(milp.Runnable):
    """The model of one target.

    Raises
    ------
    TooManyError
        If the model were too large.
    Stopped
        Once the watch is.
    """

    def __init__(self, given: Arrays, places: Places, target: float, watch: Watch) -> None:
        self.given, self.places, self._watch = given, places, watch
        self.model = pyo.ConcreteModel()
        self._speeds = places.speeds(given)
        self._cuts = Cuts(given, self._speeds, target)
        classes = sum(map(len, self._cuts.edge_classes)) + sum(map(len, self._cuts.ring_classes))
        if 2 * classes * given.replicas * len(places.capacity) ** 2 > _MAX_SUPPORTS:
            raise TooManyError(f"more than {_MAX_SUPPORTS} terms")
        self._ring = "ring" if given.separate_rings else "replica"
        self._bijection()
        self._classes()
        self._links()
        self._rings_inside()
        self._targets()
        self._symmetries()
        go_on(watch)

    def _bijection(self) -> None:
        model, given, capacity = self.model, self.given, self.places.capacity
        kinds = list(dict.fromkeys(["replica", self._ring]))
        stages, slots, places = range(given.num_stages), range(given.replicas), range(len(capacity))
        model.at = pyo.Var(
            kinds,
            stages,
            slots,
            places,
            domain=pyo.Binary,
            doc="at['replica',s,r,p]: replica r of stage s is at place p; at['ring',s,i,p]: so is the i-th of its ring",
        )
        model.one_place = pyo.Constraint(
            kinds,
            stages,
            slots,
            rule=lambda m, kind, s, r: milp.weighted_sum((1.0, m.at[kind, s, r, p]) for p in places) == 1,
            doc="every stage replica, and every position of a ring, has one place: sum over p of at[.,s,r,p] = 1",
        )
        model.filled = pyo.Constraint(
            places,
            rule=lambda m, p: (
                milp.weighted_sum((1.0, m.at["replica", s, r, p]) for s in stages for r in slots) == capacity[p]
            ),
            doc="every place is filled: sum over s, r of at['replica',s,r,p] = devices of p",
        )
        if given.separate_rings:
            model.ring_of_stage = pyo.Constraint(
                stages,
                places,
                rule=lambda m, s, p: (
                    milp.weighted_sum(
                        (sign, m.at[kind, s, r, p]) for kind, sign in (("ring", 1.0), ("replica", -1.0)) for r in slots
                    )
                    == 0
                ),
                doc="a ring goes through the places of its stage: sum of at['ring',s,i,p] = sum of at['replica',s,r,p]",
            )

    def _classes(self) -> None:
        """Of the classes that the target speaks of, class 0 the fastest."""
        model, cuts, slots = self.model, self._cuts, range(self.given.replicas)
        edges = [(e, r, k) for e, classes in enumerate(cuts.edge_classes) for r in slots for k in classes]
        rings = [(s, k) for s, classes in enumerate(cuts.ring_classes) for k in classes]
        model.edge_class = pyo.Var(
            edges, domain=pyo.Binary, doc="edge_class[e,r,k]: the link of edge e in replica r has class k or faster"
        )
        model.ring_class = pyo.Var(
            rings, domain=pyo.Binary, doc="ring_class[s,k]: all links of the ring of stage s have class k or faster"
        )
        model.edge_nested = pyo.Constraint(
            [(e, r, *pair) for e, c in enumerate(cuts.edge_classes) for r in slots for pair in itertools.pairwise(c)],
            rule=lambda m, e, r, k, after: m.edge_class[e, r, k] <= m.edge_class[e, r, after],
            doc="what is fast is no slower: edge_class[e,r,k] <= edge_class[e,r,k'] for the next slower class",
        )
        model.ring_nested = pyo.Constraint(
            [(s, *pair) for s, c in enumerate(cuts.ring_classes) for pair in itertools.pairwise(c)],
            rule=lambda m, s, k, after: m.ring_class[s, k] <= m.ring_class[s, after],
            doc="what is fast is no slower: ring_class[s,k] <= ring_class[s,k'] for the next slower class",
        )

    def _links(self) -> None:
        """Where a link of a class ends, another end of such a link is."""
        model, given = self.model, self.given
        reached = {k: self.places.reached(float(speed)) for k, speed in enumerate(self._speeds)}

        def reaches(m: Any, one: Node, other: Node, fast: Any, place: int, k: int) -> Any:
            ends = milp.weighted_sum((1.0, m.at[(*other, there)]) for there in reached[k][place])
            return m.at[(*one, place)] + fast <= 1 + ends

        def edge(m: Any, e: int, r: int, k: int, place: int, end: int) -> Any:
            nodes = [("replica", stage, r) for stage in given.edges[e][:2]]
            return reaches(m, nodes[end], nodes[1 - end], m.edge_class[e, r, k], place, k)

        def ring(m: Any, s: int, i: int, k: int, place: int, end: int) -> Any:
            nodes = [(self._ring, s, i), (self._ring, s, (i + 1) % given.replicas)]
            return reaches(m, nodes[end], nodes[1 - end], m.ring_class[s, k], place, k)

        around = range(given.replicas if given.replicas > 2 else 1)
        model.edge_reaches = pyo.Constraint(
            [(*key, p, end) for key in model.edge_class for p in range(len(reached[key[2]])) for end in (0, 1)],
            rule=milp.until_stopped(self._watch, edge),
            doc="with the class, the other end of an edge is where such a link leads: at[.,s,r,p] + edge_class[e,r,k] "
            "<= 1 + sum of at[.,s',r,q] over q with B(p,q) >= the class",
        )
        model.ring_reaches = pyo.Constraint(
            [
                (s, i, k, p, end)
                for s, k in model.ring_class
                for i in around
                for p in range(len(reached[k]))
                for end in (0, 1)
            ],
            rule=milp.until_stopped(self._watch, ring),
            doc="and so is the next node of a ring: at[.,s,i,p] + ring_class[s,k] <= 1 + sum of at[.,s,i+1,q] over q "
            "with B(p,q) >= the class",
        )

    def _rings_inside(self) -> None:
        """A place whose own rings are too slow has no whole ring, and none of it where it cannot be left fast."""
        speed, slots = self.places.speed, range(self.given.replicas)
        places = range(len(speed))

        def slow(k: int) -> list[int]:
            return [p for p in places if self.places.ring_speed[p] < self._speeds[k]]

        def inside(m: Any, s: int, k: int, p: int) -> Any:
            leaves = any(speed[p, q] >= self._speeds[k] for q in places if q != p)
            most = len(slots) - m.ring_class[s, k] if leaves else len(slots) * (1 - m.ring_class[s, k])
            return milp.weighted_sum((1.0, m.at[self._ring, s, i, p]) for i in slots) <= most

        self.model.ring_leaves = pyo.Constraint(
            [(s, k, p) for s, k in self.model.ring_class for p in slow(k)],
            rule=inside,
            doc="with a class that no ring inside place p has, the ring leaves p: sum over i of at[.,s,i,p] <= R - "
            "ring_class[s,k]; <= R (1 - ring_class[s,k]) where no such link leaves p",
        )

    def _targets(self) -> None:
        """Each stage's clauses of `Cuts`, in each replica."""

        def clause(m: Any, s: int, r: int, number: int) -> Any:
            parts = self._cuts.clauses[s][number]
            return pyo.quicksum(m.ring_class[s, k] if e < 0 else m.edge_class[e, r, k] for e, k in parts) >= 1

        clauses = [
            (s, r, n)
            for s, each in enumerate(self._cuts.clauses)
            for r in range(self.given.replicas)
            for n in range(len(each))
        ]
        self.model.stage_time = pyo.Constraint(
            clauses,
            rule=milp.until_stopped(self._watch, clause),
            doc="of the links whose classes together exceed the target, one is faster: sum of their classes >= 1 "
            "[Parmesan, Equations 5 to 7]",
        )

        self.model.too_slow = pyo.Constraint(
            [s for s, each in enumerate(self._cuts.impossible) if each],
            rule=lambda _, s: milp.weighted_sum(()) >= 1,  # noqa: ARG005
            doc="a stage that exceeds the target with the fastest links has no place at all: 0 >= 1",
        )

    def _symmetries(self) -> None:
        """As in `level`: replicas and rings are renumbered so that this holds, the first node is least in its orbit."""
        given, places = self.given, range(len(self.places.capacity))
        slots = range(given.replicas)
        ordered: list[tuple[Node, Node]] = []
        if not given.has_rings or given.separate_rings:
            ordered += [(("replica", 0, r), ("replica", 0, r + 1)) for r in slots[:-1]]
        if given.has_rings:
            rings = range(given.num_stages) if given.separate_rings or not given.edges else range(1)
            ordered += [((self._ring, s, 0), (self._ring, s, i)) for s in rings for i in slots[1:]]
            ordered += [((self._ring, s, 1), (self._ring, s, given.replicas - 1)) for s in rings if given.replicas > 2]
        reach = 0 if self.places.single else 1
        self.model.in_turn = pyo.Constraint(
            range(len(ordered)),
            places,
            rule=lambda m, n, p: (
                m.at[(*ordered[n][1], p)]
                <= milp.weighted_sum((1.0, m.at[(*ordered[n][0], q)]) for q in range(p + reach))
            ),
            doc="replicas are numbered, and rings begin and go on, by the numbers of their places",
        )
        self.model.first_in_orbit = pyo.Constraint(
            [p for p, least in enumerate(self.places.orbit) if least != p],
            rule=lambda m, p: m.at["replica", 0, 0, p] <= 0,
            doc="the first node is at the least of the places that symmetries of the topology exchange",
        )

    def decode(self, values: Any) -> Mapping:
        """The plan of a solution, where places are devices."""
        given, places = self.given, range(len(self.places.capacity))

        def on(kind: str, s: int, r: int) -> int:
            return max(places, key=lambda p: values[self.model.at[kind, s, r, p]])

        stages, slots = range(given.num_stages), range(given.replicas)
        rows = [[on("replica", s, r) for r in slots] for s in stages]
        if given.separate_rings:
            return plan_of(rows, [[rows[s].index(on("ring", s, i)) for i in slots] for s in stages])
        is_free = given.instance.ring == "free" and given.has_rings
        return plan_of(rows, [list(slots)] * len(rows) if is_free else None)
