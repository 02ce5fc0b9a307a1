"""Stage partitioning as one CP-SAT model: Piper's problem, one named constraint a sentence, in the order of `milp`.

The stages S_1, ..., S_l are positions j = 0, 1, ... from the input side on; positions that a plan does not use come
last. A stage has degrees (t, d), each of its nodes v an option o = (v, t, X) with X in T(v, t), and y = ceil(s/d)
micro-batches are in flight in it, where s sums the data-parallel degrees of this and all later stages.

Exact for the instance as declared: any number of TMPCs, weights and volumes that differ between them, any degrees,
several sources and sinks, "at most" and "exactly" N. Costs are rounded down and byte limits never tightened
(`solvers.scaling`), so the bound holds; a plan that only rounding let through is cut off and the search goes on.

Source: this project; the problem is Piper's, sections 3.1 to 3.6 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.modelling.solve_model import go_on, require
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import evaluate, suffix_sums
from formulations.stage_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.model_size import assignment_too_large, demand_assignment
from formulations.stage_partitioning.models.assignment_data import Chosen, Terms
from formulations.stage_partitioning.models.first_plan import known_plan
from formulations.stage_partitioning.models.solving import prove, too_large
from formulations.stage_partitioning.models.target_cpsat import TargetModel
from formulations.stage_partitioning.models.threshold_search import Search, searchable
from instances.problems.stage_partitioning import StageInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Prover, Watch
from solvers.scaling import Scale, cost_scale, size_scale

_sum = cp_model.LinearExpr.sum
_weighted = cp_model.LinearExpr.weighted_sum


class Model(cpsat.Runnable):
    """The model of ``terms``; each group of variables has its sentence in `_variables`.

    ``first`` (a feasible plan) becomes the hint and the upper bound.
    """

    def __init__(self, terms: Terms, first: StagePlan | None, watch: Watch) -> None:
        self.terms = terms
        self.model = cpsat.SpokenModel()
        self._derived: dict[str, Any] = {}
        num_roundings = len(terms.nodes) + len(terms.crossings) + 1  # the last one is T's own
        upper = terms.largest_time if first is None else evaluate(terms.instance, first)
        self.costs = cost_scale(terms.lower_bound, num_roundings, self.largest_sum(upper))
        self.sizes = _memory_scale(terms, self.most_in_flight())
        self.upper = self.costs.ceil(upper)
        self._variables()
        self.model.minimize(self.time)
        self._degrees()
        self._nodes()
        for j in terms.stages:
            go_on(watch)
            self._memory(j)
            self._boundary(j)
            self._stage_time(j)
        if first is not None:
            for variable, value in self.values_of(first):
                self.model.add_hint(variable, value)

    def largest_sum(self, upper: float) -> float:
        """What no expression of the model exceeds if T is at most ``upper``, both in the instance's time unit."""
        return _largest_row(self.terms, upper)

    def most_in_flight(self) -> int:
        """A number of micro-batches that no row of memory exceeds."""
        return self.terms.max_s

    def numbers_in_flight(self) -> range:
        """The numbers y of micro-batches that a position may have in flight."""
        return range(1, self.terms.max_s + 1)

    def _variables(self) -> None:
        terms, new_bool, new_int = self.terms, self.model.new_bool_var, self.model.new_int_var
        nodes, stages, options = terms.nodes, terms.stages, range(len(terms.options))
        ts, flights, crossings = terms.instance.tp_degrees, self.numbers_in_flight(), range(len(terms.crossings))
        says = self.model.says
        says("time", "T, the Time-Per-Sample: that of the slowest stage, in whole units [Piper, section 3.2]")
        self.time = new_int(0, self.upper, "time")
        says("degrees", "degrees[j,t,d]: position j has tensor-parallel degree t and data-parallel degree d")
        self.degrees = {(j, t, d): new_bool(f"degrees[{j},{t},{d}]") for j in stages for t, d in terms.configs}
        says("has_t", "has_t[j,t]: position j has tensor-parallel degree t")
        self.has_t = {(j, t): new_bool(f"has_t[{j},{t}]") for j in stages for t in ts}
        says("has_d", "has_d[j,d]: position j has data-parallel degree d")
        self.has_d = {(j, d): new_bool(f"has_d[{j},{d}]") for j in stages for d in terms.dp_degrees}
        says("used", "used[j]: position j, from 0 at the input side, has a stage")
        self.used = [new_bool(f"used[{j}]") for j in stages]
        says("s", "s[j]: data-parallel degrees of position j and all later ones, summed [Piper, section 3.5]")
        self.s = [new_int(0, terms.max_s, f"s[{j}]") for j in stages] + [self.model.new_constant(0)]
        says("choice", "choice[o,j]: option o, a TMPC of a node, runs at position j")
        self.choice = {(o, j): new_bool(f"choice[{o},{j}]") for o in options for j in stages}
        says("holds", "holds[v,j]: node v is at position j")
        self.holds = {(v, j): new_bool(f"holds[{v},{j}]") for v in nodes for j in stages}
        says("done", "done[v,j]: node v is at position j or before")
        self.done = {(v, j): new_bool(f"done[{v},{j}]") for v in nodes for j in stages}
        says("in_flight", "in_flight[j,y]: position j has y micro-batches in flight")
        self.in_flight = {(j, y): new_bool(f"in_flight[{j},{y}]") for j in stages for y in flights}
        says("paid", "paid[c,j]: position j pays crossing c: an edge's volume, or a part of it")
        self.paid = {(c, j): new_bool(f"paid[{c},{j}]") for j in stages for c in crossings}

    def _degrees(self) -> None:
        """Degrees of the stages (section 3.1)."""
        cp, terms, instance = self.model, self.terms, self.terms.instance
        cp.says("one_pair_of_degrees", "a stage has one t and one d, an unused position has none [Piper, section 3.1]")
        cp.says("tp_degree", "a position has degree t with some d: sum over d of degrees[j,t,d] = has_t[j,t]")
        cp.says("dp_degree", "a position has degree d with some t: sum over t of degrees[j,t,d] = has_d[j,d]")
        cp.says("suffix_sum", "s is the suffix sum of the data-parallel degrees: s_j = d_j + s_(j+1)")
        cp.says("unused_last", "unused positions come last: used[j] implies used[j-1]")
        cp.says("devices", "the stages take disjoint sets of devices: sum over i of d_i t_i <= K [Piper, section 3.1]")
        cp.says("microbatches", "data-parallel degrees sum to exactly N, if that is required")
        for j in terms.stages:
            own = {(t, d): self.degrees[j, t, d] for t, d in terms.configs}
            cp.add_exactly_one([*own.values(), ~self.used[j]]).with_name(f"one_pair_of_degrees[{j}]")
            for t in instance.tp_degrees:
                at_t = [var for (tp, _), var in own.items() if tp == t]
                cp.add(_sum(at_t) == self.has_t[j, t]).with_name(f"tp_degree[{j},{t}]")
            for d in terms.dp_degrees:
                at_d = [var for (_, dp), var in own.items() if dp == d]
                cp.add(_sum(at_d) == self.has_d[j, d]).with_name(f"dp_degree[{j},{d}]")
            d_j = _weighted(list(own.values()), [d for _, d in own])
            cp.add(self.s[j] == self.s[j + 1] + d_j).with_name(f"suffix_sum[{j}]")
            if j:
                cp.add_implication(self.used[j], self.used[j - 1]).with_name(f"unused_last[{j}]")

        taken = [(var, t * d) for (_, t, d), var in self.degrees.items()]
        cp.add(_weighted(*_columns(taken)) <= instance.num_devices).with_name("devices")

        # At most N: no s exceeds it.
        if instance.exactly:
            cp.add(self.s[0] == instance.num_microbatches).with_name("microbatches")

    def _nodes(self) -> None:
        """Nodes of the stages and their TMPCs (sections 3.1 and 3.3)."""
        cp, terms = self.model, self.terms
        cp.says("one_place", "a node is in one stage, with one TMPC: sum of its choice[o,j] = 1 [Piper, section 3.1]")
        cp.says("held", "a position holds the nodes that run there: sum over o of v of choice[o,j] = holds[v,j]")
        cp.says("done_so_far", "what is done grows by what a position holds: done[v,j] = done[v,j-1] + holds[v,j]")
        cp.says("one_tp_degree", "all nodes of a stage have its t: X(v) in T(v,t) [Piper, section 3.3]")
        cp.says("forward", "no edge (u,v) runs backwards: where v is done, so is u [Piper, section 3.1]")
        cp.says("not_empty", "a stage holds a node")
        for v in terms.nodes:
            cp.add_exactly_one([self.choice[o, j] for o in terms.of_node[v] for j in terms.stages]).with_name(
                f"one_place[{v}]"
            )
            for j in terms.stages:
                runs = _sum([self.choice[o, j] for o in terms.of_node[v]])
                cp.add(runs == self.holds[v, j]).with_name(f"held[{v},{j}]")
                before = self.done[v, j - 1] if j else 0
                cp.add(self.done[v, j] == before + self.holds[v, j]).with_name(f"done_so_far[{v},{j}]")

        for (o, j), var in self.choice.items():
            has_t = self.has_t[j, terms.options[o].tp_degree]
            cp.add_implication(var, has_t).with_name(f"one_tp_degree[{o},{j}]")

        for u, v in terms.instance.edge_indices:
            for j in terms.stages:
                cp.add_implication(self.done[v, j], self.done[u, j]).with_name(f"forward[{u},{v},{j}]")

        for j in terms.stages:
            held = [self.holds[v, j] for v in terms.nodes]
            cp.add_bool_or([*held, ~self.used[j]]).with_name(f"not_empty[{j}]")

    def _memory(self, j: int) -> None:
        """Memory of a stage (section 3.5)."""
        cp, terms = self.model, self.terms
        cp.says("one_number_in_flight", "a stage has one number y of micro-batches in flight, an unused position none")
        cp.says("enough_in_flight", "y is ceil(s/d), so enough: s <= y d if y are in flight [Piper, section 3.5]")
        cp.says("no_more_in_flight", "and no more than that: s > (y - 1) d if y are in flight [Piper, section 3.5]")
        cp.says("memory", "sum over v of (X(v).a y + X(v).b) <= M if y are in flight [Piper, section 3.5]")
        flights = {y: self.in_flight[j, y] for y in self.numbers_in_flight()}
        cp.add_exactly_one([*flights.values(), ~self.used[j]]).with_name(f"one_number_in_flight[{j}]")
        has_d = [self.has_d[j, d] for d in terms.dp_degrees]
        limit = self.sizes.floor(terms.memory_limit)
        for y, flying in flights.items():
            y_d = _weighted(has_d, [y * d for d in terms.dp_degrees])
            one_less = _weighted(has_d, [(y - 1) * d for d in terms.dp_degrees])
            cp.add(self.s[j] <= y_d).only_enforce_if(flying).with_name(f"enough_in_flight[{j},{y}]")
            cp.add(self.s[j] >= one_less + 1).only_enforce_if(flying).with_name(f"no_more_in_flight[{j},{y}]")
            if self.sizes.floor(terms.largest_memory(y)) > limit:
                sizes = [self.sizes.floor(o.tmpc.activation_bytes * y + o.tmpc.static_bytes) for o in terms.options]
                mem = _weighted(self._choices(j), sizes)
                cp.add(mem <= limit).only_enforce_if(flying).with_name(f"memory[{j},{y}]")

    def _boundary(self, j: int) -> None:
        """Which communication costs c, c^fw and c^bw a stage pays (section 4)."""
        self.model.says(
            "boundary",
            "the edges of delta^-(S) and delta^+(S) are paid by their end in S: position j pays crossing c where its "
            "payer runs with one of its options, and its neighbour does not run [Piper, section 4]",
        )
        for c, crossing in enumerate(self.terms.crossings):
            runs = _sum([self.choice[o, j] for o in crossing.options])
            self.model.add(self.paid[c, j] + self.holds[crossing.other, j] >= runs).with_name(f"boundary[{c},{j}]")

    def _stage_time(self, j: int) -> None:
        """T is at least the Time-Per-Sample of a stage (sections 3.2 and 4)."""
        cp, terms, floor = self.model, self.terms, self.costs.floor
        cp.says(
            "stage_time",
            "compute + comm / B <= T, times d, if the stage has data-parallel degree d: sum of X.p + sum of "
            "2 (c + X.c^fw)/B + sum of 2 (c + X.c^bw)/B + 4 (d-1)/(d B) sum of X.w <= d T [Piper, sections 3.2 and 4]",
        )
        cp.says("device_time", "implied: a stage has t d devices for T each, and T <= upper: sum of t X.p <= t d upper")
        paid = [(self.paid[c, j], floor(crossing.time)) for c, crossing in enumerate(terms.crossings)]
        for d in terms.dp_degrees:
            costs = [floor(o.tmpc.time + terms.resync(d) * o.tmpc.weight_bytes) for o in terms.options]
            total = _weighted(*_columns([*zip(self._choices(j), costs, strict=True), *paid]))
            cp.add(total <= d * self.time).only_enforce_if(self.has_d[j, d]).with_name(f"stage_time[{j},{d}]")

        work = _weighted(self._choices(j), [floor(terms.work(o)) for o in range(len(terms.options))])
        own = [(self.degrees[j, t, d], t * d * self.upper) for t, d in terms.configs]
        cp.add(work <= _weighted(*_columns(own))).with_name(f"device_time[{j}]")

    def _choices(self, j: int) -> list[Any]:
        return [self.choice[o, j] for o in range(len(self.terms.options))]

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, int]]:
        """The decisions that make up a plan, as pairs of a variable and its value."""
        chosen = dict(enumerate(self.terms.chosen(plan)))
        flights = {j: -(-s // chosen[j].dp_degree) for j, s in enumerate(suffix_sums(plan))}
        for (j, t, d), var in self.degrees.items():
            yield var, int(j in chosen and (t, d) == (chosen[j].tp_degree, chosen[j].dp_degree))
        for (o, j), var in self.choice.items():
            yield var, int(j in chosen and o in chosen[j].options)
        for (j, y), var in self.in_flight.items():
            yield var, int(flights.get(j) == y)

    def decode(self, values: cpsat.Values) -> StagePlan:
        """The plan of a solution."""
        terms = self.terms
        return terms.plan(
            Chosen(t, d, tuple(o for o in range(len(terms.options)) if values[self.choice[o, j]]))
            for j in terms.stages
            for t, d in terms.configs
            if values[self.degrees[j, t, d]]
        )

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a plan, as sums over its decisions."""
        terms, index, stages = self.terms, self.terms.instance.index, self.terms.stages
        return {
            "num_stages": lambda: sum(self.used),
            "num_devices": lambda: sum(t * d * var for (_, t, d), var in self.degrees.items()),
            "same_stage": lambda node, other: self._together(index[node], index[other]),
            "stage_of": lambda node: sum(j * self.holds[index[node], j] for j in stages),
            "nodes": lambda stage: sum(self.holds[v, j] for v in terms.nodes for j in stages if j == stage),
            "tp_degree": lambda stage: sum(t * var for (j, t), var in self.has_t.items() if j == stage),
            "dp_degree": lambda stage: sum(d * var for (j, d), var in self.has_d.items() if j == stage),
            "tp_degree_of": lambda node: sum(
                terms.options[o].tp_degree * self.choice[o, j] for o in terms.of_node[index[node]] for j in stages
            ),
            "dp_degree_of": lambda node: self._dp_degree_of(index[node]),
        }

    def _together(self, u: int, v: int) -> Any:
        """1 if nodes u and v are at one position."""
        cp, name = self.model, f"together[{min(u, v)},{max(u, v)}]"
        if u == v or name in self._derived:
            return self._derived.get(name, 1)
        cp.says("together", "together[u,v]: nodes u and v are in one stage, for a requirement")
        cp.says("together_if", "then every position holds both or none: holds[u,j] = holds[v,j]")
        cp.says("together_unless", "else no position holds both: holds[u,j] + holds[v,j] <= 1")
        found = self._derived[name] = cp.new_bool_var(name)
        for j in self.terms.stages:
            both = cp.add(self.holds[u, j] == self.holds[v, j]).with_name(f"together_if[{u},{v},{j}]")
            both.only_enforce_if(found)
            one = cp.add(self.holds[u, j] + self.holds[v, j] <= 1).with_name(f"together_unless[{u},{v},{j}]")
            one.only_enforce_if(~found)
        return found

    def _dp_degree_of(self, v: int) -> Any:
        """The data-parallel degree of the position that holds node v."""
        cp, name = self.model, f"replicas[{v}]"
        if name not in self._derived:
            cp.says("replicas", "replicas[v]: data-parallel degree of the stage that holds node v, for a requirement")
            cp.says("replicas_here", "it is that of the position: replicas[v] = sum of d has_d[j,d] if holds[v,j]")
            found = self._derived[name] = cp.new_int_var(0, self.terms.max_s, name)
            for j in self.terms.stages:
                d_j = sum(d * self.has_d[j, d] for d in self.terms.dp_degrees)
                cp.add(found == d_j).with_name(f"replicas_here[{v},{j}]").only_enforce_if(self.holds[v, j])
        return self._derived[name]

    def lower_bound(self, bound: float) -> float:
        """T is the scaled T rounded up, at most: it may exceed the true one by less than a unit."""
        return max(0.0, self.costs.restore(cpsat.whole(bound) - 1))

    def cut_off(self, plan: StagePlan, _values: Any) -> None:
        """Forbid every stage that is too large."""
        for stage, in_flight in too_large(self.terms.instance, plan):
            self._forbid(stage, in_flight)

    def _forbid(self, stage: Stage, in_flight: int) -> None:
        """Not all of these TMPCs together, at any position, with so many micro-batches in flight or more."""
        options = self.terms.chosen(StagePlan((stage,)))[0].options
        for (j, y), flying in self.in_flight.items():
            if y >= in_flight:
                self.forbid([~flying, *(~self.choice[o, j] for o in options)])

    def forbid(self, decided: list[Any]) -> None:
        """At least one of these literals holds."""
        self.model.says("forbidden", "a plan with more bytes than fit, which only rounding admitted, is cut off")
        self.model.add_bool_or(decided).with_name(f"forbidden[{len(self.model.proto.constraints)}]")


def build(instance: StageInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The CP-SAT model of an instance.

    T is at most that of a known plan, its hint: the watch's best, or that of `known_plan`; of none if ``complete``.
    Raises `modelled.Stopped` once the watch is, and `SizeError` if it would be too large.
    """
    watch, terms = watch or Watch(), Terms(instance)
    watch.bound(terms.lower_bound, Prover.BOUNDS)
    demand_assignment(instance)
    model = Model(terms, None if complete else known_plan(terms, watch), watch)
    require(model, VOCABULARY, instance)
    return model


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by CP-SAT, with a plan of `known_plan` to start from.

    Source
    ------
    This project; see the module, and `models.target_cpsat`.
    """

    def model() -> Model | Search[TargetModel]:
        if assignment_too_large(instance) or not searchable(instance, limits, watch):
            return build(instance, watch)
        watch.bound(Terms(instance).lower_bound, Prover.BOUNDS)
        return Search(Terms(instance), TargetModel)

    return prove(instance, model, limits, watch, to_scale=True)


def _columns(terms: list[tuple[Any, int]]) -> tuple[list[Any], list[int]]:
    return [var for var, _ in terms], [factor for _, factor in terms]


def _largest_row(terms: Terms, upper: float) -> float:
    """What no time row exceeds, in time units, even with every choice made at once."""
    work = math.fsum(map(terms.work, range(len(terms.options))))
    weight = max(map(terms.resync, terms.dp_degrees), default=0.0) * math.fsum(
        o.tmpc.weight_bytes for o in terms.options
    )
    volume = math.fsum(crossing.time for crossing in terms.crossings)
    return work + weight + volume + upper * sum(t * d for t, d in terms.configs)


def _memory_scale(terms: Terms, in_flight: int) -> Scale:
    sizes = [size for o in terms.options for size in (o.tmpc.activation_bytes, o.tmpc.static_bytes)]
    return size_scale(sizes, terms.memory_limit, math.fsum(sizes) * in_flight)
