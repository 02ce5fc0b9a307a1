"""Stage partitioning as one CP-SAT model: nodes are assigned to stage positions, degrees and TMPCs at once.

Exact for the instance as declared: any number of TMPCs, weights and volumes that differ between them, any degrees,
several sources and sinks, "at most" and "exactly" N. Costs are rounded down and byte limits never tightened
(`solvers.scaling`), so the bound holds; a plan that only rounding let through is cut off and the search goes on.

Source: this project; the problem is Piper's, section 3.6. Symbols as in `assignment`; T is the slowest stage's time,
s the sum of data-parallel degrees from a stage on, y = ceil(s/d) the micro-batches a stage has in flight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ortools.sat.python import cp_model

from formulations.family import Answer
from formulations.modelled import go_on
from formulations.stage_partitioning.models.first_plan import first_plan
from formulations.stage_partitioning.models.solving import prove, too_large
from formulations.stage_partitioning.models.terms import Chosen, Terms
from formulations.stage_partitioning.problem import Stage, StagePlan, evaluate, suffix_sums
from instances.stage_partitioning import StageInstance
from solvers import cpsat
from solvers.outcome import Limits, Prover, Watch
from solvers.scaling import Scale, cost_scale, size_scale

_sum = cp_model.LinearExpr.sum
_weighted = cp_model.LinearExpr.weighted_sum


class Model(cpsat.Runnable):
    """The model and its variables; Booleans unless said otherwise.

    ``degrees[j, t, d]``: stage position j is used with these degrees. ``splits[j, t]``, ``copies[j, d]``: with either.
    ``choice[o, j]``: option o (of ``terms.options``) runs at position j. ``holds[v, j]``: node v is there.
    ``done[v, j]``: node v is at position j or before. ``in_flight[j, y]``: y micro-batches are in flight there.
    ``outside[c, j]``: position j pays crossing c. ``s[j]`` and ``time`` (T in units of ``costs``) are integers.
    """

    def __init__(self, terms: Terms, first: StagePlan | None, watch: Watch) -> None:
        self.terms = terms
        self.model = cp_model.CpModel()
        num_roundings = len(terms.nodes) + len(terms.crossings) + 1  # the last one is T's own
        upper = terms.largest_time if first is None else evaluate(terms.instance, first)
        self.costs = cost_scale(terms.lower_bound, num_roundings, self.largest_sum(upper))
        self.sizes = _memory_scale(terms)
        self.upper = self.costs.ceil(upper)
        self.time = self.model.new_int_var(0, self.upper, "time")
        self.model.minimize(self.time)
        self._degrees()
        self._nodes()
        for j in terms.stages:
            go_on(watch)
            self._memory(j)
            self._crossings(j)
            self._stage_time(j)
        if first is not None:
            for variable, value in self.values_of(first):
                self.model.add_hint(variable, value)

    def largest_sum(self, upper: float) -> float:
        """What no expression of the model exceeds if T is at most ``upper``, both in the instance's time unit."""
        return _largest_row(self.terms, upper)

    def _degrees(self) -> None:
        cp, terms, instance = self.model, self.terms, self.terms.instance
        self.degrees = {(j, t, d): cp.new_bool_var("") for j in terms.stages for t, d in terms.configs}
        self.splits = {(j, t): cp.new_bool_var("") for j in terms.stages for t in instance.tp_degrees}
        self.copies = {(j, d): cp.new_bool_var("") for j in terms.stages for d in terms.dp_degrees}
        self.used = [cp.new_bool_var("") for _ in terms.stages]
        self.s = [cp.new_int_var(0, terms.max_s, "") for _ in terms.stages] + [cp.new_constant(0)]
        for j in terms.stages:
            own = {(t, d): self.degrees[j, t, d] for t, d in terms.configs}
            # A used position has one pair of degrees.
            cp.add_exactly_one([*own.values(), ~self.used[j]])
            for t in instance.tp_degrees:
                cp.add(_sum([var for (tp, _), var in own.items() if tp == t]) == self.splits[j, t])
            for d in terms.dp_degrees:
                cp.add(_sum([var for (_, dp), var in own.items() if dp == d]) == self.copies[j, d])
            # s is the suffix sum of the data-parallel degrees.
            cp.add(self.s[j] == self.s[j + 1] + _weighted(list(own.values()), [d for _, d in own]))
            # Unused positions come last.
            if j:
                cp.add_implication(self.used[j], self.used[j - 1])
        # The stages take at most K devices, and their degrees sum to N where that is asked for.
        taken = [(var, t * d) for (_, t, d), var in self.degrees.items()]
        cp.add(_weighted([var for var, _ in taken], [size for _, size in taken]) <= instance.num_devices)
        if instance.exactly:
            cp.add(self.s[0] == instance.num_microbatches)

    def _nodes(self) -> None:
        cp, terms = self.model, self.terms
        self.choice = {(o, j): cp.new_bool_var("") for o in range(len(terms.options)) for j in terms.stages}
        self.holds = {(v, j): cp.new_bool_var("") for v in terms.nodes for j in terms.stages}
        self.done = {(v, j): cp.new_bool_var("") for v in terms.nodes for j in terms.stages}
        for v in terms.nodes:
            # Every node runs once, with one TMPC.
            cp.add_exactly_one([self.choice[o, j] for o in terms.of_node[v] for j in terms.stages])
            for j in terms.stages:
                cp.add(_sum([self.choice[o, j] for o in terms.of_node[v]]) == self.holds[v, j])
                before = self.done[v, j - 1] if j else 0
                cp.add(self.done[v, j] == before + self.holds[v, j])
        for (o, j), var in self.choice.items():
            # A TMPC runs at its own tensor-parallel degree.
            cp.add_implication(var, self.splits[j, terms.options[o].tp_degree])
        for u, v in terms.instance.edge_indices:
            # No edge runs backwards.
            for j in terms.stages:
                cp.add_implication(self.done[v, j], self.done[u, j])
        for j in terms.stages:
            # A used position holds a node.
            cp.add_bool_or([*(self.holds[v, j] for v in terms.nodes), ~self.used[j]])

    def _memory(self, j: int) -> None:
        """y = ceil(s/d) micro-batches are in flight, and the bytes of a stage fit on each of its devices."""
        cp, terms = self.model, self.terms
        own = [(self.copies[j, d], d) for d in terms.dp_degrees]
        if j == 0:
            self.in_flight = {(i, y): cp.new_bool_var("") for i in terms.stages for y in range(1, terms.max_s + 1)}
        flights = {y: self.in_flight[j, y] for y in range(1, terms.max_s + 1)}
        cp.add_exactly_one([*flights.values(), ~self.used[j]])
        limit = self.sizes.floor(terms.memory_limit)
        for y, flying in flights.items():
            enough = _weighted([var for var, _ in own], [y * d for _, d in own])
            short = _weighted([var for var, _ in own], [(y - 1) * d for _, d in own])
            cp.add(self.s[j] <= enough).only_enforce_if(flying)
            cp.add(self.s[j] >= short + 1).only_enforce_if(flying)
            if self.sizes.floor(terms.largest_memory(y)) > limit:
                sizes = [self.sizes.floor(o.tmpc.activation_bytes * y + o.tmpc.static_bytes) for o in terms.options]
                cp.add(_weighted(self._choices(j), sizes) <= limit).only_enforce_if(flying)

    def _crossings(self, j: int) -> None:
        """A crossing is paid where its payer runs with one of its options and the neighbour does not run."""
        if j == 0:
            self.outside: dict[tuple[int, int], Any] = {}
        for c, crossing in enumerate(self.terms.crossings):
            paid = self.model.new_bool_var("")
            self.outside[c, j] = paid
            runs = _sum([self.choice[o, j] for o in crossing.options])
            self.model.add(paid + self.holds[crossing.other, j] >= runs)

    def _stage_time(self, j: int) -> None:
        """Compute, boundary and synchronisation, times d, are at most d T; device-time is at most t d T."""
        cp, terms, floor = self.model, self.terms, self.costs.floor
        crossings = [(self.outside[c, j], floor(crossing.time)) for c, crossing in enumerate(terms.crossings)]
        for d in terms.dp_degrees:
            costs = [floor(o.tmpc.time + terms.resync(d) * o.tmpc.weight_bytes) for o in terms.options]
            total = _weighted(
                [*self._choices(j), *(var for var, _ in crossings)], [*costs, *(cost for _, cost in crossings)]
            )
            cp.add(total <= d * self.time).only_enforce_if(self.copies[j, d])
        work = _weighted(self._choices(j), [floor(terms.work(o)) for o in range(len(terms.options))])
        own = [(self.degrees[j, t, d], t * d * self.upper) for t, d in terms.configs]
        cp.add(work <= _weighted([var for var, _ in own], [most for _, most in own]))

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
                self.model.add_bool_or([~flying, *(~self.choice[o, j] for o in options)])


def build(instance: StageInstance, first: StagePlan | None = None, watch: Watch | None = None) -> Model:
    """The CP-SAT model of an instance.

    ``first`` (a feasible plan) becomes the hint and the upper bound. Raises `modelled.Stopped` once the watch is.
    """
    return Model(Terms(instance), first, watch or Watch())


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by CP-SAT, with a plan of `first_plan` to start from.

    Source
    ------
    This project; see the module.
    """

    def model() -> Model:
        terms = Terms(instance)
        watch.bound(terms.lower_bound, Prover.BOUNDS)
        return Model(terms, first_plan(terms, watch), watch)

    return prove(instance, model, limits, watch)


def _largest_row(terms: Terms, upper: float) -> float:
    """What no time row exceeds, in time units, even with every choice made at once."""
    work = math.fsum(map(terms.work, range(len(terms.options))))
    weight = max(map(terms.resync, terms.dp_degrees), default=0.0) * math.fsum(
        o.tmpc.weight_bytes for o in terms.options
    )
    volume = math.fsum(crossing.time for crossing in terms.crossings)
    return work + weight + volume + upper * sum(t * d for t, d in terms.configs)


def _memory_scale(terms: Terms) -> Scale:
    sizes = [size for o in terms.options for size in (o.tmpc.activation_bytes, o.tmpc.static_bytes)]
    return size_scale(sizes, terms.memory_limit, math.fsum(sizes) * terms.max_s)
