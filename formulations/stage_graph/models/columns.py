"""Stage graphs as a MILP over columns (Pyomo, HiGHS): a convex set of operators at a depth, on the fewest devices.

For a target every column has its fewest devices, so what is left is a cover: each operator in one column, as few
devices as possible, and along an edge that leaves a column the depth falls. Falling depths leave no room for cycles.
The least target comes from the finite list of what stages can take, as in ``levels``, whose upsets give the sets.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyomo.environ as pyo

from formulations.alarm import alarm
from formulations.family import Answer
from formulations.stage_graph.costs import Costs, assemble, bits
from formulations.stage_graph.kernels.levels import needed
from formulations.stage_graph.problem import StagePlan
from formulations.stage_graph.upsets.chains import Chains, TooManyError, best_of_sizes
from instances.stage_graph import StageGraph
from solvers import milp
from solvers.outcome import Limits, Prover, Stop, Watch

#: More convex sets are not given to HiGHS.
MAX_COLUMNS = 4_000


class Columns(Chains):
    """Convex sets of operators as columns.

    Raises
    ------
    TooManyError
        If there are too many.
    """

    sequential = False

    def __init__(self, costs: Costs, limits: Limits, watch: Watch) -> None:
        operators = [1 << node for node in range(costs.instance.num_operators)]
        super().__init__(costs, watch, operators, range(1, costs.instance.num_devices + 1))
        self.limits, self.solver, self.search_nodes, self.failure = limits, "", 0, ""

    def lay_out_sets(self) -> None:
        """Each set is one column for each depth."""
        if len(self.masks) > MAX_COLUMNS:
            raise TooManyError(f"{len(self.masks)} convex sets; expected at most {MAX_COLUMNS}")

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
        run = milp.run(self._model(columns), self.limits, self.watch)
        self.solver = run.solver or self.solver
        self.search_nodes += int(run.stats.get("search_nodes", 0))
        if run.values is None:
            if not run.infeasible:  # no proof: nothing more can be said
                self.failure = run.reason
                self.watch.stop(run.stop if run.stop is not Stop.PROVED else Stop.COMPLETED)
            return None
        taken = [name for name in columns if run.values[self._taken[name]] > 0.5]
        return assemble(instance, [(self.masks[number], columns[number, depth]) for number, depth in taken], microbatch)

    def _model(self, columns: dict[tuple[int, int], int]) -> Any:
        model = pyo.ConcreteModel()
        model.taken = pyo.Var(list(columns), domain=pyo.Binary)
        self._taken = model.taken
        over: list[list[tuple[int, int]]] = [[] for _ in range(self.costs.instance.num_operators)]
        for number, depth in columns:
            for node in bits(self.masks[number]):
                over[node].append((number, depth))
        model.rows = pyo.ConstraintList()
        for holding in over:
            if not holding:  # an operator that keeps the target nowhere
                model.nowhere = pyo.Var(bounds=(1, 1))
                model.rows.add(model.nowhere == 0)
                return model
            model.rows.add(pyo.quicksum(model.taken[name] for name in holding) == 1)
        used = pyo.quicksum(devices * model.taken[name] for name, devices in columns.items())
        model.rows.add(used <= self.costs.instance.num_devices)
        for edge in self.costs.instance.edges:
            both = 1 << edge.source | 1 << edge.target
            falls = pyo.quicksum(depth * model.taken[number, depth] for number, depth in over[edge.source])
            falls -= pyo.quicksum(depth * model.taken[number, depth] for number, depth in over[edge.target])
            same = [name for name in over[edge.source] if self.masks[name[0]] & both == both]
            model.rows.add(falls + pyo.quicksum(model.taken[name] for name in same) >= 1)
        model.devices = pyo.Objective(expr=used)
        return model


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum of a model with few convex sets, with one micro-batch size for all stages."""
    try:
        search = Columns(Costs(instance), limits, watch)
    except TooManyError as error:
        return Answer(stop=watch.why(Stop.SIZE_LIMIT), reason=str(error))
    with alarm(watch):
        found = best_of_sizes(instance, search, watch)
    return replace(
        found,
        proved_by=Prover.SOLVER if search.solver else Prover.SEARCH,  # no set may fit: then no model is run
        solver=search.solver,
        reason=found.reason or search.failure,
        stats={"columns": len(search.masks), "models": search.rounds, "search_nodes": search.search_nodes},
    )
