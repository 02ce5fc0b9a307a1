"""Hierarchical stage partitioning as one CP-SAT model, for small instances.

Nodes are assigned to positions (p, r): stage r inside superstage p, both counted from the input side. Every position
has its degrees, every superstage its number of machines. Costs are rounded down and byte limits never tightened
(`solvers.scaling`), so the bound holds; a plan that only rounding let through is cut off and the search goes on.

Source: this project; the problem is Piper's, Appendix E. Symbols: d_1 and t degrees inside a machine, d_2 machines, T
the slowest superstage's time, s the sum of d_1 d_2 from a stage on.
"""

from __future__ import annotations

import math
from typing import Any

from ortools.sat.python import cp_model

from formulations.family import Answer
from formulations.hierarchical_partitioning.problem import (
    HierarchicalPlan,
    Superstage,
    evaluate,
    most_in_flight,
    violations,
    whole_weight,
)
from formulations.modelled import prove
from formulations.stage_partitioning.models.terms import Chosen, Terms
from instances.hierarchical_partitioning import HierarchicalInstance, MemoryModel
from solvers import cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import cost_scale, size_scale

_sum = cp_model.LinearExpr.sum
_weighted = cp_model.LinearExpr.weighted_sum


class Model(cpsat.Runnable):
    """The model and its variables; Booleans unless said otherwise.

    ``machines[p, d2]``: superstage p is used, on d2 machines. ``degrees[p, r, t, d1]``: so is its stage r, with these
    degrees. ``choice[o, p, r]``: option o (of ``terms.options``) runs there. ``holds[v, p, r]``: node v is there.
    ``done[v, p, r]``: node v is there or before. ``in_flight[p, r, y]``: at least that many micro-batches are let in
    flight. ``s[p]`` (degrees from superstage p on) and ``time`` (T in units of ``costs``) are integers.
    """

    def __init__(self, instance: HierarchicalInstance) -> None:
        self.instance, self.model = instance, cp_model.CpModel()
        self.terms = terms = Terms(instance.inner)
        n, K1, K2 = len(terms.nodes), instance.devices_per_machine, instance.num_machines
        self.max_s = most_in_flight(instance)
        self.configs = [(t, d) for t, d in terms.configs if t * d <= K1]
        self.d1s, self.d2s = sorted({d for _, d in self.configs}), range(1, min(K2, self.max_s) + 1)
        self.supers, self.slots = range(min(n, K2, self.max_s)), range(min(n, K1, self.max_s))
        self.places = [(p, r) for p in self.supers for r in self.slots]
        upper = self._largest_time()
        self.lower = terms.lower_bound / K2 if self.configs else 0.0
        self.costs = cost_scale(self.lower, 3 * n + len(terms.crossings) + 1, upper * K1 * K2 * 4)
        self.time = self.model.new_int_var(0, self.costs.ceil(upper), "time")
        self.model.minimize(self.time)
        self._degrees()
        self._nodes()
        for p in self.supers:
            self._link(p)
            for r in self.slots:
                self._memory(p, r)
                self._stage_time(p, r)

    def _largest_time(self) -> float:
        """A time that no superstage exceeds."""
        flat = self.instance.flat
        weights = 4 * math.fsum(map(whole_weight, flat.layers))
        volume = 2 * math.fsum(edge.bytes for edge in flat.edges)
        return max(self.terms.largest_time, (weights + volume) / self.instance.outer_bandwidth, 1e-9)

    def _degrees(self) -> None:
        cp, supers, slots = self.model, self.supers, self.slots
        self.machines = {(p, d): cp.new_bool_var("") for p in supers for d in self.d2s}
        self.degrees = {(p, r, t, d): cp.new_bool_var("") for p, r in self.places for t, d in self.configs}
        self.copies = {(p, r, d): cp.new_bool_var("") for p, r in self.places for d in self.d1s}
        self.used = {place: cp.new_bool_var("") for place in self.places}
        self.s = [cp.new_int_var(0, self.max_s, "") for _ in supers] + [cp.new_constant(0)]
        for p, r in self.places:
            own = {(t, d): self.degrees[p, r, t, d] for t, d in self.configs}
            # A used position has one pair of degrees; unused positions come last.
            cp.add_exactly_one([*own.values(), ~self.used[p, r]])
            for d in self.d1s:
                cp.add(_sum([var for (_, dp), var in own.items() if dp == d]) == self.copies[p, r, d])
            if r:
                cp.add_implication(self.used[p, r], self.used[p, r - 1])
            elif p:
                cp.add_implication(self.used[p, 0], self.used[p - 1, 0])
        for p in supers:
            cp.add_exactly_one([*(self.machines[p, d] for d in self.d2s), ~self.used[p, 0]])
            # The stages of a machine take at most K_1 devices.
            taken = [(self.degrees[p, r, t, d], t * d) for r in slots for t, d in self.configs]
            cp.add(_weighted(*_columns(taken)) <= self.instance.devices_per_machine)
            # s grows by d_2 times the degrees inside the machine.
            for d2 in self.d2s:
                cp.add(self.s[p] == self.s[p + 1] + d2 * self._behind(p, 0)).only_enforce_if(self.machines[p, d2])
            cp.add(self.s[p] == 0).only_enforce_if(~self.used[p, 0])
        # The superstages take at most K_2 machines.
        taken = [(var, d) for (_, d), var in self.machines.items()]
        cp.add(_weighted(*_columns(taken)) <= self.instance.num_machines)

    def _behind(self, p: int, r: int) -> Any:
        """Degrees d_1 of stage r of superstage p and of all later ones in its machine, summed."""
        return _weighted(*_columns([(self.copies[p, i, d], d) for i in self.slots if i >= r for d in self.d1s]))

    def _nodes(self) -> None:
        cp, terms = self.model, self.terms
        self.choice = {(o, p, r): cp.new_bool_var("") for o in range(len(terms.options)) for p, r in self.places}
        self.holds = {(v, p, r): cp.new_bool_var("") for v in terms.nodes for p, r in self.places}
        self.done = {(v, p, r): cp.new_bool_var("") for v in terms.nodes for p, r in self.places}
        for v in terms.nodes:
            # Every node runs once, with one TMPC.
            cp.add_exactly_one([self.choice[o, p, r] for o in terms.of_node[v] for p, r in self.places])
            before: Any = 0
            for p, r in self.places:
                cp.add(_sum([self.choice[o, p, r] for o in terms.of_node[v]]) == self.holds[v, p, r])
                cp.add(self.done[v, p, r] == before + self.holds[v, p, r])
                before = self.done[v, p, r]
        for (o, p, r), var in self.choice.items():
            # A TMPC runs at its own tensor-parallel degree.
            t = terms.options[o].tp_degree
            cp.add(var <= _sum([self.degrees[p, r, tp, d] for tp, d in self.configs if tp == t]))
        for u, v in terms.instance.edge_indices:
            # No edge runs backwards.
            for p, r in self.places:
                cp.add_implication(self.done[v, p, r], self.done[u, p, r])
        for p, r in self.places:
            # A used position holds a node.
            cp.add_bool_or([*(self.holds[v, p, r] for v in terms.nodes), ~self.used[p, r]])

    def _memory(self, p: int, r: int) -> None:
        """The bytes of a stage fit with y micro-batches in flight: ceil(s / (d_1 d_2)), or ceil(S / d_1) if crude."""
        cp, instance = self.model, self.instance
        if instance.memory_model is MemoryModel.NONE:
            return
        if (p, r) == (0, 0):
            self.in_flight = {(i, j, y): cp.new_bool_var("") for i, j in self.places for y in range(1, self.max_s + 1)}
            self.sizes = size_scale(
                [size for o in self.terms.options for size in (o.tmpc.activation_bytes, o.tmpc.static_bytes)],
                self.terms.memory_limit,
                math.fsum(o.tmpc.activation_bytes * self.max_s + o.tmpc.static_bytes for o in self.terms.options),
            )
        flights = {y: self.in_flight[p, r, y] for y in range(1, self.max_s + 1)}
        cp.add_exactly_one([*flights.values(), ~self.used[p, r]])
        limit = self.sizes.floor(self.terms.memory_limit)
        for y, flying in flights.items():
            sizes = [self.sizes.floor(o.tmpc.activation_bytes * y + o.tmpc.static_bytes) for o in self.terms.options]
            cp.add(_weighted(self._choices(p, r), sizes) <= limit).only_enforce_if(flying)
            for d1 in self.d1s:
                copies = self.copies[p, r, d1]
                if instance.memory_model is MemoryModel.CRUDE:
                    if y != -(-self.max_s // d1):
                        cp.add_bool_or([~flying, ~copies])
                    continue
                for d2 in self.d2s:
                    behind = self.s[p + 1] + d2 * self._behind(p, r)
                    cp.add(behind <= y * d1 * d2).only_enforce_if([flying, copies, self.machines[p, d2]])

    def _stage_time(self, p: int, r: int) -> None:
        """Compute, boundary and synchronisation inside the machine, times d_1 d_2, are at most d_1 d_2 T."""
        cp, terms, floor = self.model, self.terms, self.costs.floor
        crossings = []
        for crossing in terms.crossings:
            # Paid where the payer runs with one of these options and the neighbour does not run.
            paid = cp.new_bool_var("")
            runs = _sum([self.choice[o, p, r] for o in crossing.options])
            cp.add(paid + self.holds[crossing.other, p, r] >= runs)
            crossings.append((paid, floor(crossing.time)))
        for d1 in self.d1s:
            costs = [floor(o.tmpc.time + terms.resync(d1) * o.tmpc.weight_bytes) for o in terms.options]
            total = _weighted(*_columns([*zip(self._choices(p, r), costs, strict=True), *crossings]))
            for d2 in self.d2s:
                both = [self.copies[p, r, d1], self.machines[p, d2]]
                cp.add(total <= d1 * d2 * self.time).only_enforce_if(both)

    def _link(self, p: int) -> None:
        """Weights among d_2 machines and bytes over the superstage's boundary, times d_2, are at most d_2 T."""
        cp, flat, floor, B2 = self.model, self.instance.flat, self.costs.floor, self.instance.outer_bandwidth
        held = []
        for v in self.terms.nodes:
            here = cp.new_bool_var("")
            cp.add(_sum([self.holds[v, p, r] for r in self.slots]) == here)
            held.append(here)
        crossed = []
        for (u, v), edge in zip(flat.edge_indices, flat.edges, strict=True):
            # Paid where the superstage holds one end only.
            paid = cp.new_bool_var("")
            cp.add_bool_or([~held[u], held[v], paid])
            cp.add_bool_or([held[u], ~held[v], paid])
            crossed.append((paid, floor(2 * edge.bytes / B2)))
        for d2 in self.d2s:
            weights = [floor(4 * (d2 - 1) / d2 * whole_weight(layer) / B2) for layer in flat.layers]
            terms = [*zip(held, weights, strict=True), *crossed]
            cp.add(_weighted(*_columns(terms)) <= d2 * self.time).only_enforce_if(self.machines[p, d2])

    def _choices(self, p: int, r: int) -> list[Any]:
        return [self.choice[o, p, r] for o in range(len(self.terms.options))]

    def decode(self, values: cpsat.Values) -> HierarchicalPlan:
        """The plan of a solution."""
        found = []
        for p in self.supers:
            inner = [
                Chosen(t, d, tuple(o for o in range(len(self.terms.options)) if values[self.choice[o, p, r]]))
                for r in self.slots
                for t, d in self.configs
                if values[self.degrees[p, r, t, d]]
            ]
            found += [Superstage(d2, self.terms.plan(inner).stages) for d2 in self.d2s if values[self.machines[p, d2]]]
        return HierarchicalPlan(tuple(found))

    def lower_bound(self, bound: float) -> float:
        """T is the scaled T rounded up, at most: it may exceed the true one by less than a unit."""
        return max(0.0, self.costs.restore(cpsat.whole(bound) - 1))

    def cut_off(self, _plan: HierarchicalPlan, values: Any) -> None:
        """Not this combination of decisions, which only rounded bytes allowed."""
        decided = [*self.choice.values(), *self.degrees.values(), *self.machines.values()]
        self.model.add_bool_or([~var for var in decided if values[var]])


def _columns(terms: list[tuple[Any, int]]) -> tuple[list[Any], list[int]]:
    return [var for var, _ in terms], [factor for _, factor in terms]


def build(instance: HierarchicalInstance) -> Model:
    """The CP-SAT model of an instance; every node needs a TMPC at a degree that fits a machine."""
    return Model(instance)


def solve(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Answer[HierarchicalPlan]:
    """The optimum by CP-SAT.

    Source
    ------
    This project; see the module.
    """
    return prove(instance, lambda: build(instance), evaluate, violations, limits, watch)
