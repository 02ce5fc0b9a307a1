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

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyomo.environ as pyo

from formulations.family import Answer
from formulations.modelled import Stopped, WithoutSizes, go_on, require
from formulations.stage_partitioning.models import by_target
from formulations.stage_partitioning.models.flow_quantities import FlowQuantities
from formulations.stage_partitioning.models.prices import Prices
from formulations.stage_partitioning.models.reach import SAME, WIDER, Arc, Reach, first_reach
from formulations.stage_partitioning.models.size import MAX_DOWNSETS, columns_supports
from formulations.stage_partitioning.models.solving import prove
from formulations.stage_partitioning.models.terms import Terms
from formulations.stage_partitioning.problem import StagePlan
from formulations.stage_partitioning.vocabulary import VOCABULARY
from instances.graph import downsets
from instances.stage_partitioning import StageInstance
from solvers import milp
from solvers.milp import until_stopped, weighted_sum
from solvers.outcome import DEFAULT_SOLVER, Limits, Prover, Run, Stop, Watch

#: The target of a model whose plans do not meet the requirements rises by this factor, the next by its square.
GROWTH = 1.25


class Model(FlowQuantities, WithoutSizes):
    """The model: ``model.flow[a]`` is 1 if the plan has the stage of arc a; ``model.time`` is T in parts of `unit`.

    ``whole``: with arcs that another one beats, which requirements may ask for. ``searches``: run it by targets; not
    where others may have changed the model.
    """

    searches = False

    def __init__(self, prices: Prices, reach: Reach, *, whole: bool = False) -> None:
        self.prices = prices
        self.reach = reach
        self.arcs = reach.arcs(whole=whole)
        self.unit = reach.target / milp.NATURAL or 1.0
        self.model = model = pyo.ConcreteModel()
        model.time = pyo.Var(
            bounds=(0, reach.target / self.unit * (1 + milp.ROOM)),
            doc="T, the Time-Per-Sample: that of the slowest stage [Piper, section 3.2]",
        )
        model.flow = pyo.Var(
            range(len(self.arcs)),
            domain=pyo.Binary,
            doc="flow[a]: the plan has the stage of arc a, nodes D \\ D' with degrees (t, d) at a sum of degrees s",
        )
        model.objective = pyo.Objective(expr=model.time)
        self._path()
        self._devices()
        self._time()
        go_on(prices.watch)

    def _path(self) -> None:
        """One path from the empty set to V."""
        leaving: dict[tuple[int, int], list[int]] = {}
        entering: dict[tuple[int, int], list[int]] = {}
        for a, arc in enumerate(self.arcs):
            leaving.setdefault(arc.tail, []).append(a)
            entering.setdefault(arc.head, []).append(a)

        def through(m: Any, arcs: list[int]) -> Any:
            return weighted_sum((1.0, m.flow[a]) for a in arcs)

        start = (0, 0)
        self.model.one_path = pyo.Constraint(
            rule=lambda m: through(m, leaving.get(start, [])) == 1,
            doc="one path begins at the empty set: sum over the arcs a that leave it of flow[a] = 1",
        )
        between = [at for at in sorted(leaving.keys() | entering.keys()) if at != start and at[0] != self.reach.last]
        self.model.conserved = pyo.Constraint(
            between,
            rule=lambda m, *at: through(m, leaving.get(at, [])) == through(m, entering.get(at, [])),
            doc="it leaves a state (D,s) as often as it enters it, up to V: sum over a that leave of flow[a] = sum "
            "over a that enter of flow[a]",
        )

    def _devices(self) -> None:
        arcs, K = self.arcs, self.reach.instance.num_devices
        self.model.devices = pyo.Constraint(
            rule=lambda m: weighted_sum((arc.devices, m.flow[a]) for a, arc in enumerate(arcs)) <= K,
            doc="the stages of the path take at most K devices: sum over a of t d flow[a] <= K [Piper, section 3.1]",
        )

    def _time(self) -> None:
        def stage_time(m: Any, v: int) -> Any:
            holding = (
                (milp.in_units(arc.time, self.unit), m.flow[a])
                for a, arc in enumerate(self.arcs)
                if v in arc.block.nodes
            )
            return weighted_sum(holding) <= m.time

        self.model.stage_time = pyo.Constraint(
            self.prices.terms.nodes,
            rule=until_stopped(self.prices.watch, stage_time),
            doc="T is at least the time of the stage that holds v: sum over the arcs a that hold v of TPS(a) flow[a] "
            "<= T [Piper, section 4]",
        )

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, int]]:
        """The path of a plan, as pairs of a variable and its value; a dominated stage by one that dominates it."""
        path = {}
        bits = s = 0
        for stage in reversed(plan.stages):
            tail = bits, s
            bits |= sum(1 << self.reach.instance.index[node] for node in stage.nodes)
            s += stage.dp_degree
            path[tail, (bits, s)] = stage.dp_degree * stage.tp_degree
        taken: dict[Any, int] = {}
        for a, arc in enumerate(self.arcs):
            ends = self._ends(arc)
            if arc.devices <= path.get(ends, 0) and (ends not in taken or arc.devices > self.arcs[taken[ends]].devices):
                taken[ends] = a
        on_path = set(taken.values())
        for a in range(len(self.arcs)):
            yield self.model.flow[a], int(a in on_path)

    def _ends(self, arc: Arc) -> tuple[tuple[int, int], tuple[int, int]]:
        """The states that an arc joins, as downsets and sums."""
        (inner, before), (outer, after) = arc.tail, arc.head
        return (self.prices.downsets[inner], before), (self.prices.downsets[outer], after)

    def decode(self, values: milp.Values) -> StagePlan:
        """The plan of a solution."""
        taken = [arc for a, arc in enumerate(self.arcs) if values[self.model.flow[a]] > 0.5]
        inwards = sorted(taken, key=lambda arc: -arc.block.inner)
        return self.prices.terms.plan(
            self.prices.chosen(arc.block, arc.tp_degree, arc.dp_degree, arc.in_flight, self.reach.target)
            for arc in inwards
        )

    def lower_bound(self, bound: float) -> float:
        """The bound in the instance's unit, less what the solver's tolerances may have added."""
        return min(milp.trusted(bound) * self.unit, self.reach.target)  # slower plans are not in the model

    def hint(self) -> Iterable[tuple[Any, float]]:
        """The path of the best known plan."""
        plan = self.prices.watch.best_plan
        return () if plan is None else self.values_of(plan)

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[Any], None] | None = None,
        on_bound: Callable[[float], None] | None = None,
    ) -> Run:
        """Search by targets (`by_target`), or run the model as it is, as other solvers do.

        ``stats`` counts downsets and arcs as well.
        """
        if not self.searches or limits.solver != DEFAULT_SOLVER or on_solution is None or on_bound is None:
            run = super().run(limits, watch, on_solution, on_bound)
        else:
            reach, m = self.reach, self.model
            paths = by_target.Paths(
                m, self.arcs, reach.last, reach.instance.num_devices, reach.target, self.unit,
                (m.stage_time, m.devices, m.objective),
            )  # fmt: skip
            run = by_target.run(paths, limits, watch, on_solution, on_bound)
        return replace(run, stats={**run.stats, "downsets": len(self.prices.downsets), "arcs": len(self.arcs)})


def build(instance: StageInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of all plans that are hardly slower than a known one, the watch's or that of `first_reach`.

    Of all plans if ``complete``, or where no plan is known that meets the instance's requirements. Raises
    `modelled.Stopped` once the watch is, and ``ValueError`` if the instance has too many downsets.
    """
    watch = watch or Watch()
    prices = _prices(instance, watch)
    watch.bound(prices.terms.lower_bound, Prover.BOUNDS)
    if complete:
        return _within(prices, prices.terms.largest_time)
    reach = first_reach(prices, watch)
    if not instance.requirements:
        return Model(prices, reach)
    known = watch.best_objective
    return _within(prices, prices.terms.largest_time if known is None else known * (1 + WIDER))


def _within(prices: Prices, target: float) -> Model:
    """The model of all plans of at most ``target`` that meet the requirements."""
    model = Model(prices, Reach(prices, target), whole=True)
    require(model, VOCABULARY, prices.terms.instance)
    return model


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by a flow of stages, with HiGHS.

    Source
    ------
    This project; see the module.
    """
    reason = columns_supports(instance)
    if reason is not None:
        return Answer(stop=Stop.SIZE_LIMIT, reason=reason)
    if instance.requirements:
        return _solve_required(instance, limits, watch)

    def model() -> Model:
        found = build(instance, watch)
        found.searches = True
        return found

    return prove(instance, model, limits, watch)


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
