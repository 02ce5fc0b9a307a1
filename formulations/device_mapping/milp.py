"""Device mapping as a MILP (Pyomo, HiGHS), with the target as the objective.

``at[s, r, d]``: node (s, r) is on device d. ``arc[l, d, d']``: link l runs from d to d'; links are an edge in one
replica, or two neighbours in a stage's ring. The arcs of a link are a flow of one unit, so their costs are sums.

Source: reconstructed. Small instances only: the relaxation is weak.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from formulations.device_mapping.arrays import Arrays, arrays, plan_of
from formulations.device_mapping.baselines import pipeline_major, stage_major
from formulations.device_mapping.problem import Mapping, evaluate, violations
from formulations.family import Answer
from formulations.modelled import WithoutSizes, prove
from instances.device_mapping import DeviceMapping
from solvers import milp
from solvers.outcome import Limits, Watch

#: A link that alone takes this many times as long as a known plan counts as no slower, and no plan may take as long: no
#: better plan has it. HiGHS calls feasible models infeasible in which numbers are far above the objective, and beside a
#: bound that is closer to the known plan (by a thousandth, say) it proves false optima.
_MOST = 2.0

Node = tuple[str, int, int]


@dataclass
class MilpModel(milp.Runnable, WithoutSizes):
    """``model.at``, ``model.arc`` and ``model.slowest`` in units of ``unit`` seconds."""

    model: Any
    given: Arrays
    unit: float
    links: list[tuple[Node, Node]]
    options = milp.TIGHT

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.trusted(bound, to_scale=True) * self.unit

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


def build(given: Arrays, upper: float) -> MilpModel:
    """The model; ``upper`` is the objective of some plan, in seconds."""
    unit = upper / milp.NATURAL if upper > 0 else 1.0
    model = pyo.ConcreteModel()
    stages, slots, devices = range(given.num_stages), range(given.replicas), range(given.num_devices)
    ring_kind = "ring" if given.separate_rings else "replica"
    kinds = sorted({"replica", ring_kind})
    model.at = pyo.Var(kinds, stages, slots, devices, domain=pyo.Binary)
    model.slowest = pyo.Var(bounds=(0, _MOST * upper / unit))
    model.ring = pyo.Var(stages, domain=pyo.NonNegativeReals)
    # Every node has a device, every device a node; a ring passes its stage's devices.
    model.placed = pyo.Constraint(
        kinds, stages, slots, rule=lambda m, kind, s, r: pyo.quicksum(m.at[kind, s, r, d] for d in devices) == 1
    )
    model.used = pyo.Constraint(
        devices, rule=lambda m, d: pyo.quicksum(m.at["replica", s, r, d] for s in stages for r in slots) == 1
    )
    if given.separate_rings:
        model.passed = pyo.Constraint(
            stages,
            devices,
            rule=lambda m, s, d: pyo.quicksum(m.at["ring", s, r, d] - m.at["replica", s, r, d] for r in slots) == 0,
        )
    links, costs, rings = _links(given, ring_kind)
    pairs = [(d, e) for d in devices for e in devices if d != e]
    model.arc = pyo.Var(range(len(links)), pairs, bounds=(0, 1))
    # The arcs of a link begin and end where its nodes are.
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
        slowest = _MOST * upper / unit
        return pyo.quicksum(
            min(costs[link] / given.speed[pair] / unit, slowest) * model.arc[(link, *pair)] for pair in pairs
        )

    # A ring is as slow as its slowest link; a node computes, passes its ring, and exchanges tensors.
    model.rings = pyo.Constraint(sorted(rings), rule=lambda m, link: m.ring[rings[link]] >= seconds(link))
    sends: dict[Node, list[int]] = {}
    for link, ends in enumerate(links):
        if link not in rings:
            for node in ends:
                sends.setdefault(node, []).append(link)
    model.times = pyo.Constraint(
        stages,
        slots,
        rule=lambda m, s, r: (
            m.slowest
            >= float(given.compute[s]) / unit + m.ring[s] + pyo.quicksum(map(seconds, sends.get(("replica", s, r), [])))
        ),
    )
    model.objective = pyo.Objective(expr=model.slowest)
    return MilpModel(model, given, unit, links)


def _links(given: Arrays, ring_kind: str) -> tuple[list[tuple[Node, Node]], list[float], dict[int, int]]:
    """Pairs of nodes with the bytes they exchange, and which of them are links of which stage's ring."""
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

    def model() -> MilpModel:
        return build(given, watch.best_objective or 0.0)

    return prove(instance, model, evaluate, violations, limits, watch, to_scale=True)
