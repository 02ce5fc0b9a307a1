"""Mesh tiling as a MILP (Pyomo, HiGHS): the places of CP-SAT's model, and its walk through kinds of tiles.

That the walk reaches every kind is no matter of depths here: from the first kind a unit flows to each kind that is
visited, and no step carries more of it than it is taken. So the relaxation has no big-M.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.mesh_tiling.definition.plan import Tile, TilingPlan
from formulations.mesh_tiling.definition.problem import evaluate, violations
from formulations.mesh_tiling.definition.quantities import OF_TILE, VOCABULARY, covers
from formulations.mesh_tiling.models.first_plan import first_plan
from formulations.mesh_tiling.placements import NO_COVER, NONE_MEETS, Placements, infeasible_answer
from formulations.modelling.solve_model import WithoutSizes, go_on, prove, require
from instances.problems.mesh_tiling import MeshInstance
from solvers.milp import backend as milp
from solvers.milp.backend import until_stopped
from solvers.outcome import Limits, Watch


@dataclass
class Model(milp.Runnable, WithoutSizes):
    """``model.taken[q]``, and where the order counts ``model.steps[a,b]``; the objective is in units of ``unit``.

    ``to_scale``: these are parts of a known plan's objective.
    """

    places: Placements
    model: Any
    unit: float
    ordered: bool
    to_scale: bool

    def order(self, values: Any) -> list[int]:
        """The places taken, by stage."""
        model = self.model
        if self._has_stages:
            return [place for (_, place), variable in model.at.items() if values[variable] > 0.5]
        found = [place for place, variable in model.taken.items() if values[variable] > 0.5]
        if not self.ordered:
            return found
        start = max(model.first, key=lambda kind: values[model.first[kind]])
        return self.places.in_order(found, start, {step: round(values[each]) for step, each in model.steps.items()})

    @property
    def _has_stages(self) -> bool:
        """Whether a requirement speaks of a stage."""
        return self.model.component("at") is not None

    def decode(self, values: Any) -> TilingPlan:
        """The plan of a solution."""
        return self.places.plan(self.order(values))

    def values_of(self, plan: TilingPlan) -> Iterator[tuple[Any, int]]:
        """The places of a plan, and the steps of its order where it counts; HiGHS finds the flows."""
        model, order = self.model, self.places.numbers(plan)
        yield from ((variable, int(place in order)) for place, variable in model.taken.items())
        if self._has_stages:
            yield from ((variable, int(order[stage] == place)) for (stage, place), variable in model.at.items())
        if not self.ordered:
            return
        kinds = [self.places.kinds[place] for place in order]
        taken = Counter(pairwise(kinds))
        yield from ((variable, taken[step]) for step, variable in model.steps.items())
        yield from ((variable, int(kind == kinds[0])) for kind, variable in model.first.items())
        yield from ((variable, int(kind == kinds[-1])) for kind, variable in model.last.items())

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
        """Which stage is where, for requirements; the walk through kinds then is that of the stages, step by step."""
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
        if not self.ordered:
            return
        of_kind, steps = _of_kind(self.places), list(model.steps)

        def has(m: Any, j: int, kind: int) -> Any:
            return milp.weighted_sum((1.0, m.at[j, q]) for q in of_kind[kind])

        model.moves = pyo.Var(
            stages[:-1],
            steps,
            bounds=(0, 1),
            doc="moves[j,a,b]: stage j has kind a and the next one kind b, for a requirement",
        )
        model.moves_from = pyo.Constraint(
            stages[:-1],
            list(of_kind),
            rule=lambda m, j, a: (
                milp.weighted_sum((1.0, m.moves[j, *step]) for step in steps if step[0] == a) == has(m, j, a)
            ),
            doc="it goes on from the kind that stage j has: sum over b of moves[j,a,b] = sum of at[j,q] of a",
        )
        model.moves_to = pyo.Constraint(
            stages[:-1],
            list(of_kind),
            rule=lambda m, j, b: (
                milp.weighted_sum((1.0, m.moves[j, *step]) for step in steps if step[1] == b) == has(m, j + 1, b)
            ),
            doc="and to the kind of stage j + 1: sum over a of moves[j,a,b] = sum of at[j+1,q] of b",
        )
        model.moves_step = pyo.Constraint(
            steps,
            rule=lambda m, a, b: milp.weighted_sum((1.0, m.moves[j, a, b]) for j in stages[:-1]) == m.steps[a, b],
            doc="all stages together walk the steps: sum over j of moves[j,a,b] = steps[a,b]",
        )

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.trusted(bound, to_scale=self.to_scale) * self.unit


def build(instance: MeshInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model; its numbers are those of the instance but for their scale, up to twice the watch's best objective.

    What takes longer is in no plan of interest, as every time counts once at least, and counts as so long: HiGHS loses
    what is small beside it. Of any size if the watch knows no plan, or if ``complete``. Raises `modelled.Stopped` once
    the watch is.
    """
    places = Placements(instance)
    tiles = range(len(places.tiles))
    sending = places.steps() if instance.ordered else {}
    known = None if complete or watch is None else watch.best_objective
    most = math.inf if known is None else 2 * known
    scale = max([*places.tensor, *places.data, *sending.values()], default=0.0) if known is None else known
    unit = scale / milp.NATURAL or 1.0
    model = pyo.ConcreteModel()
    model.taken = pyo.Var(tiles, domain=pyo.Binary, doc="taken[q]: there is a tile at place q")
    model.slowest = pyo.Var(domain=pyo.NonNegativeReals, doc="time of the slowest stage for a micro-batch")
    model.longest = pyo.Var(domain=pyo.NonNegativeReals, doc="time of the longest data-parallel all-reduce")
    devices = range(len(places.covering))

    def over(device: int, factors: Sequence[float]) -> Any:
        return milp.weighted_sum((factors[place], model.taken[place]) for place in places.covering[device])

    def units(seconds: float) -> float:
        return milp.in_units(min(seconds, most), unit)

    tensor, data = (list(map(units, times)) for times in (places.tensor, places.data))
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
    if instance.ordered:
        _add_walk(model, places, list(sending), watch or Watch())
    sent = milp.weighted_sum((units(cost), model.steps[step]) for step, cost in sending.items())
    # (gas - 1) max t + sum of t + the longest all-reduce + sum of e  (reconstructed)
    model.step = pyo.Objective(expr=(instance.num_microbatches - 1) * model.slowest + filling + model.longest + sent)
    found = Model(places, model, unit, instance.ordered, known is not None)
    require(found, VOCABULARY, instance)
    return found


def _of_kind(places: Placements) -> dict[int, list[int]]:
    """The places of tiles of each kind."""
    found: dict[int, list[int]] = {}
    for place, kind in enumerate(places.kinds):
        found.setdefault(kind, []).append(place)
    return found


def _add_walk(model: Any, places: Placements, steps: list[tuple[int, int]], watch: Watch) -> None:
    """A walk that visits each kind as often as it is taken, and reaches all that are (an Euler walk)."""
    of_kind = _of_kind(places)
    kinds, most = list(of_kind), max(places.instance.num_stages - 1, 0)
    model.steps = pyo.Var(
        steps,
        domain=pyo.NonNegativeIntegers,
        bounds=(0, most),
        doc="steps[a,b]: how often a stage of kind b follows one of kind a; a kind is a shape over some nodes",
    )
    model.first = pyo.Var(kinds, domain=pyo.Binary, doc="first[a]: the walk begins at kind a")
    model.last = pyo.Var(kinds, domain=pyo.Binary, doc="last[a]: the walk ends at kind a")
    model.visited = pyo.Var(kinds, bounds=(0, 1), doc="visited[a]: the walk visits kind a")
    model.way = pyo.Var(
        [(c, a, b) for c in kinds for a, b in steps if a not in (b, c)],
        bounds=(0, 1),
        doc="way[c,a,b]: the way from the first kind to kind c goes from kind a to kind b",
    )

    onward: dict[int, list[int]] = {kind: [b for a, b in steps if a == kind] for kind in kinds}
    back: dict[int, list[int]] = {kind: [a for a, b in steps if b == kind] for kind in kinds}

    def visits(m: Any, kind: int) -> Any:
        return milp.weighted_sum((1.0, m.taken[q]) for q in of_kind[kind])

    model.one_first = pyo.Constraint(
        expr=milp.weighted_sum((1.0, each) for each in model.first.values()) == 1,
        doc="one kind is the first: sum over a of first[a] = 1",
    )
    model.one_last = pyo.Constraint(
        expr=milp.weighted_sum((1.0, each) for each in model.last.values()) == 1,
        doc="one kind is the last: sum over a of last[a] = 1",
    )
    model.entered = pyo.Constraint(
        kinds,
        rule=lambda m, b: m.first[b] + pyo.quicksum(m.steps[a, b] for a in back[b]) == visits(m, b),
        doc="a kind is entered once for each visit: first[b] + sum over a of steps[a,b] = sum of its taken[q]",
    )
    model.left = pyo.Constraint(
        kinds,
        rule=lambda m, a: m.last[a] + pyo.quicksum(m.steps[a, b] for b in onward[a]) == visits(m, a),
        doc="and left as often: last[a] + sum over b of steps[a,b] = sum of its taken[q]",
    )
    model.visited_kind = pyo.Constraint(
        list(model.taken),
        rule=lambda m, q: m.visited[places.kinds[q]] >= m.taken[q],
        doc="a kind of which a tile is taken is visited: visited[a] >= taken[q]",
    )
    model.stepped = pyo.Constraint(
        list(model.way),
        rule=until_stopped(watch, lambda m, c, a, b: m.way[c, a, b] <= m.steps[a, b]),
        doc="the way to a kind goes where the walk steps: way[c,a,b] <= steps[a,b]",
    )

    def reached(m: Any, c: int, a: int) -> Any:
        on = [m.way[c, a, b] for b in onward[a] if b != a] if a != c else [m.visited[c]]
        return pyo.quicksum(on) <= m.first[a] + pyo.quicksum(m.way[c, b, a] for b in back[a] if b not in (a, c))

    model.reached = pyo.Constraint(
        kinds,
        kinds,
        rule=until_stopped(watch, reached),
        doc="and a way that goes on from a kind, or ends there, has come to it or begins there: sum over b of "
        "way[c,a,b] (visited[c] where a is c) <= first[a] + sum over b of way[c,b,a]; no circle stands apart",
    )
    go_on(watch)


def solve(instance: MeshInstance, limits: Limits, watch: Watch) -> Answer[TilingPlan]:
    """The best tiling, with a bound less what HiGHS's tolerances may add to it (`milp.trusted`)."""
    places = Placements(instance)
    infeasible = infeasible_answer(instance, places)
    if infeasible is not None:
        return infeasible
    first = first_plan(places, limits)
    reason = NONE_MEETS if instance.requirements else NO_COVER
    return prove(
        instance,
        lambda: build(instance, watch),
        evaluate,
        violations,
        limits,
        watch,
        reason=reason,
        to_scale=True,
        first=first,
    )
