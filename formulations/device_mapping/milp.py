"""Device mapping as a MILP (Pyomo, HiGHS): Parmesan's Problem (5), with the bottleneck as the objective.

    min_p max_s c_stage(s, p)   (5),   c_stage = c_u(s) + c_m(s, p) [6] + c_AR(s, p) [7], or one of the two

A vertex of G' is a node here: stage s, replica r. ``at["replica", s, r, d]`` says p(s, r) = d; ``at["ring", s, i, d]``
says that the i-th device of the ring of stage s is d, where a ring's order is a choice of its own. A link is an edge of
the stage graph in one replica, or two neighbours of a ring; ``arc[l, d, e]`` says that it runs from d to e. The arcs of
a link are a flow of one unit between where its ends are, so 1 / B(p(s), p(s')) is linear in them.

Source: the problem is Parmesan's (section 5), the model is reconstructed. Small instances only: the relaxation is weak.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from formulations.device_mapping.arrays import Arrays, arrays, plan_of
from formulations.device_mapping.baselines import pipeline_major, stage_major
from formulations.device_mapping.first_plan import first_plan
from formulations.device_mapping.problem import Mapping, evaluate, violations
from formulations.family import Answer
from formulations.modelled import WithoutSizes, prove
from instances.device_mapping import DeviceMapping
from solvers import milp
from solvers.outcome import Limits, Watch

#: A link that alone takes this many times as long as a known plan counts as no slower, and no plan may take as long: no
#: better plan has it. HiGHS calls feasible models infeasible in which numbers are far above the objective, and beside a
#: bound that is closer to the known plan (by a thousandth, say) it proves false optima.
_MAX_SLOWDOWN = 2.0

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

    def values_of(self, plan: Mapping) -> Iterator[tuple[Any, int]]:
        """Where nodes and links are in a plan."""
        on = {("replica", s, r): device for s, row in enumerate(plan.devices) for r, device in enumerate(row)}
        rings = plan.rings or tuple(tuple(range(self.given.replicas)) for _ in plan.devices)
        on |= {("ring", s, i): plan.devices[s][r] for s, ring in enumerate(rings) for i, r in enumerate(ring)}
        yield from ((variable, int(on[kind, s, r] == d)) for (kind, s, r, d), variable in self.model.at.items())
        for (link, d, e), variable in self.model.arc.items():
            first, second = self.links[link]
            yield variable, int((on[first], on[second]) == (d, e))

    def decode(self, values: Any) -> Mapping:
        """The plan of a solution."""
        given, devices = self.given, range(self.given.num_devices)

        def on(kind: str, stage: int, slot: int) -> int:
            return max(devices, key=lambda device: values[self.model.at[kind, stage, slot, device]])

        stages, slots = range(given.num_stages), range(given.replicas)
        rows = [[on("replica", stage, slot) for slot in slots] for stage in stages]
        if not given.separate_rings:
            return plan_of(rows)
        return plan_of(rows, [[rows[stage].index(on("ring", stage, slot)) for slot in slots] for stage in stages])


def build(given: Arrays, upper: float) -> Model:
    """The model; ``upper`` is the objective of some plan, in seconds."""
    model = pyo.ConcreteModel()
    stages, slots, devices = range(given.num_stages), range(given.replicas), range(given.num_devices)
    unit = upper / milp.NATURAL if upper > 0 else 1.0
    kinds = ["replica", "ring"] if given.separate_rings else ["replica"]
    links, volumes, ring_of = _links(given, kinds[-1])
    longest = _MAX_SLOWDOWN * upper / unit
    model.at = pyo.Var(kinds, stages, slots, devices, domain=pyo.Binary)
    model.bottleneck = pyo.Var(bounds=(0, longest))
    model.ring = pyo.Var(stages, domain=pyo.NonNegativeReals)

    # p is a bijection: every node (and every position of a ring) has one device, every device one node.
    model.one_device = pyo.Constraint(
        kinds, stages, slots, rule=lambda m, kind, s, r: pyo.quicksum(m.at[kind, s, r, d] for d in devices) == 1
    )
    model.one_node = pyo.Constraint(
        devices, rule=lambda m, d: pyo.quicksum(m.at["replica", s, r, d] for s in stages for r in slots) == 1
    )
    if given.separate_rings:  # ring(repl(s)): a ring goes through the devices of its stage
        model.ring_of_stage = pyo.Constraint(
            stages,
            devices,
            rule=lambda m, s, d: pyo.quicksum(m.at["ring", s, r, d] - m.at["replica", s, r, d] for r in slots) == 0,
        )

    # Flows: the arcs of a link begin where its first end is, and end where its second one is.
    pairs = [(d, e) for d in devices for e in devices if d != e]
    model.arc = pyo.Var(range(len(links)), pairs, bounds=(0, 1))
    model.begins = pyo.Constraint(
        range(len(links)),
        devices,
        rule=lambda m, link, d: (
            pyo.quicksum(m.arc[link, d, e] for e in devices if e != d) == m.at[(*links[link][0], d)]
        ),
    )
    model.ends = pyo.Constraint(
        range(len(links)),
        devices,
        rule=lambda m, link, e: (
            pyo.quicksum(m.arc[link, d, e] for d in devices if d != e) == m.at[(*links[link][1], e)]
        ),
    )

    def seconds(link: int) -> Any:
        """volume / B(p(s), p(s')), which is capped: no better plan has a link of ``longest``."""
        return pyo.quicksum(
            min(milp.in_units(volumes[link] / given.speed[pair], unit), longest) * model.arc[(link, *pair)]
            for pair in pairs
        )

    # Equation 7: ring[s] = c_AR(s, p) >= 2 (R - 1) P(s) / (R B) over each link of the ring of s.
    model.ring_time = pyo.Constraint(sorted(ring_of), rule=lambda m, link: m.ring[ring_of[link]] >= seconds(link))

    # Equations 5 and 6: bottleneck >= c_u(s) + c_AR(s, p) + sum over neighbours s' of M(s, s') / B(p(s), p(s')).
    sent: dict[Node, list[int]] = {}
    for link, ends in enumerate(links):
        for node in () if link in ring_of else ends:
            sent.setdefault(node, []).append(link)

    def stage_time(m: Any, s: int, r: int) -> Any:
        sending = pyo.quicksum(map(seconds, sent.get(("replica", s, r), [])))
        return m.bottleneck >= float(given.compute[s]) / unit + m.ring[s] + sending

    model.stage_time = pyo.Constraint(stages, slots, rule=stage_time)
    model.objective = pyo.Objective(expr=model.bottleneck)
    return Model(model, given, unit, links)


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


def solve(instance: DeviceMapping, limits: Limits, watch: Watch) -> Answer[Mapping]:
    """The best plan, with a bound as tight as HiGHS's tolerances allow."""
    if watch.stopped():
        return Answer(stop=watch.why())
    given = arrays(instance)
    for plan in (stage_major(instance), pipeline_major(instance)):
        watch.plan(plan, evaluate(instance, plan))

    def model() -> Model:
        return build(given, watch.best_objective or 0.0)

    first = first_plan(instance, limits)
    return prove(instance, model, evaluate, violations, limits, watch, to_scale=True, first=first)
