"""Device mapping as a MILP (Pyomo, HiGHS): places of stage replicas, and classes of bandwidth that links reach.

Bandwidths fall into classes, class 0 the fastest, and a link takes what its class takes. Where bandwidths are many it
takes what its own devices take, and classes of bandwidths that are rounded up follow. The relaxation with the
slowest stage as the objective mixes fast links with slow ones. With a number for it all other numbers are 0 and 1, how
many nodes a place holds, and combinations of classes that together are too slow: `Model.run` searches those numbers on
more than a few devices. It asks groups of devices first: what they forbid the devices forbid, too, and they have fewer
places and far fewer symmetries. Source: the problem is Parmesan's (section 5), the model is this project's.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.device_mapping.bounds.combinatorial import groupings
from formulations.device_mapping.data.arrays import Arrays, Floats, arrays, plan_of
from formulations.device_mapping.definition.plan import Mapping as Plan
from formulations.device_mapping.definition.problem import evaluate, violations
from formulations.device_mapping.definition.quantities import VOCABULARY
from formulations.device_mapping.models.bisect_gap import objective_values
from formulations.device_mapping.models.classes import (
    FEW_LEVELS,
    Cuts,
    Places,
    TooManyError,
    devices_as_places,
    round_up_speeds,
)
from formulations.device_mapping.models.first_plan import ceiling, first_plan
from formulations.device_mapping.models.machine_groups import places_of
from formulations.device_mapping.models.symmetry import canonical, in_turn
from formulations.modelling.solve_model import WithoutSizes, add_requirements, prove
from formulations.modelling.threshold_search import Cheapest, search_intervals
from instances.problems.device_mapping import DeviceMapping
from solvers.build_stop import stops_with
from solvers.memory_budget import SizeError
from solvers.milp import backend as milp
from solvers.outcome import DEFAULT_SOLVER, OPTIMAL_GAP, Limits, Run, Stop, Watch
from solvers.values import Values

#: So many terms are written in the rows in which places support each other; beyond, bandwidths are rounded up to a few.
_MAX_SUPPORTS, _ROUNDED = 1_000_000, 6
#: Up to so many devices the model as it is takes no longer than a search by targets.
_FEW_DEVICES = 6
#: What rounding alone may add to a target, or take from a bound, relatively.
_ROUNDING = 1e-9

#: What is at a place: a replica of a stage, or a position of a ring with an order of its own.
Node = tuple[str, int, int]


@dataclass(frozen=True)
class Data:
    """An instance, its times in units of ``unit_s`` seconds.

    ``given``: S stages, R replicas, ``edges`` (s, s', bytes), ``ring[s]`` bytes of a ring's link, ``compute[s]``
    seconds.
    ``places``: devices, or groups of devices.
    ``is_exact``: whether the places have the bandwidths as they are; else these are rounded up to a few.
    ``most_s``, ``longest_s``: no plan of interest takes longer (``None``: unknown); links that do count as
    ``longest_s``.
    """

    given: Arrays
    places: Places
    is_exact: bool
    unit_s: float
    most_s: float | None
    longest_s: float

    @cached_property
    def speeds(self) -> Floats:
        """The bandwidth of each class, descending."""
        return self.places.speeds(self.given)

    @property
    def ring_kind(self) -> str:
        """Which nodes a ring goes through."""
        return "ring" if self.given.separate_rings else "replica"

    def seconds(self, volume: float, d: int, e: int) -> float:
        """What so many bytes take between two devices."""
        return min(volume / float(self.given.speed[d, e]), self.longest_s)

    def cost(self, volume: float) -> list[float]:
        """What a link of so many bytes takes, by its class."""
        return [milp.in_units(min(volume / float(speed), self.longest_s), self.unit_s) for speed in self.speeds]

    @property
    def around(self) -> range:
        """Positions of a ring where one of its links begins: a ring of two is one link."""
        return range(self.given.replicas if self.given.replicas > 2 else 1)

    @property
    def rings(self) -> list[int]:
        """Stages with an all-reduce."""
        return [s for s, volume in enumerate(self.given.ring) if volume > 0]

    def edge_link(self, e: int, r: int) -> tuple[Node, Node]:
        """Both ends of an edge in a replica."""
        source, target, _ = self.given.edges[e]
        return ("replica", source, r), ("replica", target, r)

    def ring_link(self, s: int, i: int) -> tuple[Node, Node]:
        """Both ends of the i-th link of a stage's ring."""
        return (self.ring_kind, s, i), (self.ring_kind, s, (i + 1) % self.given.replicas)

    def supports(self, classes: int) -> int:
        """Terms of the rows in which the ends of links of so many classes support each other."""
        return 2 * classes * self.given.replicas * len(self.places.capacity) ** 2

    def takes(self, model: Any, name: str, number: int, r: int = 0) -> Any:
        """The time of an exchange or a ring by the class of its links: of the fastest, and more for each one missed."""
        is_ring = name == "ring"
        cost = self.cost(float(self.given.ring[number]) if is_ring else self.given.edges[number][2])
        fast = [
            model.ring_class[number, k] if is_ring else model.edge_class[number, r, k] for k in range(len(cost) - 1)
        ]
        return cost[0] + pyo.quicksum(
            (after - before) * (1 - one) for before, after, one in zip(cost, cost[1:], fast, strict=False)
        )

    def classes(self, target_s: float | None) -> tuple[list[Sequence[int]], list[Sequence[int]], Cuts | None]:
        """Classes of each edge and of each stage's ring that are spoken of, and what a target forbids.

        `TooManyError` if that is too much to write down.
        """
        every, cuts = range(len(self.speeds) - 1), None
        of_edges: list[Sequence[int]] = [every] * len(self.given.edges)
        of_rings: list[Sequence[int]] = [every if volume > 0 else () for volume in self.given.ring]
        if target_s is not None:
            cuts = Cuts(self.given, self.speeds, target_s)
            of_edges, of_rings = list(cuts.edge_classes), list(cuts.ring_classes)
        if self.supports(sum(map(len, of_edges)) + sum(map(len, of_rings))) > _MAX_SUPPORTS:
            raise TooManyError(f"more than {_MAX_SUPPORTS} terms")
        return of_edges, of_rings, cuts


def add_places(model: Any, data: Data) -> None:
    """Where stage replicas are, and the positions of rings."""
    given, capacity = data.given, data.places.capacity
    stages, slots, places = range(given.num_stages), range(given.replicas), range(len(capacity))
    kinds = list(dict.fromkeys(["replica", data.ring_kind]))

    def nodes(m: Any, weight: Mapping[str, float], own: Iterable[tuple[int, int]], p: int) -> Any:
        return milp.weighted_sum((each, m.at[kind, s, r, p]) for s, r in own for kind, each in weight.items())

    # fmt: off
    model.at = pyo.Var(kinds, stages, slots, places, domain=pyo.Binary, doc=
        "at['replica',s,r,p]: replica r of stage s is at place p; at['ring',s,i,p]: so is the i-th of its ring")
    model.one_place = pyo.Constraint(
        kinds, stages, slots,
        rule=lambda m, kind, s, r: milp.weighted_sum((1.0, m.at[kind, s, r, p]) for p in places) == 1, doc=
        "every stage replica, and every position of a ring, has one place: sum over p of at[.,s,r,p] = 1")
    model.filled = pyo.Constraint(
        places, rule=lambda m, p: nodes(m, {"replica": 1.0}, itertools.product(stages, slots), p) == capacity[p], doc=
        "every place is filled: sum over s, r of at['replica',s,r,p] = devices of p")
    model.ring_of_stage = pyo.Constraint(
        stages if given.separate_rings else (), places,
        rule=lambda m, s, p: nodes(m, {"ring": 1.0, "replica": -1.0}, [(s, r) for r in slots], p) == 0, doc=
        "a ring goes through the places of its stage: sum of at['ring',s,i,p] = sum of at['replica',s,r,p]")
    # fmt: on


def add_classes(model: Any, data: Data, edge_classes: list[Sequence[int]], ring_classes: list[Sequence[int]]) -> None:
    """Of which class the links of edges and of rings are, given their places."""
    slots, reached = range(data.given.replicas), [data.places.neighbours(float(speed)) for speed in data.speeds]

    def reaches(m: Any, ends: tuple[Node, Node], fast: Any, k: int, p: int, end: int) -> Any:
        there = milp.weighted_sum((1.0, m.at[(*ends[1 - end], q)]) for q in reached[k][p])
        return m.at[(*ends[end], p)] + fast <= 1 + there

    # fmt: off
    model.edge_class = pyo.Var(
        [(e, r, k) for e, own in enumerate(edge_classes) for r in slots for k in own], domain=pyo.Binary, doc=
        "edge_class[e,r,k]: the link of edge e in replica r has class k or faster")
    model.ring_class = pyo.Var([(s, k) for s, own in enumerate(ring_classes) for k in own], domain=pyo.Binary, doc=
        "ring_class[s,k]: all links of the ring of stage s have class k or faster")
    model.edge_nested = pyo.Constraint(
        [(e, r, *pair) for e, own in enumerate(edge_classes) for r in slots for pair in itertools.pairwise(own)],
        rule=lambda m, e, r, k, after: m.edge_class[e, r, k] <= m.edge_class[e, r, after], doc=
        "what is fast is no slower: edge_class[e,r,k] <= edge_class[e,r,k'] for the next slower class")
    model.ring_nested = pyo.Constraint(
        [(s, *pair) for s, own in enumerate(ring_classes) for pair in itertools.pairwise(own)],
        rule=lambda m, s, k, after: m.ring_class[s, k] <= m.ring_class[s, after], doc=
        "what is fast is no slower: ring_class[s,k] <= ring_class[s,k'] for the next slower class")
    model.edge_reaches = pyo.Constraint(
        [(*key, p, end) for key in model.edge_class for p in range(len(reached[key[2]])) for end in (0, 1)],
        rule=lambda m, e, r, k, p, end: reaches(m, data.edge_link(e, r), m.edge_class[e, r, k], k, p, end), doc=
        "with the class, the other end of an edge is where such a link leads: at[.,s,r,p] + edge_class[e,r,k] <= 1 + "
        "sum of at[.,s',r,q] over q with B(p,q) >= the class")
    model.ring_reaches = pyo.Constraint(
        [(*key, i, p, end) for key in model.ring_class for i in data.around for p in range(len(reached[key[1]]))
         for end in (0, 1)],
        rule=lambda m, s, k, i, p, end: reaches(m, data.ring_link(s, i), m.ring_class[s, k], k, p, end), doc=
        "and so is the next node of a ring: at[.,s,i,p] + ring_class[s,k] <= 1 + sum of at[.,s,i+1,q] over q with "
        "B(p,q) >= the class")
    # fmt: on


def build(data: Data, target_s: float | None = None) -> Any:
    """The model; with a target, of plans that take no longer (`TooManyError` if that is too much to write down)."""
    given, places, exact = data.given, range(len(data.places.capacity)), data.is_exact
    edges, slots = range(len(given.edges)), range(given.replicas)
    edge_classes, ring_classes, cuts = data.classes(target_s)
    model = pyo.ConcreteModel()

    def by_device(m: Any, time: Any, volume: float, ends: tuple[Node, Node], p: int) -> Any:
        """Big-M: the slowest link of the place, which no link of it exceeds."""
        cost = [milp.in_units(data.seconds(volume, p, q), data.unit_s) if p != q else 0.0 for q in places]
        there = milp.weighted_sum((each, m.at[(*ends[1], q)]) for q, each in enumerate(cost))
        return time >= there - max(cost) * (1 - m.at[(*ends[0], p)])

    def stage_time(m: Any, s: int, r: int) -> Any:
        parts = [("exchange", e, r) for e, _ in given.incident[s]] + ([("ring", s, 0)] if s in data.rings else [])
        spent = [data.takes(m, *part) if exact else _variable(m, *part) for part in parts]
        return m.bottleneck >= float(given.compute[s]) / data.unit_s + pyo.quicksum(spent)

    # fmt: off
    add_places(model, data)
    add_classes(model, data, edge_classes, ring_classes)
    if cuts is not None:
        add_cuts(model, data, cuts)
        return model
    model.bottleneck = pyo.Var(bounds=(0, None if data.most_s is None else data.most_s / data.unit_s), doc=
        "time of the slowest stage replica [Parmesan, Equation 5]")
    if not exact:
        model.exchange = pyo.Var(list(itertools.product(edges, slots)), domain=pyo.NonNegativeReals, doc=
            "exchange[e,r]: time in which replica r sends the tensors of edge e of the stage graph")
        model.ring = pyo.Var(data.rings, domain=pyo.NonNegativeReals, doc=
            "ring[s]: time of the all-reduce of stage s [Parmesan, Equation 7]")
    model.exchange_time = pyo.Constraint(
        () if exact else edges, slots, places,
        rule=lambda m, e, r, p: by_device(m, m.exchange[e, r], given.edges[e][2], data.edge_link(e, r), p), doc=
        "of many bandwidths: the tensors of edge (s,s') take their bytes over the bandwidth of the devices, wherever "
        "the first one is: exchange[e,r] >= M(s,s') / B(p(s),p(s')) [Parmesan, Equation 6]")
    model.ring_time = pyo.Constraint(
        () if exact else data.rings, data.around, places,
        rule=lambda m, s, i, p: by_device(m, m.ring[s], float(given.ring[s]), data.ring_link(s, i), p), doc=
        "of many bandwidths: the all-reduce takes as long as each link of the ring, wherever it begins: ring[s] >= "
        "2 (R - 1) P(s) / (R B) [Parmesan, Equation 7]")
    model.stage_time = pyo.Constraint(range(given.num_stages), slots, rule=stage_time, doc=
        "the slowest one takes as long as every stage replica: bottleneck >= c_u(s) + c_AR(s,p) + sum over neighbours "
        "s' of M(s,s') / B(p(s),p(s')), by the classes of its links; with a number in place of the bottleneck one of "
        "the links whose classes exceed it together is faster [Parmesan, Equations 5 to 7]")
    # fmt: on
    model.slowest = pyo.Objective(expr=model.bottleneck)
    return model


def add_cuts(model: Any, data: Data, cuts: Cuts) -> None:
    """What a number in place of the bottleneck says of each stage replica: the least combinations of `Cuts`."""

    def clause(m: Any, s: int, r: int, n: int) -> Any:
        parts = cuts.clauses[s][n]
        return pyo.quicksum(m.ring_class[s, k] if e < 0 else m.edge_class[e, r, k] for e, k in parts) >= 1

    slots = range(data.given.replicas)
    # fmt: off
    model.stage_time = pyo.Constraint(
        [(s, r, n) for s, each in enumerate(cuts.clauses) for r in slots for n in range(len(each))],
        rule=clause, doc=
        "of the links whose classes together exceed the target, one is faster: sum of their classes >= 1 "
        "[Parmesan, Equations 5 to 7]")
    model.too_slow = pyo.Constraint(
        [s for s, each in enumerate(cuts.impossible) if each], rule=lambda *_: milp.weighted_sum(()) >= 1, doc=
        "a stage that exceeds the target with the fastest links has no place at all: 0 >= 1")
    # fmt: on


def _variable(model: Any, name: str, number: int, r: int) -> Any:
    """The time of an exchange of a replica, or of a stage's ring."""
    return model.exchange[number, r] if name == "exchange" else model.ring[number]


def strengthen(model: Any, data: Data) -> None:
    """Rows that the others imply, and rows that one of all equivalent plans keeps."""
    given, places, ring = data.given, range(len(data.places.capacity)), data.ring_kind
    slots, speed, reach = range(given.replicas), data.places.speed, 0 if data.places.single else 1
    ordered = [[(ring if is_ring else "replica", s, i) for is_ring, s, i in pair] for pair in in_turn(given)]

    def leaves(m: Any, s: int, k: int, p: int) -> Any:
        out = any(speed[p, q] >= data.speeds[k] for q in places if q != p)
        most = len(slots) - m.ring_class[s, k] if out else len(slots) * (1 - m.ring_class[s, k])
        return milp.weighted_sum((1.0, m.at[ring, s, i, p]) for i in slots) <= most

    of_exchanges = () if data.is_exact else [("exchange", *each) for each in model.exchange]
    of_rings = () if data.is_exact else [("ring", s, 0) for s in model.ring]
    # fmt: off
    model.in_turn = pyo.Constraint(
        range(len(ordered)), places,
        rule=lambda m, n, p: m.at[(*ordered[n][1], p)] <= milp.weighted_sum(
            (1.0, m.at[(*ordered[n][0], q)]) for q in range(p + reach)), doc=
        "symmetry: replicas are numbered, and rings begin and go on, by the numbers of their places")
    model.class_time = pyo.Constraint(
        [*of_exchanges, *of_rings], rule=lambda m, *part: _variable(m, *part) >= data.takes(m, *part), doc=
        "implied: a part takes as long as by the class that its links reach, of bandwidths that are rounded up")
    model.ring_leaves = pyo.Constraint(
        [(s, k, p) for s, k in model.ring_class for p in places if data.places.ring_speed[p] < data.speeds[k]],
        rule=leaves, doc=
        "with a class that no ring inside place p has, the ring leaves p: sum over i of at[.,s,i,p] <= R - "
        "ring_class[s,k]; <= R (1 - ring_class[s,k]) where no such link leaves p")
    # fmt: on


@dataclass
class Model(milp.Runnable, WithoutSizes):
    """The model of ``data``; it is searched by ``targets``, ascending seconds that the objective may take, if any."""

    model: Any
    data: Data
    targets: Floats | None = None

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[Any], None] | None = None,
        on_bound: Callable[[float], None] | None = None,
    ) -> Run:
        """Search by the time of the slowest stage, or run the model as it is."""
        if self.targets is None or on_solution is None or on_bound is None:
            return super().run(limits, watch, on_solution, on_bound)
        given, one, nodes, solver = self.data.given, replace(limits, gap=0.0), 0, ""
        ways = [replace(self.data, places=places_of(given, groups)) for groups in groupings(given)]
        met = [math.inf] * len(ways)  # the least target that the groups do not refute

        def decide(data: Data, target: float) -> tuple[Run | None, Model]:
            nonlocal nodes, solver
            try:
                with stops_with(watch):
                    model = build(data, target * (1 + _ROUNDING))
                    strengthen(model, data)
            except TooManyError:
                return None, self
            found = Model(model, data)
            run = milp.run(model, one, watch)
            nodes, solver = nodes + int(run.stats.get("search_nodes", 0)), run.solver or solver
            return run, found

        def cheapest(target: float) -> Cheapest | None:
            for number, data in enumerate(ways):
                run, _ = decide(data, target) if target < met[number] else (None, self)
                if run is not None and run.infeasible:
                    return None
                if run is not None and run.values is not None:
                    met[number] = target
            run, found = decide(self.data, target)
            if run is None or run.values is None:
                return None if run is not None and run.infeasible else Cheapest(None, None, None)
            plan = found.decode(run.values)
            values = list(self.values_of(plan))
            columns = {id(variable): place for place, (variable, _) in enumerate(values)}
            slowest = evaluate(given.instance, plan)
            if slowest > target * (1 + 2 * _ROUNDING):
                raise RuntimeError("the model of a target accepts a mapping that is slower")
            return Cheapest(0.0, slowest, Values(columns, [value for _, value in values]))

        known = math.inf if watch.best_objective is None else watch.best_objective
        below = self.targets[self.targets < known * (1 - OPTIMAL_GAP / 2)]
        found = search_intervals(below, cheapest, known, limits, watch, on_solution, on_bound)
        return replace(found, solver=solver, stats={"search_nodes": nodes, **found.stats})

    def decode(self, values: Any) -> Plan:
        """The plan of a solution, where places are devices."""
        given, places = self.data.given, range(len(self.data.places.capacity))

        def on(kind: str, s: int, r: int) -> int:
            return max(places, key=lambda p: values[self.model.at[kind, s, r, p]])

        stages, slots = range(given.num_stages), range(given.replicas)
        rows = [[on("replica", s, r) for r in slots] for s in stages]
        if given.separate_rings:
            return plan_of(rows, [[rows[s].index(on("ring", s, i)) for i in slots] for s in stages])
        is_free = given.instance.ring == "free" and given.has_rings
        return plan_of(rows, [list(slots)] * len(rows) if is_free else None)

    def values_of(self, plan: Plan) -> Iterator[tuple[Any, int]]:
        """Where the nodes are in a plan that is equivalent."""
        plan = canonical(self.data.given, plan)
        on = {("replica", s, r): device for s, row in enumerate(plan.devices) for r, device in enumerate(row)}
        rings = plan.rings or tuple(tuple(range(self.data.given.replicas)) for _ in plan.devices)
        if self.data.given.separate_rings:
            on |= {("ring", s, i): plan.devices[s][r] for s, ring in enumerate(rings) for i, r in enumerate(ring)}
        return ((variable, int(on[kind, s, r] == p)) for (kind, s, r, p), variable in self.model.at.items())

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a mapping, as sums over what is where."""
        return quantities(self.model.at)

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds: a target, which rounding may have moved, or less what HiGHS's tolerances may add."""
        if self.targets is not None:
            return bound * (1 - _ROUNDING)
        return milp.proved_bound(bound, to_scale=True) * self.data.unit_s


def quantities(at: Any) -> Mapping[str, Callable[..., Any]]:
    """The quantities of a mapping from ``at['replica',s,r,d]``."""

    def where(factor: Callable[[int, int, int], float]) -> Any:
        return milp.weighted_sum((factor(*node), one) for (kind, *node), one in at.items() if kind == "replica")

    return {
        "device_of": lambda stage, replica: where(lambda s, r, d: d * ((s, r) == (stage, replica))),
        "on": lambda stage, replica, device: where(lambda *node: float(node == (stage, replica, device))),
        "runs": lambda device, stage: where(lambda s, _, d: float((s, d) == (stage, device))),
        "stage_of": lambda device: where(lambda s, _, d: s * (d == device)),
    }


def model_of(
    instance: DeviceMapping, watch: Watch | None = None, *, complete: bool = False, search: bool = False
) -> Model:
    """The model of an instance, with its requirements; searched by targets if it has none and many devices.

    `SizeError` if it is too large; `formulations.modelling.solve_model.Stopped` once the watch is.
    """
    watch = watch or Watch()
    given = arrays(instance, numbered=complete)
    most_s, longest_s, typical_s = ceiling(instance, watch, complete=complete)
    unit_s = typical_s / milp.NATURAL if typical_s > 0 else 1.0
    data = Data(given, devices_as_places(given), True, unit_s, most_s, longest_s)
    classes = (len(data.speeds) - 1) * (len(given.edges) + given.num_stages * given.has_rings)
    if len(data.speeds) > FEW_LEVELS or data.supports(classes) > _MAX_SUPPORTS:
        rounded = devices_as_places(round_up_speeds(given, _ROUNDED))
        data = replace(data, places=rounded, is_exact=False)
    is_large = search and not instance.requirements and instance.num_devices > _FEW_DEVICES
    targets = objective_values(given) if is_large and data.is_exact else None
    try:
        with stops_with(watch):
            model = build(data)
            strengthen(model, data)
    except TooManyError as error:
        raise SizeError(str(error)) from None
    return add_requirements(Model(model, data, targets), VOCABULARY, instance)


def solve(instance: DeviceMapping, limits: Limits, watch: Watch) -> Answer[Plan]:
    """The best plan, and a bound as tight as HiGHS's tolerances allow; exact where it searches targets."""
    found = prove(
        instance,
        lambda: model_of(instance, watch, search=limits.solver == DEFAULT_SOLVER),
        evaluate,
        violations,
        limits,
        watch,
        reason="no mapping meets the requirements",
        to_scale=True,
        first=first_plan(instance, limits),
    )
    if found.stop is Stop.COMPLETED and not found.reason and limits.gap <= OPTIMAL_GAP:
        return replace(found, reason="the search has ended, but HiGHS's tolerances leave a gap")
    return found
