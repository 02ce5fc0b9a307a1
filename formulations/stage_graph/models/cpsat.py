"""Stage graphs as a CP-SAT model: GraphPipe's Equation 1 under Equation 2 and C1 to C4.

GraphPipe (section 3) writes a stage as S_i = <G_i, b_i, D_i, Pi_i> and looks for

    min max_i TPS(S_i)   (1)      s.t.  max_i DeviceMemoryUsage(S_i) <= M   (2),   C1 to C4.

Here s is a stage's place in an order in which no tensor goes back, v an operator, e an edge of the model. b is the
model's own, or chosen. Pi_s is 1F1B, which keeps C4 and the least in flight (Appendix A.1, one size and k = 1:
i_x = i_y + b), so d micro-batches at a stage of depth d: all that it means for Equation 2. To keep more only takes more
memory: plans that do are left out unless a requirement may want them (`Data.declared`). What TPS and DeviceMemoryUsage
are the paper leaves open (README). Section 5 searches series-parallel decompositions; this model needs none.

Costs and sizes are rounded down and limits up (`Data`), so every plan stays feasible and no slower. No row has a big-M:
what holds for one degree, depth or device alone is enforced by its literal.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements
from formulations.stage_graph.costs.costs import Costs, identical, with_in_flight
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import data_edges
from formulations.stage_graph.definition.quantities import VOCABULARY
from formulations.stage_graph.models import size_search, usable_sizes
from formulations.stage_graph.models.data import Data, longest_s
from formulations.stage_graph.models.devices import Links, link_devices
from formulations.stage_graph.upsets.bounds import simple_bound
from instances.problems.stage_graph import StageGraph
from instances.requirements import requirements_of
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import OPTIMAL_GAP, Limits, Watch
from solvers.scaling import Scale, cost_scale

_sum = cp_model.LinearExpr.sum
_weighted = cp_model.LinearExpr.weighted_sum

#: By operator, edge or place and another index; degrees have two where devices share operators.
Literals = Mapping[tuple[int, ...], Any]


@dataclass(frozen=True)
class Variables:
    """Those of a model, as their sentences in `build` say."""

    size: Mapping[int, Any]
    within: Literals
    inner: Literals
    degree: Literals
    used: Mapping[int, Any]
    deep: Literals
    behind: Literals
    links: Links
    bottleneck: Any


def build(data: Data) -> tuple[cpsat.SpokenModel, Variables]:
    """The model of ``data``."""
    instance, model, places, degrees = data.instance, cpsat.SpokenModel(), data.places, data.degrees
    nodes, edges, last = range(instance.num_operators), range(len(instance.edges)), places[-1]
    source, target = [edge.source for edge in instance.edges], [edge.target for edge in instance.edges]

    # fmt: off
    bottleneck = model.integer("bottleneck", 0, data.high,
        f"seconds per sample of the slowest stage, with micro-batches of {', '.join(map(str, data.sizes))}"
        + (" (to be chosen)" if len(data.groups) > 1 else ""))
    size = model.booleans("size", [size for choice in data.choices for size in choice],
        "size[b]: micro-batches have b samples")
    within = model.booleans("within", product(nodes, places), "within[v,s]: operator v is in G_s")
    upto = model.booleans("upto", product(nodes, places), "upto[v,s]: operator v is in one of G_0, ..., G_s")
    inner = model.booleans("inner", product(edges, places), "inner[e,s]: both ends of edge e are in G_s")
    degree = model.booleans("degree", ((s, *r) for s in places for r in degrees),
        "degree[s,r,t]: stage s has r replicas of t devices" if data.is_shared else "degree[s,r]: |D_s| = r")
    used = model.booleans("used", places, "used[s]: G_s is not empty")
    # 1 where exactly one end of the edge is in the stage
    cut = {(e, s): within[source[e], s] + within[target[e], s] - 2 * inner[e, s] for e, s in inner}

    if size:
        model.row("one_size", model.add_exactly_one(size.values()), "one size for all stages")

    # A path that leaves a stage goes on to later ones and does not return, so G_s is convex (C1).
    model.rows("one_stage", nodes, lambda v: upto[v, last] == 1,
        "the G_s form a partition: upto[v,last] = 1 [GraphPipe, section 3, C1]")
    model.rows("within_is_step", within, lambda v, s: within[v, s] == upto[v, s] - upto.get((v, s - 1), 0),
        "so every v is in one stage: within[v,s] = upto[v,s] - upto[v,s-1] [GraphPipe, section 3, C1]")
    model.rows("edge_forward", inner, lambda e, s: model.add_implication(upto[target[e], s], upto[source[e], s]),
        "G_S is acyclic: no edge of the model goes back [GraphPipe, section 3]")
    model.rows("inner_source", inner, lambda e, s: model.add_implication(inner[e, s], within[source[e], s]),
        "an inner edge begins in the stage")
    model.rows("inner_target", inner, lambda e, s: model.add_implication(inner[e, s], within[target[e], s]),
        "an inner edge ends in the stage")
    model.rows("inner_both", inner,
        lambda e, s: model.add_bool_or(inner[e, s], ~within[source[e], s], ~within[target[e], s]),
        "an edge with both ends in the stage is inner")

    model.rows("one_degree", places, lambda s: _sum([degree[s, *r] for r in degrees]) == used[s],
        "every stage has one device at least: sum over r of degree[s,r] = used[s] [GraphPipe, section 3, C3]")
    model.rows("not_empty", places, lambda s: model.add_bool_or(~used[s], *(within[v, s] for v in nodes)),
        "a used stage has an operator")
    model.rows("holder_used", within, lambda v, s: model.add_implication(within[v, s], used[s]),
        "a stage with an operator is used")
    model.rows("enough_samples", degree if size else (),
        lambda s, r, *t: model.add_bool_or(~degree[s, r, *t], *(size[b] for b in size if b >= r)),
        "every replica has a sample: r devices need micro-batches of r samples at least")
    model.rows("declared_degree", [(v, s, *r) for s in places for v, r in data.lacking],
        lambda v, s, *r: model.add_implication(degree[s, *r], ~within[v, s]),
        "devices share only operators that declare so many: T(v, t) is not empty [Piper, section 3.6]")
    model.row("devices", _weighted(list(degree.values()), [prod(r) for _, *r in degree]) <= instance.num_devices,
        "D_1, ..., D_|V_S| are disjoint, some devices may stay idle [GraphPipe, section 3, C3]")
    links = link_devices(model, data, within, inner, cut, degree)

    deep, behind = keep_in_flight(model, data, size, within, inner)

    def under(*literals: Any) -> list[Any]:  # there are none for the fastest class of links and for one micro-batch
        return [each for each in literals if each is not None]

    wide = len(degrees[0])  # what rows are about begins with a place and *r

    def time(s: int, *rest: int) -> Any:
        r, c, b = rest[:wide], rest[wide], rest[wide + 1 :]
        takes = _weighted([within[v, s] for v in nodes], data.passes[*r, c, *b]) + data.waiting(r)
        for k in range(len(data.bandwidths)):
            takes += _weighted([links.cut_over[e, s, k] for e in edges], data.sending[*r, k, *b])
        for ends, units in zip((source, target), data.spreading.get((*r, *b), ()), strict=False):
            takes += _weighted([within[ends[e], s] - inner[e, s] for e in edges], units)
        return takes <= bottleneck, *under(degree[s, *r], links.reduces_over.get((s, c)), *(size[z] for z in b))

    def memory(s: int, *rest: int) -> Any:
        r, d, rest = rest[:wide], rest[wide], rest[wide + 1 :]
        b, u = (rest[:1], rest[1:]) if size else ((), rest)
        (copies, kept, sent), samples = data.byte_units[r], data.samples[*r, d, *b]
        holds = _weighted([within[v, s] for v in nodes], [copies[v] + samples * kept[v] for v in nodes])
        holds += _weighted([within[target[e], s] - inner[e, s] for e in edges], [samples * sent[e] for e in edges])
        literals = degree[s, *r], deep.get((s, d)), *(size[z] for z in b), *(links.owns[s, device] for device in u)
        return holds <= data.rooms[u], *under(*literals)

    model.rows("time", [(s, *kind) for kind in data.passes for s in places], time,
        "bottleneck >= TPS(S_s) of a stage with r devices: passes, tensors, all-reduce [GraphPipe, Equation 1]")
    model.rows("memory", [(s, *kind, *u) for kind in data.samples for s in places for u in data.rooms], memory,
        "weights and what samples in flight keep fit at r devices and depth d [GraphPipe, Equation 2]")
    if not data.is_relaxed:
        model.minimize(bottleneck)
    # fmt: on
    return model, Variables(size, within, inner, degree, used, deep, behind, links, bottleneck)


def keep_in_flight(
    model: cpsat.SpokenModel, data: Data, size: Mapping[int, Any], within: Literals, inner: Literals
) -> tuple[Literals, Literals]:
    """Add ``deep`` and ``behind``: C4 by Appendix A.1 for one size and k = 1. No row speaks of pairs of stages."""
    instance, places, deeper = data.instance, data.places, data.depths[1:]
    nodes, edges = range(instance.num_operators), range(len(instance.edges))
    source, target = [edge.source for edge in instance.edges], [edge.target for edge in instance.edges]

    # fmt: off
    deep = model.booleans("deep", product(places, deeper),
        "deep[s,d]: stage s keeps d micro-batches in flight at least")
    behind = model.booleans("behind", product(nodes, deeper),
        "behind[v,d]: the stage of operator v keeps d micro-batches in flight at least")
    # sizes at which the whole mini-batch is in flight at a lesser depth
    whole = {d: [size[b] for b in size if data.deepest(b) < d] for d in deeper}
    model.rows("one_deeper", product(edges, deeper),
        lambda e, d: behind[source[e], d]
        >= behind.get((target[e], d - 1), 1) - _sum([inner[e, s] for s in places]) - _sum(whole[d]),
        "along an edge that leaves its stage i_x >= i_y + b, up to the mini-batch; the least is the paper's "
        "i_x = i_y + b [GraphPipe, appendix A.1]")
    model.rows("as_deep", product(edges, deeper),
        lambda e, d: model.add_implication(behind[target[e], d], behind[source[e], d]),
        "along an edge no fewer are in flight at its source [GraphPipe, appendix A.1]")
    everywhere = [(v, s, d) for s, d in deep for v in nodes]
    model.rows("depth_of_stage", everywhere,
        lambda v, s, d: model.add_bool_or(deep[s, d], ~within[v, s], ~behind[v, d]),
        "a stage is as deep as its operators")
    model.rows("depth_of_operator", everywhere,
        lambda v, s, d: model.add_bool_or(behind[v, d], ~within[v, s], ~deep[s, d]),
        "all operators of a stage have its depth")
    model.rows("deep_from_first", [(s, d) for s, d in deep if data.declared and d > 2],
        lambda s, d: model.add_implication(deep[s, d], deep[s, d - 1]),
        "d micro-batches are more than d - 1")
    model.rows("at_most_minibatch", [(s, d) for s, d in deep if data.declared and whole[d]],
        lambda s, d: (model.add_bool_and([~each for each in whole[d]]), deep[s, d]),
        "no stage keeps more than the mini-batch in flight")
    # fmt: on
    return deep, behind


def strengthen(model: cpsat.SpokenModel, data: Data, variables: Variables) -> None:
    """Implied rows, most of the bound; and one of the orders in which the stages of a plan can be."""
    within, degree, places, instance = variables.within, variables.degree, data.places, data.instance
    nodes, edges = range(instance.num_operators), range(len(instance.edges))

    # fmt: off
    # By Equation 1 all devices together are busy for D times the bottleneck: with passes, what tensors between stages
    # take at both ends, and what an all-reduce waits at least.
    passes, cut, lost = data.work
    total = passes + sum(cut[e] * (1 - _sum([variables.inner[e, s] for s in places])) for e in edges)
    total += _weighted(list(degree.values()), [data.waiting(r, times=prod(r)) for _, *r in degree])
    model.row("work", total <= instance.num_devices * (variables.bottleneck + lost),
        "implied: all stages together work for D times the bottleneck at most")

    # Any set of operators that is a stage keeps the known plan's time, so `cardinality_cuts.most` counts enough.
    numbers = range(len(data.capacities))
    model.rows("capacity", [(s, number) for number in numbers for s in places],
        lambda s, number: _sum([within[v, s] for v in data.capacities[number][0]])
        <= _sum([data.capacities[number][1][r] * degree[s, r] for (r,) in data.degrees]),
        "implied by the known plan's time: a stage of r devices has no more operators (of all, or of the large ones) "
        "than any set can have within it")
    model.rows("capacities", numbers,
        lambda number: _sum([data.capacities[number][1][r] * each for (_, r), each in degree.items()])
        >= len(data.capacities[number][0]),
        "and so the stages together have room for all: sum over s, r of that number times degree[s,r] >= operators")

    # Stages that are not empty can be moved to the front, as no row knows a place but by what comes before it.
    model.rows("empty_last", places[1:],
        lambda s: model.add_implication(variables.used[s], variables.used[s - 1]),
        "symmetry: empty places come last")
    # Two neighbours without an edge between them can change places.
    begun = model.booleans("begun", product(places, nodes), "begun[s,v]: stage s has operator v or one before it")
    crossing = model.booleans("crossing", [(e, s) for s in places[1:] for e in edges],
        "crossing[e,s]: only if edge e goes from stage s - 1 to s")
    model.rows("begun_with", begun, lambda s, v: model.add_implication(within[v, s], begun[s, v]),
        "an operator of the stage has begun it")
    model.rows("begun_before", product(places, nodes[1:]),
        lambda s, v: model.add_implication(begun[s, v - 1], begun[s, v]),
        "what has begun stays so")
    model.rows("begun_by_none_else", begun,
        lambda s, v: model.add_bool_or(within[v, s], ~begun[s, v], *([begun[s, v - 1]] if v else [])),
        "nothing else begins a stage")
    model.rows("crossing_leaves", crossing,
        lambda e, s: model.add_implication(crossing[e, s], within[instance.edges[e].source, s - 1]),
        "a crossing edge leaves the stage before")
    model.rows("crossing_enters", crossing,
        lambda e, s: model.add_implication(crossing[e, s], within[instance.edges[e].target, s]),
        "a crossing edge enters the stage")
    model.rows("first_operator_first", product(places[1:], nodes),
        lambda s, v: model.add_bool_or(begun[s - 1, v], ~begun[s, v], *(crossing[e, s] for e in edges)),
        "symmetry: of two neighbours without an edge the one with the first operator goes first")
    # fmt: on


@dataclass(eq=False)
class Model(cpsat.Runnable):
    """The model of ``data``."""

    model: cpsat.SpokenModel
    decisions: Variables
    data: Data

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a plan, as linear expressions; some are variables of their own, made once."""
        instance, x = self.data.instance, self.decisions
        devices = sum(prod(r) * each for (_, *r), each in x.degree.items())
        return {
            "num_stages": lambda: sum(x.used.values()),
            "same_stage": lambda operator, other: self._same_stage(
                *sorted((instance.index[operator], instance.index[other]))
            ),
            "devices_of": lambda operator: self._devices_of(instance.index[operator]),
            "in_flight_of": lambda operator: self._in_flight_of(instance.index[operator]),
            "microbatch": lambda: sum(b * each for b, each in x.size.items()) if x.size else self.data.sizes[0],
            "idle_devices": lambda: instance.num_devices - devices,
        }

    def _same_stage(self, v: int, w: int) -> Any:
        """1 if two operators are in one stage."""
        model, within = self.model, self.decisions.within
        if v == w:
            return 1
        both = model.variables.get("shared", {})
        if (v, w, 0) not in both:
            at = [(v, w, s) for s in self.data.places]
            # fmt: off
            both = model.booleans("shared", at, "shared[v,w,s]: operators v and w are in stage s, for a requirement")
            model.rows("shared_first", at, lambda v, w, s: model.add_implication(both[v, w, s], within[v, s]),
                "then the first is in the stage")
            model.rows("shared_second", at, lambda v, w, s: model.add_implication(both[v, w, s], within[w, s]),
                "and so is the second")
            model.rows("shared_both", at,
                lambda v, w, s: model.add_bool_or(both[v, w, s], ~within[v, s], ~within[w, s]),
                "else one of them is not")
            # fmt: on
        return sum(both[v, w, s] for s in self.data.places)

    def _devices_of(self, v: int) -> Any:
        """The number that is the degree of whichever stage has the operator."""
        model, x, doc = (
            self.model,
            self.decisions,
            "devices_of[v]: devices of the stage of operator v, for a requirement",
        )
        if v not in model.variables.get("devices_of", {}):
            own = model.integers("devices_of", [v], 1, self.data.instance.num_devices, doc)[v]
            # fmt: off
            model.rows("devices_of_stage", [(v, s) for s in self.data.places],
                lambda v, s: (own == sum(prod(r) * x.degree[s, *r] for r in self.data.degrees), x.within[v, s]),
                "they are those of its stage")
            # fmt: on
        return model.variables["devices_of"][v]

    def _in_flight_of(self, v: int) -> Any:
        """Micro-batches at the depth of the operator's stage, times their size."""
        model, x, doc = (
            self.model,
            self.decisions,
            "in_flight_of[v]: samples in flight at the stage of operator v, for a requirement",
        )
        count = 1 + sum(x.behind[v, d] for d in self.data.depths[1:])
        if not x.size:
            return self.data.sizes[0] * count
        if v not in model.variables.get("in_flight_of", {}):
            own = model.integers("in_flight_of", [v], 1, self.data.instance.minibatch, doc)[v]
            # fmt: off
            model.rows("in_flight_at_size", [(v, b) for b in x.size], lambda _, b: (own == b * count, x.size[b]),
                "they are as many micro-batches as its depth")
            # fmt: on
        return model.variables["in_flight_of"][v]

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, int]]:
        """The partition, degrees and size of a plan."""
        x, order = self.decisions, sorted(plan.stages, key=lambda stage: _place(plan, plan.stages.index(stage)))
        stages = dict(enumerate(order))
        yield from ((each, int(s in stages and v in stages[s].nodes)) for (v, s), each in x.within.items())
        degrees = {s: (stage.replicas, stage.tp_degree)[: len(self.data.degrees[0])] for s, stage in stages.items()}
        yield from ((each, int(degrees.get(s) == tuple(r))) for (s, *r), each in x.degree.items())
        yield from ((each, int(size == plan.stages[0].microbatch)) for size, each in x.size.items())

    def decode(self, values: Any) -> StagePlan:
        """The plan of a solution, with the least in flight unless plans may have more."""
        data, x, stages = self.data, self.decisions, []
        size = next((size for size, each in x.size.items() if values[each]), data.sizes[0])
        for s in data.places:
            nodes = tuple(v for v in range(data.instance.num_operators) if values[x.within[v, s]])
            if nodes:
                degree = next(r for r in data.degrees if values[x.degree[s, *r]])
                in_flight = size * (1 + sum(values[x.deep[s, d]] for d in data.depths[1:]))
                own = tuple(u for (place, u), each in x.links.owns.items() if place == s and values[each])
                count, t = prod(degree), prod(degree[1:])
                stages.append(Stage(nodes, count, size, in_flight, device_ids=own, tp_degree=t))
        idle = data.instance.num_devices - sum(stage.devices for stage in stages)
        plan = StagePlan(tuple(stages), data_edges(data.instance, stages), idle)
        return plan if data.declared else with_in_flight(data.instance, plan)

    def lower_bound(self, bound: float) -> float:
        """Seconds per sample that a dual bound, in units, proves for the plans of this model."""
        return self.data.scale.restore(cpsat.whole(bound)) * (1 - 1e-12)

    def cut_off(self, _plan: StagePlan, values: Any) -> None:
        """Forbid the partition with these degrees and devices."""
        x, model = self.decisions, self.model
        literals = [*x.within.values(), *x.degree.values(), *x.size.values(), *x.links.owns.values()]
        literals += [each for (s, _), each in x.deep.items() if self.data.declared and values[x.used[s]]]
        number = len(model.proto.constraints)
        model.rows("forbidden", [number], lambda _: model.add_bool_or([~each for each in literals if values[each]]),
                   "partitions that only rounded sizes admit")  # fmt: skip


def _place(plan: StagePlan, stage: int) -> tuple[int, int]:
    """Stages behind others come later: the longest path that leads to a stage, then its first operator."""
    before = [source for source, target in plan.edges if target == stage]
    return max((_place(plan, source)[0] + 1 for source in before), default=0), min(plan.stages[stage].nodes)


def model_from(data: Data) -> Model:
    """The model of data; `formulations.modelling.solve_model.Stopped` once its watch is stopped."""
    with stops_with(data.watch):
        model, variables = build(data)
        strengthen(model, data, variables)
        return Model(model, variables, data)


def scale_of(instance: StageGraph) -> Scale:
    """Units of time per sample."""
    simple = simple_bound(Costs(identical(instance)))
    terms = instance.num_operators + 3 * len(instance.edges) + 2
    return cost_scale(simple, terms, longest_s(instance) * (instance.num_devices + 4))


def model_within(
    instance: StageGraph, groups: tuple[tuple[int, ...], ...], scale: Scale, watch: Watch, *, complete: bool = False
) -> Model:
    """The model of plans that are better than the watch's best one (any, if ``complete``), which is its hint.

    ``groups`` of sizes as in `Data`. Requirements are left to models whose solutions are plans.
    """
    plan, best = watch.incumbent()
    known = None if complete else best
    # A plan counts as better if the gap of a proof would not cover the difference.
    high = scale.ceil(longest_s(instance)) if known is None else scale.floor(known * (1 - OPTIMAL_GAP / 4))
    declared = complete or any(each.quantity == "in_flight_of" for each in requirements_of(instance))
    data = Data(instance, groups, scale, high, watch, declared, known is not None)
    found = model_from(data)
    if not data.is_relaxed:
        if plan is not None and plan.stages[0].microbatch in data.sizes:
            found.begin_with(found.values_of(plan))
        add_requirements(found, VOCABULARY, instance)
    return found


def model_of(instance: StageGraph, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of all plans with one micro-batch size for all stages, which it chooses among those required.

    `solve` takes one size after another instead, which is faster. Nothing of it is pruned, unless the watch
    knows a plan. Plans may keep more samples in flight than they must if it is ``complete``, or a requirement speaks of
    them. `formulations.modelling.solve_model.Stopped` once ``watch`` is stopped.
    """
    groups = tuple((size,) for size in usable_sizes(instance))
    return model_within(instance, groups, scale_of(instance), watch or Watch(), complete=complete)


def solve(instance: StageGraph, limits: Limits, watch: Watch, *, first: StagePlan | None = None) -> Answer[StagePlan]:
    """The optimum with one micro-batch size and 1F1B, on identical devices or on a device graph (`size_search`).

    ``first`` is a plan that is known already; without one the models begin with that of a heuristic.
    """
    scale = scale_of(instance)
    return size_search.solve(
        instance, limits, watch, lambda groups: model_within(instance, groups, scale, watch), first
    )
