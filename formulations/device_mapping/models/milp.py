"""Device mapping as a MILP (Pyomo, HiGHS): Parmesan's Problem (5), with the bottleneck as the objective.

    min_p max_s c_stage(s, p)   (5),   c_stage = c_u(s) + c_m(s, p) [6] + c_AR(s, p) [7], or one of the two

A vertex of G' is a node here: stage s, replica r. A link is an edge of the stage graph in one replica, or two
neighbours of a ring, where a ring's order may be a choice of its own. The arcs of a link are a flow of one unit between
where its ends are, so 1 / B(p(s), p(s')) is linear in them.

The relaxation is weak: where bandwidths are few the method decides targets instead (`milp_targets`).

Source: the problem is Parmesan's (section 5), the model is reconstructed.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.device_mapping.data.arrays import Arrays, arrays, plan_of
from formulations.device_mapping.definition.plan import Mapping as Plan
from formulations.device_mapping.definition.problem import evaluate, violations
from formulations.device_mapping.definition.quantities import VOCABULARY
from formulations.device_mapping.models import milp_targets
from formulations.device_mapping.models.first_plan import ceiling, first_plan
from formulations.modelling.solve_model import WithoutSizes, prove, require
from instances.problems.device_mapping import DeviceMapping
from solvers.milp import backend as milp
from solvers.outcome import OPTIMAL_GAP, Limits, Stop, Watch

Node = tuple[str, int, int]


@dataclass
class Model(milp.Runnable, WithoutSizes):
    """``model`` minimises ``model.bottleneck``, in units of ``unit`` seconds."""

    model: Any
    given: Arrays
    unit: float
    links: list[tuple[Node, Node]]

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.trusted(bound, to_scale=True) * self.unit

    def values_of(self, plan: Plan) -> Iterator[tuple[Any, int]]:
        """Where nodes and links are in a plan."""
        on = {("replica", s, r): device for s, row in enumerate(plan.devices) for r, device in enumerate(row)}
        rings = plan.rings or tuple(tuple(range(self.given.replicas)) for _ in plan.devices)
        on |= {("ring", s, i): plan.devices[s][r] for s, ring in enumerate(rings) for i, r in enumerate(ring)}
        yield from ((variable, int(on[kind, s, r] == d)) for (kind, s, r, d), variable in self.model.at.items())
        for (link, d, e), variable in self.model.arc.items():
            first, second = self.links[link]
            yield variable, int((on[first], on[second]) == (d, e))

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a mapping, as sums over what is where."""

        def where(factor: Callable[[int, int, int], float]) -> Any:
            at = self.model.at.items()
            return milp.weighted_sum((factor(*node), one) for (kind, *node), one in at if kind == "replica")

        return {
            "device_of": lambda stage, replica: where(lambda s, r, d: d * ((s, r) == (stage, replica))),
            "on": lambda stage, replica, device: where(lambda *node: float(node == (stage, replica, device))),
            "runs": lambda device, stage: where(lambda s, _, d: float((s, d) == (stage, device))),
            "stage_of": lambda device: where(lambda s, _, d: s * (d == device)),
        }

    def decode(self, values: Any) -> Plan:
        """The plan of a solution."""
        given, devices = self.given, range(self.given.num_devices)

        def on(kind: str, stage: int, slot: int) -> int:
            return max(devices, key=lambda device: values[self.model.at[kind, stage, slot, device]])

        stages, slots = range(given.num_stages), range(given.replicas)
        rows = [[on("replica", stage, slot) for slot in slots] for stage in stages]
        if not given.separate_rings:
            return plan_of(rows)
        return plan_of(rows, [[rows[stage].index(on("ring", stage, slot)) for slot in slots] for stage in stages])


def build(instance: DeviceMapping, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model; in units of a known plan, and plans twice as slow are left out, unless ``complete`` (`ceiling`)."""
    given = arrays(instance, numbered=complete)
    model = pyo.ConcreteModel()
    stages, slots, devices = range(given.num_stages), range(given.replicas), range(given.num_devices)
    most_s, longest_s, typical_s = ceiling(instance, watch or Watch(), complete=complete)
    unit = typical_s / milp.NATURAL if typical_s > 0 else 1.0
    kinds = ["replica", "ring"] if given.separate_rings else ["replica"]
    links, volumes, ring_of = _links(given, kinds[-1])
    longest = longest_s / unit
    model.at = pyo.Var(
        kinds,
        stages,
        slots,
        devices,
        domain=pyo.Binary,
        doc="at['replica',s,r,d]: replica r of stage s is on device d, p(s,r) = d; at['ring',s,i,d]: the i-th device "
        "of the ring of stage s is d",
    )
    model.bottleneck = pyo.Var(
        bounds=(0, None if most_s is None else most_s / unit),
        doc="time of the slowest stage replica [Parmesan, Equation 5]",
    )
    model.ring = pyo.Var(
        stages, domain=pyo.NonNegativeReals, doc="ring[s]: time of the all-reduce of stage s [Parmesan, Equation 7]"
    )
    _add_bijection(model, given, kinds)
    pairs = _add_flows(model, given, links)

    def seconds(link: int) -> Any:
        """volume / B(p(s), p(s')), which is capped: no better plan has a link of ``longest``."""
        return pyo.quicksum(
            min(milp.in_units(volumes[link] / given.speed[pair], unit), longest) * model.arc[(link, *pair)]
            for pair in pairs
        )

    model.ring_time = pyo.Constraint(
        sorted(ring_of),
        rule=lambda m, link: m.ring[ring_of[link]] >= seconds(link),
        doc="the all-reduce takes as long as each link of the ring: ring[s] >= 2 (R - 1) P(s) / (R B) "
        "[Parmesan, Equation 7]",
    )
    sent: dict[Node, list[int]] = {}
    for link, ends in enumerate(links):
        for node in () if link in ring_of else ends:
            sent.setdefault(node, []).append(link)

    def stage_time(m: Any, s: int, r: int) -> Any:
        sending = pyo.quicksum(map(seconds, sent.get(("replica", s, r), [])))
        return m.bottleneck >= float(given.compute[s]) / unit + m.ring[s] + sending

    model.stage_time = pyo.Constraint(
        stages,
        slots,
        rule=stage_time,
        doc="the slowest one takes as long as every stage replica: bottleneck >= c_u(s) + c_AR(s,p) + sum over "
        "neighbours s' of M(s,s') / B(p(s),p(s')) [Parmesan, Equations 5 and 6]",
    )
    model.objective = pyo.Objective(expr=model.bottleneck)
    found = Model(model, given, unit, links)
    require(found, VOCABULARY, instance)
    return found


def _add_bijection(model: Any, given: Arrays, kinds: list[str]) -> None:
    """Every node (and every position of a ring) has one device, every device one node."""
    stages, slots, devices = range(given.num_stages), range(given.replicas), range(given.num_devices)
    model.one_device = pyo.Constraint(
        kinds,
        stages,
        slots,
        rule=lambda m, kind, s, r: pyo.quicksum(m.at[kind, s, r, d] for d in devices) == 1,
        doc="every stage replica, and every position of a ring, has one device: sum over d of at[.,s,r,d] = 1",
    )
    model.one_node = pyo.Constraint(
        devices,
        rule=lambda m, d: pyo.quicksum(m.at["replica", s, r, d] for s in stages for r in slots) == 1,
        doc="every device has one stage replica: sum over s, r of at['replica',s,r,d] = 1",
    )
    if given.separate_rings:
        model.ring_of_stage = pyo.Constraint(
            stages,
            devices,
            rule=lambda m, s, d: pyo.quicksum(m.at["ring", s, r, d] - m.at["replica", s, r, d] for r in slots) == 0,
            doc="a ring goes through the devices of its stage: sum of at['ring',s,i,d] = sum of at['replica',s,r,d]",
        )


def _add_flows(model: Any, given: Arrays, links: list[tuple[Node, Node]]) -> list[tuple[int, int]]:
    """The arcs of a link begin where its first end is, and end where its second one is; returns the pairs they join."""
    devices = range(given.num_devices)
    pairs = [(d, e) for d in devices for e in devices if d != e]
    model.arc = pyo.Var(
        range(len(links)), pairs, bounds=(0, 1), doc="arc[l,d,e]: link l runs from device d to device e"
    )
    model.begins = pyo.Constraint(
        range(len(links)),
        devices,
        rule=lambda m, link, d: (
            pyo.quicksum(m.arc[link, d, e] for e in devices if e != d) == m.at[(*links[link][0], d)]
        ),
        doc="a link begins where its first end is: sum over e of arc[l,d,e] = at[first end,d]",
    )
    model.ends = pyo.Constraint(
        range(len(links)),
        devices,
        rule=lambda m, link, e: (
            pyo.quicksum(m.arc[link, d, e] for d in devices if d != e) == m.at[(*links[link][1], e)]
        ),
        doc="a link ends where its second end is: sum over d of arc[l,d,e] = at[second end,e]",
    )
    return pairs


def _links(given: Arrays, ring_kind: str) -> tuple[list[tuple[Node, Node]], list[float], dict[int, int]]:
    """Pairs of nodes, the bytes M(s, s') or 2 (R - 1) P(s) / R they exchange, and of which stage's ring a pair is."""
    replicas = given.replicas
    links: list[tuple[Node, Node]] = []
    volumes: list[float] = []
    rings: dict[int, int] = {}
    for a, b, volume in given.edges:
        for replica in range(replicas):
            links.append((("replica", a, replica), ("replica", b, replica)))
            volumes.append(volume)
    for stage in range(given.num_stages):
        if given.ring[stage] <= 0:
            continue
        for slot in range(replicas if replicas > 2 else 1):
            rings[len(links)] = stage
            links.append(((ring_kind, stage, slot), (ring_kind, stage, (slot + 1) % replicas)))
            volumes.append(float(given.ring[stage]))
    return links, volumes, rings


def solve(instance: DeviceMapping, limits: Limits, watch: Watch) -> Answer[Plan]:
    """The best plan; by targets where bandwidths are few, else with a bound as tight as HiGHS's tolerances allow."""
    if watch.stopped():
        return Answer(stop=watch.why())
    first = first_plan(instance, limits)
    given = arrays(instance)
    if not instance.requirements and milp_targets.has_few_values(given):
        known = first.report(instance, evaluate, violations, watch)
        by_targets = milp_targets.search(given, limits, watch)
        return replace(by_targets, stats={**by_targets.stats, **first.origin(known, watch)})

    def model() -> Model:
        return build(instance, watch)

    reason = "no mapping meets the requirements"
    found = prove(instance, model, evaluate, violations, limits, watch, reason=reason, to_scale=True, first=first)
    if found.stop is Stop.COMPLETED and not found.reason and limits.gap <= OPTIMAL_GAP:
        return replace(found, reason="the search has ended, but HiGHS's tolerances leave a gap")
    return found
