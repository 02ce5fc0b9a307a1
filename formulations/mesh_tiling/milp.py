"""Mesh tiling as a MILP (Pyomo, HiGHS): the places of CP-SAT's model, the order by arcs and positions."""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyomo.environ as pyo

from formulations.family import Answer
from formulations.mesh_tiling.first_plan import first_plan
from formulations.mesh_tiling.placements import NO_COVER, Placements, infeasible_answer
from formulations.mesh_tiling.problem import TilingPlan, evaluate, violations
from formulations.modelled import WithoutSizes, prove
from instances.mesh_tiling import MeshInstance
from solvers import milp
from solvers.outcome import Limits, Watch


@dataclass
class MilpModel(milp.Runnable, WithoutSizes):
    """``model.taken[q]``, and where the order counts ``model.position[q]``; the objective is in units of ``unit``."""

    places: Placements
    model: Any
    unit: float
    ordered: bool

    def order(self, values: Any) -> list[int]:
        """The places taken, by stage."""
        found = [place for place, variable in self.model.taken.items() if values[variable] > 0.5]
        if self.ordered:
            found.sort(key=lambda place: float(values[self.model.position[place]]))
        return found

    def decode(self, values: Any) -> TilingPlan:
        """The plan of a solution."""
        return self.places.plan(self.order(values))

    def values_of(self, plan: TilingPlan) -> Iterator[tuple[Any, int]]:
        """The places of a plan, and the path through them where the order counts."""
        model, order = self.model, self.places.numbers(plan)
        yield from ((variable, int(place in order)) for place, variable in model.taken.items())
        if not self.ordered:
            return
        steps = set(pairwise(order))
        yield from ((variable, int(pair in steps)) for pair, variable in model.follows.items())
        yield from ((variable, int(place == order[0])) for place, variable in model.first.items())
        yield from ((variable, int(place == order[-1])) for place, variable in model.last.items())
        yield from ((model.position[place], position) for position, place in enumerate(order))

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.trusted(bound) * self.unit


def build(instance: MeshInstance, places: Placements) -> MilpModel:
    """The model; its numbers are those of the instance but for their scale."""
    tiles = range(len(places.tiles))
    arcs = places.arcs() if instance.ordered else {}
    unit = max([*places.tensor, *places.data, *arcs.values()]) / milp.NATURAL or 1.0
    model = pyo.ConcreteModel()
    model.taken = pyo.Var(tiles, domain=pyo.Binary)
    model.slowest = pyo.Var(domain=pyo.NonNegativeReals)
    model.longest = pyo.Var(domain=pyo.NonNegativeReals)
    # Every device is in exactly one tile.
    model.cover = pyo.Constraint(
        range(len(places.covering)),
        rule=lambda m, device: pyo.quicksum(m.taken[place] for place in places.covering[device]) == 1,
    )

    # The slowest stage and the longest all-reduce, device by device: of the tiles over one, one is taken.
    def over(device: int, times: Sequence[float]) -> Any:
        return pyo.quicksum(milp.in_units(times[place], unit) * model.taken[place] for place in places.covering[device])

    devices = range(len(places.covering))
    model.slowest_tile = pyo.Constraint(devices, rule=lambda m, device: m.slowest >= over(device, places.tensor))
    model.longest_tile = pyo.Constraint(devices, rule=lambda m, device: m.longest >= over(device, places.data))
    filling = pyo.quicksum(milp.in_units(places.tensor[place], unit) * model.taken[place] for place in tiles)
    sending = _add_order(model, instance, arcs, unit) if instance.ordered else 0.0
    # (gas - 1) max t + sum of t + the longest all-reduce + sum of e  (reconstructed)
    model.step = pyo.Objective(expr=(instance.num_microbatches - 1) * model.slowest + filling + model.longest + sending)
    return MilpModel(places, model, unit, instance.ordered)


def _add_order(model: Any, instance: MeshInstance, arcs: dict[tuple[int, int], float], unit: float) -> Any:
    """A path through the places taken; returns what its arcs cost."""
    places, last = list(model.taken), instance.num_stages - 1
    model.follows = pyo.Var(list(arcs), domain=pyo.Binary)
    model.first = pyo.Var(places, domain=pyo.Binary)
    model.last = pyo.Var(places, domain=pyo.Binary)
    model.position = pyo.Var(places, bounds=(0, max(last, 0)))
    into: dict[int, list[Any]] = {place: [model.first[place]] for place in places}
    out: dict[int, list[Any]] = {place: [model.last[place]] for place in places}
    for here, there in arcs:
        out[here].append(model.follows[here, there])
        into[there].append(model.follows[here, there])
    # One stage is first and one is last; every other has one before it and one after it.
    model.one_first = pyo.Constraint(expr=pyo.quicksum(model.first.values()) == 1)
    model.one_last = pyo.Constraint(expr=pyo.quicksum(model.last.values()) == 1)
    model.entered = pyo.Constraint(places, rule=lambda m, place: pyo.quicksum(into[place]) == m.taken[place])
    model.left = pyo.Constraint(places, rule=lambda m, place: pyo.quicksum(out[place]) == m.taken[place])

    # Positions grow along the path.
    # Big-M: num_stages frees a pair that does not follow, as positions differ by less.
    def grows(m: Any, here: int, there: int) -> Any:
        return m.position[there] - m.position[here] >= 1 - (last + 1) * (1 - m.follows[here, there])

    model.grows = pyo.Constraint(list(arcs), rule=grows)
    return pyo.quicksum(milp.in_units(cost, unit) * model.follows[pair] for pair, cost in arcs.items())


def solve(instance: MeshInstance, limits: Limits, watch: Watch) -> Answer[TilingPlan]:
    """The best tiling, with a bound less what HiGHS's tolerances may add to it (`milp.trusted`)."""
    places = Placements(instance)
    infeasible = infeasible_answer(instance, places)
    if infeasible is not None:
        return infeasible
    first = first_plan(places, limits)
    return prove(
        instance, lambda: build(instance, places), evaluate, violations, limits, watch, reason=NO_COVER, first=first
    )
