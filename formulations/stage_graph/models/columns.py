"""Stage graphs as a MILP over columns (Pyomo, HiGHS): a convex set of operators at a depth, on the fewest devices.

As in GraphPipe's Algorithm 1 a target t_max for the slowest stage is given, and lowered. For a target every column has
its fewest devices (EstimateTPS <= t_max, line 28, and Equation 2 at its depth), so what is left is a cover: each
operator in one column, as few devices as possible, and along an edge that leaves a column the depth falls. The least
target comes from the finite list of what stages can take, as in ``levels``, whose upsets give the sets. Where
requirements speak of degrees or of what is in flight, the fewest devices are not enough: with any it is `direct`.
Source: reconstructed.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyomo.environ as pyo

from formulations.alarm import alarm
from formulations.family import Answer
from formulations.stage_graph.costs import Costs, assemble, bits
from formulations.stage_graph.first_plan import first_plan
from formulations.stage_graph.kernels.levels import needed
from formulations.stage_graph.models import direct
from formulations.stage_graph.problem import StagePlan, evaluate, violations
from formulations.stage_graph.upsets.bounds import simple_bound
from formulations.stage_graph.upsets.chains import TooManyError, best_of_sizes
from instances.stage_graph import StageGraph
from solvers import milp
from solvers.outcome import Limits, Prover, Stop, Watch

#: The number of a convex set, and a depth.
Column = tuple[int, int]


class Columns(direct.ConvexSets):
    """Convex sets of operators as columns, one for each depth; `TooManyError` if there are too many."""

    def __init__(self, costs: Costs, limits: Limits, watch: Watch) -> None:
        super().__init__(costs, watch)
        self.limits, self.solver, self.search_nodes, self.failure = limits, "", 0, ""

    def plan(self, microbatch: int, target_s: float) -> StagePlan | None:
        """A plan on the fewest devices, with every stage within the target; ``None`` if none has enough devices."""
        self.rounds += 1
        tps, room = self.tables.at(microbatch)
        needed(tps, room, target_s, self.degrees, self.need)
        instance = self.costs.instance
        columns = {
            (number, depth): int(self.need[number, depth])
            for number in range(len(self.masks))
            for depth in range(1, self.need.shape[1])
            if self.need[number, depth] <= instance.num_devices
        }
        built = build(instance, self.masks, columns)
        run = built.run(self.limits, self.watch)
        self.solver = run.solver or self.solver
        self.search_nodes += int(run.stats.get("search_nodes", 0))
        if run.values is None:
            if not run.infeasible:  # no proof: nothing more can be said
                self.failure = run.reason
                self.watch.stop(run.stop if run.stop is not Stop.PROVED else Stop.COMPLETED)
            return None
        return assemble(instance, built.decode(run.values), microbatch)


@dataclass
class Model(milp.Runnable):
    """The cover of one target, ``model``; ``masks[n]`` is a set of operators, ``columns[n, d]`` its devices at depth d.

    It minimises devices, not what the instance does, so it gives no bound: that there is no cover is the proof.
    """

    model: Any
    masks: Sequence[int]
    columns: Mapping[Column, int]

    def decode(self, values: Any) -> list[tuple[int, int]]:
        """The stages of a solution: a bitset of operators and the devices of each."""
        taken = self.model.taken
        return [(self.masks[column[0]], need) for column, need in self.columns.items() if values[taken[column]] > 0.5]


def build(instance: StageGraph, masks: Sequence[int], columns: Mapping[Column, int]) -> Model:
    """The model; ``taken[n, d]``: set n is a stage, with d stages from it to the end, itself among them."""
    model = pyo.ConcreteModel()
    model.taken = pyo.Var(list(columns), domain=pyo.Binary, doc="taken[n,d]: set n is a stage at depth d")
    holding: list[list[Column]] = [[] for _ in range(instance.num_operators)]
    for column in columns:
        for v in bits(masks[column[0]]):
            holding[v].append(column)
    if not all(holding):
        # Some operator keeps the target in no column: its row has no variable, and Pyomo takes none without.
        model.nowhere = pyo.Var(bounds=(0, 0))
        model.one_stage = pyo.Constraint(expr=model.nowhere == 1)
        return Model(model, masks, columns)

    model.one_stage = pyo.Constraint(
        range(instance.num_operators),
        rule=lambda m, v: pyo.quicksum(m.taken[column] for column in holding[v]) == 1,
        doc="the stages are a partition: sum over columns with v of taken[n,d] = 1 [GraphPipe, section 3, C1]",
    )
    devices = pyo.quicksum(need * model.taken[column] for column, need in columns.items())
    model.enough_devices = pyo.Constraint(
        expr=devices <= instance.num_devices,
        doc="the devices of stages are disjoint: sum of need[n,d] taken[n,d] <= D [GraphPipe, section 3, C3]",
    )

    # A depth that is larger than it need be costs memory and nothing else (Appendix A.1, i_x = i_y + b).
    def falling(m: Any, e: int) -> Any:
        source, target = instance.edges[e].source, instance.edges[e].target
        ends = 1 << source | 1 << target
        falls = pyo.quicksum(depth * m.taken[number, depth] for number, depth in holding[source])
        falls -= pyo.quicksum(depth * m.taken[number, depth] for number, depth in holding[target])
        inner = [column for column in holding[source] if masks[column[0]] & ends == ends]
        return falls + pyo.quicksum(m.taken[column] for column in inner) >= 1

    model.falling_depth = pyo.Constraint(
        range(len(instance.edges)),
        rule=falling,
        doc="along an edge the depth falls by 1, unless a column has both ends [GraphPipe, section 3, C2]",
    )
    model.devices = pyo.Objective(expr=devices)
    return Model(model, masks, columns)


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum with one micro-batch size for all stages where convex sets are few; else a plan and a bound."""
    if instance.requirements:
        return direct.solve(instance, limits, watch)
    costs = Costs(instance)
    first = first_plan(instance, limits)
    known = first.report(instance, evaluate, violations, watch)
    try:
        search = Columns(costs, limits, watch)
    except TooManyError as error:
        watch.bound(simple_bound(costs), Prover.BOUNDS)
        plan, stats = watch.best_plan, first.origin(known, watch)
        return Answer(plan, watch.best_bound, stop=watch.why(Stop.SIZE_LIMIT), reason=str(error), stats=stats)
    with alarm(watch):
        found = best_of_sizes(instance, search, watch, watch.best_plan)
    return replace(
        found,
        proved_by=Prover.SOLVER if search.solver else Prover.SEARCH,  # no set may fit: then no model is run
        solver=search.solver,
        reason=found.reason or search.failure,
        stats={
            "columns": len(search.masks),
            "models": search.rounds,
            "search_nodes": search.search_nodes,
            **first.origin(known, watch),
        },
    )
