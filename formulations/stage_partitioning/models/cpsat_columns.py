"""Stage partitioning as a flow of priced stages for CP-SAT: the model of `milp_columns`, in whole units.

Every column is a stage that is priced beforehand, and a plan is a path from (empty set, 0) to (V, s). Without
requirements CP-SAT gets the targets one by one (`by_target`): the path on the fewest devices, an exact relaxation.

Source: this project; downsets, states and TPS(S, t, d, s) are Piper's, section 4.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.modelling.linear_paths import PathWithin
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models import by_target, flow
from formulations.stage_partitioning.models.flow import Flow
from formulations.stage_partitioning.models.stage_costs import Prices
from formulations.stage_partitioning.models.stage_quantities import CpsatQuantities
from formulations.stage_partitioning.models.usable_arcs import Arc, Reach
from instances.problems.stage_partitioning import StageInstance
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, OnBound, OnSolution, Run, Stop, Watch
from solvers.scaling import Scale, cost_scale

_sum = cp_model.LinearExpr.sum


@dataclass(frozen=True)
class Data:
    """The arcs and their times in whole units of ``scale``, rounded down; paths lead to states of the downset ``last``.

    ``holding[v]`` are the arcs whose stage holds node v.
    """

    arcs: list[Arc]
    times: list[int]
    holding: list[list[int]]
    last: int
    num_devices: int
    most: int
    scale: Scale


def data_of(prices: Prices, reach: Reach, *, whole: bool) -> Data:
    """The arcs in reach; ``whole``: with those that another one beats."""
    arcs = reach.arcs(whole=whole)
    slowest = max((arc.time for arc in arcs), default=0.0)
    scale = cost_scale(prices.terms.lower_bound, 1, max(reach.target, slowest))
    holding = [[a for a, arc in enumerate(arcs) if v in arc.block.nodes] for v in prices.terms.nodes]
    times = [scale.floor(arc.time) for arc in arcs]
    return Data(arcs, times, holding, reach.last, reach.instance.num_devices, scale.ceil(reach.target), scale)


def build(data: Data, target: float | None = None) -> tuple[cpsat.SpokenModel, dict[int, Any]]:
    """The model of a path, and ``flow[a]``; with a target through the arcs within it, on the fewest devices."""
    model, arcs = cpsat.SpokenModel(), data.arcs
    # fmt: off
    flow = model.booleans("flow", [a for a, arc in enumerate(arcs) if target is None or arc.time <= target],
        "flow[a]: the plan has the stage of arc a, nodes D \\ D' with degrees (t, d) at a sum of degrees s")
    leaving, entering = defaultdict[Any, list[Any]](list), defaultdict[Any, list[Any]](list)
    for a, taken in flow.items():
        leaving[arcs[a].tail].append(taken)
        entering[arcs[a].head].append(taken)

    model.row("one_path", _sum(leaving.pop((0, 0), [])) == 1,
        "one path begins at the empty set: sum over the arcs a that leave it of flow[a] = 1")
    model.rows("conserved", sorted(at for at in leaving.keys() | entering.keys() if at[0] != data.last),
        lambda *at: _sum(leaving[at]) == _sum(entering[at]),
        "it leaves a state (D,s) as often as it enters it, up to V: sum over a that leave of flow[a] = sum over a that "
        "enter of flow[a]")
    devices = cpsat.weighted_sum((arcs[a].devices, taken) for a, taken in flow.items())
    if target is not None:  # a path on more than K devices refutes it, and all arcs are fast enough
        model.minimize(devices)
        return model, flow
    model.row("devices", devices <= data.num_devices,
        "the stages of the path take at most K devices: sum over a of t d flow[a] <= K [Piper, section 3.1]")
    time = model.integer("time", 0, data.most,
        "T, the Time-Per-Sample: that of the slowest stage, in whole units [Piper, section 3.2]")
    model.rows("stage_time", range(len(data.holding)),
        lambda v: cpsat.weighted_sum((data.times[a], flow[a]) for a in data.holding[v]) <= time,
        "T is at least the time of the stage that holds v: sum over the arcs a that hold v of TPS(a) flow[a] <= T "
        "[Piper, section 4]")
    # fmt: on
    model.minimize(time)
    return model, flow


class Model(Flow, CpsatQuantities):
    """The model of what is in reach.

    ``whole``: with arcs that another one beats, which requirements may ask for. ``search``: it is run by targets, and
    begins with one.
    """

    weighted_sum = staticmethod(cpsat.weighted_sum)

    def __init__(self, prices: Prices, reach: Reach, whole: bool = False, search: bool = False) -> None:
        self.prices, self.reach, self.target = prices, reach, reach.target if search else None
        with stops_with(prices.watch):
            self.data = data_of(prices, reach, whole=whole)
            self.model, self.flow = build(self.data, self.target)
        self.arcs = self.data.arcs

    def time_unit(self) -> float | None:
        """The instance's unit of time for 1 of the model's."""
        return self.data.scale.restore(1)

    def _times_with(self, v: int) -> Iterable[tuple[Any, Any]]:
        own = (a for a in self.flow if v in self.arcs[a].block.nodes)
        return [((), cpsat.weighted_sum((self.data.scale.floor(self.arcs[a].time), self.flow[a]) for a in own))]

    def lower_bound(self, bound: float) -> float:
        """The bound in the instance's unit: times are rounded down, and slower plans than the target are not there."""
        return min(self.data.scale.restore(max(0, cpsat.whole(bound))), self.reach.target)

    def run(self, limits: Limits, watch: Watch, on_solution: OnSolution = None, on_bound: OnBound = None) -> Run:
        """Search by targets (`by_target`), or run the model as it is; ``stats`` counts downsets and arcs as well."""
        if self.target is not None and on_solution is not None and on_bound is not None:
            return self.with_counts(self._by_target(limits, watch, on_solution, on_bound))
        return self.with_counts(super().run(limits, watch, on_solution, on_bound))

    def _by_target(
        self, limits: Limits, watch: Watch, on_solution: Callable[[Any], None], on_bound: Callable[[float], None]
    ) -> Run:
        sizes = {"variables": len(self.model.proto.variables), "constraints": len(self.model.proto.constraints)}

        def fewest(target: float) -> PathWithin | None:
            model, flow = build(self.data, target)
            found = cpsat.run(model, replace(limits, gap=0.0), watch, parameters=cpsat.INTEGRAL)
            if found.infeasible:
                return None
            if found.stop is not Stop.PROVED or found.values is None or found.bound is None:
                return PathWithin(None, None, None, None)
            taken = [a for a, each in flow.items() if found.values[each]]
            on_path = {self.flow[a].index for a in taken}
            values = cpsat.Values(lambda variable: variable.index in on_path)
            return PathWithin(cpsat.whole(found.bound), taken, max(self.arcs[a].time for a in taken), values)

        reach, unit = self.reach, self.data.scale.restore(1)
        paths = by_target.Paths(self.arcs, reach.last, self.data.num_devices, reach.target, unit)
        found = by_target.search(paths, fewest, limits, watch, on_solution, lambda bound: on_bound(math.floor(bound)))
        bound = None if found.bound is None else math.floor(found.bound)
        return replace(found, bound=bound, solver=cpsat.version(), stats={**sizes, **found.stats})


def model_of(instance: StageInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The CP-SAT model of an instance (`flow.build`)."""
    return flow.build(Model, instance, watch or Watch(), complete=complete)


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by a flow of stages, with CP-SAT, by targets."""
    return flow.solve(Model, instance, limits, watch)
