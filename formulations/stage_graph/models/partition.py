"""The CP-SAT model of stage graphs: which stage each operator is in, devices, and depth, for a micro-batch size.

Variables: ``within[v, s]``, operator v is in stage s; ``upto[v, s]``, in s or an earlier one (along an edge stages do
not go back, so the quotient has no cycle); ``same[e, s]``, both ends of e are in s; ``degree[s, r]``; ``deep[s, d]``,
at least d stages from s to the end. Costs and sizes become integers by rounding down, limits are rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from formulations.modelled import go_on
from formulations.stage_graph.costs import with_in_flight
from formulations.stage_graph.models.devices import Links, link_devices
from formulations.stage_graph.problem import Stage, StagePlan, data_edges, held_samples, replica_samples
from formulations.stage_graph.upsets.branches import largest
from instances.stage_graph import StageGraph
from solvers.outcome import Watch
from solvers.scaling import Scale, size_scale


@dataclass(frozen=True)
class Case:
    """Micro-batch sizes of a model: of several each cost is the least of theirs, and nothing has a depth."""

    sizes: tuple[int, ...]

    def least(self, cost: Any, degree: int) -> float:
        """The least of ``cost(size, samples of a replica)``."""
        sizes = (size for size in largest(self.sizes) if size >= degree)
        return float(min(cost(size, replica_samples(size, degree)) for size in sizes))

    def held(self, minibatch: int, degree: int, depth: int) -> int:
        """The fewest samples on the fullest replica of a stage with so many micro-batches in flight."""
        sizes = (size for size in self.sizes if size >= degree)
        return min(held_samples(minibatch, size, degree, depth * size) for size in sizes)


class Model:
    """The model of a case; ``target`` is the time per sample in units of ``scale``, at most ``high``."""

    def __init__(self, instance: StageGraph, case: Case, scale: Scale, high: int, watch: Watch | None = None) -> None:
        """Build it; `formulations.modelled.Stopped` once ``watch`` is stopped."""
        self.instance, self.case, self.scale, self.watch = instance, case, scale, watch or Watch()
        self.model = cp_model.CpModel()
        self.slots = range(min(instance.num_operators, instance.num_devices))
        self.degrees = range(1, min(instance.num_devices, max(case.sizes)) + 1)
        self.target = self.model.new_int_var(0, high, "target")
        self._partition()
        self._devices()
        self.links: Links | None = link_devices(self) if instance.device_graph is not None else None
        self._depths()
        self._times()
        self._work()
        self._order()
        self._memory()

    def _partition(self) -> None:
        model, nodes, last = self.model, range(self.instance.num_operators), self.slots[-1]
        self.within = {(v, s): model.new_bool_var(f"within_{v}_{s}") for v in nodes for s in self.slots}
        upto = {(v, s): model.new_bool_var(f"upto_{v}_{s}") for v in nodes for s in self.slots}
        for v in nodes:
            go_on(self.watch)
            model.add(upto[v, last] == 1)
            for s in self.slots:
                model.add(self.within[v, s] == upto[v, s] - (upto[v, s - 1] if s else 0))
        self.same: dict[tuple[int, int], Any] = {}
        for e, edge in enumerate(self.instance.edges):
            go_on(self.watch)
            for s in self.slots:
                model.add_implication(upto[edge.target, s], upto[edge.source, s])
                both = self.same[e, s] = model.new_bool_var(f"same_{e}_{s}")
                model.add_implication(both, self.within[edge.source, s])
                model.add_implication(both, self.within[edge.target, s])
                model.add_bool_or(both, self.within[edge.source, s].negated(), self.within[edge.target, s].negated())

    def _devices(self) -> None:
        model = self.model
        self.degree = {(s, r): model.new_bool_var(f"degree_{s}_{r}") for s in self.slots for r in self.degrees}
        used = []
        for s in self.slots:
            used.append(model.new_bool_var(f"used_{s}"))
            model.add(sum(self.degree[s, r] for r in self.degrees) == used[s])
            inside = [self.within[v, s] for v in range(self.instance.num_operators)]
            model.add_bool_or(*inside, used[s].negated())
            for each in inside:
                model.add_implication(each, used[s])
            if s:
                model.add_implication(used[s], used[s - 1])
        model.add(sum(r * each for (_, r), each in self.degree.items()) <= self.instance.num_devices)

    def _depths(self) -> None:
        """``deep[s, d]`` for d from 2 to the depth at which the whole mini-batch is in flight."""
        instance, model = self.instance, self.model
        case, nodes = self.case, range(instance.num_operators)
        deepest = 1 if len(case.sizes) > 1 else min(len(self.slots), -(-instance.minibatch // case.sizes[0]))
        self.depths = range(1, deepest + 1)
        self.deep = {(s, d): model.new_bool_var(f"deep_{s}_{d}") for s in self.slots for d in self.depths[1:]}
        behind = {(v, d): model.new_bool_var(f"behind_{v}_{d}") for v in nodes for d in self.depths[1:]}
        for e, edge in enumerate(instance.edges):
            go_on(self.watch)
            together = sum(self.same[e, s] for s in self.slots)
            for d in self.depths[1:]:
                after = behind[edge.target, d - 1] if d > 2 else 1
                model.add(behind[edge.source, d] >= after - together)
                model.add_implication(behind[edge.target, d], behind[edge.source, d])
        for (s, d), deep in self.deep.items():
            go_on(self.watch)
            for v in nodes:
                inside = self.within[v, s]
                model.add_bool_or(deep, inside.negated(), behind[v, d].negated())
                model.add_bool_or(behind[v, d], inside.negated(), deep.negated())

    def _times(self) -> None:
        instance = self.instance
        for r in self.degrees:
            own = [self.case.least(self._passes(v), r) for v in range(instance.num_operators)]
            for s in self.slots:
                go_on(self.watch)
                for reduced_per_byte, extra in self._reduced(s, r):
                    fixed = 2 * r * instance.latency_s / instance.minibatch if r > 1 else 0.0
                    units = [
                        self.scale.floor(passes + operator.weight_bytes * reduced_per_byte)
                        for passes, operator in zip(own, instance.operators, strict=True)
                    ]
                    total = sum(unit * self.within[v, s] for v, unit in enumerate(units)) + self.scale.floor(fixed)
                    total += sum(self._sent(e, s, r) for e in range(len(instance.edges)))
                    self.model.add(total <= self.target).only_enforce_if(self.degree[s, r], *extra)

    def _work(self) -> None:
        """All devices together: passes, the tensors between stages at both ends, and what reducing takes at least."""
        instance = self.instance
        total: Any = self.scale.floor(
            math.fsum(self.case.least(self._passes(v), 1) for v in range(instance.num_operators))
        )
        fastest = instance.bandwidth_bytes_per_s if self.links is None else self.links.bandwidths[0]
        for e, edge in enumerate(instance.edges):
            size = edge.bytes_per_sample
            sent = self.case.least(lambda b, n, size=size: 4 * (instance.latency_s + size * n / fastest) / b, 1)
            total += self.scale.floor(sent) * (1 - sum(self.same[e, s] for s in self.slots))
        for (_, r), each in self.degree.items():
            waited = 2 * r * r * instance.latency_s / instance.minibatch if r > 1 else 0.0
            total += self.scale.floor(waited) * each
        lost = instance.num_operators + 3 * len(instance.edges) + 2  # units that rounding takes off the target
        self.model.add(total <= instance.num_devices * (self.target + lost))

    def _order(self) -> None:
        """Of stages next to each other without a tensor between them, the one with the first operator goes first."""
        model, nodes = self.model, range(self.instance.num_operators)
        begun = {(s, v): model.new_bool_var(f"begun_{s}_{v}") for s in self.slots for v in nodes}
        for s in self.slots:
            go_on(self.watch)
            for v in nodes:
                model.add_implication(self.within[v, s], begun[s, v])
                before = [begun[s, v - 1]] if v else []
                for each in before:
                    model.add_implication(each, begun[s, v])
                model.add_bool_or(self.within[v, s], begun[s, v].negated(), *before)
        for s in self.slots[1:]:
            go_on(self.watch)
            crossing = []
            for e, edge in enumerate(self.instance.edges):
                crossing.append(model.new_bool_var(f"crossing_{e}_{s}"))
                model.add_implication(crossing[-1], self.within[edge.source, s - 1])
                model.add_implication(crossing[-1], self.within[edge.target, s])
            for v in nodes:
                model.add_bool_or(begun[s - 1, v], begun[s, v].negated(), *crossing)

    def _passes(self, v: int) -> Any:
        operator = self.instance.operators[v]
        return lambda size, n: (operator.forward_s(n) + operator.backward_s(n)) / size

    def _reduced(self, s: int, r: int) -> list[tuple[float, list[Any]]]:
        """Seconds per sample that a byte of weights takes in the all-reduce, and under which literals."""
        factor = 2 * (r - 1) / r / self.instance.minibatch
        if self.links is None:
            return [(factor / self.instance.reduce_bandwidth(r), [])]
        return [(factor / bandwidth, literals) for bandwidth, literals in self.links.inside(s)]

    def _sent(self, e: int, s: int, r: int) -> Any:
        """Units of the edge's tensor at stage s, if exactly one end is there."""
        instance, edge = self.instance, self.instance.edges[e]

        def units(bandwidth: float) -> int:
            return self.scale.floor(
                self.case.least(
                    lambda size, n: 2 * (instance.latency_s + edge.bytes_per_sample * n / bandwidth) / size, r
                )
            )

        cut = self.within[edge.source, s] + self.within[edge.target, s] - 2 * self.same[e, s]
        if self.links is None:
            return units(instance.bandwidth_bytes_per_s) * cut
        first, *slower = self.links.bandwidths
        total, before = units(first) * cut, units(first)
        for number, bandwidth in enumerate(slower, start=1):
            total += (units(bandwidth) - before) * self.links.between(e, s, number)
            before = units(bandwidth)
        return total

    def _memory(self) -> None:
        instance = self.instance
        copies = [instance.weight_copies * each.weight_bytes for each in instance.operators]
        kept = [each.activation_bytes for each in instance.operators]
        sent = [edge.bytes_per_sample for edge in instance.edges]
        most = math.fsum(copies) + instance.minibatch * math.fsum([*kept, *sent])
        rooms = {instance.memory_of(device) for device in range(instance.num_devices)}
        unit = size_scale([*copies, *kept, *sent, *rooms], max(rooms), most)
        for r in self.degrees:
            for d in self.depths:
                held = self.case.held(instance.minibatch, r, d)
                if math.fsum(copies) + held * math.fsum([*kept, *sent]) <= min(rooms):
                    continue
                for s in self.slots:
                    go_on(self.watch)
                    total = sum(
                        (unit.floor(copies[v]) + held * unit.floor(kept[v])) * self.within[v, s]
                        for v in range(instance.num_operators)
                    ) + sum(
                        held * unit.floor(sent[e]) * (self.within[edge.target, s] - self.same[e, s])
                        for e, edge in enumerate(instance.edges)
                    )
                    under = [self.degree[s, r], *([self.deep[s, d]] if d > 1 else [])]
                    if self.links is None:
                        limit = unit.ceil(instance.memory_bytes)
                        self.model.add(total <= limit).only_enforce_if(*under)
                        continue
                    for device, here in self.links.here(s):
                        limit = unit.ceil(instance.memory_of(device))
                        self.model.add(total <= limit).only_enforce_if(*under, here)

    def hint(self, plan: StagePlan) -> None:
        """Begin with the partition and degrees of a plan."""
        order = sorted(range(len(plan.stages)), key=lambda stage: _place(plan, stage))
        for s in self.slots:
            stage = plan.stages[order[s]] if s < len(order) else None
            for v in range(self.instance.num_operators):
                self.model.add_hint(self.within[v, s], stage is not None and v in stage.nodes)
            for r in self.degrees:
                self.model.add_hint(self.degree[s, r], stage is not None and stage.devices == r)

    def chosen(self, values: Any) -> list[Any]:
        """The literals that make a plan what it is."""
        found = [each for each in (*self.within.values(), *self.degree.values()) if values[each]]
        return found + (self.links.chosen(values) if self.links is not None else [])

    def plan(self, values: Any) -> StagePlan:
        """The plan of a solution, with the least in flight."""
        instance, size = self.instance, self.case.sizes[0]
        stages = []
        for s in self.slots:
            nodes = tuple(v for v in range(instance.num_operators) if values[self.within[v, s]])
            ids = self.links.devices(values, s) if self.links is not None else ()
            if nodes:
                degree = next(r for r in self.degrees if values[self.degree[s, r]])
                stages.append(Stage(nodes, degree, size, size, device_ids=ids))
        idle = instance.num_devices - sum(stage.devices for stage in stages)
        return with_in_flight(instance, StagePlan(tuple(stages), data_edges(instance, stages), idle))


def _place(plan: StagePlan, stage: int) -> tuple[int, int]:
    """Stages behind others come later: the longest path that leads to a stage, then its first operator."""
    before = [source for source, target in plan.edges if target == stage]
    return max((_place(plan, source)[0] + 1 for source in before), default=0), min(plan.stages[stage].nodes)
