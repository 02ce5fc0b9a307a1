"""Stage partitioning as a flow of stages: every column is a stage that is priced beforehand.

The states are (D, s): the downset D of the nodes planned so far, from the output side, and the sum s of their stages'
data-parallel degrees. A stage S = D \\ D' with degrees (t, d) is an arc from (D', s - d) to (D, s) on t d devices. With
s known, so are the micro-batches in flight, and the least time TPS(S, t, d, s) is a knapsack (`prices`). A plan is a
path from (empty set, 0) to (V, s) with s <= N (or = N)::

    min T   one path, on at most K devices,   sum of TPS(a) flow[a] over the arcs a that hold v <= T  for every node v

It is Piper's dynamic program (section 4) as a shortest path. Only arcs that are hardly slower than a known plan are
built, and that some plan as fast can have: the plan of ``linearised``, improved by a pass over coarse targets
(`reach.first_reach`). Without requirements HiGHS gets the targets one by one (`by_target`): with T given, rows on time
are gone, and the relaxation of the path is exact. Exact for the instance as declared, like the other models.

Source: this project; downsets, states and TPS(S, t, d, s) are Piper's, section 4.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.modelling.layered_paths import START, JoinedStates, arcs_on
from formulations.modelling.solve_model import Stopped, WithoutSizes, add_requirements
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.model_size import MAX_DOWNSETS, columns_supports
from formulations.stage_partitioning.models import by_target
from formulations.stage_partitioning.models.assignment_data import Terms
from formulations.stage_partitioning.models.solving import prove
from formulations.stage_partitioning.models.stage_costs import SAME, Prices
from formulations.stage_partitioning.models.stage_quantities import MilpQuantities
from formulations.stage_partitioning.models.usable_arcs import WIDER, Arc, Reach, first_reach
from instances.graph import downsets
from instances.problems.stage_partitioning import StageInstance
from solvers.build_stop import stops_with
from solvers.milp import backend as milp
from solvers.milp.backend import weighted_sum
from solvers.outcome import DEFAULT_SOLVER, Limits, OnBound, OnSolution, Prover, Run, Stop, Watch

#: The target of a model whose plans do not meet the requirements rises by this factor, the next by its square.
GROWTH = 1.25


@dataclass(frozen=True)
class Data(JoinedStates):
    """The arcs, in order, with times in parts of ``unit``; paths lead to states of the downset ``last``.

    ``holding[v]`` are the arcs whose stage holds node v.
    """

    arcs: Sequence[Arc]
    times: list[float]
    holding: list[list[int]]
    last: int
    num_devices: int
    unit: float


def data_of(prices: Prices, reach: Reach, *, whole: bool) -> Data:
    """The arcs in reach; ``whole``: with those that another one beats."""
    arcs, unit = reach.arcs(whole=whole), reach.target / milp.NATURAL or 1.0
    holding = [[a for a, arc in enumerate(arcs) if v in arc.block.nodes] for v in prices.terms.nodes]
    times = [milp.in_units(arc.time, unit) for arc in arcs]
    return Data(arcs, times, holding, reach.last, reach.instance.num_devices, unit)


def build(data: Data, target: float | None = None) -> pyo.ConcreteModel:
    """The model of a path through the arcs; with a target, which none of them exceeds, on the fewest devices."""
    every = range(len(data.arcs))
    model = pyo.ConcreteModel()
    # fmt: off
    model.flow = pyo.Var(every, domain=pyo.Binary,
        doc="flow[a]: the plan has the stage of arc a, nodes D \\ D' with degrees (t, d) at a sum of degrees s")

    def total(arcs: Iterable[int], factors: Sequence[float] | None = None) -> Any:
        return weighted_sum((1.0 if factors is None else factors[a], model.flow[a]) for a in arcs)

    model.one_path = pyo.Constraint(expr=total(data.leaving[START]) == 1,
        doc="one path begins at the empty set: sum over the arcs a that leave it of flow[a] = 1")
    model.conserved = pyo.Constraint(data.between,
        rule=lambda _, *at: total(data.leaving[at]) == total(data.entering[at]),
        doc="it leaves a state (D,s) as often as it enters it, up to V: sum over a that leave of flow[a] = sum over a "
        "that enter of flow[a]")
    devices = total(every, [arc.devices for arc in data.arcs])
    if target is not None:  # a path on more than K devices refutes it, and all arcs of any are fast enough
        model.objective = pyo.Objective(expr=devices)
        return model
    model.time = pyo.Var(bounds=(0, milp.NATURAL * (1 + milp.ROOM)),
        doc="T, the Time-Per-Sample: that of the slowest stage [Piper, section 3.2]")
    model.devices = pyo.Constraint(expr=devices <= data.num_devices,
        doc="the stages of the path take at most K devices: sum over a of t d flow[a] <= K [Piper, section 3.1]")
    model.stage_time = pyo.Constraint(range(len(data.holding)),
        rule=lambda m, v: total(data.holding[v], data.times) <= m.time,
        doc="T is at least the time of the stage that holds v: sum over the arcs a that hold v of TPS(a) flow[a] "
        "<= T [Piper, section 4]")
    # fmt: on
    model.objective = pyo.Objective(expr=model.time)
    return model


class Model(WithoutSizes, MilpQuantities):
    """The model of what is in reach: ``flow[a]`` is 1 if the plan has arc a's stage; times are in parts of ``unit``.

    ``whole``: with arcs that another one beats, which requirements may ask for. ``search``: it is run by targets, and
    begins with one.
    """

    def __init__(self, prices: Prices, reach: Reach, whole: bool = False, search: bool = False) -> None:
        self.prices, self.reach, self.target = prices, reach, reach.target if search else None
        with stops_with(prices.watch):
            self.data = data_of(prices, reach, whole=whole)
            self.model = build(self.data, self.target)
        self.arcs, self.unit, self.flow = list(self.data.arcs), self.data.unit, dict(self.model.flow.items())

    @property
    def terms(self) -> Terms:
        """The instance's."""
        return self.prices.terms

    def time_unit(self) -> float | None:
        """The instance's unit of time for 1 of the model's."""
        return self.unit

    def _times_with(self, v: int) -> Iterable[tuple[Any, Any]]:
        return [(1, weighted_sum((self.data.times[a], self.flow[a]) for a in self.data.holding[v] if a in self.flow))]

    def lower_bound(self, bound: float) -> float:
        """The bound in the instance's unit, less what the solver's tolerances may have added."""
        return min(milp.proved_bound(bound) * self.unit, self.reach.target)  # slower plans are not in the model

    def hint(self) -> Iterable[tuple[Any, float]]:
        """The path of the best known plan."""
        plan = self.prices.watch.best_plan
        return () if plan is None else self.values_of(plan)

    def run(self, limits: Limits, watch: Watch, on_solution: OnSolution = None, on_bound: OnBound = None) -> Run:
        """Search by targets, or run the model as it is; ``stats`` counts downsets and arcs as well."""
        if self.target is None or on_solution is None or on_bound is None:
            return self.with_counts(super().run(limits, watch, on_solution, on_bound))
        reach = self.reach
        paths = by_target.Paths(self.arcs, reach.last, reach.instance.num_devices, reach.target, self.unit)
        return self.with_counts(by_target.search(paths, self.model, self.flow, limits, watch, on_solution, on_bound))

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, int]]:
        """The path of a plan, as pairs of a variable and its value; a dominated stage by one that dominates it."""
        index, path, bits, s = self.reach.instance.index, dict[Any, int](), 0, 0
        for stage in reversed(plan.stages):
            tail = bits, s
            bits |= sum(1 << index[node] for node in stage.nodes)
            s += stage.dp_degree
            path[tail, (bits, s)] = stage.dp_degree * stage.tp_degree
        on_path = arcs_on(path, [self._ends(arc) for arc in self.arcs], [arc.devices for arc in self.arcs])
        return ((taken, int(a in on_path)) for a, taken in self.flow.items())

    def meaning(self, name: str, index: Any) -> Mapping[str, Any]:
        """What the index of an arc means, by words: all nodes of its stage stand for ``node``; else empty."""
        if name != "flow":
            return {}
        arc, layers = self.arcs[index], self.terms.instance.layers
        nodes = frozenset(layers[v].id for v in arc.block.nodes)
        return {"node": nodes, "s": arc.s + arc.dp_degree, "tp_degree": arc.tp_degree, "dp_degree": arc.dp_degree}

    def _ends(self, arc: Arc) -> tuple[tuple[int, int], tuple[int, int]]:
        """The states that an arc joins, as downsets and sums."""
        (inner, before), (outer, after) = arc.tail, arc.head
        return (self.prices.downsets[inner], before), (self.prices.downsets[outer], after)

    def decode(self, values: Any) -> StagePlan:
        """The plan of a solution."""
        taken = [self.arcs[a] for a, variable in self.flow.items() if values[variable] > 0.5]
        return self.prices.terms.plan(
            self.prices.decisions_of(arc.block, arc.tp_degree, arc.dp_degree, arc.in_flight, self.reach.target)
            for arc in sorted(taken, key=lambda arc: -arc.block.inner)
        )

    def with_counts(self, run: Run) -> Run:
        """The run, whose ``stats`` count downsets and arcs as well."""
        return replace(run, stats={**run.stats, "downsets": len(self.prices.downsets), "arcs": len(self.arcs)})

    def _over_stages(self, factor: Callable[[Arc], int]) -> Any:
        factors = ((factor(self.arcs[a]), taken) for a, taken in self.flow.items())
        return weighted_sum((amount, taken) for amount, taken in factors if amount)

    def _of_stage_with(self, v: int, factor: Callable[[Arc], int]) -> Any:
        return self._over_stages(lambda arc: factor(arc) if v in arc.block.nodes else 0)

    def _together(self, u: int, v: int) -> Any:
        return self._over_stages(lambda arc: int(u in arc.block.nodes and v in arc.block.nodes))

    def _stage_of(self, v: int) -> Any:  # those that follow its own on the path
        return self._over_stages(lambda arc: self.prices.downsets[arc.block.inner] >> v & 1)


def model_of(
    instance: StageInstance, watch: Watch | None = None, *, complete: bool = False, search: bool = False
) -> Model:
    """A model of all plans that are hardly slower than a known one, the watch's or that of `first_reach`.

    Of all plans if ``complete``, or where no plan is known that meets the instance's requirements. With ``search``
    it is run by targets, if a plan is known. Raises `solve_model.Stopped` once the watch is, and ``ValueError`` if
    the instance has too many downsets.
    """
    watch = watch or Watch()
    prices = _prices(instance, watch)
    watch.bound(prices.terms.lower_bound, Prover.BOUNDS)
    if complete:
        return _within(prices, prices.terms.largest_time)
    reach = first_reach(prices, watch)
    if not instance.requirements:
        return Model(prices, reach, search=search and watch.best_plan is not None)
    known = watch.best_objective
    return _within(prices, prices.terms.largest_time if known is None else known * (1 + WIDER))


def _within(prices: Prices, target: float) -> Model:
    """The model of all plans of at most ``target`` that meet the requirements."""
    return add_requirements(Model(prices, Reach(prices, target), whole=True), VOCABULARY, prices.terms.instance)


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by a flow of stages, with HiGHS, by targets; other solvers run the model as it is."""
    reason = columns_supports(instance)
    if reason is not None:
        return Answer(stop=Stop.SIZE_LIMIT, reason=reason)
    if instance.requirements:
        return _solve_required(instance, limits, watch)
    search = limits.solver == DEFAULT_SOLVER
    return prove(instance, lambda: model_of(instance, watch, search=search), limits, watch)


def _solve_required(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum where requirements may exclude the plans of `first_reach`: the target rises until a plan meets it.

    A model without a solution proves that no plan is as fast as its target.
    """
    try:
        prices = _prices(instance, watch)
        watch.bound(prices.terms.lower_bound, Prover.BOUNDS)
        target, most = first_reach(prices, watch).target, prices.terms.largest_time
    except Stopped:
        return Answer(plan=watch.best_plan, bound=watch.best_bound, stop=watch.why())

    def model(target: float) -> Model:
        known = watch.best_objective
        return _within(prices, target if known is None else min(target, known * (1 + WIDER)))

    growth = GROWTH
    while True:
        answer = prove(instance, partial(model, min(target, most)), limits, watch, to_scale=True)
        if not answer.infeasible or target >= most:
            return answer
        watch.bound(target * (1 - SAME), Prover.SOLVER)
        target, growth = max(target * growth, most * 2.0**-40), growth**2


def _prices(instance: StageInstance, watch: Watch) -> Prices:
    found = downsets(len(instance.layers), instance.edge_indices, MAX_DOWNSETS)
    if found is None:
        raise ValueError(f"the graph has more than {MAX_DOWNSETS} downsets")
    return Prices(Terms(instance), found, watch)
