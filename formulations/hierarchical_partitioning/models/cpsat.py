"""Hierarchical stage partitioning as one CP-SAT model, for small instances.

Nodes are assigned to positions (p, r): stage r inside superstage p, both counted from the input side. Every position
has its degrees, every superstage its number of machines; positions that a plan does not use come last. Costs are
rounded down and byte limits never tightened (`solvers.scaling`), so the bound holds; a plan that only rounding let
through is cut off and the search goes on.

Source: this project; the problem is Piper's, Appendix E. Symbols: d_1 and t degrees inside a machine, d_2 machines, B_2
the bandwidth between machines, T the slowest superstage's time, s the sum of d_1 d_2 from a superstage on.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.problem import evaluate, most_in_flight, violations, whole_weight
from formulations.hierarchical_partitioning.definition.quantities import VOCABULARY
from formulations.hierarchical_partitioning.models.first_plan import first_plan
from formulations.modelling.solve_model import add_requirements, prove
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models.assignment_data import Chosen, Terms
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import Scale, cost_scale, size_scale

sum_, weighted_sum = cp_model.LinearExpr.sum, cpsat.weighted_sum


@dataclass(frozen=True)
class Data:
    """An instance in whole units of time and of bytes, rounded down.

    ``configs`` are the degrees (t, d_1) that fit a machine. By d_1 and option o ``stage_times`` are p_o + kappa(d_1)
    w_o; ``volumes`` are the times of crossings; by y and o ``bytes_of`` are a_o y + b_o, of which ``limit`` fit. By
    d_2 and node ``link_times`` are those of weights between machines, by edge ``link_volumes`` those of what crosses.
    """

    instance: HierarchicalInstance
    terms: Terms
    configs: list[tuple[int, int]]
    stage_times: Mapping[int, list[int]]
    volumes: list[int]
    bytes_of: Mapping[int, list[int]]
    limit: int
    link_times: Mapping[int, list[int]]
    link_volumes: list[int]
    most: int
    scale: Scale
    supers: range
    stages: range

    @property
    def places(self) -> list[tuple[int, int]]:
        """All stages r of superstages p."""
        return list(product(self.supers, self.stages))


def data_of(instance: HierarchicalInstance) -> Data:
    """Times in units that lose little of a lower bound; no limit on bytes is tightened."""
    terms, flat, B2 = Terms(instance.inner), instance.flat, instance.outer_bandwidth
    K1, K2, S = instance.devices_per_machine, instance.num_machines, most_in_flight(instance)
    configs = [(t, d) for t, d in terms.configs if t * d <= K1]
    weights = list(map(whole_weight, flat.layers))
    # No superstage takes longer, feasible or not.
    sent = 4 * math.fsum(weights) + 2 * math.fsum(edge.bytes for edge in flat.edges)
    most_s = max(terms.largest_time, sent / B2, 1e-9)
    lower_s = terms.lower_bound / K2 if configs else 0.0
    costs = cost_scale(lower_s, 3 * len(weights) + len(terms.crossings) + 1, most_s * K1 * K2 * 4)
    tmpcs = [option.tmpc for option in terms.options]
    sizes = size_scale(
        [size for x in tmpcs for size in (x.activation_bytes, x.static_bytes)],
        terms.memory_limit,
        math.fsum(x.activation_bytes * S + x.static_bytes for x in tmpcs),
    )
    flights = range(1, 1 if instance.memory_model is MemoryModel.NONE else S + 1)
    return Data(
        instance,
        terms,
        configs,
        {d: [costs.floor(x.time + terms.resync(d) * x.weight_bytes) for x in tmpcs] for _, d in sorted(configs)},
        [costs.floor(crossing.time) for crossing in terms.crossings],
        {y: [sizes.floor(x.activation_bytes * y + x.static_bytes) for x in tmpcs] for y in flights},
        sizes.floor(terms.memory_limit),
        {d: [costs.floor(4 * (d - 1) / d * w / B2) for w in weights] for d in range(1, min(K2, S) + 1)},
        [costs.floor(2 * edge.bytes / B2) for edge in flat.edges],
        costs.ceil(most_s),
        costs,
        range(min(len(weights), K2, S)),
        range(min(len(weights), K1, S)),
    )


def build(data: Data) -> cpsat.SpokenModel:
    """The rows of the definition; nothing is left out for a known plan."""
    instance, terms, supers, places, configs = data.instance, data.terms, data.supers, data.places, data.configs
    K1, K2 = instance.devices_per_machine, instance.num_machines
    nodes, edges, d1s, d2s = terms.nodes, terms.instance.edge_indices, data.stage_times, data.link_times
    is_crude = instance.memory_model is MemoryModel.CRUDE
    nodes_at = [(v, *at) for v in nodes for at in places]
    degree_of = [option.tp_degree for option in terms.options]
    options_at = [(o, *at) for o in range(len(degree_of)) for at in places]

    # fmt: off
    model = cpsat.SpokenModel()
    time = model.integer("time", 0, data.most,
        "T, the time of the slowest superstage, in whole units [Piper, Appendix E]")
    machines = model.booleans("machines", product(supers, d2s),
        "machines[p,d2]: superstage p, from 0 at the input side, is used, on d2 machines")
    degrees = model.booleans("degrees", [(*at, *config) for at in places for config in configs],
        "degrees[p,r,t,d1]: stage r of superstage p has degrees t and d_1 in each machine")
    has_d = model.booleans("has_d", [(*at, d) for at in places for d in d1s],
        "has_d[p,r,d1]: stage r of superstage p has data-parallel degree d_1 in each machine")
    used = model.booleans("used", places, "used[p,r]: superstage p has a stage r")
    s = model.integers("s", supers, 0, most_in_flight(instance),
        "s[p]: degrees d_1 d_2 of superstage p and all later ones, summed, or more")
    choice = model.booleans("choice", options_at,
        "choice[o,p,r]: option o, a TMPC of a node, runs in stage r of superstage p")
    holds = model.booleans("holds", nodes_at, "holds[v,p,r]: node v is in stage r of superstage p")
    done = model.booleans("done", nodes_at, "done[v,p,r]: node v is in that stage or before")
    inside = model.booleans("in_superstage", product(nodes, supers), "in_superstage[v,p]: node v is in superstage p")
    crossed = model.booleans("crossed", product(range(len(edges)), supers),
        "crossed[e,p]: edge e crosses the boundary of superstage p")
    in_flight = model.booleans("in_flight", [(*at, y) for at in places for y in data.bytes_of],
        "in_flight[p,r,y]: at most y micro-batches are in flight in that stage")
    paid = model.booleans("paid", [(c, *at) for c in range(len(data.volumes)) for at in places],
        "paid[c,p,r]: that stage pays crossing c: an edge's volume, or a part of it")

    # Degrees of the stages in each machine, and machines of the superstages.
    model.rows("one_pair_of_degrees", places,
        lambda p, r: model.add_exactly_one([*(degrees[p, r, t, d] for t, d in configs), ~used[p, r]]),
        "a stage has one t and one d_1: sum of degrees[p,r,t,d1] = used[p,r]")
    model.rows("dp_degree", has_d,
        lambda p, r, d: sum_([degrees[p, r, t, dp] for t, dp in configs if dp == d]) == has_d[p, r, d],
        "a stage has degree d_1 with some t: sum over t of degrees[p,r,t,d1] = has_d[p,r,d1]")
    model.rows("unused_last", places[1:],
        lambda p, r: model.add_implication(used[p, r], used[(p, r - 1) if r else (p - 1, 0)]),
        "unused positions come last, in a superstage and among superstages")
    model.rows("one_number_of_machines", supers,
        lambda p: model.add_exactly_one([*(machines[p, d] for d in d2s), ~used[p, 0]]),
        "a used superstage has one number of machines d_2, an unused one none")
    model.rows("devices", supers,
        lambda p: weighted_sum((t * d, degrees[p, r, t, d]) for r in data.stages for t, d in configs) <= K1,
        "a machine's stages take at most K_1 devices: sum of t d_1 <= K_1 [Piper, Appendix E]")
    model.row("all_machines", weighted_sum((d, taken) for (_, d), taken in machines.items()) <= K2,
        "the superstages take at most K_2 machines: sum of d_2 <= K_2 [Piper, Appendix E]")

    def behind(p: int, r: int, d2: int) -> Any:
        return s.get(p + 1, 0) + d2 * weighted_sum((d, has_d[p, i, d]) for i in data.stages if i >= r for d in d1s)

    model.rows("suffix_sum", machines,
        lambda p, d2: (s[p] >= behind(p, 0, d2), machines[p, d2]),
        "s_p >= s_(p+1) + d_2 sum over r of d_1, if superstage p has d_2 machines [Piper, Appendix E]")

    # Nodes of the stages and their TMPCs.
    earlier = dict(zip(places[1:], places, strict=False))
    model.rows("one_place", nodes,
        lambda v: model.add_exactly_one(choice[o, *at] for o in terms.of_node[v] for at in places),
        "a node is in one stage, with one TMPC: sum of its choice[o,p,r] = 1 [Piper, section 3.1]")
    model.rows("held", nodes_at,
        lambda v, *at: sum_([choice[o, *at] for o in terms.of_node[v]]) == holds[v, *at],
        "a stage holds the nodes that run there: sum over o of v of choice[o,p,r] = holds[v,p,r]")
    model.rows("done_so_far", nodes_at,
        lambda v, *at: done[v, *at] == holds[v, *at] + (done[v, *earlier[at]] if at in earlier else 0),
        "what is done grows by what a stage holds, stage by stage")
    model.rows("one_tp_degree", options_at,
        lambda o, *at: choice[o, *at] <= sum_([degrees[*at, *of] for of in configs if of[0] == degree_of[o]]),
        "all nodes of a stage have its t: X(v) in T(v,t) [Piper, section 3.3]")
    model.rows("forward", [(*edge, *at) for edge in edges for at in places],
        lambda u, v, *at: model.add_implication(done[v, *at], done[u, *at]),
        "no edge (u,v) runs backwards: where v is done, so is u [Piper, section 3.1]")
    model.rows("not_empty", places,
        lambda *at: model.add_bool_or([*(holds[v, *at] for v in nodes), ~used[at]]),
        "a stage holds a node")

    # Bytes of a stage.
    model.rows("one_number_in_flight", places if data.bytes_of else [],
        lambda *at: model.add_exactly_one([*(in_flight[*at, y] for y in data.bytes_of), ~used[at]]),
        "a stage has some number y of micro-batches in flight, an unused position none")
    model.rows("memory", in_flight,
        lambda p, r, y: (weighted_sum((size, choice[o, p, r]) for o, size in enumerate(data.bytes_of[y])) <= data.limit,
                         in_flight[p, r, y]),
        "sum over v of (X(v).a y + X(v).b) <= M if at most y are in flight [Piper, Appendix E]")
    model.rows("all_in_flight", [
        (p, r, y, d) for p, r, y in in_flight for d in d1s if is_crude and y != -(-most_in_flight(instance) // d)],
        lambda p, r, y, d: model.add_bool_or([~in_flight[p, r, y], ~has_d[p, r, d]]),
        "y = ceil(S / d_1) in the crude accounting, if the stage has degree d_1 [Piper, Appendix E]")
    model.rows("enough_in_flight", [
        (*key, d1, d2) for key in in_flight for d1 in d1s for d2 in d2s if not is_crude],
        lambda p, r, y, d1, d2: (behind(p, r, d2) <= y * d1 * d2, in_flight[p, r, y], has_d[p, r, d1], machines[p, d2]),
        "y is at least ceil(s / (d_1 d_2)) in the precise accounting: s, from the stage on, is at most y d_1 d_2 "
        "[Piper, Appendix E]")

    # Time of a stage and of a superstage's link.
    model.rows("boundary", paid,
        lambda c, *at: paid[c, *at] + holds[terms.crossings[c].other, *at]
        >= sum_([choice[o, *at] for o in terms.crossings[c].options]),
        "a stage pays a crossing where its payer runs with one of its options, and its neighbour does not run: "
        "paid[c,p,r] + holds[neighbour,p,r] >= sum over c's o of choice[o,p,r] [Piper, section 4]")
    model.rows("stage_time", [(*key, d2) for key in has_d for d2 in d2s],
        lambda p, r, d1, d2: (
            weighted_sum((cost, choice[o, p, r]) for o, cost in enumerate(data.stage_times[d1]))
            + weighted_sum((cost, paid[c, p, r]) for c, cost in enumerate(data.volumes)) <= d1 * d2 * time,
            has_d[p, r, d1], machines[p, d2]),
        "T is at least a stage's time in each machine: compute + boundary + synchronisation <= d_1 d_2 T [Piper, "
        "Appendix E]")
    model.rows("held_inside", inside,
        lambda v, p: sum_([holds[v, p, r] for r in data.stages]) == inside[v, p],
        "a superstage holds what its stages hold: sum of holds[v,p,r] = in_superstage[v,p]")
    model.rows("leaves", crossed,
        lambda e, p: crossed[e, p] >= inside[edges[e][0], p] - inside[edges[e][1], p],
        "an edge (u,v) crosses the boundary of a superstage that holds u and not v [Piper, Appendix E]")
    model.rows("enters", crossed,
        lambda e, p: crossed[e, p] >= inside[edges[e][1], p] - inside[edges[e][0], p],
        "and of one that holds v and not u [Piper, Appendix E]")
    model.rows("link_time", machines,
        lambda p, d2: (
            weighted_sum((cost, inside[v, p]) for v, cost in enumerate(data.link_times[d2]))
            + weighted_sum((cost, crossed[e, p]) for e, cost in enumerate(data.link_volumes)) <= d2 * time,
            machines[p, d2]),
        "T is at least the time of a machine's link: sum over v of 4 (d_2 - 1)/d_2 w(v) / B_2 + sum over the boundary "
        "of 2 c / B_2 <= d_2 T [Piper, Appendix E]")
    model.minimize(time)
    # fmt: on
    return model


@dataclass
class Model(cpsat.Runnable):
    """The model of ``data``; its groups of variables are those of `build`."""

    model: cpsat.SpokenModel
    data: Data

    @property
    def var(self) -> SimpleNamespace:
        """The groups of variables by name, each by its indices."""
        return SimpleNamespace(**self.model.variables)

    def decode(self, values: cpsat.Values) -> HierarchicalPlan:
        """The plan of a solution."""
        var, terms, inner = self.var, self.data.terms, defaultdict[int, list[Chosen]](list)
        for (p, r, t, d), taken in var.degrees.items():
            if values[taken]:
                options = tuple(o for o in range(len(terms.options)) if values[var.choice[o, p, r]])
                inner[p].append(Chosen(t, d, options))
        return HierarchicalPlan(
            tuple(
                Superstage(d2, terms.plan(inner[p]).stages) for (p, d2), taken in var.machines.items() if values[taken]
            )
        )

    def values_of(self, plan: HierarchicalPlan) -> Iterator[tuple[Any, int]]:
        """The decisions that make up a plan: machines, degrees and TMPCs."""
        machines = {(p, found.dp_degree) for p, found in enumerate(plan.stages)}
        inner = {
            (p, r): stage
            for p, found in enumerate(plan.stages)
            for r, stage in enumerate(self.data.terms.decisions_of(StagePlan(found.inner)))
        }
        degrees = {(*place, stage.tp_degree, stage.dp_degree) for place, stage in inner.items()}
        choice = {(o, *place) for place, stage in inner.items() for o in stage.options}
        var = self.var
        for variables, taken in ((var.machines, machines), (var.degrees, degrees), (var.choice, choice)):
            yield from ((variable, int(index in taken)) for index, variable in variables.items())

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a plan, as sums over its decisions."""
        var, terms, index, places = self.var, self.data.terms, self.data.terms.instance.index, self.data.places
        supers = self.data.supers
        return {
            "num_superstages": lambda: sum(var.used[p, 0] for p in supers),
            "num_stages": lambda: sum(var.used.values()),
            "num_machines": lambda: sum(d * taken for (_, d), taken in var.machines.items()),
            "num_devices": lambda: sum(self._devices().values()),
            "superstage_of": lambda node: sum(p * var.in_superstage[index[node], p] for p in supers),
            "same_superstage": lambda node, other: self._together(
                "share_superstage", index[node], index[other], lambda v: [var.in_superstage[v, p] for p in supers]
            ),
            "same_stage": lambda node, other: self._together(
                "share_stage", index[node], index[other], lambda v: [var.holds[v, *at] for at in places]
            ),
            "nodes": lambda superstage: sum(held for (_, p), held in var.in_superstage.items() if p == superstage),
            "machines": lambda superstage: sum(d * taken for (p, d), taken in var.machines.items() if p == superstage),
            "tp_degree_of": lambda node: sum(
                terms.options[o].tp_degree * var.choice[o, *at] for o in terms.of_node[index[node]] for at in places
            ),
            "dp_degree_of": lambda node: self._dp_degree_of(index[node]),
        }

    def _devices(self) -> Mapping[int, Any]:
        """Devices of every superstage on all its machines."""
        cp, var, data = self.model, self.var, self.data
        if "taken" in cp.variables:
            return cp.variables["taken"]
        configs = [(r, t, d) for r in data.stages for t, d in data.configs]
        # fmt: off
        found = cp.integers("taken", data.supers, 0, data.instance.devices_per_machine * data.instance.num_machines,
            "taken[p]: devices of superstage p on all its machines, for a requirement")
        cp.rows("taken_on_machines", var.machines,
            lambda p, d2: (found[p] == d2 * sum(t * d * var.degrees[p, r, t, d] for r, t, d in configs),
                           var.machines[p, d2]),
            "they are d_2 sum over r of t d_1, if superstage p has d_2 machines")
        cp.rows("none_taken", data.supers, lambda p: (found[p] == 0, ~var.used[p, 0]),
            "and none where no superstage is")
        # fmt: on
        return found

    def _together(self, group: str, u: int, v: int, places: Callable[[int], list[Any]]) -> Any:
        """1 if one of the same ``places`` holds both nodes u and v."""
        cp, pair = self.model, (min(u, v), max(u, v))
        if u == v or pair in cp.variables.get(group, {}):
            return 1 if u == v else cp.variables[group][pair]
        both = {(*pair, number): each for number, each in enumerate(zip(places(u), places(v), strict=True))}
        # fmt: off
        found = cp.booleans(group, [pair], f"{group}[u,v]: nodes u and v are in one, for a requirement")[pair]
        cp.rows(f"{group}_if", both, lambda *at: (both[at][0] == both[at][1], found),
            "then every one holds both or none of them")
        cp.rows(f"{group}_unless", both, lambda *at: (sum(both[at]) <= 1, ~found), "else none holds both")
        # fmt: on
        return found

    def _dp_degree_of(self, v: int) -> Any:
        """The data-parallel degree d_1 of the stage that holds node v."""
        cp, var, data = self.model, self.var, self.data
        if v in cp.variables.get("replicas", {}):
            return cp.variables["replicas"][v]
        # fmt: off
        found = cp.integers("replicas", [v], 0, most_in_flight(data.instance),
            "replicas[v]: d_1 of the stage that holds node v, for a requirement")[v]
        cp.rows("replicas_here", [(v, *at) for at in data.places],
            lambda v, *at: (found == sum(d * var.has_d[*at, d] for d in data.stage_times), var.holds[v, *at]),
            "replicas[v] = sum of d_1 has_d[p,r,d1] if holds[v,p,r]")
        # fmt: on
        return found

    def lower_bound(self, bound: float) -> float:
        """T is the scaled T rounded up, at most: it may exceed the true one by less than a unit."""
        return max(0.0, self.data.scale.restore(cpsat.whole(bound) - 1))

    def cut_off(self, _plan: HierarchicalPlan, values: Any) -> None:
        """Not this combination of decisions, which only rounded bytes allowed."""
        self.model.says("forbidden", "a plan with more bytes than fit, which only rounding admitted, is cut off")
        var = self.var
        decided = [*var.choice.values(), *var.degrees.values(), *var.machines.values()]
        forbidden = self.model.add_bool_or([~var for var in decided if values[var]])
        forbidden.with_name(f"forbidden[{len(self.model.proto.constraints)}]")


def model_of(
    instance: HierarchicalInstance,
    watch: Watch | None = None,
    *,
    complete: bool = False,  # noqa: ARG001 - it always is
) -> Model:
    """The model of an instance, with its requirements; nothing is left out for a known plan, ``complete`` or not."""
    with stops_with(watch or Watch()):
        data = data_of(instance)
        return add_requirements(Model(build(data), data), VOCABULARY, instance)


def solve(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Answer[HierarchicalPlan]:
    """The optimum by CP-SAT."""
    first = first_plan(instance, limits)
    return prove(instance, lambda: model_of(instance, watch), evaluate, violations, limits, watch, first=first)
