"""Hierarchical stage partitioning as one CP-SAT model, for small instances.

Nodes are assigned to positions (p, r): stage r inside superstage p, both counted from the input side. Every position
has its degrees, every superstage its number of machines; positions that a plan does not use come last. Costs are
rounded down and byte limits never tightened (`solvers.scaling`), so the bound holds; a plan that only rounding let
through is cut off and the search goes on.

Source: this project; the problem is Piper's, Appendix E. Symbols: d_1 and t degrees inside a machine, d_2 machines, B_2
the bandwidth between machines, T the slowest superstage's time, s the sum of d_1 d_2 from a superstage on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.problem import evaluate, most_in_flight, violations, whole_weight
from formulations.hierarchical_partitioning.definition.quantities import VOCABULARY
from formulations.hierarchical_partitioning.models.first_plan import first_plan
from formulations.modelling.solve_model import prove, require
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models.assignment_data import Chosen, Terms
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import Scale, cost_scale, size_scale

_sum = cp_model.LinearExpr.sum
_weighted = cp_model.LinearExpr.weighted_sum


class Model(cpsat.Runnable):
    """The model of an instance; each group of variables has its sentence in `_variables`."""

    def __init__(self, instance: HierarchicalInstance) -> None:
        self.instance, self.model = instance, cpsat.SpokenModel()
        self._derived: dict[str, Any] = {}
        self.terms = terms = Terms(instance.inner)
        n, K1, K2 = len(terms.nodes), instance.devices_per_machine, instance.num_machines
        self.max_s = most_in_flight(instance)
        self.configs = [(t, d) for t, d in terms.configs if t * d <= K1]
        self.d1s, self.d2s = sorted({d for _, d in self.configs}), range(1, min(K2, self.max_s) + 1)
        self.supers, self.inner = range(min(n, K2, self.max_s)), range(min(n, K1, self.max_s))
        self.places = [(p, r) for p in self.supers for r in self.inner]
        #: The numbers y of micro-batches that a stage may have in flight; none is counted where memory is unlimited.
        self.flights = range(1, 1 if instance.memory_model is MemoryModel.NONE else self.max_s + 1)
        upper = self._largest_time()
        self.lower = terms.lower_bound / K2 if self.configs else 0.0
        self.costs = cost_scale(self.lower, 3 * n + len(terms.crossings) + 1, upper * K1 * K2 * 4)
        self._variables(self.costs.ceil(upper))
        self.model.minimize(self.time)
        self._degrees()
        self._superstages()
        self._nodes()
        for p in self.supers:
            self._link(p)
            for r in self.inner:
                self._memory(p, r)
                self._boundary(p, r)
                self._stage_time(p, r)

    def _largest_time(self) -> float:
        """A time that no superstage exceeds."""
        flat = self.instance.flat
        weights = 4 * math.fsum(map(whole_weight, flat.layers))
        volume = 2 * math.fsum(edge.bytes for edge in flat.edges)
        return max(self.terms.largest_time, (weights + volume) / self.instance.outer_bandwidth, 1e-9)

    def _variables(self, upper: int) -> None:
        terms, supers, places = self.terms, self.supers, self.places
        new_bool, new_int = self.model.new_bool_var, self.model.new_int_var
        options, crossings = range(len(terms.options)), range(len(terms.crossings))
        edges, says = range(len(self.instance.flat.edges)), self.model.says
        says("time", "T, the time of the slowest superstage, in whole units [Piper, Appendix E]")
        self.time = new_int(0, upper, "time")
        says("machines", "machines[p,d2]: superstage p, from 0 at the input side, is used, on d2 machines")
        self.machines = {(p, d): new_bool(f"machines[{p},{d}]") for p in supers for d in self.d2s}
        says("degrees", "degrees[p,r,t,d1]: stage r of superstage p has degrees t and d_1 in each machine")
        self.degrees = {(p, r, t, d): new_bool(f"degrees[{p},{r},{t},{d}]") for p, r in places for t, d in self.configs}
        says("has_d", "has_d[p,r,d1]: stage r of superstage p has data-parallel degree d_1 in each machine")
        self.has_d = {(p, r, d): new_bool(f"has_d[{p},{r},{d}]") for p, r in places for d in self.d1s}
        says("used", "used[p,r]: superstage p has a stage r")
        self.used = {(p, r): new_bool(f"used[{p},{r}]") for p, r in places}
        says("s", "s[p]: degrees d_1 d_2 of superstage p and all later ones, summed")
        self.s = [new_int(0, self.max_s, f"s[{p}]") for p in supers] + [self.model.new_constant(0)]
        says("choice", "choice[o,p,r]: option o, a TMPC of a node, runs in stage r of superstage p")
        self.choice = {(o, p, r): new_bool(f"choice[{o},{p},{r}]") for o in options for p, r in places}
        says("holds", "holds[v,p,r]: node v is in stage r of superstage p")
        self.holds = {(v, p, r): new_bool(f"holds[{v},{p},{r}]") for v in terms.nodes for p, r in places}
        says("done", "done[v,p,r]: node v is in that stage or before")
        self.done = {(v, p, r): new_bool(f"done[{v},{p},{r}]") for v in terms.nodes for p, r in places}
        says("in_superstage", "in_superstage[v,p]: node v is in superstage p")
        self.in_superstage = {(v, p): new_bool(f"in_superstage[{v},{p}]") for v in terms.nodes for p in supers}
        says("crossed", "crossed[e,p]: edge e crosses the boundary of superstage p")
        self.crossed = {(e, p): new_bool(f"crossed[{e},{p}]") for e in edges for p in supers}
        says("in_flight", "in_flight[p,r,y]: at most y micro-batches are in flight in that stage")
        self.in_flight = {(p, r, y): new_bool(f"in_flight[{p},{r},{y}]") for p, r in places for y in self.flights}
        says("paid", "paid[c,p,r]: that stage pays crossing c: an edge's volume, or a part of it")
        self.paid = {(c, p, r): new_bool(f"paid[{c},{p},{r}]") for c in crossings for p, r in places}

    def _degrees(self) -> None:
        """Degrees of the stages inside each machine."""
        cp = self.model
        cp.says("one_pair_of_degrees", "a stage has one t and one d_1: sum of degrees[p,r,t,d1] = used[p,r]")
        cp.says("dp_degree", "a stage has degree d_1 with some t: sum over t of degrees[p,r,t,d1] = has_d[p,r,d1]")
        cp.says("unused_last", "unused positions come last, in a superstage and among superstages")
        for p, r in self.places:
            own = {(t, d): self.degrees[p, r, t, d] for t, d in self.configs}
            cp.add_exactly_one([*own.values(), ~self.used[p, r]]).with_name(f"one_pair_of_degrees[{p},{r}]")
            for d in self.d1s:
                at_d = [var for (_, dp), var in own.items() if dp == d]
                cp.add(_sum(at_d) == self.has_d[p, r, d]).with_name(f"dp_degree[{p},{r},{d}]")
            if r:
                cp.add_implication(self.used[p, r], self.used[p, r - 1]).with_name(f"unused_last[{p},{r}]")
            elif p:
                cp.add_implication(self.used[p, 0], self.used[p - 1, 0]).with_name(f"unused_last[{p},{r}]")

    def _superstages(self) -> None:
        """Machines and devices of the superstages."""
        cp, instance = self.model, self.instance
        cp.says("one_number_of_machines", "a used superstage has one number of machines d_2, an unused one none")
        cp.says("devices", "a machine's stages take at most K_1 devices: sum of t d_1 <= K_1 [Piper, Appendix E]")
        cp.says("suffix_sum", "s_p = s_(p+1) + d_2 sum over r of d_1, if superstage p has d_2 machines")
        cp.says("nothing_behind", "s is 0 where no superstage is")
        cp.says("all_machines", "the superstages take at most K_2 machines: sum of d_2 <= K_2 [Piper, Appendix E]")
        for p in self.supers:
            machines = [self.machines[p, d] for d in self.d2s]
            cp.add_exactly_one([*machines, ~self.used[p, 0]]).with_name(f"one_number_of_machines[{p}]")
            taken = [(self.degrees[p, r, t, d], t * d) for r in self.inner for t, d in self.configs]
            cp.add(_weighted(*_columns(taken)) <= instance.devices_per_machine).with_name(f"devices[{p}]")
            for d2 in self.d2s:
                suffix_sum = cp.add(self.s[p] == self.s[p + 1] + d2 * self._behind(p, 0))
                suffix_sum.only_enforce_if(self.machines[p, d2]).with_name(f"suffix_sum[{p},{d2}]")
            cp.add(self.s[p] == 0).only_enforce_if(~self.used[p, 0]).with_name(f"nothing_behind[{p}]")
        taken = [(var, d) for (_, d), var in self.machines.items()]
        cp.add(_weighted(*_columns(taken)) <= instance.num_machines).with_name("all_machines")

    def _behind(self, p: int, r: int) -> Any:
        """Degrees d_1 of stage r of superstage p and of all later ones in its machine, summed."""
        return _weighted(*_columns([(self.has_d[p, i, d], d) for i in self.inner if i >= r for d in self.d1s]))

    def _nodes(self) -> None:
        """Nodes of the stages and their TMPCs."""
        cp, terms = self.model, self.terms
        cp.says("one_place", "a node is in one stage, with one TMPC: sum of its choice[o,p,r] = 1")
        cp.says("held", "a stage holds the nodes that run there: sum over o of v of choice[o,p,r] = holds[v,p,r]")
        cp.says("done_so_far", "what is done grows by what a stage holds, stage by stage")
        cp.says("one_tp_degree", "all nodes of a stage have its t: X(v) in T(v,t)")
        cp.says("forward", "no edge (u,v) runs backwards: where v is done, so is u")
        cp.says("not_empty", "a stage holds a node")
        for v in terms.nodes:
            options = [self.choice[o, p, r] for o in terms.of_node[v] for p, r in self.places]
            cp.add_exactly_one(options).with_name(f"one_place[{v}]")
            before: Any = 0
            for p, r in self.places:
                runs = _sum([self.choice[o, p, r] for o in terms.of_node[v]])
                cp.add(runs == self.holds[v, p, r]).with_name(f"held[{v},{p},{r}]")
                done = self.done[v, p, r]
                cp.add(done == before + self.holds[v, p, r]).with_name(f"done_so_far[{v},{p},{r}]")
                before = done

        for (o, p, r), var in self.choice.items():
            t = terms.options[o].tp_degree
            has_t = _sum([self.degrees[p, r, tp, d] for tp, d in self.configs if tp == t])
            cp.add(var <= has_t).with_name(f"one_tp_degree[{o},{p},{r}]")

        for u, v in terms.instance.edge_indices:
            for p, r in self.places:
                cp.add_implication(self.done[v, p, r], self.done[u, p, r]).with_name(f"forward[{u},{v},{p},{r}]")

        for p, r in self.places:
            held = [self.holds[v, p, r] for v in terms.nodes]
            cp.add_bool_or([*held, ~self.used[p, r]]).with_name(f"not_empty[{p},{r}]")

    @cached_property
    def sizes(self) -> Scale:
        """The unit of bytes."""
        tmpcs = [option.tmpc for option in self.terms.options]
        return size_scale(
            [size for x in tmpcs for size in (x.activation_bytes, x.static_bytes)],
            self.terms.memory_limit,
            math.fsum(x.activation_bytes * self.max_s + x.static_bytes for x in tmpcs),
        )

    def _memory(self, p: int, r: int) -> None:
        """The bytes of a stage fit with y micro-batches in flight: ceil(s / (d_1 d_2)), or ceil(S / d_1) if crude."""
        cp, instance = self.model, self.instance
        if instance.memory_model is MemoryModel.NONE:
            return
        cp.says("one_number_in_flight", "a stage has some number y of micro-batches in flight, an unused position none")
        cp.says("memory", "sum over v of (X(v).a y + X(v).b) <= M if at most y are in flight [Piper, Appendix E]")
        cp.says("all_in_flight", "y = ceil(S / d_1) in the crude accounting, if the stage has degree d_1")
        cp.says(
            "enough_in_flight",
            "y is at least ceil(s / (d_1 d_2)) in the precise accounting: s, from the stage on, is at most y d_1 d_2",
        )
        flights = {y: self.in_flight[p, r, y] for y in self.flights}
        cp.add_exactly_one([*flights.values(), ~self.used[p, r]]).with_name(f"one_number_in_flight[{p},{r}]")
        limit = self.sizes.floor(self.terms.memory_limit)
        for y, flying in flights.items():
            sizes = [self.sizes.floor(o.tmpc.activation_bytes * y + o.tmpc.static_bytes) for o in self.terms.options]
            mem = _weighted(self._choices(p, r), sizes)
            cp.add(mem <= limit).only_enforce_if(flying).with_name(f"memory[{p},{r},{y}]")
            for d1 in self.d1s:
                has_d = self.has_d[p, r, d1]
                if instance.memory_model is MemoryModel.CRUDE:
                    if y != -(-self.max_s // d1):
                        cp.add_bool_or([~flying, ~has_d]).with_name(f"all_in_flight[{p},{r},{y},{d1}]")
                    continue
                for d2 in self.d2s:
                    behind = self.s[p + 1] + d2 * self._behind(p, r)
                    enough = cp.add(behind <= y * d1 * d2).with_name(f"enough_in_flight[{p},{r},{y},{d1},{d2}]")
                    enough.only_enforce_if([flying, has_d, self.machines[p, d2]])

    def _boundary(self, p: int, r: int) -> None:
        """Which communication costs a stage pays."""
        self.model.says(
            "boundary",
            "a stage pays a crossing where its payer runs with one of its options, and its neighbour does not run: "
            "paid[c,p,r] + holds[neighbour,p,r] >= sum over c's o of choice[o,p,r]",
        )
        for c, crossing in enumerate(self.terms.crossings):
            runs = _sum([self.choice[o, p, r] for o in crossing.options])
            boundary = self.model.add(self.paid[c, p, r] + self.holds[crossing.other, p, r] >= runs)
            boundary.with_name(f"boundary[{c},{p},{r}]")

    def _stage_time(self, p: int, r: int) -> None:
        """T is at least a stage's time inside its machines."""
        self.model.says(
            "stage_time",
            "T is at least a stage's time in each machine: compute + boundary + synchronisation <= d_1 d_2 T "
            "[Piper, Appendix E]",
        )
        cp, terms, floor = self.model, self.terms, self.costs.floor
        paid = [(self.paid[c, p, r], floor(crossing.time)) for c, crossing in enumerate(terms.crossings)]
        for d1 in self.d1s:
            costs = [floor(o.tmpc.time + terms.resync(d1) * o.tmpc.weight_bytes) for o in terms.options]
            total = _weighted(*_columns([*zip(self._choices(p, r), costs, strict=True), *paid]))
            for d2 in self.d2s:
                stage_time = cp.add(total <= d1 * d2 * self.time).with_name(f"stage_time[{p},{r},{d1},{d2}]")
                stage_time.only_enforce_if([self.has_d[p, r, d1], self.machines[p, d2]])

    def _link(self, p: int) -> None:
        """T is at least a superstage's time between machines: weights, and bytes over its boundary, times d_2."""
        cp, flat, floor, B2 = self.model, self.instance.flat, self.costs.floor, self.instance.outer_bandwidth
        cp.says("held_inside", "a superstage holds what its stages hold: sum of holds[v,p,r] = in_superstage[v,p]")
        cp.says("leaves", "an edge (u,v) crosses the boundary of a superstage that holds u and not v")
        cp.says("enters", "and of one that holds v and not u")
        cp.says(
            "link_time",
            "T is at least the time of a machine's link: sum over v of 4 (d_2 - 1)/d_2 w(v) / B_2 + sum over the "
            "boundary of 2 c / B_2 <= d_2 T [Piper, Appendix E]",
        )
        held = [self.in_superstage[v, p] for v in self.terms.nodes]
        for v, here in enumerate(held):
            cp.add(_sum([self.holds[v, p, r] for r in self.inner]) == here).with_name(f"held_inside[{v},{p}]")
        crossed = []
        for e, ((u, v), edge) in enumerate(zip(flat.edge_indices, flat.edges, strict=True)):
            crossed.append((self.crossed[e, p], floor(2 * edge.bytes / B2)))
            cp.add_bool_or([~held[u], held[v], self.crossed[e, p]]).with_name(f"leaves[{e},{p}]")
            cp.add_bool_or([held[u], ~held[v], self.crossed[e, p]]).with_name(f"enters[{e},{p}]")
        for d2 in self.d2s:
            weights = [floor(4 * (d2 - 1) / d2 * whole_weight(layer) / B2) for layer in flat.layers]
            total = _weighted(*_columns([*zip(held, weights, strict=True), *crossed]))
            link_time = cp.add(total <= d2 * self.time).with_name(f"link_time[{p},{d2}]")
            link_time.only_enforce_if(self.machines[p, d2])

    def _choices(self, p: int, r: int) -> list[Any]:
        return [self.choice[o, p, r] for o in range(len(self.terms.options))]

    def decode(self, values: cpsat.Values) -> HierarchicalPlan:
        """The plan of a solution."""
        found = []
        for p in self.supers:
            inner = [
                Chosen(t, d, tuple(o for o in range(len(self.terms.options)) if values[self.choice[o, p, r]]))
                for r in self.inner
                for t, d in self.configs
                if values[self.degrees[p, r, t, d]]
            ]
            found += [Superstage(d2, self.terms.plan(inner).stages) for d2 in self.d2s if values[self.machines[p, d2]]]
        return HierarchicalPlan(tuple(found))

    def values_of(self, plan: HierarchicalPlan) -> Iterator[tuple[Any, int]]:
        """The decisions that make up a plan: machines, degrees and TMPCs."""
        machines = {(p, found.dp_degree) for p, found in enumerate(plan.stages)}
        inner = {
            (p, r): stage
            for p, found in enumerate(plan.stages)
            for r, stage in enumerate(self.terms.chosen(StagePlan(found.inner)))
        }
        degrees = {(*place, stage.tp_degree, stage.dp_degree) for place, stage in inner.items()}
        choice = {(o, *place) for place, stage in inner.items() for o in stage.options}
        for variables, taken in ((self.machines, machines), (self.degrees, degrees), (self.choice, choice)):
            yield from ((variable, int(index in taken)) for index, variable in variables.items())

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a plan, as sums over its decisions."""
        terms, index = self.terms, self.terms.instance.index

        def of_superstage(variables: Mapping[tuple[int, int], Any], superstage: int) -> Any:
            return sum(d * var for (p, d), var in variables.items() if p == superstage)

        return {
            "num_superstages": lambda: sum(self.used[p, 0] for p in self.supers),
            "num_stages": lambda: sum(self.used.values()),
            "num_machines": lambda: sum(d * var for (_, d), var in self.machines.items()),
            "num_devices": lambda: sum(map(self._devices_of, self.supers)),
            "superstage_of": lambda node: sum(p * self.in_superstage[index[node], p] for p in self.supers),
            "same_superstage": lambda node, other: self._together(
                "share_superstage", index[node], index[other], lambda v: [self.in_superstage[v, p] for p in self.supers]
            ),
            "same_stage": lambda node, other: self._together(
                "share_stage", index[node], index[other], lambda v: [self.holds[v, p, r] for p, r in self.places]
            ),
            "nodes": lambda superstage: sum(var for (_, p), var in self.in_superstage.items() if p == superstage),
            "machines": lambda superstage: of_superstage(self.machines, superstage),
            "tp_degree_of": lambda node: sum(
                terms.options[o].tp_degree * self.choice[o, p, r]
                for o in terms.of_node[index[node]]
                for p, r in self.places
            ),
            "dp_degree_of": lambda node: self._dp_degree_of(index[node]),
        }

    def _devices_of(self, p: int) -> Any:
        """Devices of superstage p on all its machines."""
        cp, name = self.model, f"taken[{p}]"
        if name not in self._derived:
            cp.says("taken", "taken[p]: devices of superstage p on all its machines, for a requirement")
            cp.says("taken_on_machines", "they are d_2 sum over r of t d_1, if superstage p has d_2 machines")
            cp.says("none_taken", "and none where no superstage is")
            most = self.instance.devices_per_machine * self.instance.num_machines
            found = self._derived[name] = cp.new_int_var(0, most, name)
            inside = sum(t * d * self.degrees[p, r, t, d] for r in self.inner for t, d in self.configs)
            for d2 in self.d2s:
                row = cp.add(found == d2 * inside).with_name(f"taken_on_machines[{p},{d2}]")
                row.only_enforce_if(self.machines[p, d2])
            cp.add(found == 0).with_name(f"none_taken[{p}]").only_enforce_if(~self.used[p, 0])
        return self._derived[name]

    def _together(self, group: str, u: int, v: int, places: Callable[[int], list[Any]]) -> Any:
        """1 if one of the same ``places`` holds both nodes u and v."""
        cp, index = self.model, f"[{min(u, v)},{max(u, v)}]"
        if u == v or group + index in self._derived:
            return self._derived.get(group + index, 1)
        cp.says(group, f"{group}[u,v]: nodes u and v are in one, for a requirement")
        cp.says(f"{group}_if", "then every one holds both or none of them")
        cp.says(f"{group}_unless", "else none holds both")
        found = self._derived[group + index] = cp.new_bool_var(group + index)
        for place, (first, second) in enumerate(zip(places(u), places(v), strict=True)):
            both = cp.add(first == second).with_name(f"{group}_if[{u},{v},{place}]")
            both.only_enforce_if(found)
            one = cp.add(first + second <= 1).with_name(f"{group}_unless[{u},{v},{place}]")
            one.only_enforce_if(~found)
        return found

    def _dp_degree_of(self, v: int) -> Any:
        """The data-parallel degree d_1 of the stage that holds node v."""
        cp, name = self.model, f"replicas[{v}]"
        if name not in self._derived:
            cp.says("replicas", "replicas[v]: d_1 of the stage that holds node v, for a requirement")
            cp.says("replicas_here", "replicas[v] = sum of d_1 has_d[p,r,d1] if holds[v,p,r]")
            found = self._derived[name] = cp.new_int_var(0, self.max_s, name)
            for p, r in self.places:
                d_1 = sum(d * self.has_d[p, r, d] for d in self.d1s)
                cp.add(found == d_1).with_name(f"replicas_here[{v},{p},{r}]").only_enforce_if(self.holds[v, p, r])
        return self._derived[name]

    def lower_bound(self, bound: float) -> float:
        """T is the scaled T rounded up, at most: it may exceed the true one by less than a unit."""
        return max(0.0, self.costs.restore(cpsat.whole(bound) - 1))

    def cut_off(self, _plan: HierarchicalPlan, values: Any) -> None:
        """Not this combination of decisions, which only rounded bytes allowed."""
        self.model.says("forbidden", "a plan with more bytes than fit, which only rounding admitted, is cut off")
        decided = [*self.choice.values(), *self.degrees.values(), *self.machines.values()]
        forbidden = self.model.add_bool_or([~var for var in decided if values[var]])
        forbidden.with_name(f"forbidden[{len(self.model.proto.constraints)}]")


def _columns(terms: list[tuple[Any, int]]) -> tuple[list[Any], list[int]]:
    return [var for var, _ in terms], [factor for _, factor in terms]


def build(
    instance: HierarchicalInstance,
    _watch: Watch | None = None,
    *,
    complete: bool = False,  # noqa: ARG001 - it always is
) -> Model:
    """The CP-SAT model of an instance; nothing is left out for a known plan, ``complete`` or not."""
    model = Model(instance)
    require(model, VOCABULARY, instance)
    return model


def solve(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Answer[HierarchicalPlan]:
    """The optimum by CP-SAT.

    Source
    ------
    This project; see the module.
    """
    first = first_plan(instance, limits)
    return prove(instance, lambda: build(instance), evaluate, violations, limits, watch, first=first)
