"""Stage partitioning as a flow of priced stages for CP-SAT: the model of `columns`, in whole units.

Every column is a stage that is priced beforehand, and a plan is a path from (empty set, 0) to (V, s). Without
requirements CP-SAT gets the targets one by one (`by_target`): the path on the fewest devices, an exact relaxation.

Source: this project; downsets, states and TPS(S, t, d, s) are Piper's, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.modelling.solve_model import WithoutSizes, go_on
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models import by_target, flow
from formulations.stage_partitioning.models.by_target import Fewest
from formulations.stage_partitioning.models.flow import Flow
from formulations.stage_partitioning.models.stage_costs import Prices
from formulations.stage_partitioning.models.usable_arcs import Arc, Reach
from instances.problems.stage_partitioning import StageInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Run, Stop, Watch
from solvers.scaling import cost_scale

_sum = cp_model.LinearExpr.sum
_weighted = cp_model.LinearExpr.weighted_sum


class Paths:
    """CP-SAT's model of a path through some of the arcs: ``flow[a]`` is 1 if it takes arc a."""

    def __init__(self, arcs: list[Arc], used: Iterable[int], last: int) -> None:
        self.arcs = arcs
        self.model = model = cpsat.SpokenModel()
        model.says(
            "flow", "flow[a]: the plan has the stage of arc a, nodes D \\ D' with degrees (t, d) at a sum of degrees s"
        )
        self.flow = {a: model.new_bool_var(f"flow[{a}]") for a in used}
        model.says("one_path", "one path begins at the empty set: sum over the arcs a that leave it of flow[a] = 1")
        model.says(
            "conserved",
            "it leaves a state (D,s) as often as it enters it, up to V: sum over a that leave of flow[a] = sum over a "
            "that enter of flow[a]",
        )
        leaving: dict[tuple[int, int], list[Any]] = {}
        entering: dict[tuple[int, int], list[Any]] = {}
        for a, taken in self.flow.items():
            leaving.setdefault(arcs[a].tail, []).append(taken)
            entering.setdefault(arcs[a].head, []).append(taken)
        model.add(_sum(leaving.pop((0, 0), [])) == 1).with_name("one_path")
        for at in sorted(leaving.keys() | entering.keys()):
            if at[0] != last:
                found = _sum(leaving.get(at, [])) == _sum(entering.get(at, []))
                model.add(found).with_name(f"conserved[{at[0]},{at[1]}]")

    @property
    def devices(self) -> Any:
        """What the stages of the path take: sum over a of t d flow[a]."""
        return _weighted(list(self.flow.values()), [self.arcs[a].devices for a in self.flow])

    def taken(self, values: cpsat.Values) -> list[int]:
        """The arcs of a solution."""
        return [a for a, taken in self.flow.items() if values[taken]]


class Model(Flow, cpsat.Runnable, WithoutSizes):
    """The model: a path, and ``time``, T in whole units.

    ``whole``: with arcs that another one beats, which requirements may ask for. ``searches``: run it by targets; not
    where others may have changed the model.
    """

    searches = False

    def __init__(self, prices: Prices, reach: Reach, whole: bool = False) -> None:
        self.prices, self.reach = prices, reach
        self.arcs = reach.arcs(whole=whole)
        self._derived: dict[int, list[Any]] = {}
        self._degrees: dict[str, Any] = {}
        self.paths = Paths(self.arcs, range(len(self.arcs)), reach.last)
        self.model = model = self.paths.model
        self.scale = cost_scale(prices.terms.lower_bound, 1, max(reach.target, max(self._times(), default=0.0)))
        model.says("time", "T, the Time-Per-Sample: that of the slowest stage, in whole units [Piper, section 3.2]")
        self.time = model.new_int_var(0, self.scale.ceil(reach.target), "time")
        model.minimize(self.time)
        model.says(
            "devices",
            "the stages of the path take at most K devices: sum over a of t d flow[a] <= K [Piper, section 3.1]",
        )
        model.add(self.paths.devices <= reach.instance.num_devices).with_name("devices")
        model.says(
            "stage_time",
            "T is at least the time of the stage that holds v: sum over the arcs a that hold v of TPS(a) flow[a] <= T "
            "[Piper, section 4]",
        )
        units = [self.scale.floor(time) for time in self._times()]
        for v in prices.terms.nodes:
            go_on(prices.watch)
            holding = [a for a, arc in enumerate(self.arcs) if v in arc.block.nodes]
            time = _weighted([self.paths.flow[a] for a in holding], [units[a] for a in holding])
            model.add(time <= self.time).with_name(f"stage_time[{v}]")

    def _times(self) -> Iterator[float]:
        return (arc.time for arc in self.arcs)

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, int]]:
        """The path of a plan, as pairs of a variable and its value; a dominated stage by one that dominates it."""
        on_path = self.path_of(plan)
        return ((taken, int(a in on_path)) for a, taken in self.paths.flow.items())

    def decode(self, values: Any) -> StagePlan:
        """The plan of a solution."""
        return self.plan_of(self.paths.taken(values))

    def lower_bound(self, bound: float) -> float:
        """The bound in the instance's unit: times are rounded down, and slower plans than the target are not there."""
        return min(self.scale.restore(max(0, cpsat.whole(bound))), self.reach.target)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a plan, as sums over its path.

        The path does not count its stages from the input side; what speaks of the stage of some number takes variables
        of its own, for the nodes that it holds.
        """
        index = self.prices.terms.instance.index

        def holding(factor: Callable[[Arc], int], *nodes: Any) -> Any:
            return self._summed(factor, *(index[v] for v in nodes))

        return {
            "num_stages": lambda: holding(lambda _: 1),
            "num_devices": lambda: holding(lambda arc: arc.devices),
            "same_stage": lambda node, other: holding(lambda _: 1, node, other),
            "stage_of": lambda node: self._stage_of(index[node]),
            "nodes": lambda stage: _sum(self._held(stage)),
            "tp_degree": lambda stage: self._degree("t", lambda arc: arc.tp_degree, stage),
            "dp_degree": lambda stage: self._degree("d", lambda arc: arc.dp_degree, stage),
            "tp_degree_of": lambda node: holding(lambda arc: arc.tp_degree, node),
            "dp_degree_of": lambda node: holding(lambda arc: arc.dp_degree, node),
        }

    def _summed(self, factor: Callable[[Arc], int], *nodes: int) -> Any:
        """A whole number of every arc of the path that holds these nodes, summed."""
        held = [(a, arc) for a, arc in enumerate(self.arcs) if all(v in arc.block.nodes for v in nodes)]
        return _weighted([self.paths.flow[a] for a, _ in held], [factor(arc) for _, arc in held])

    def _stage_of(self, v: int) -> Any:
        """Stages in front of the one that holds node v: those that follow it on the path."""
        return self._summed(lambda arc: self.prices.downsets[arc.block.inner] >> v & 1)

    def _held(self, stage: int) -> list[Any]:
        """For every node 1 if the stage of that number holds it."""
        model = self.model
        if stage not in self._derived:
            model.says("at", "at[j,v]: stage j holds node v, for a requirement")
            model.says("at_if", "then as many stages are in front of it: stage_of(v) = j")
            model.says("at_unless", "else there are not: stage_of(v) is not j")
            held = self._derived[stage] = []
            for v in self.prices.terms.nodes:
                at, stage_of = model.new_bool_var(f"at[{stage},{v}]"), self._stage_of(v)
                model.add(stage_of == stage).with_name(f"at_if[{stage},{v}]").only_enforce_if(at)
                model.add(stage_of != stage).with_name(f"at_unless[{stage},{v}]").only_enforce_if(~at)
                held.append(at)
        return self._derived[stage]

    def _degree(self, letter: str, degree: Callable[[Arc], int], stage: int) -> Any:
        """A degree of the stage of that number; 0 if there is none."""
        model, held, name = self.model, self._held(stage), f"degree_{letter}[{stage}]"
        if name not in self._degrees:
            model.says(f"degree_{letter}", f"degree_{letter}[j]: {letter} of stage j, for a requirement")
            model.says("own_degree", "a stage has the degree of each of its nodes v")
            model.says("no_degree", "a stage without a node has none")
            found = self._degrees[name] = model.new_int_var(0, max(map(degree, self.arcs), default=0), name)
            for v, at in enumerate(held):
                of_node = self._summed(degree, v)
                model.add(found == of_node).with_name(f"own_degree[{letter},{stage},{v}]").only_enforce_if(at)
            model.add(found == 0).with_name(f"no_degree[{letter},{stage}]").only_enforce_if(*(~at for at in held))
        return self._degrees[name]

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[Any], None] | None = None,
        on_bound: Callable[[float], None] | None = None,
    ) -> Run:
        """Search by targets (`by_target`), or run the model as it is; ``stats`` counts downsets and arcs as well."""
        if self.searches and on_solution is not None and on_bound is not None:
            run = self._by_target(limits, watch, on_solution, on_bound)
        else:
            run = super().run(limits, watch, on_solution, on_bound)
        return replace(run, stats={**run.stats, "downsets": len(self.prices.downsets), "arcs": len(self.arcs)})

    def _by_target(
        self, limits: Limits, watch: Watch, on_solution: Callable[[Any], None], on_bound: Callable[[float], None]
    ) -> Run:
        reach, K = self.reach, self.reach.instance.num_devices
        unit = self.scale.restore(1)
        sizes = {"variables": len(self.model.proto.variables), "constraints": len(self.model.proto.constraints)}

        def fewest(fast: list[bool]) -> Fewest | None:
            paths = Paths(self.arcs, [a for a, is_fast in enumerate(fast) if is_fast], reach.last)
            paths.model.minimize(paths.devices)
            found = cpsat.run(paths.model, replace(limits, gap=0.0), watch, parameters=cpsat.INTEGRAL)
            if found.infeasible:
                return Fewest(math.inf, [], None)
            if found.stop is not Stop.PROVED or found.values is None or found.bound is None:
                return None
            taken = paths.taken(found.values)
            on_path = {self.paths.flow[a].index for a in taken}
            return Fewest(cpsat.whole(found.bound), taken, cpsat.Values(lambda variable: variable.index in on_path))

        paths = by_target.Paths(self.arcs, reach.last, K, reach.target, unit)
        found = by_target.search(paths, fewest, watch, on_solution, lambda bound: on_bound(math.floor(bound)))
        bound = None if found.bound is None else math.floor(found.bound)
        return replace(found, bound=bound, solver=cpsat.version(), stats={**sizes, **found.stats})


def build(instance: StageInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The CP-SAT model of an instance (`flow.build`)."""
    return flow.build(Model, instance, watch or Watch(), complete=complete)


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by a flow of stages, with CP-SAT.

    Source
    ------
    This project; see the module.
    """
    return flow.solve(Model, instance, limits, watch)
