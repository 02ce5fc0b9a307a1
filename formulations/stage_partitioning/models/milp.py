"""Stage partitioning as one mixed-integer program in Pyomo: Piper's problem, one constraint a sentence.

The stages S_1, ..., S_l are positions j = 0, 1, ... from the input side on; positions that a plan does not use come
last. A stage has degrees (t, d), each of its nodes v an option o = (v, t, X) with X in T(v, t), and y = ceil(s/d)
micro-batches are in flight in it, where s sums the data-parallel degrees of this and all later stages.

Piper's Time-Per-Sample of a stage ("TPS of a fixed configuration", section 4) times d is::

    sum X.p  +  1/B (sum over incoming edges of 2 (c + X.c^fw)  +  sum over outgoing edges of 2 (c + X.c^bw))
             +  4 (d-1)/(d B) sum X.w   <=   d T

Its left side is linear in ``choice``, ``paid`` and ``synced``, its right side in ``time_at`` (the perspective of T: no
big-M stands between T and the times).

Exact for the instance as declared; times are in parts of a lower bound and bytes in parts of the largest stage, so that
HiGHS works on numbers of natural size, and a plan that its tolerances let through is cut off. (Tolerances are HiGHS's
own: at 1e-9 it loses the 1e-9 by which a plan may exceed M, and with it plans that fill M.)

Source: this project; the problem is Piper's, sections 3.1 to 3.6 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.modelling.solve_model import go_on, require
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, evaluate, suffix_sums
from formulations.stage_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.model_size import assignment_too_large, demand_assignment
from formulations.stage_partitioning.models.assignment_data import Chosen, Terms
from formulations.stage_partitioning.models.direct_quantities import DirectQuantities
from formulations.stage_partitioning.models.first_plan import known_plan
from formulations.stage_partitioning.models.solving import prove, too_large
from formulations.stage_partitioning.models.target_milp import TargetModel
from formulations.stage_partitioning.models.threshold_search import Search, searchable
from instances.problems.stage_partitioning import StageInstance
from solvers.milp import backend as milp
from solvers.milp.backend import weighted_sum
from solvers.outcome import Limits, Prover, Watch

#: The bounds that T lies between count as no further apart.
_SPREAD = 10.0


class Model(DirectQuantities):
    """The model of an instance's ``terms``; ``model`` is Pyomo's, and its times are in parts of ``unit``.

    T is at most that of the plan ``first``, or ``upper``, or anything.
    """

    def __init__(self, terms: Terms, first: StagePlan | None, watch: Watch, upper: float | None = None) -> None:
        self.terms = terms
        self.first = first
        self.watch = watch
        if upper is None:
            upper = terms.largest_time if first is None else evaluate(terms.instance, first)
        self.unit = (max(terms.lower_bound, upper / _SPREAD) or 1.0) / milp.NATURAL
        #: T may be this large, in units.
        self.upper = upper / self.unit * (1 + milp.ROOM)
        #: What takes longer than this on one device, in seconds, is in no stage: it counts as no longer, and what has
        #: more bytes than this as no larger. HiGHS loses plans beside numbers that are far above all that can be.
        self.most_s = 2 * terms.instance.num_devices * upper or math.inf
        self.most_bytes = 2 * terms.memory_limit or math.inf
        self.stages = list(terms.stages)
        self.all_options = range(len(terms.options))
        self.crossings = range(len(terms.crossings))
        self.flights = self.numbers_in_flight()
        self.model = self._variables()
        self.model.objective = pyo.Objective(expr=self.model.time)
        self._degrees()
        self._nodes()
        self._memory()
        self._boundary()
        self._synchronisation()
        self._times()
        go_on(watch)
        self.model.forbidden = pyo.ConstraintList(doc="plans with more bytes than fit, which only tolerances admitted")

    def numbers_in_flight(self) -> range:
        """The numbers of micro-batches that a stage may have in flight."""
        return range(1, self.terms.max_s + 1)

    def _variables(self) -> pyo.ConcreteModel:
        terms, stages, model = self.terms, self.stages, pyo.ConcreteModel()
        degrees = [(j, t, d) for j in stages for t, d in terms.configs]
        model.time = pyo.Var(
            bounds=(0, self.upper), doc="T, the Time-Per-Sample: that of the slowest stage [Piper, section 3.2]"
        )
        model.degrees = pyo.Var(
            degrees,
            domain=pyo.Binary,
            doc="degrees[j,t,d]: position j, from 0 at the input side, has tensor-parallel degree t and data-parallel "
            "degree d",
        )
        model.time_at = pyo.Var(
            degrees,
            bounds=(0, self.upper),
            doc="time_at[j,t,d]: T if position j has these degrees, else 0 (never more, which suffices)",
        )
        model.choice = pyo.Var(
            self.all_options,
            stages,
            domain=pyo.Binary,
            doc="choice[o,j]: option o, a TMPC of a node, runs at position j",
        )
        model.in_flight = pyo.Var(
            stages, self.flights, domain=pyo.Binary, doc="in_flight[j,y]: position j has y micro-batches in flight"
        )
        model.paid = pyo.Var(
            self.crossings,
            stages,
            bounds=(0, 1),
            doc="paid[c,j]: position j pays crossing c: an edge's volume, or a part of it",
        )
        model.synced = pyo.Var(
            stages,
            terms.dp_degrees,
            bounds=(0, 1),
            doc="synced[j,d]: weights that position j synchronises with degree d, in parts of the most it can have",
        )
        return model

    def _polled(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """The rule of a component with many rows, as long as the watch is not stopped."""
        return milp.until_stopped(self.watch, rule)

    def _used(self, j: int) -> Any:
        """1 if position j is used."""
        return weighted_sum((1.0, self.model.degrees[j, t, d]) for t, d in self.terms.configs)

    def _s(self, j: int) -> Any:
        """s: the data-parallel degrees of position j and all later ones, summed."""
        return weighted_sum((d, self.model.degrees[i, t, d]) for i in self.stages[j:] for t, d in self.terms.configs)

    def _done(self, v: int, j: int) -> Any:
        """1 if node v runs at position j or before."""
        return weighted_sum((1.0, self.model.choice[o, i]) for i in self.stages[: j + 1] for o in self.terms.of_node[v])

    def _degrees(self) -> None:
        """Degrees of the stages (section 3.1)."""
        model, instance, S = self.model, self.terms.instance, self.terms.max_s
        model.one_pair_of_degrees = pyo.Constraint(
            self.stages,
            rule=lambda _, j: self._used(j) <= 1,
            doc="a stage has one t and one d, an unused position has none: sum over t, d of degrees[j,t,d] <= 1 "
            "[Piper, section 3.1]",
        )
        model.unused_last = pyo.Constraint(
            self.stages[1:],
            rule=lambda _, j: self._used(j) <= self._used(j - 1),
            doc="unused positions come last: used(j) <= used(j-1)",
        )
        model.devices = pyo.Constraint(
            expr=self._devices(model.degrees) <= instance.num_devices,
            doc="the stages take disjoint sets of devices: sum over i of d_i t_i <= K [Piper, section 3.1]",
        )
        s = self._s(0)
        model.microbatches = pyo.Constraint(
            expr=s == instance.num_microbatches if instance.exactly else s <= S,
            doc="data-parallel degrees sum to at most, or exactly, N (no sum is above S = min(N, K)): sum of d_i <= N",
        )

    def _nodes(self) -> None:
        """Nodes of the stages and their TMPCs (sections 3.1 and 3.3)."""
        model, terms, stages = self.model, self.terms, self.stages
        model.one_place = pyo.Constraint(
            terms.nodes,
            rule=lambda _, v: self._done(v, stages[-1]) == 1,
            doc="a node is in one stage, with one TMPC: sum of its choice[o,j] = 1 [Piper, section 3.1]",
        )

        def one_tp_degree(m: Any, v: int, j: int, t: int) -> Any:
            T_v_t = [o for o in terms.of_node[v] if terms.options[o].tp_degree == t]
            if not T_v_t:
                return pyo.Constraint.Skip
            has_t = weighted_sum((1.0, m.degrees[j, tp, d]) for tp, d in terms.configs if tp == t)
            return self._chosen(T_v_t, j) <= has_t

        model.one_tp_degree = pyo.Constraint(
            terms.nodes,
            stages,
            terms.instance.tp_degrees,
            rule=self._polled(one_tp_degree),
            doc="all nodes of a stage have its t: sum over X in T(v,t) of choice[(v,t,X),j] <= sum over d of "
            "degrees[j,t,d] [Piper, section 3.3]",
        )

        def forward(_: Any, u: int, v: int, j: int) -> Any:
            return self._done(v, j) <= self._done(u, j)

        model.forward = pyo.Constraint(
            terms.instance.edge_indices,
            stages[:-1],
            rule=self._polled(forward),
            doc="no edge (u,v) runs backwards: v is at position j or before only if u is [Piper, section 3.1]",
        )
        model.not_empty = pyo.Constraint(
            stages,
            rule=lambda _, j: self._used(j) <= self._chosen(self.all_options, j),
            doc="a stage holds a node: used(j) <= sum over o of choice[o,j]",
        )

    def _memory(self) -> None:
        """Memory of the stages (section 3.5)."""
        model, terms, stages, flights = self.model, self.terms, self.stages, self.flights
        model.one_number_in_flight = pyo.Constraint(
            stages,
            rule=lambda m, j: weighted_sum((1.0, m.in_flight[j, y]) for y in flights) == self._used(j),
            doc="a stage has some number y of micro-batches in flight: sum over y of in_flight[j,y] = used(j)",
        )

        def enough_in_flight(m: Any, j: int, y: int) -> Any:
            S = terms.max_s
            y_d = weighted_sum((min(y * d, S), m.degrees[j, t, d]) for t, d in terms.configs)
            return self._s(j) <= y_d + S * (1 - m.in_flight[j, y])

        model.enough_in_flight = pyo.Constraint(
            stages,
            flights,
            rule=self._polled(enough_in_flight),
            doc="y is at least ceil(s/d), and more takes no less memory: s <= y d if y are in flight; big-M: s <= S, "
            "the most that data-parallel degrees sum to [Piper, section 3.5]",
        )

        self._add_memory(
            flights,
            lambda m, j, y: m.in_flight[j, y],
            "sum over v of (X(v).a y + X(v).b) <= M if y are in flight; big-M: no stage has more bytes than the "
            "unit of the row [Piper, section 3.5]",
        )

    def _add_memory(self, flights: Iterable[int], has: Callable[[Any, int, int], Any], says: str) -> None:
        """The rows on memory for these numbers in flight; ``has(model, j, y)`` is 1 if position j has y."""
        terms, limit = self.terms, self.terms.instance.memory_bytes * MEMORY_SLACK
        largest = {y: min(terms.largest_memory(y), len(terms.nodes) * self.most_bytes) for y in flights}

        def part_of_largest(o: int, y: int) -> float:
            tmpc = terms.options[o].tmpc
            return min(tmpc.activation_bytes * y + tmpc.static_bytes, self.most_bytes) / largest[y]

        parts = {y: [part_of_largest(o, y) for o in self.all_options] for y in largest if largest[y] > limit}

        def memory(m: Any, j: int, y: int) -> Any:
            mem = weighted_sum((parts[y][o], m.choice[o, j]) for o in self.all_options)
            return mem <= 1 - (1 - limit / largest[y]) * has(m, j, y)

        self.model.memory = pyo.Constraint(self.stages, list(parts), rule=self._polled(memory), doc=says)

    def _boundary(self) -> None:
        """Which communication costs c, c^fw and c^bw a stage pays (section 4)."""
        terms = self.terms

        def boundary(m: Any, c: int, j: int) -> Any:
            payer, neighbour = terms.crossings[c].options, terms.of_node[terms.crossings[c].other]
            return self._chosen(payer, j) - self._chosen(neighbour, j) <= m.paid[c, j]

        self.model.boundary = pyo.Constraint(
            self.crossings,
            self.stages,
            rule=self._polled(boundary),
            doc="the edges of delta^-(S) and delta^+(S) are paid by their end in S: position j pays crossing c where "
            "its payer runs with one of its options, and its neighbour does not run: sum over c's o of choice[o,j] - "
            "sum over the neighbour's o of choice[o,j] <= paid[c,j] [Piper, section 4]",
        )

    def _synchronisation(self) -> None:
        """Weights that a stage synchronises, as its degree d decides how long that takes (section 3.4)."""
        terms = self.terms

        def synchronised(m: Any, j: int, d: int) -> Any:
            of_node, of_stage = self._most_weights(d)
            weights = weighted_sum(
                (min(option.tmpc.weight_bytes, of_node) / of_stage, m.choice[o, j])
                for o, option in enumerate(terms.options)
            )
            has_d = weighted_sum((1.0, m.degrees[j, t, dp]) for t, dp in terms.configs if dp == d)
            return m.synced[j, d] >= weights - (1 - has_d)

        dp_degrees = terms.dp_degrees if terms.largest_weight else ()
        self.model.synchronised = pyo.Constraint(
            self.stages,
            dp_degrees,
            rule=self._polled(synchronised),
            doc="synced[j,d] >= sum over v of X(v).w if position j has data-parallel degree d; big-M: the most weights "
            "that a stage can have are the unit of the row [Piper, section 3.4]",
        )

    def _most_weights(self, d: int) -> tuple[float, float]:
        """The most weights that a node and that a stage can have if synchronised with degree d, in bytes."""
        of_node = self.most_s / self.terms.resync(d) if self.terms.resync(d) else math.inf
        return of_node, min(self.terms.largest_weight, len(self.terms.nodes) * of_node)

    def _times(self) -> None:
        """T is at least the Time-Per-Sample of every stage (sections 3.2 and 4)."""
        model, terms, stages = self.model, self.terms, self.stages
        model.at_most_time = pyo.Constraint(
            stages,
            rule=lambda m, j: weighted_sum((1.0, m.time_at[j, t, d]) for t, d in terms.configs) <= m.time,
            doc="of a position's degrees one is charged with at most T: sum over t, d of time_at[j,t,d] <= T",
        )
        model.own_degrees = pyo.Constraint(
            model.time_at.index_set(),
            rule=lambda m, *jtd: m.time_at[jtd] <= self.upper * m.degrees[jtd],
            doc="degrees that a position does not have are charged with 0: time_at[j,t,d] <= upper degrees[j,t,d]; "
            "big-M: T is at most upper, the time of a known plan or more than any plan's",
        )

        compute = [self._units(option.tmpc.time) for option in terms.options]
        boundary = [self._units(crossing.time) for crossing in terms.crossings]
        resync = {d: milp.in_units(terms.resync(d) * self._most_weights(d)[1], self.unit) for d in terms.dp_degrees}

        def stage_time(m: Any, j: int) -> Any:
            sum_p = weighted_sum((compute[o], m.choice[o, j]) for o in self.all_options)
            sum_c = weighted_sum((boundary[c], m.paid[c, j]) for c in self.crossings)
            sum_w = weighted_sum((resync[d], m.synced[j, d]) for d in terms.dp_degrees if terms.largest_weight)
            return sum_p + sum_c + sum_w <= weighted_sum((d, m.time_at[j, t, d]) for t, d in terms.configs)

        model.stage_time = pyo.Constraint(
            stages,
            rule=stage_time,
            doc="compute + comm / B <= T, times d: sum of X.p + sum of 2 (c + X.c^fw)/B + sum of 2 (c + X.c^bw)/B + "
            "4 (d-1)/(d B) sum of X.w <= d T, which is linear in time_at [Piper, sections 3.2 and 4]",
        )

        work = [self._units(terms.work(o)) for o in self.all_options]

        def device_time(m: Any, j: int) -> Any:
            sum_tp = weighted_sum((work[o], m.choice[o, j]) for o in self.all_options)
            sum_c = weighted_sum((boundary[c], m.paid[c, j]) for c in self.crossings)
            return sum_tp + sum_c <= weighted_sum((t * d, m.time_at[j, t, d]) for t, d in terms.configs)

        model.device_time = pyo.Constraint(
            stages,
            rule=device_time,
            doc="implied, but not by the relaxation: a stage has t d devices for T each: sum of t X.p + sum of the "
            "boundary's times <= t d T",
        )
        model.all_device_time = pyo.Constraint(
            expr=self._devices(model.time_at) <= terms.instance.num_devices * model.time,
            doc="implied, but not by the relaxation: all stages together have K devices for T each",
        )

    def _units(self, seconds: float) -> float:
        return milp.in_units(min(seconds, self.most_s), self.unit)

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, int]]:
        """The decisions that make up a plan, as pairs of a variable and its value."""
        chosen = dict(enumerate(self.terms.chosen(plan)))
        flights = {j: -(-s // chosen[j].dp_degree) for j, s in enumerate(suffix_sums(plan))}
        for (j, t, d), var in self.model.degrees.items():
            yield var, int(j in chosen and (t, d) == (chosen[j].tp_degree, chosen[j].dp_degree))
        for (o, j), var in self.model.choice.items():
            yield var, int(j in chosen and o in chosen[j].options)
        for (j, y), var in self.model.in_flight.items():
            yield var, int(flights.get(j) == y)

    def decode(self, values: milp.Values) -> StagePlan:
        """The plan of a solution."""
        terms, model = self.terms, self.model
        return terms.plan(
            Chosen(t, d, tuple(o for o in self.all_options if values[model.choice[o, j]] > 0.5))
            for j in self.stages
            for t, d in terms.configs
            if values[model.degrees[j, t, d]] > 0.5
        )

    def lower_bound(self, bound: float) -> float:
        """The bound in the instance's unit, less what the solver's tolerances may have added."""
        return milp.trusted(bound, to_scale=True) * self.unit

    def cut_off(self, plan: StagePlan, _values: Any) -> None:
        """Forbid every stage that is too large."""
        for stage, in_flight in too_large(self.terms.instance, plan):
            self._forbid(stage, in_flight)

    def _forbid(self, stage: Stage, in_flight: int) -> None:
        """Not all of these TMPCs together, at any position, with so many micro-batches in flight or more."""
        options = self.terms.chosen(StagePlan((stage,)))[0].options
        for j in self.stages:
            flying = weighted_sum((1.0, self.model.in_flight[j, y]) for y in self.flights if y >= in_flight)
            self.model.forbidden.add(flying + self._chosen(options, j) <= len(options))

    def hint(self) -> Iterable[tuple[Any, float]]:
        """The decisions of the first plan."""
        return () if self.first is None else self.values_of(self.first)


def build(instance: StageInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The Pyomo model of an instance.

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
    """The optimum by HiGHS, with a plan of `known_plan` to start from.

    Source
    ------
    This project; see the module, and `models.target_milp`.
    """

    def model() -> Model | Search[TargetModel]:
        if assignment_too_large(instance) or not searchable(instance, limits, watch):
            return build(instance, watch)
        watch.bound(Terms(instance).lower_bound, Prover.BOUNDS)
        return Search(Terms(instance), TargetModel, TargetModel.is_refuted_by_relaxation)

    return prove(instance, model, limits, watch, to_scale=True)
