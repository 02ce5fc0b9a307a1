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
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.modelling.solve_model import WithoutSizes, go_on
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models import by_target, flow
from formulations.stage_partitioning.models.flow import Flow
from formulations.stage_partitioning.models.flow_quantities import FlowQuantities
from formulations.stage_partitioning.models.stage_costs import Prices
from formulations.stage_partitioning.models.usable_arcs import Reach
from instances.problems.stage_partitioning import StageInstance
from solvers.milp import backend as milp
from solvers.milp.backend import until_stopped, weighted_sum
from solvers.outcome import DEFAULT_SOLVER, Limits, Run, Watch


class Model(FlowQuantities, Flow, WithoutSizes):
    """The model: ``model.flow[a]`` is 1 if the plan has the stage of arc a; ``model.time`` is T in parts of `unit`.

    ``whole``: with arcs that another one beats, which requirements may ask for. ``searches``: run it by targets; not
    where others may have changed the model.
    """

    searches = False

    def __init__(self, prices: Prices, reach: Reach, whole: bool = False) -> None:
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
        on_path = self.path_of(plan)
        for a in range(len(self.arcs)):
            yield self.model.flow[a], int(a in on_path)

    def decode(self, values: milp.Values) -> StagePlan:
        """The plan of a solution."""
        return self.plan_of(a for a in range(len(self.arcs)) if values[self.model.flow[a]] > 0.5)

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
            paths = by_target.Paths(self.arcs, reach.last, reach.instance.num_devices, reach.target, self.unit)
            exchanged = m.stage_time, m.devices, m.objective
            run = by_target.run(m, exchanged, paths, limits, watch, on_solution, on_bound)
        return replace(run, stats={**run.stats, "downsets": len(self.prices.downsets), "arcs": len(self.arcs)})


def build(instance: StageInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The Pyomo model of an instance (`flow.build`)."""
    return flow.build(Model, instance, watch or Watch(), complete=complete)


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by a flow of stages, with HiGHS.

    Source
    ------
    This project; see the module.
    """
    return flow.solve(Model, instance, limits, watch)
