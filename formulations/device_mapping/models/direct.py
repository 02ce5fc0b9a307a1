"""Device mapping for CP-SAT in one model: devices of stage replicas, seconds of links, the slowest stage as objective.

Nothing is renumbered or exchanged here, so requirements may speak of every device and replica. Source: the problem is
Parmesan's (section 5), the model is reconstructed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ortools.sat.python import cp_model

from formulations.device_mapping.bounds.combinatorial import single_bound
from formulations.device_mapping.data.arrays import Arrays, arrays, plan_of
from formulations.device_mapping.definition.plan import Mapping as Plan
from formulations.device_mapping.definition.quantities import VOCABULARY
from formulations.device_mapping.models.first_plan import ceiling
from formulations.modelling.solve_model import WithoutSizes, go_on, require
from instances.problems.device_mapping import DeviceMapping
from solvers.cpsat import backend as cpsat
from solvers.outcome import Watch
from solvers.scaling import cost_scale

_sum = cp_model.LinearExpr.sum
_weighted = cp_model.LinearExpr.weighted_sum

Node = list[Any]


class DirectModel(cpsat.Runnable, WithoutSizes):
    """``at[s][r][d]``, and ``ring_at[s][i][d]`` (the same lists where a ring has no order of its own)."""

    def __init__(self, given: Arrays, most_s: float | None, longest_s: float, watch: Watch) -> None:
        """All costs are rounded down; links of more than ``longest_s`` count as that, plans of more are left out."""
        self.given, self._watch = given, watch
        self.model = cpsat.SpokenModel()
        self._longest_s = longest_s
        self._stages, self._slots = range(given.num_stages), range(given.replicas)
        self._devices = range(given.num_devices)
        slowest = float(given.speed[given.speed > 0].min()) if given.num_devices > 1 else 1.0
        self._most = [
            float(given.compute[s])
            + min(float(given.ring[s]) / slowest, longest_s)
            + sum(min(volume / slowest, longest_s) for _, volume in given.incident[s])
            for s in self._stages
        ]
        terms = 2 + max(len(given.incident[s]) for s in self._stages)
        self.scale = cost_scale(single_bound(given), terms, max(self._most))
        self._bijection()
        self._rings()
        self._exchanges()
        self._times(most_s)

    def _nodes(self, name: str) -> list[list[Node]]:
        new_bool = self.model.new_bool_var
        return [[[new_bool(f"{name}[{s},{r},{d}]") for d in self._devices] for r in self._slots] for s in self._stages]

    def _bijection(self) -> None:
        says = self.model.says
        says("at", "at[s,r,d]: replica r of stage s is on device d")
        says("one_device", "every stage replica has one device: sum over d of at[s,r,d] = 1")
        says("one_node", "every device has one stage replica: sum over s, r of at[s,r,d] = 1")
        self.at = self._nodes("at")
        for s in self._stages:
            for r in self._slots:
                self.model.add_exactly_one(self.at[s][r]).with_name(f"one_device[{s},{r}]")
        for d in self._devices:
            here = [self.at[s][r][d] for s in self._stages for r in self._slots]
            self.model.add_exactly_one(here).with_name(f"one_node[{d}]")

    def _rings(self) -> None:
        says = self.model.says
        says("ring_at", "ring_at[s,i,d]: the i-th device of the ring of stage s is d")
        says("one_device_of_ring", "every position of a ring has one device: sum over d of ring_at[s,i,d] = 1")
        says("ring_of_stage", "a ring goes through the devices of its stage: sum of ring_at[s,i,d] = sum of at[s,r,d]")
        self.ring_at = self.at
        if not self.given.separate_rings:
            return
        self.ring_at = self._nodes("ring_at")
        for s in self._stages:
            for i in self._slots:
                self.model.add_exactly_one(self.ring_at[s][i]).with_name(f"one_device_of_ring[{s},{i}]")
            for d in self._devices:
                passed, here = ([node[d] for node in nodes[s]] for nodes in (self.ring_at, self.at))
                self.model.add(_sum(passed) == _sum(here)).with_name(f"ring_of_stage[{s},{d}]")

    def _takes(self, seconds: Any, volume: float, one: Node, other: Node, name: str) -> None:
        """``seconds`` is at least what a link of so many bytes takes between two nodes, wherever they are."""
        go_on(self._watch)
        for d, here in enumerate(one):
            speed = self.given.speed[d]
            costs = [
                self.scale.floor(min(volume / float(speed[e]), self._longest_s)) if e != d else 0 for e in self._devices
            ]
            self.model.add(seconds >= _weighted(other, costs)).only_enforce_if(here).with_name(f"{name},{d}]")

    def _seconds(self, volume: float, name: str) -> Any:
        slowest = float(self.given.speed[self.given.speed > 0].min())
        return self.model.new_int_var(0, self.scale.floor(min(volume / slowest, self._longest_s)), name)

    def _exchanges(self) -> None:
        says, given = self.model.says, self.given
        says("exchange", "exchange[e,r]: time in which replica r sends the tensors of edge e of the stage graph")
        says(
            "exchange_time",
            "the tensors of edge (s,s') take their bytes over the bandwidth of the devices: exchange[e,r] >= M(s,s') / "
            "B(p(s),p(s')), wherever the first one is [Parmesan, Equation 6]",
        )
        says("ring", "ring[s]: time of the all-reduce of stage s [Parmesan, Equation 7]")
        says(
            "ring_time",
            "the all-reduce takes as long as each link of the ring: ring[s] >= 2 (R - 1) P(s) / (R B), wherever the "
            "link begins [Parmesan, Equation 7]",
        )
        self._exchange: dict[tuple[int, int], Any] = {}
        for number, (a, b, volume) in enumerate(given.edges):
            for r in self._slots:
                found = self._exchange[number, r] = self._seconds(volume, f"exchange[{number},{r}]")
                self._takes(found, volume, self.at[a][r], self.at[b][r], f"exchange_time[{number},{r}")
        self._ring: dict[int, Any] = {}
        for s in self._stages:
            volume = float(given.ring[s])
            if volume <= 0:
                continue
            found = self._ring[s] = self._seconds(volume, f"ring[{s}]")
            nodes = self.ring_at[s]
            for i in self._slots if given.replicas > 2 else range(1):
                self._takes(found, volume, nodes[i], nodes[(i + 1) % given.replicas], f"ring_time[{s},{i}")

    def _times(self, most_s: float | None) -> None:
        says, given = self.model.says, self.given
        says("bottleneck", "time of the slowest stage replica, in whole units [Parmesan, Equation 5]")
        says(
            "stage_time",
            "the slowest one takes as long as every stage replica: computing, all-reduce, and the tensors that it "
            "exchanges with its neighbours [Parmesan, Equations 5 to 7]",
        )
        top = max(self._most) if most_s is None else min(max(self._most), most_s)
        self.bottleneck = self.model.new_int_var(0, self.scale.ceil(top), "bottleneck")
        for s in self._stages:
            for r in self._slots:
                parts = [self._exchange[number, r] for number, _ in given.incident[s]]
                parts += [self._ring[s]] if s in self._ring else []
                computing = self.scale.floor(float(given.compute[s]))
                self.model.add(self.bottleneck >= computing + _sum(parts)).with_name(f"stage_time[{s},{r}]")
        self.model.minimize(self.bottleneck)

    def decode(self, values: Any) -> Plan:
        """The plan of a solution."""

        def read(nodes: Sequence[Sequence[Node]]) -> list[list[int]]:
            return [[next(d for d, one in enumerate(node) if values[one]) for node in row] for row in nodes]

        rows = read(self.at)
        if self.ring_at is self.at:
            return plan_of(rows)
        passed = read(self.ring_at)
        return plan_of(rows, [[row.index(d) for d in ring] for row, ring in zip(rows, passed, strict=True)])

    def values_of(self, plan: Plan) -> Iterator[tuple[Any, int]]:
        """Where the replicas are in a plan, and its rings, if it states them."""
        for row, devices in zip(self.at, plan.devices, strict=True):
            for node, device in zip(row, devices, strict=True):
                yield from ((one, int(d == device)) for d, one in enumerate(node))
        if self.ring_at is self.at or plan.rings is None:
            return
        for s, ring in enumerate(plan.rings):
            for node, replica in zip(self.ring_at[s], ring, strict=True):
                yield from ((one, int(d == plan.devices[s][replica])) for d, one in enumerate(node))

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a mapping, as sums over what is where."""
        at = self.at
        return {
            "device_of": lambda stage, replica: sum(d * one for d, one in enumerate(at[stage][replica])),
            "on": lambda stage, replica, device: at[stage][replica][device],
            "runs": lambda device, stage: sum(node[device] for node in at[stage]),
            "stage_of": lambda device: sum(s * node[device] for s in self._stages for node in at[s]),
        }

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return self.scale.restore(max(0, cpsat.whole(bound))) * (1 - 1e-14)


def build(instance: DeviceMapping, watch: Watch | None = None, *, complete: bool = False) -> DirectModel:
    """The model. Plans that are slower than twice a known one are left out, unless ``complete``.

    Where no plan is known, links count as no slower than `ceiling` says. Raises `modelled.Stopped` once the watch is.
    """
    watch = watch or Watch()
    most_s, longest_s, _ = ceiling(instance, watch, complete=complete)
    model = DirectModel(arrays(instance, numbered=complete), most_s, longest_s, watch)
    require(model, VOCABULARY, instance)
    return model
