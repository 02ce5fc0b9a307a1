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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.modelling.layered_paths import START, JoinedStates
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models import by_target, flow
from formulations.stage_partitioning.models.flow import Flow
from formulations.stage_partitioning.models.stage_costs import Prices
from formulations.stage_partitioning.models.stage_quantities import MilpQuantities
from formulations.stage_partitioning.models.usable_arcs import Arc, Reach
from instances.problems.stage_partitioning import StageInstance
from solvers.build_stop import stops_with
from solvers.milp import backend as milp
from solvers.milp.backend import weighted_sum
from solvers.outcome import DEFAULT_SOLVER, Limits, OnBound, OnSolution, Run, Watch


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


class Model(Flow, MilpQuantities):
    """The model of what is in reach; times are in parts of ``unit``.

    ``whole``: with arcs that another one beats, which requirements may ask for. ``search``: it is run by targets, and
    begins with one.
    """

    weighted_sum = staticmethod(weighted_sum)

    def __init__(self, prices: Prices, reach: Reach, whole: bool = False, search: bool = False) -> None:
        self.prices, self.reach, self.target = prices, reach, reach.target if search else None
        with stops_with(prices.watch):
            self.data = data_of(prices, reach, whole=whole)
            self.model = build(self.data, self.target)
        self.arcs, self.unit, self.flow = list(self.data.arcs), self.data.unit, dict(self.model.flow.items())

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
        return self.with_counts(
            by_target.search_linear(paths, self.model, self.flow, limits, watch, on_solution, on_bound)
        )


def model_of(instance: StageInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`flow.build`)."""
    return flow.build(Model, instance, watch or Watch(), complete=complete)


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by a flow of stages, with HiGHS, by targets; other solvers run the model as it is."""
    return flow.solve(Model, instance, limits, watch, search=limits.solver == DEFAULT_SOLVER)
