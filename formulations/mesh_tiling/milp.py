"""Mesh tiling as a MILP (Pyomo, HiGHS): the places of CP-SAT's model, the order by arcs and positions."""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyomo.environ as pyo

from formulations.family import Answer
from formulations.mesh_tiling.first_plan import first_plan
from formulations.mesh_tiling.placements import NO_COVER, NONE_MEETS, Placements, infeasible_answer
from formulations.mesh_tiling.problem import Tile, TilingPlan, evaluate, violations
from formulations.mesh_tiling.vocabulary import OF_TILE, VOCABULARY, covers
from formulations.modelled import WithoutSizes, prove, require
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
        if self._has_stages:
            found = [place for (_, place), variable in self.model.at.items() if values[variable] > 0.5]
        elif self.ordered:
            found.sort(key=lambda place: float(values[self.model.position[place]]))
        return found

    @property
    def _has_stages(self) -> bool:
        """Whether a requirement speaks of a stage."""
        return self.model.component("at") is not None

    def decode(self, values: Any) -> TilingPlan:
        """The plan of a solution."""
        return self.places.plan(self.order(values))

    def values_of(self, plan: TilingPlan) -> Iterator[tuple[Any, int]]:
        """The places of a plan, and the path through them where the order counts."""
        model, order = self.model, self.places.numbers(plan)
        yield from ((variable, int(place in order)) for place, variable in model.taken.items())
        if self._has_stages:
            yield from ((variable, int(order[stage] == place)) for (stage, place), variable in model.at.items())
        if not self.ordered:
            return
        steps = set(pairwise(order))
        yield from ((variable, int(pair in steps)) for pair, variable in model.follows.items())
        yield from ((variable, int(place == order[0])) for place, variable in model.first.items())
        yield from ((variable, int(place == order[-1])) for place, variable in model.last.items())
        yield from ((model.position[place], position) for position, place in enumerate(order))

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a tiling, as sums over where each stage is."""

        def of_stage(name: str) -> Callable[[int], Any]:
            return lambda stage: self._sum_of(lambda j, tile: OF_TILE[name](tile) * (j == stage))

        found: dict[str, Callable[..., Any]] = {name: of_stage(name) for name in OF_TILE}
        found["stage_of"] = lambda row, column: self._sum_of(lambda j, tile: j * covers(tile, row, column))
        return found

    def _sum_of(self, factor: Callable[[int, Tile], int]) -> Any:
        if not self._has_stages:
            self._add_stages()
        at, tiles = self.model.at, self.places.tiles
        return milp.weighted_sum((factor(stage, tiles[place]), at[stage, place]) for stage, place in at)

    def _add_stages(self) -> None:
        """Which stage is where, for requirements; where the order counts, as its position says."""
        model, tiles, stages = self.model, list(self.model.taken), range(self.places.instance.num_stages)
        model.at = pyo.Var(
            stages, tiles, domain=pyo.Binary, doc="at[j,q]: stage j has the tile at place q, for a requirement"
        )
        model.one_tile = pyo.Constraint(
            stages,
            rule=lambda m, j: milp.weighted_sum((1.0, m.at[j, q]) for q in tiles) == 1,
            doc="a stage has one tile: sum over q of at[j,q] = 1",
        )
        model.one_stage = pyo.Constraint(
            tiles,
            rule=lambda m, q: milp.weighted_sum((1.0, m.at[j, q]) for j in stages) == m.taken[q],
            doc="a tile that is taken has one stage: sum over j of at[j,q] = taken[q]",
        )

        def in_turn(m: Any, here: int, there: int) -> Any:
            before, after = (milp.weighted_sum((j, m.at[j, q]) for j in stages) for q in (here, there))
            return after - before >= 1 - len(stages) * (1 - m.follows[here, there])

        model.in_turn = pyo.Constraint(
            list(model.follows) if self.ordered else (),
            rule=in_turn,
            doc="a tile that follows another has a later stage: j of it - j of the other >= 1 - S (1 - follows[p,q]); "
            "big-M: numbers of stages differ by less than S",
        )

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.trusted(bound) * self.unit


def build(
    instance: MeshInstance,
    watch: Watch | None = None,  # noqa: ARG001 - no plan prunes it
    *,
    complete: bool = False,  # noqa: ARG001 - it always is
) -> MilpModel:
    """The model; its numbers are those of the instance but for their scale."""
    places = Placements(instance)
    tiles = range(len(places.tiles))
    arcs = places.arcs() if instance.ordered else {}
    unit = max([*places.tensor, *places.data, *arcs.values()], default=0.0) / milp.NATURAL or 1.0
    model = pyo.ConcreteModel()
    model.taken = pyo.Var(tiles, domain=pyo.Binary, doc="taken[q]: there is a tile at place q")
    model.slowest = pyo.Var(domain=pyo.NonNegativeReals, doc="time of the slowest stage for a micro-batch")
    model.longest = pyo.Var(domain=pyo.NonNegativeReals, doc="time of the longest data-parallel all-reduce")
    devices = range(len(places.covering))

    def over(device: int, factors: Sequence[float]) -> Any:
        return milp.weighted_sum((factors[place], model.taken[place]) for place in places.covering[device])

    tensor, data = ([milp.in_units(time, unit) for time in times] for times in (places.tensor, places.data))
    model.cover = pyo.Constraint(
        devices,
        rule=lambda _, device: over(device, [1.0] * len(tiles)) == 1,
        doc="every device is in exactly one tile [AMP, section 6.3]",
    )
    model.slowest_tile = pyo.Constraint(
        devices,
        rule=lambda m, device: m.slowest >= over(device, tensor),
        doc="it is as long as that of every tile, device by device: of the tiles over one, one is taken",
    )
    model.longest_tile = pyo.Constraint(
        devices,
        rule=lambda m, device: m.longest >= over(device, data),
        doc="it is as long as that of every tile, device by device: of the tiles over one, one is taken",
    )
    filling = milp.weighted_sum((tensor[place], model.taken[place]) for place in tiles)
    sending = _add_order(model, instance, arcs, unit) if instance.ordered else 0.0
    # (gas - 1) max t + sum of t + the longest all-reduce + sum of e  (reconstructed)
    model.step = pyo.Objective(expr=(instance.num_microbatches - 1) * model.slowest + filling + model.longest + sending)
    found = MilpModel(places, model, unit, instance.ordered)
    require(found, VOCABULARY, instance)
    return found


def _add_order(model: Any, instance: MeshInstance, arcs: dict[tuple[int, int], float], unit: float) -> Any:
    """A path through the places taken; returns what its arcs cost."""
    places, last = list(model.taken), instance.num_stages - 1
    model.follows = pyo.Var(
        list(arcs), domain=pyo.Binary, doc="follows[p,q]: the tile at place q is the stage after that at place p"
    )
    model.first = pyo.Var(places, domain=pyo.Binary, doc="first[q]: the tile at place q is the first stage")
    model.last = pyo.Var(places, domain=pyo.Binary, doc="last[q]: the tile at place q is the last stage")
    model.position = pyo.Var(
        places, bounds=(0, max(last, 0)), doc="position[q]: stages in front of the tile at place q"
    )
    into: dict[int, list[Any]] = {place: [model.first[place]] for place in places}
    out: dict[int, list[Any]] = {place: [model.last[place]] for place in places}
    for here, there in arcs:
        out[here].append(model.follows[here, there])
        into[there].append(model.follows[here, there])
    model.one_first = pyo.Constraint(
        expr=milp.weighted_sum((1.0, each) for each in model.first.values()) == 1,
        doc="one stage is the first: sum over q of first[q] = 1",
    )
    model.one_last = pyo.Constraint(
        expr=milp.weighted_sum((1.0, each) for each in model.last.values()) == 1,
        doc="one stage is the last: sum over q of last[q] = 1",
    )
    model.entered = pyo.Constraint(
        places,
        rule=lambda m, place: pyo.quicksum(into[place]) == m.taken[place],
        doc="every stage but the first has one before it: first[q] + sum over p of follows[p,q] = taken[q]",
    )
    model.left = pyo.Constraint(
        places,
        rule=lambda m, place: pyo.quicksum(out[place]) == m.taken[place],
        doc="every stage but the last has one after it: last[p] + sum over q of follows[p,q] = taken[p]",
    )

    def grows(m: Any, here: int, there: int) -> Any:
        return m.position[there] - m.position[here] >= 1 - (last + 1) * (1 - m.follows[here, there])

    model.grows = pyo.Constraint(
        list(arcs),
        rule=grows,
        doc="positions grow along the path: position[q] - position[p] >= 1 - S (1 - follows[p,q]); big-M: positions "
        "differ by less than S",
    )
    return pyo.quicksum(milp.in_units(cost, unit) * model.follows[pair] for pair, cost in arcs.items())


def solve(instance: MeshInstance, limits: Limits, watch: Watch) -> Answer[TilingPlan]:
    """The best tiling, with a bound less what HiGHS's tolerances may add to it (`milp.trusted`)."""
    places = Placements(instance)
    infeasible = infeasible_answer(instance, places)
    if infeasible is not None:
        return infeasible
    first = first_plan(places, limits)
    reason = NONE_MEETS if instance.requirements else NO_COVER
    return prove(
        instance, lambda: build(instance, watch), evaluate, violations, limits, watch, reason=reason, first=first
    )
