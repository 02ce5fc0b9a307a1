"""Mesh tiling for CP-SAT: a Boolean for each place of a tile, and the stage order as a walk through kinds of tiles.

Tiles of one shape over the same nodes have the same costs. So the order is not a path through tiles but a walk
through their kinds that visits each as often as it is taken. Such a walk exists exactly if what enters a kind leaves it
and every kind is reached from the first: an Euler walk.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.mesh_tiling.definition.plan import Tile, TilingPlan
from formulations.mesh_tiling.definition.problem import evaluate, violations
from formulations.mesh_tiling.definition.quantities import OF_TILE, VOCABULARY, covers
from formulations.mesh_tiling.models.first_plan import first_plan
from formulations.mesh_tiling.placements import NO_COVER, NONE_MEETS, Placements, infeasible_answer
from formulations.modelling.solve_model import WithoutSizes, prove, require
from instances.problems.mesh_tiling import MeshInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Prover, Watch
from solvers.scaling import Scale, cost_scale


@dataclass
class Model(cpsat.Runnable, WithoutSizes):
    """``steps`` and ``first`` are empty where the order does not count, ``at`` if no requirement speaks of a stage."""

    places: Placements
    model: cpsat.SpokenModel
    taken: list[cp_model.IntVar]
    steps: dict[tuple[int, int], cp_model.IntVar]
    first: list[cp_model.IntVar]
    scale: Scale
    at: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    moves: dict[tuple[int, int, int], cp_model.IntVar] = field(default_factory=dict)

    def order(self, values: Any) -> list[int]:
        """The places taken, by stage."""
        if self.at:
            return [place for (_, place), variable in self.at.items() if values[variable]]
        found = [place for place, variable in enumerate(self.taken) if values[variable]]
        if not self.steps:
            return found
        start = next(kind for kind, variable in enumerate(self.first) if values[variable])
        return self.places.in_order(found, start, {step: values[each] for step, each in self.steps.items()})

    def decode(self, values: Any) -> TilingPlan:
        """The plan of a solution."""
        return self.places.plan(self.order(values))

    def values_of(self, plan: TilingPlan) -> Iterator[tuple[Any, int]]:
        """The places of a plan, and the steps of its order."""
        order = self.places.numbers(plan)
        yield from ((variable, int(place in order)) for place, variable in enumerate(self.taken))
        kinds = [self.places.kinds[place] for place in order]
        taken = Counter(pairwise(kinds))
        yield from ((variable, taken[step]) for step, variable in self.steps.items())
        yield from ((variable, int(kind == kinds[0])) for kind, variable in enumerate(self.first))
        yield from ((variable, int(order[stage] == place)) for (stage, place), variable in self.at.items())
        for (stage, *step), variable in self.moves.items():
            yield variable, int(kinds[stage : stage + 2] == step)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a tiling, as sums over where each stage is."""

        def of_stage(name: str) -> Callable[[int], Any]:
            return lambda stage: self._sum_of(lambda j, tile: OF_TILE[name](tile) * (j == stage))

        found: dict[str, Callable[..., Any]] = {name: of_stage(name) for name in OF_TILE}
        found["stage_of"] = lambda row, column: self._sum_of(lambda j, tile: j * covers(tile, row, column))
        return found

    def _sum_of(self, factor: Callable[[int, Tile], int]) -> Any:
        if not self.at:
            self._add_stages()
        pairs = [(variable, factor(stage, self.places.tiles[place])) for (stage, place), variable in self.at.items()]
        return sum(number * variable for variable, number in pairs if number)

    def _add_stages(self) -> None:
        """Which stage is where, for requirements; the walk through kinds then is that of the stages, step by step."""
        model, says, tiles = self.model, self.model.says, range(len(self.taken))
        says("at", "at[j,q]: stage j has the tile at place q, for a requirement")
        says("one_tile", "a stage has one tile: sum over q of at[j,q] = 1")
        says("one_stage", "a tile that is taken has one stage: sum over j of at[j,q] = taken[q]")
        says("moves", "moves[j,a,b]: stage j has kind a and the next one kind b, for a requirement")
        says(
            "moves_from", "it goes on from the kind that stage j has: sum over b of moves[j,a,b] = sum of at[j,q] of a"
        )
        says("moves_to", "and to the kind of stage j + 1: sum over a of moves[j,a,b] = sum of at[j+1,q] of b")
        says("moves_step", "all stages together walk the steps: sum over j of moves[j,a,b] = steps[a,b]")
        stages = range(self.places.instance.num_stages)
        self.at = {(j, q): model.new_bool_var(f"at[{j},{q}]") for j in stages for q in tiles}
        for j in stages:
            model.add_exactly_one(self.at[j, q] for q in tiles).with_name(f"one_tile[{j}]")
        for q in tiles:
            model.add(sum(self.at[j, q] for j in stages) == self.taken[q]).with_name(f"one_stage[{q}]")
        if not self.steps:
            return
        kinds = range(len(self.first))

        def has(j: int, kind: int) -> Any:
            return sum(self.at[j, q] for q in tiles if self.places.kinds[q] == kind)

        self.moves = {
            (j, *step): model.new_bool_var(f"moves[{j},{step[0]},{step[1]}]")
            for j in stages[:-1]
            for step in self.steps
        }
        for j in stages[:-1]:
            for a in kinds:
                onward, arriving = sum(self.moves[j, a, b] for b in kinds), sum(self.moves[j, b, a] for b in kinds)
                model.add(onward == has(j, a)).with_name(f"moves_from[{j},{a}]")
                model.add(arriving == has(j + 1, a)).with_name(f"moves_to[{j},{a}]")
        for (a, b), step in self.steps.items():
            walked = sum(self.moves[j, a, b] for j in stages[:-1])
            model.add(walked == step).with_name(f"moves_step[{a},{b}]")

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return self.scale.restore(cpsat.whole(bound)) * (1 - 1e-14)


def build(
    instance: MeshInstance,
    watch: Watch | None = None,  # noqa: ARG001 - no plan prunes it
    *,
    complete: bool = False,  # noqa: ARG001 - it always is
) -> Model:
    """The model; costs are rounded down to units."""
    places, model = Placements(instance), cpsat.SpokenModel()
    model.says("taken", "taken[q]: there is a tile at place q")
    model.says("cover", "every device is in exactly one tile [AMP, section 6.3]")
    taken = [model.new_bool_var(f"taken[{place}]") for place in range(len(places.tiles))]
    for device, tiles in enumerate(places.covering):
        model.add_exactly_one(taken[place] for place in tiles).with_name(f"cover[{device}]")
    sending = places.sending() if instance.ordered else {}
    scale = _scale(instance, places, sending)
    tensor = [scale.floor(time) for time in places.tensor]
    model.says("slowest", "time of the slowest stage for a micro-batch")
    model.says("slowest_tile", "it is as long as that of every tile taken: slowest >= T_q if taken[q]")
    slowest = _at_least(model, taken, tensor, "slowest")
    model.says("longest", "time of the longest data-parallel all-reduce")
    model.says("longest_tile", "it is as long as that of every tile taken: longest >= A_q if taken[q]")
    longest = _at_least(model, taken, [scale.floor(time) for time in places.data], "longest")
    most = instance.num_stages - 1
    model.says("steps", "steps[a,b]: how often a stage of kind b follows one of kind a")
    steps = {(here, there): model.new_int_var(0, max(most, 0), f"steps[{here},{there}]") for here, there in sending}
    first = _add_walk(model, places, taken, steps) if instance.ordered else []
    cost = cp_model.LinearExpr.weighted_sum([*steps.values()], [scale.floor(each) for each in sending.values()])
    filling = cp_model.LinearExpr.weighted_sum(taken, tensor)
    # (gas - 1) max t + sum of t + the longest all-reduce + sum of e  (reconstructed)
    model.minimize((instance.num_microbatches - 1) * slowest + filling + longest + cost)
    found = Model(places, model, taken, steps, first, scale)
    require(found, VOCABULARY, instance)
    return found


def _add_walk(
    model: cpsat.SpokenModel,
    places: Placements,
    taken: list[cp_model.IntVar],
    steps: dict[tuple[int, int], cp_model.IntVar],
) -> list[cp_model.IntVar]:
    """A walk that visits each kind as often as it is taken; returns where it begins."""
    says = model.says
    says("first", "first[a]: the walk begins at kind a, a shape over some nodes")
    says("last", "last[a]: the walk ends at kind a")
    says("one_first", "one kind is the first: sum over a of first[a] = 1")
    says("one_last", "one kind is the last: sum over a of last[a] = 1")
    says("depth", "depth[a]: steps from the first kind to kind a, or more")
    says("entered", "a kind is entered once for each visit: first[a] + sum over b of steps[b,a] = sum of its taken[q]")
    says("left", "and left as often: last[a] + sum over b of steps[a,b] = sum of its taken[q]")
    says("below", "below[b,a]: kind a hangs below kind b, which steps to it")
    says("stepped", "what hangs below a kind is stepped to from there: steps[b,a] >= 1 if below[b,a]")
    says("deeper", "and lies deeper, so no circle stands apart: depth[a] >= depth[b] + 1 if below[b,a]")
    says("reached", "a kind that is visited is the first, or hangs below one")
    kinds = range(max(places.kinds, default=-1) + 1)
    first = [model.new_bool_var(f"first[{kind}]") for kind in kinds]
    last = [model.new_bool_var(f"last[{kind}]") for kind in kinds]
    model.add_exactly_one(first).with_name("one_first")
    model.add_exactly_one(last).with_name("one_last")
    depth = [model.new_int_var(0, len(kinds) - 1, f"depth[{kind}]") for kind in kinds]
    for kind in kinds:
        own = [variable for variable, of in zip(taken, places.kinds, strict=True) if of == kind]
        visits = sum(own)
        model.add(first[kind] + sum(steps[other, kind] for other in kinds) == visits).with_name(f"entered[{kind}]")
        model.add(last[kind] + sum(steps[kind, other] for other in kinds) == visits).with_name(f"left[{kind}]")
        parents = {other: model.new_bool_var(f"below[{other},{kind}]") for other in kinds if other != kind}
        for other, below in parents.items():
            name = f"[{other},{kind}]"
            model.add(steps[other, kind] >= 1).only_enforce_if(below).with_name(f"stepped{name}")
            model.add(depth[kind] >= depth[other] + 1).only_enforce_if(below).with_name(f"deeper{name}")
        for number, variable in enumerate(own):
            reached = model.add_bool_or([variable.negated(), first[kind], *parents.values()])
            reached.with_name(f"reached[{kind},{number}]")
    return first


def _at_least(model: cp_model.CpModel, taken: list[cp_model.IntVar], costs: list[int], name: str) -> cp_model.IntVar:
    """At least the cost of every tile taken."""
    most = model.new_int_var(min(costs, default=0), max(costs, default=0), name)
    for place, (variable, cost) in enumerate(zip(taken, costs, strict=True)):
        if cost > min(costs):
            model.add(most >= cost).only_enforce_if(variable).with_name(f"{name}_tile[{place}]")
    return most


def _least_s(instance: MeshInstance, places: Placements, sending: dict[tuple[int, int], float]) -> float:
    """A lower bound in seconds: every stage as fast as the fastest tile, everything sent over the fastest step."""
    stages, weight = instance.num_stages, instance.num_microbatches - 1
    least = min(places.tensor, default=0.0) * (weight + stages) + min(places.data, default=0.0)
    return (least + (stages - 1) * min(sending.values(), default=0.0)) * (1 - 1e-12)


def _scale(instance: MeshInstance, places: Placements, sending: dict[tuple[int, int], float]) -> Scale:
    stages, weight = instance.num_stages, instance.num_microbatches - 1
    lower = _least_s(instance, places, sending)
    everything = max(places.tensor, default=0.0) * (weight + len(places.tiles)) + max(places.data, default=0.0)
    everything += math.fsum(sending.values()) * stages
    return cost_scale(lower, weight + 2 * stages + 1, everything)


def solve(instance: MeshInstance, limits: Limits, watch: Watch) -> Answer[TilingPlan]:
    """The best tiling; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the costs."""
    places = Placements(instance)
    infeasible = infeasible_answer(instance, places)
    if infeasible is not None:
        return infeasible
    watch.bound(_least_s(instance, places, places.sending() if instance.ordered else {}), Prover.BOUNDS)
    first = first_plan(places, limits)
    reason = NONE_MEETS if instance.requirements else NO_COVER
    return prove(
        instance, lambda: build(instance, watch), evaluate, violations, limits, watch, reason=reason, first=first
    )
