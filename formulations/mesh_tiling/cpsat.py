"""Mesh tiling for CP-SAT: a Boolean for each place of a tile, and the stage order as a walk through kinds of tiles.

Tiles of one shape over the same nodes have the same costs. So the order is not a path through tiles but a walk
through their kinds that visits each as often as it is taken. Such a walk exists exactly if what enters a kind leaves it
and every kind is reached from the first: an Euler walk.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

from formulations.family import Answer
from formulations.mesh_tiling.first_plan import first_plan
from formulations.mesh_tiling.placements import NO_COVER, Placements, infeasible_answer
from formulations.mesh_tiling.problem import TilingPlan, evaluate, violations
from formulations.modelled import WithoutSizes, prove
from instances.mesh_tiling import MeshInstance
from solvers import cpsat
from solvers.outcome import Limits, Prover, Watch
from solvers.scaling import Scale, cost_scale


@dataclass
class CpsatModel(cpsat.Runnable, WithoutSizes):
    """``taken[q]``: there is a tile at place q. ``steps[a, b]``: how often a stage of kind b follows one of kind a.

    ``first[a]``: the walk begins at kind a. ``steps`` and ``first`` are empty where the order does not count.
    """

    places: Placements
    model: cp_model.CpModel
    taken: list[cp_model.IntVar]
    steps: dict[tuple[int, int], cp_model.IntVar]
    first: list[cp_model.IntVar]
    scale: Scale

    def order(self, values: Any) -> list[int]:
        """The places taken, by stage."""
        found = [place for place, variable in enumerate(self.taken) if values[variable]]
        if not self.steps:
            return found
        of_kind: dict[int, list[int]] = {}
        for place in found:
            of_kind.setdefault(self.places.kinds[place], []).append(place)
        start = next(kind for kind, variable in enumerate(self.first) if values[variable])
        return [of_kind[kind].pop() for kind in _walk(start, {arc: values[each] for arc, each in self.steps.items()})]

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

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return self.scale.restore(cpsat.whole(bound)) * (1 - 1e-14)


def _walk(start: int, steps: dict[tuple[int, int], int]) -> list[int]:
    """Euler's walk that takes every step as often as it says (Hierholzer)."""
    ahead: dict[int, list[int]] = {}
    for (here, there), times in steps.items():
        ahead.setdefault(here, []).extend([there] * times)
    pending, walk = [start], []
    while pending:
        if ahead.get(pending[-1]):
            pending.append(ahead[pending[-1]].pop())
        else:
            walk.append(pending.pop())
    return walk[::-1]


def build(instance: MeshInstance, places: Placements) -> CpsatModel:
    """The model; costs are rounded down to units."""
    model = cp_model.CpModel()
    taken = [model.new_bool_var(f"taken[{place}]") for place in range(len(places.tiles))]
    # Every device is in exactly one tile.
    for device, tiles in enumerate(places.covering):
        model.add_exactly_one(taken[place] for place in tiles).with_name(f"cover[{device}]")
    sending = places.sending() if instance.ordered else {}
    scale = _scale(instance, places, sending)
    tensor = [scale.floor(time) for time in places.tensor]
    # The slowest stage and the longest all-reduce.
    slowest = _at_least(model, taken, tensor, "slowest")
    longest = _at_least(model, taken, [scale.floor(time) for time in places.data], "longest")
    most = instance.num_stages - 1
    steps = {(here, there): model.new_int_var(0, most, f"steps[{here},{there}]") for here, there in sending}
    first = _add_walk(model, places, taken, steps) if instance.ordered else []
    cost = cp_model.LinearExpr.weighted_sum([*steps.values()], [scale.floor(each) for each in sending.values()])
    filling = cp_model.LinearExpr.weighted_sum(taken, tensor)
    # (gas - 1) max t + sum of t + the longest all-reduce + sum of e  (reconstructed)
    model.minimize((instance.num_microbatches - 1) * slowest + filling + longest + cost)
    return CpsatModel(places, model, taken, steps, first, scale)


def _add_walk(
    model: cp_model.CpModel,
    places: Placements,
    taken: list[cp_model.IntVar],
    steps: dict[tuple[int, int], cp_model.IntVar],
) -> list[cp_model.IntVar]:
    """A walk that visits each kind as often as it is taken; returns where it begins."""
    kinds = range(max(places.kinds) + 1)
    first = [model.new_bool_var(f"first[{kind}]") for kind in kinds]
    last = [model.new_bool_var(f"last[{kind}]") for kind in kinds]
    # One kind is the first, and one is the last.
    model.add_exactly_one(first).with_name("one_first")
    model.add_exactly_one(last).with_name("one_last")
    depth = [model.new_int_var(0, len(kinds) - 1, f"depth[{kind}]") for kind in kinds]
    for kind in kinds:
        own = [variable for variable, of in zip(taken, places.kinds, strict=True) if of == kind]
        visits = sum(own)
        # What enters a kind leaves it, once for each visit.
        model.add(first[kind] + sum(steps[other, kind] for other in kinds) == visits).with_name(f"entered[{kind}]")
        model.add(last[kind] + sum(steps[kind, other] for other in kinds) == visits).with_name(f"left[{kind}]")
        # A kind that is visited is the first, or hangs below one that steps to it: no circle stands apart.
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
    most = model.new_int_var(min(costs), max(costs), name)
    for place, (variable, cost) in enumerate(zip(taken, costs, strict=True)):
        if cost > min(costs):
            model.add(most >= cost).only_enforce_if(variable).with_name(f"{name}_tile[{place}]")
    return most


def _least_s(instance: MeshInstance, places: Placements, sending: dict[tuple[int, int], float]) -> float:
    """A lower bound in seconds: every stage as fast as the fastest tile, everything sent over the fastest step."""
    stages, weight = instance.num_stages, instance.num_microbatches - 1
    least = min(places.tensor) * (weight + stages) + min(places.data)
    return (least + (stages - 1) * min(sending.values(), default=0.0)) * (1 - 1e-12)


def _scale(instance: MeshInstance, places: Placements, sending: dict[tuple[int, int], float]) -> Scale:
    stages, weight = instance.num_stages, instance.num_microbatches - 1
    lower = _least_s(instance, places, sending)
    everything = max(places.tensor) * (weight + len(places.tiles)) + max(places.data)
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
    return prove(
        instance, lambda: build(instance, places), evaluate, violations, limits, watch, reason=NO_COVER, first=first
    )
