"""The CP-SAT model of stage graphs: GraphPipe's Equation 1 under Equation 2 and C1 to C4.

GraphPipe (section 3) writes a stage as S_i = <G_i, b_i, D_i, Pi_i> and looks for

    min max_i TPS(S_i)   (1)      s.t.  max_i DeviceMemoryUsage(S_i) <= M   (2),   C1 to C4.

Here s is a stage's place in an order in which no tensor goes back, v an operator, e an edge of the model:

    within[v,s]     v is in G_s                       degree[s,r]   |D_s| = r
    upto[v,s]       v is in one of G_0, ..., G_s      used[s]       G_s is not empty
    inner[e,s]      both ends of e are in G_s         deep[s,d]     stage s keeps d micro-batches or more
    bottleneck      max_s TPS(S_s), in units          owns[s,u]     device u is in D_s (`devices`, device graphs only)

b is the model's own, or chosen by ``size[b]`` (`Case`). Pi_s is 1F1B, which keeps C4 and the least in flight (Appendix
A.1, one size and k = 1: i_x = i_y + b), so d micro-batches at a stage of depth d: all that it means for Equation 2.
To keep more only takes more memory: plans that do are left out unless a requirement may want them (``declared``). What
TPS and DeviceMemoryUsage are the paper leaves open (README). Section 5 searches series-parallel decompositions; this
model needs no decomposition.

Costs and sizes become integers by rounding down, limits are rounded up, so every plan stays feasible and no slower. No
row has a big-M: what holds for one degree, depth or device alone is enforced by its literal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from formulations.modelling.solve_model import check_stop
from formulations.stage_graph.costs.costs import with_in_flight
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import data_edges, held_samples, replica_samples
from formulations.stage_graph.models import cardinality_cuts
from formulations.stage_graph.models.devices import Links, link_devices
from formulations.stage_graph.models.expressions import Expressions
from formulations.stage_graph.models.sentences import SENTENCES
from formulations.stage_graph.upsets.branches import largest
from instances.problems.stage_graph import StageGraph
from solvers.cpsat import backend as cpsat
from solvers.outcome import Watch
from solvers.scaling import Scale, size_scale

weighted_sum = cp_model.LinearExpr.weighted_sum


@dataclass(frozen=True)
class Case:
    """Micro-batch sizes of a model.

    With one size the model has the plans of that size. With several it is a relaxation of all of theirs together: each
    cost is the least of theirs, and nothing has a depth. ``is_choice``: it has the plans of all, and chooses a size.
    """

    sizes: tuple[int, ...]
    is_choice: bool = False

    @property
    def is_relaxed(self) -> bool:
        """Whether solutions of the model are no plans."""
        return len(self.sizes) > 1 and not self.is_choice

    def least(self, cost: Any, degree: int) -> float:
        """The least of ``cost(size, samples of a replica)``."""
        sizes = (size for size in largest(self.sizes) if size >= degree)
        return float(min(cost(size, replica_samples(size, degree)) for size in sizes))

    def held(self, minibatch: int, degree: int, depth: int) -> int:
        """The fewest samples on the fullest replica of a stage with so many micro-batches in flight."""
        sizes = (size for size in self.sizes if size >= degree)
        return min(held_samples(minibatch, size, degree, depth * size) for size in sizes)


class Model(cpsat.Runnable):
    """The model of a case, ``model``; ``bottleneck`` is the time per sample in units of ``scale``, at most ``high``.

    ``declared``: plans may keep more samples in flight than they must. ``is_beaten``: ``high`` is that of a known plan.
    """

    def __init__(
        self,
        instance: StageGraph,
        case: Case,
        scale: Scale,
        high: int,
        watch: Watch | None = None,
        *,
        declared: bool = False,
        is_beaten: bool = False,
    ) -> None:
        """Build it; `formulations.modelling.solve_model.Stopped` once ``watch`` is stopped."""
        self.instance, self.case, self.scale, self.watch = instance, case, scale, watch or Watch()
        self.declared = declared
        self.model = cpsat.SpokenModel()
        self.model.sentences |= SENTENCES
        self.model.says("bottleneck", f"seconds per sample of the slowest stage, {self._of_sizes()}")
        self.stages = range(min(instance.num_operators, instance.num_devices))
        self.degrees = range(1, min(instance.num_devices, max(case.sizes)) + 1)
        self.bottleneck = self.model.new_int_var(0, high, "bottleneck")
        self._sizes()
        self._partition()
        self._degrees()
        self.links: Links | None = link_devices(self) if instance.device_graph is not None else None
        self._depths()
        self._times()
        self._work()
        if is_beaten and not case.is_choice and self.links is None:
            cardinality_cuts.add(self, high)
        self._order()
        self._memory()
        self.num_forbidden = 0
        self.expressions = Expressions(self)
        if not case.is_relaxed:
            self.model.minimize(self.bottleneck)

    def _of_sizes(self) -> str:
        sizes = ", ".join(map(str, self.case.sizes))
        return f"with micro-batches of {sizes}" + (" (to be chosen)" if self.case.is_choice else "")

    def _sizes(self) -> None:
        """Which size it is; ``parts``: the cases to choose from, each with the literals under which its rows hold."""
        case = self.case
        self.size = {size: self.model.new_bool_var(f"size[{size}]") for size in case.sizes if case.is_choice}
        self.parts: list[tuple[Case, list[Any]]] = [(case, [])]
        if case.is_choice:
            self.model.add_exactly_one(self.size.values()).with_name("one_size")
            self.parts = [(Case((size,)), [each]) for size, each in self.size.items()]

    def _partition(self) -> None:
        model, nodes, last = self.model, range(self.instance.num_operators), self.stages[-1]
        within = self.within = {(v, s): model.new_bool_var(f"within[{v},{s}]") for v in nodes for s in self.stages}
        upto = {(v, s): model.new_bool_var(f"upto[{v},{s}]") for v in nodes for s in self.stages}
        for v in nodes:
            check_stop(self.watch)
            model.add(upto[v, last] == 1).with_name(f"one_stage[{v}]")
            for s in self.stages:
                before = upto[v, s - 1] if s else 0
                model.add(within[v, s] == upto[v, s] - before).with_name(f"within_is_step[{v},{s}]")
        # A path that leaves a stage goes on to later ones and does not return, so G_s is convex (C1).
        self.inner: dict[tuple[int, int], Any] = {}
        for e, edge in enumerate(self.instance.edges):
            check_stop(self.watch)
            for s in self.stages:
                source, target = within[edge.source, s], within[edge.target, s]
                model.add_implication(upto[edge.target, s], upto[edge.source, s]).with_name(f"edge_forward[{e},{s}]")
                both = self.inner[e, s] = model.new_bool_var(f"inner[{e},{s}]")
                model.add_implication(both, source).with_name(f"inner_source[{e},{s}]")
                model.add_implication(both, target).with_name(f"inner_target[{e},{s}]")
                model.add_bool_or(both, source.negated(), target.negated()).with_name(f"inner_both[{e},{s}]")
        #: 1 where exactly one end of the edge is in the stage.
        self.cut = {
            (e, s): within[edge.source, s] + within[edge.target, s] - 2 * self.inner[e, s]
            for e, edge in enumerate(self.instance.edges)
            for s in self.stages
        }

    def _degrees(self) -> None:
        """C3: D_1, ..., D_|V_S| are disjoint, one device at least for every stage; here some may stay idle."""
        model, nodes = self.model, range(self.instance.num_operators)
        self.degree = {(s, r): model.new_bool_var(f"degree[{s},{r}]") for s in self.stages for r in self.degrees}
        used = self.used = [model.new_bool_var(f"used[{s}]") for s in self.stages]
        for s in self.stages:
            inside = [self.within[v, s] for v in nodes]
            model.add(sum(self.degree[s, r] for r in self.degrees) == used[s]).with_name(f"one_degree[{s}]")
            model.add_bool_or(*inside, used[s].negated()).with_name(f"not_empty[{s}]")
            for v, each in zip(nodes, inside, strict=True):
                model.add_implication(each, used[s]).with_name(f"holder_used[{v},{s}]")
            if s:
                model.add_implication(used[s], used[s - 1]).with_name(f"empty_last[{s}]")
            for r in self.degrees if self.size else ():
                enough = [each for size, each in self.size.items() if size >= r]
                given = model.add_bool_or(self.degree[s, r].negated(), *enough)
                given.with_name(f"enough_samples[{s},{r}]")
        devices = weighted_sum(list(self.degree.values()), [r for _, r in self.degree])
        model.add(devices <= self.instance.num_devices).with_name("devices")

    def _depths(self) -> None:
        """Appendix A.1 for one size and k = 1, i_x = i_y + b: ``deep[s, d]`` says that i_s is at least d b.

        For d from 2 to the depth at which the whole mini-batch is in flight (`_deepest`), which is another one for each
        size. ``behind[v, d]`` says it of the stage that holds v, so no row speaks of pairs of stages.
        """
        instance, model, nodes = self.instance, self.model, range(self.instance.num_operators)
        self.depths = range(1, max(map(self._deepest, self.case.sizes)) + 1)
        self.deep = {(s, d): model.new_bool_var(f"deep[{s},{d}]") for s in self.stages for d in self.depths[1:]}
        behind = {(v, d): model.new_bool_var(f"behind[{v},{d}]") for v in nodes for d in self.depths[1:]}
        self.behind = behind
        #: Sizes at which the whole mini-batch is in flight at a lesser depth.
        whole = {d: [each for size, each in self.size.items() if self._deepest(size) < d] for d in self.depths}
        if self.declared:
            self._as_declared(whole)
        for e, edge in enumerate(instance.edges):
            check_stop(self.watch)
            together = sum(self.inner[e, s] for s in self.stages)
            for d in self.depths[1:]:
                after = behind[edge.target, d - 1] if d > 2 else 1
                deeper = model.add(behind[edge.source, d] >= after - together - sum(whole[d]))
                deeper.with_name(f"one_deeper[{e},{d}]")
                as_deep = model.add_implication(behind[edge.target, d], behind[edge.source, d])
                as_deep.with_name(f"as_deep[{e},{d}]")
        for (s, d), deep in self.deep.items():
            check_stop(self.watch)
            for v in nodes:
                outside, at = self.within[v, s].negated(), behind[v, d]
                model.add_bool_or(deep, outside, at.negated()).with_name(f"depth_of_stage[{v},{s},{d}]")
                model.add_bool_or(at, outside, deep.negated()).with_name(f"depth_of_operator[{v},{s},{d}]")

    def _as_declared(self, whole: dict[int, list[Any]]) -> None:
        """What is at least d deep is at least d - 1 deep, and none keeps more than the mini-batch in flight."""
        for (s, d), deep in self.deep.items():
            if d > 2:
                shallower = self.model.add_implication(deep, self.deep[s, d - 1])
                shallower.with_name(f"deep_from_first[{s},{d}]")
            if whole[d]:
                within = self.model.add_bool_and([each.negated() for each in whole[d]]).only_enforce_if(deep)
                within.with_name(f"at_most_minibatch[{s},{d}]")

    def _deepest(self, size: int) -> int:
        """The largest depth that is of interest at a size: a path of all stages, or the whole mini-batch."""
        if self.case.is_relaxed:
            return 1
        most = -(-self.instance.minibatch // size)
        return most if self.declared else min(len(self.stages), most)

    def _times(self) -> None:
        """Equation 1: bottleneck >= TPS(S_s) = passes + tensors sent at its ends + its share of the all-reduce.

        Passes and tensors are those of the fullest replica (`Case.least`); an all-reduce of weights waits 2 r latencies
        once in a mini-batch. TPS depends on the stage's degree and, on a device graph, on its slowest links, so there
        is a row for each of these, which holds under their literals.
        """
        instance, nodes, scale = self.instance, range(self.instance.num_operators), self.scale
        for (case, chosen), r in itertools.product(self.parts, self.degrees):
            if r > max(case.sizes):
                continue
            passes = [case.least(self._passes(v), r) for v in nodes]
            sending = [self._sending(case, e, r) for e in range(len(instance.edges))]
            waiting = self._waiting(r)
            for s in self.stages:
                check_stop(self.watch)
                inside = [self.within[v, s] for v in nodes]
                sent = sum(self._sent(e, s, units) for e, units in enumerate(sending))
                for number, (reducing, slowest) in enumerate(self._reducing(s, r)):
                    units = [
                        scale.floor(seconds + operator.weight_bytes * reducing)
                        for seconds, operator in zip(passes, instance.operators, strict=True)
                    ]
                    time = self.model.add(weighted_sum(inside, units) + waiting + sent <= self.bottleneck)
                    row = ",".join(map(str, (s, r, number, *(case.sizes if chosen else ()))))
                    time.with_name(f"time[{row}]").only_enforce_if(self.degree[s, r], *slowest, *chosen)

    def _passes(self, v: int) -> Any:
        """Seconds per sample of the operator's passes, as a function of micro-batch size and samples of a replica."""
        operator = self.instance.operators[v]
        return lambda size, n: (operator.forward_s(n) + operator.backward_s(n)) / size

    def _reducing(self, s: int, r: int) -> list[tuple[float, list[Any]]]:
        """Seconds per sample that a byte of weights takes in the all-reduce, and under which literals."""
        factor = 2 * (r - 1) / r / self.instance.minibatch
        if self.links is None:
            return [(factor / self.instance.reduce_bandwidth(r), [])]
        return [(factor / bandwidth, literals) for bandwidth, literals in self.links.inside(s)]

    def _sending(self, case: Case, e: int, r: int) -> list[int]:
        """Units that a cut edge's tensor takes at a stage with r devices, over links of each class, fastest first.

        Twice: the tensor in the forward pass, its gradient in the backward pass.
        """
        instance, size = self.instance, self.instance.edges[e].bytes_per_sample
        bandwidths = [instance.bandwidth_bytes_per_s] if self.links is None else self.links.bandwidths
        return [
            self.scale.floor(case.least(lambda b, n, rate=rate: 2 * (instance.latency_s + size * n / rate) / b, r))
            for rate in bandwidths
        ]

    def _sent(self, e: int, s: int, units: list[int]) -> Any:
        """Units of the edge's tensor at stage s: those of its class of links if it is cut there, else 0."""
        total = units[0] * self.cut[e, s]
        if self.links is not None:
            for number, (faster, slower) in enumerate(itertools.pairwise(units), start=1):
                total += (slower - faster) * self.links.cut_over[e, s, number]
        return total

    def _work(self) -> None:
        """Implied by Equation 1, and most of the bound: all devices together are busy for D times the bottleneck.

        With passes, the tensors between stages (four times: in both passes, at both ends), and what an all-reduce waits
        at least. Rounding takes less than one unit off each term of a stage's row, so less than ``lost`` off the
        bottleneck.
        """
        instance = self.instance
        total: Any = self.scale.floor(
            math.fsum(self.case.least(self._passes(v), 1) for v in range(instance.num_operators))
        )
        fastest = instance.bandwidth_bytes_per_s if self.links is None else self.links.bandwidths[0]
        for e, edge in enumerate(instance.edges):
            size = edge.bytes_per_sample
            sent = self.case.least(lambda b, n, size=size: 4 * (instance.latency_s + size * n / fastest) / b, 1)
            total += self.scale.floor(sent) * (1 - sum(self.inner[e, s] for s in self.stages))
        for (_, r), each in self.degree.items():
            waited = 2 * r * r * instance.latency_s / instance.minibatch if r > 1 else 0.0
            total += self.scale.floor(waited) * each
        lost = instance.num_operators + 3 * len(instance.edges) + 2
        self.model.add(total <= instance.num_devices * (self.bottleneck + lost)).with_name("work")

    def alone(self, r: int) -> cardinality_cuts.Stage:
        """The numbers of `_times` for a stage of r devices, which are identical."""
        instance, case = self.instance, self.case
        ((reducing, _),) = self._reducing(0, r)
        passes = [
            self.scale.floor(case.least(self._passes(v), r) + operator.weight_bytes * reducing)
            for v, operator in enumerate(instance.operators)
        ]
        sending = [self._sending(case, e, r)[0] for e in range(len(instance.edges))]
        return cardinality_cuts.Stage(passes, sending, self._waiting(r))

    def _waiting(self, r: int) -> int:
        """Units that an all-reduce waits for latencies, by sample."""
        return self.scale.floor(2 * r * self.instance.latency_s / self.instance.minibatch if r > 1 else 0.0)

    def _order(self) -> None:
        """Symmetry: of two stages that follow each other and share no edge, the one with the first operator goes first.

        ``begun[s, v]``: stage s has v or an operator before it. ``crossing[e, s]`` may only hold if e goes from s - 1
        to s.
        """
        model, nodes = self.model, range(self.instance.num_operators)
        begun = {(s, v): model.new_bool_var(f"begun[{s},{v}]") for s in self.stages for v in nodes}
        for s in self.stages:
            check_stop(self.watch)
            for v in nodes:
                inside, before = self.within[v, s], [begun[s, v - 1]] if v else []
                model.add_implication(inside, begun[s, v]).with_name(f"begun_with[{s},{v}]")
                for each in before:
                    model.add_implication(each, begun[s, v]).with_name(f"begun_before[{s},{v}]")
                model.add_bool_or(inside, begun[s, v].negated(), *before).with_name(f"begun_by_none_else[{s},{v}]")
        for s in self.stages[1:]:
            check_stop(self.watch)
            crossing = []
            for e, edge in enumerate(self.instance.edges):
                each = model.new_bool_var(f"crossing[{e},{s}]")
                model.add_implication(each, self.within[edge.source, s - 1]).with_name(f"crossing_leaves[{e},{s}]")
                model.add_implication(each, self.within[edge.target, s]).with_name(f"crossing_enters[{e},{s}]")
                crossing.append(each)
            for v in nodes:
                first = model.add_bool_or(begun[s - 1, v], begun[s, v].negated(), *crossing)
                first.with_name(f"first_operator_first[{s},{v}]")

    def _memory(self) -> None:
        """Equation 2: copies of the weights, and what samples in flight keep, fit into M on each device of a stage.

        A row for each degree and depth, which holds under their literals; none where everything would fit.
        """
        instance, nodes = self.instance, range(self.instance.num_operators)
        copies = [instance.weight_copies * each.weight_bytes for each in instance.operators]
        kept = [each.activation_bytes for each in instance.operators]
        sent = [edge.bytes_per_sample for edge in instance.edges]
        most = math.fsum(copies) + instance.minibatch * math.fsum([*kept, *sent])
        rooms = {instance.memory_of(device) for device in range(instance.num_devices)}
        unit = size_scale([*copies, *kept, *sent, *rooms], max(rooms), most)
        for case, chosen in self.parts:
            for r, d in itertools.product(self.degrees, self.depths):
                if r > max(case.sizes) or d > self._deepest(case.sizes[0]):
                    continue
                held = case.held(instance.minibatch, r, d)
                if math.fsum(copies) + held * math.fsum([*kept, *sent]) <= min(rooms):
                    continue
                own = [unit.floor(copies[v]) + held * unit.floor(kept[v]) for v in nodes]
                incoming = [held * unit.floor(each) for each in sent]
                for s in self.stages:
                    check_stop(self.watch)
                    total = weighted_sum([self.within[v, s] for v in nodes], own) + sum(
                        size * (self.within[edge.target, s] - self.inner[e, s])
                        for e, (edge, size) in enumerate(zip(instance.edges, incoming, strict=True))
                    )
                    under = [self.degree[s, r], *([self.deep[s, d]] if d > 1 else []), *chosen]
                    self._fits(total, under, unit, (s, r, d, *(case.sizes if chosen else ())))

    def _fits(self, total: Any, under: list[Any], unit: Scale, row: tuple[int, ...]) -> None:
        instance, name = self.instance, ",".join(map(str, row))
        if self.links is None:
            fits = self.model.add(total <= unit.ceil(instance.memory_bytes))
            fits.with_name(f"memory[{name}]").only_enforce_if(*under)
            return
        for device, here in self.links.here(row[0]):
            fits = self.model.add(total <= unit.ceil(instance.memory_of(device)))
            fits.with_name(f"memory[{name},{device}]").only_enforce_if(*under, here)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a plan, as linear expressions."""
        return self.expressions.quantities()

    def hint(self, plan: StagePlan) -> None:
        """Begin with the partition and degrees of a plan."""
        order = sorted(range(len(plan.stages)), key=lambda stage: _place(plan, stage))
        for s in self.stages:
            stage = plan.stages[order[s]] if s < len(order) else None
            for v in range(self.instance.num_operators):
                self.model.add_hint(self.within[v, s], stage is not None and v in stage.nodes)
            for r in self.degrees:
                self.model.add_hint(self.degree[s, r], stage is not None and stage.devices == r)
        for size, each in self.size.items():
            self.model.add_hint(each, size == plan.stages[0].microbatch)

    def decode(self, values: Any) -> StagePlan:
        """The plan of a solution, with the least in flight unless plans may have more."""
        instance = self.instance
        size = next((size for size, each in self.size.items() if values[each]), self.case.sizes[0])
        stages = []
        for s in self.stages:
            nodes = tuple(v for v in range(instance.num_operators) if values[self.within[v, s]])
            ids = self.links.devices(values, s) if self.links is not None else ()
            if nodes:
                degree = next(r for r in self.degrees if values[self.degree[s, r]])
                in_flight = size * (1 + sum(values[self.deep[s, d]] for d in self.depths[1:]))
                stages.append(Stage(nodes, degree, size, in_flight, device_ids=ids))
        idle = instance.num_devices - sum(stage.devices for stage in stages)
        plan = StagePlan(tuple(stages), data_edges(instance, stages), idle)
        return plan if self.declared else with_in_flight(instance, plan)

    def lower_bound(self, bound: float) -> float:
        """Seconds per sample that a dual bound, in units, proves for the plans of this model."""
        return self.scale.restore(cpsat.whole(bound)) * (1 - 1e-12)

    def cut_off(self, _plan: StagePlan, values: Any) -> None:
        """Forbid the partition with these degrees and devices: rounded sizes let it in."""
        literals = [*self.within.values(), *self.degree.values(), *self.size.values()]
        literals += [each for (s, _), each in self.deep.items() if self.declared and values[self.used[s]]]
        literals += [] if self.links is None else self.links.owns.values()
        forbidden = self.model.add_bool_or([each.negated() for each in literals if values[each]])
        forbidden.with_name(f"forbidden[{self.num_forbidden}]")
        self.num_forbidden += 1


def _place(plan: StagePlan, stage: int) -> tuple[int, int]:
    """Stages behind others come later: the longest path that leads to a stage, then its first operator."""
    before = [source for source, target in plan.edges if target == stage]
    return max((_place(plan, source)[0] + 1 for source in before), default=0), min(plan.stages[stage].nodes)
