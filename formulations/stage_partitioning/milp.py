"""Stage partitioning as one mixed-integer program in Pyomo: positions, degrees and TMPCs are assigned at once.

The same decisions and rows as the CP-SAT model (`cpsat`), told linearly. T times the degrees of a stage is linear
in ``slot[j, t, d]``, which is T if position j has these degrees and 0 otherwise (its perspective, so no big-M stands
between T and the times). Exact for the instance as declared; times are in parts of a lower bound and bytes in units
of M, so that HiGHS works on numbers of natural size, and a plan that its tolerances let through is cut off. (These are
its own: asked for 1e-9 it loses the 1e-9 by which a plan may exceed M, and with it plans that fill M.)

Source: this project; the problem is Piper's, section 3.6. Symbols as in `assignment`; T is the slowest stage's time,
s the sum of data-parallel degrees from a stage on, y = ceil(s/d) the micro-batches a stage has in flight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pyomo.environ as pyo
from pyomo.core.expr import LinearExpression

from formulations.family import Answer
from formulations.modelled import go_on
from formulations.stage_partitioning.models.first_plan import first_plan
from formulations.stage_partitioning.models.solving import prove, too_large
from formulations.stage_partitioning.models.terms import Chosen, Terms
from formulations.stage_partitioning.problem import MEMORY_SLACK, Stage, StagePlan, evaluate, suffix_sums
from instances.stage_partitioning import StageInstance
from solvers import milp
from solvers.outcome import Limits, Prover, Watch

#: The bounds that T lies between count as no further apart.
_SPREAD = 10.0


class Model(milp.Runnable):
    """The model and its variables; binary unless said otherwise.

    ``degrees[j, t, d]``: position j is used with these degrees. ``choice[o, j]``: option o (of ``terms.options``)
    runs there. ``in_flight[j, y]``: y micro-batches are in flight there. Continuous: ``time`` (T in units of
    ``unit``), ``slot[j, t, d]`` (T for the degrees that j has), ``outside[c, j]`` (j pays crossing c),
    ``synced[j, d]`` (weights, in parts of the most, that j synchronises with degree d).
    """

    def __init__(self, terms: Terms, first: StagePlan | None, watch: Watch) -> None:
        self.terms = terms
        self.first = first
        self.watch = watch
        upper = terms.largest_time if first is None else evaluate(terms.instance, first)
        self.unit = (max(terms.lower_bound, upper / _SPREAD) or 1.0) / milp.NATURAL
        #: T may be this large, in units.
        self.upper = upper / self.unit * (1 + milp.ROOM)
        #: What takes longer than this on one device, in seconds, is in no stage: it counts as no longer, and what has
        #: more bytes than this as no larger. HiGHS loses plans beside numbers that are far above all that can be.
        self.most_s = 2 * terms.instance.num_devices * upper or math.inf
        self.most_bytes = 2 * terms.memory_limit or math.inf
        self.model = self._variables()
        self.model.objective = pyo.Objective(expr=self.model.time)
        self.model.rows = pyo.ConstraintList()
        self._degrees()
        self._nodes()
        for j in terms.stages:
            self._memory(j)
            self._crossings(j)
            self._stage_time(j)
        self._device_time()

    def _variables(self) -> pyo.ConcreteModel:
        terms, model = self.terms, pyo.ConcreteModel()
        stages, options = list(terms.stages), list(range(len(terms.options)))
        configs = [(j, t, d) for j in stages for t, d in terms.configs]
        model.time = pyo.Var(bounds=(0, self.upper))
        model.degrees = pyo.Var(configs, domain=pyo.Binary)
        model.slot = pyo.Var(configs, bounds=(0, self.upper))
        model.choice = pyo.Var(options, stages, domain=pyo.Binary)
        model.in_flight = pyo.Var(stages, list(range(1, terms.max_s + 1)), domain=pyo.Binary)
        model.outside = pyo.Var(list(range(len(terms.crossings))), stages, bounds=(0, 1))
        model.synced = pyo.Var(stages, list(terms.dp_degrees), bounds=(0, 1))
        return model

    def _at_most(self, pairs: list[tuple[Any, float]], right: float) -> None:
        """Add the row: the weighted sum of the variables is at most ``right``."""
        self._row(pairs, (None, right))

    def _equal(self, pairs: list[tuple[Any, float]], right: float) -> None:
        self._row(pairs, (right, right))

    def _row(self, pairs: list[tuple[Any, float]], between: tuple[float | None, float]) -> None:
        go_on(self.watch)
        if not pairs:  # an empty sum is 0; Pyomo takes no row without variables, so a fixed one stands for it
            pairs = [(self.model.time, 0.0)]
        total = LinearExpression(linear_coefs=[factor for _, factor in pairs], linear_vars=[var for var, _ in pairs])
        self.model.rows.add((between[0], total, between[1]))

    def _used(self, j: int) -> list[Any]:
        return [self.model.degrees[j, t, d] for t, d in self.terms.configs]

    def _holds(self, v: int, j: int, factor: float = 1.0) -> list[tuple[Any, float]]:
        return [(self.model.choice[o, j], factor) for o in self.terms.of_node[v]]

    def _suffix_sum(self, j: int, factor: float = 1.0) -> list[tuple[Any, float]]:
        """s of position j."""
        return [(var, factor * d) for (i, _, d), var in self.model.degrees.items() if i >= j]

    def _degrees(self) -> None:
        terms, instance, degrees = self.terms, self.terms.instance, self.model.degrees
        for j in terms.stages:
            # A position has at most one pair of degrees, and unused positions come last.
            self._at_most([(var, 1.0) for var in self._used(j)], 1.0)
            if j:
                self._at_most([(var, 1.0) for var in self._used(j)] + [(var, -1.0) for var in self._used(j - 1)], 0.0)
        # The stages take at most K devices, and their degrees sum to at most, or exactly, N.
        self._at_most([(var, float(t * d)) for (_, t, d), var in degrees.items()], float(instance.num_devices))
        if instance.exactly:
            self._equal(self._suffix_sum(0), float(instance.num_microbatches))
        else:
            self._at_most(self._suffix_sum(0), float(terms.max_s))

    def _nodes(self) -> None:
        terms, model = self.terms, self.model
        for v in terms.nodes:
            # Every node runs once, with one TMPC, and at that TMPC's tensor-parallel degree.
            self._equal([pair for j in terms.stages for pair in self._holds(v, j)], 1.0)
            for j in terms.stages:
                for t in terms.instance.tp_degrees:
                    runs = [(model.choice[o, j], 1.0) for o in terms.of_node[v] if terms.options[o].tp_degree == t]
                    splits = [(model.degrees[j, tp, d], -1.0) for tp, d in terms.configs if tp == t]
                    if runs:
                        self._at_most(runs + splits, 0.0)
        for u, v in terms.instance.edge_indices:
            # No edge runs backwards: where v is done, u is.
            for last in list(terms.stages)[:-1]:
                before = range(last + 1)
                done_v = [pair for j in before for pair in self._holds(v, j)]
                self._at_most(done_v + [pair for j in before for pair in self._holds(u, j, -1.0)], 0.0)
        for j in terms.stages:
            # A used position holds a node.
            held = [pair for v in terms.nodes for pair in self._holds(v, j, -1.0)]
            self._at_most([(var, 1.0) for var in self._used(j)] + held, 0.0)

    def _memory(self, j: int) -> None:
        """y = ceil(s/d) micro-batches are in flight, and the bytes of a stage fit on each of its devices.

        Big-M: s <= S for the first row; with y in flight no stage exceeds ``largest_memory(y)``.
        """
        terms, model, S = self.terms, self.model, float(self.terms.max_s)
        limit = terms.instance.memory_bytes * MEMORY_SLACK
        largest = len(terms.nodes) * self.most_bytes
        flights = {y: model.in_flight[j, y] for y in range(1, terms.max_s + 1)}
        self._equal([(var, 1.0) for var in flights.values()] + [(var, -1.0) for var in self._used(j)], 0.0)
        for y, flying in flights.items():
            # s <= y d, if y is in flight here.
            enough = [(model.degrees[j, t, d], -float(min(y * d, terms.max_s))) for t, d in terms.configs]
            self._at_most(self._suffix_sum(j) + enough + [(flying, S)], S)
            most = min(terms.largest_memory(y), largest)
            if most > limit:
                bytes_ = (o.tmpc.activation_bytes * y + o.tmpc.static_bytes for o in terms.options)
                size = [min(each, self.most_bytes) / most for each in bytes_]
                used = [(model.choice[o, j], size[o]) for o in range(len(size))]
                self._at_most([*used, (flying, 1 - limit / most)], 1.0)

    def _crossings(self, j: int) -> None:
        """A crossing is paid where its payer runs with one of its options and the neighbour does not run."""
        for c, crossing in enumerate(self.terms.crossings):
            runs = [(self.model.choice[o, j], 1.0) for o in crossing.options]
            self._at_most([*runs, *self._holds(crossing.other, j, -1.0), (self.model.outside[c, j], -1.0)], 0.0)

    def _stage_time(self, j: int) -> None:
        """Compute, boundary and synchronisation, times d, are at most d T for the degree d of the position."""
        terms, model = self.terms, self.model
        own = [(t, d) for t, d in terms.configs]
        # slot is at most T, and 0 for degrees that the position does not have.
        self._at_most([(model.slot[j, t, d], 1.0) for t, d in own] + [(model.time, -1.0)], 0.0)
        for t, d in own:
            self._at_most([(model.slot[j, t, d], 1.0), (model.degrees[j, t, d], -self.upper)], 0.0)
        resync = []
        for d in terms.dp_degrees if terms.largest_weight else ():
            # synced[j, d] >= weights / most - 1 + [the position has degree d]; no stage has more weights than most.
            largest = self.most_s / terms.resync(d) if terms.resync(d) else math.inf
            most = min(terms.largest_weight, len(terms.nodes) * largest)
            weights = [
                (model.choice[o, j], min(x.tmpc.weight_bytes, largest) / most) for o, x in enumerate(terms.options)
            ]
            having = [(model.degrees[j, t, dp], 1.0) for t, dp in own if dp == d]
            self._at_most([*weights, *having, (model.synced[j, d], -1.0)], 1.0)
            resync.append((model.synced[j, d], terms.resync(d) * most / self.unit))
        compute = [(model.choice[o, j], self._units(option.tmpc.time)) for o, option in enumerate(terms.options)]
        boundary = [(model.outside[c, j], self._units(crossing.time)) for c, crossing in enumerate(terms.crossings)]
        self._at_most([*compute, *boundary, *resync, *[(model.slot[j, t, d], -float(d)) for t, d in own]], 0.0)
        # Implied, but not by the relaxation: device-time t p, and at least one device per boundary, is at most t d T.
        work = [(model.choice[o, j], self._units(terms.work(o))) for o in range(len(terms.options))]
        self._at_most([*work, *boundary, *[(model.slot[j, t, d], -float(t * d)) for t, d in own]], 0.0)

    def _units(self, seconds: float) -> float:
        return min(seconds, self.most_s) / self.unit

    def _device_time(self) -> None:
        """All stages together use at most K devices for T each."""
        used = [(var, float(t * d)) for (_, t, d), var in self.model.slot.items()]
        self._at_most([*used, (self.model.time, -float(self.terms.instance.num_devices))], 0.0)

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
            Chosen(t, d, tuple(o for o in range(len(terms.options)) if values[model.choice[o, j]] > 0.5))
            for j in terms.stages
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
        for j in self.terms.stages:
            flying = [(self.model.in_flight[j, y], 1.0) for y in range(in_flight, self.terms.max_s + 1)]
            self._at_most([*flying, *((self.model.choice[o, j], 1.0) for o in options)], float(len(options)))

    def hint(self) -> Iterable[tuple[Any, float]]:
        """The decisions of the first plan."""
        return () if self.first is None else self.values_of(self.first)


def build(instance: StageInstance, first: StagePlan | None = None, watch: Watch | None = None) -> Model:
    """The Pyomo model of an instance.

    ``first`` (a feasible plan) becomes the hint and the upper bound. Raises `modelled.Stopped` once the watch is.
    """
    return Model(Terms(instance), first, watch or Watch())


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by HiGHS, with a plan of `first_plan` to start from.

    Source
    ------
    This project; see the module.
    """

    def model() -> Model:
        terms = Terms(instance)
        watch.bound(terms.lower_bound, Prover.BOUNDS)
        return Model(terms, watch.best_plan or first_plan(terms, watch), watch)

    return prove(instance, model, limits, watch, to_scale=True)
