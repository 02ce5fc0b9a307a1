"""Mesh tiling as a MILP (Pyomo, HiGHS): the places of CP-SAT's model, and its walk through kinds of tiles.

That the walk reaches every kind is no matter of depths here: from the first kind a unit flows to each kind that is
visited, and no step carries more of it than it is taken. So the relaxation has no big-M.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.mesh_tiling.definition.plan import Tile, TilingPlan
from formulations.mesh_tiling.definition.problem import evaluate, violations
from formulations.mesh_tiling.definition.quantities import VOCABULARY
from formulations.mesh_tiling.models.decisions import Decisions
from formulations.mesh_tiling.models.first_plan import first_plan
from formulations.mesh_tiling.placements import NO_COVER, NONE_MEETS, Placements, infeasible_answer
from formulations.modelling.solve_model import add_requirements, prove
from instances.problems.mesh_tiling import MeshInstance
from solvers.build_stop import stops_with
from solvers.milp import backend as milp
from solvers.outcome import Limits, Watch


@dataclass(frozen=True)
class Data:
    """The places q, with times in parts of ``unit`` seconds; ``waits`` is gas - 1.

    ``tensor[q]`` is T of a tile there, for a micro-batch, ``all_reduce[q]`` its A; ``sending[a, b]`` is e from a tile
    of kind a to one of kind b, empty where the order does not count. ``to_scale``: a known plan's time sets the unit.
    """

    places: Placements
    tensor: list[float]
    all_reduce: list[float]
    sending: Mapping[tuple[int, int], float]
    waits: int
    unit: float
    to_scale: bool


def data_of(instance: MeshInstance, watch: Watch, *, complete: bool) -> Data:
    """The instance but for its scale; no time counts for more than twice the watch's best objective, if it has one.

    What takes longer is in no plan of interest, as every time counts once at least: HiGHS loses what is small beside
    it. Times of any size if the watch knows no plan, or if ``complete``.
    """
    places = Placements(instance)
    sending = places.steps() if instance.ordered else {}
    known = None if complete else watch.best_objective
    most = math.inf if known is None else 2 * known
    scale = max([*places.tensor, *places.data, *sending.values()], default=0.0) if known is None else known
    unit = scale / milp.NATURAL or 1.0

    def units(seconds: Iterable[float]) -> list[float]:
        return [milp.in_units(min(each, most), unit) for each in seconds]

    sent = dict(zip(sending, units(sending.values()), strict=True))
    waits = instance.num_microbatches - 1
    return Data(places, units(places.tensor), units(places.data), sent, waits, unit, known is not None)


def sum_of(variables: Iterable[Any]) -> Any:
    """The sum of variables as Pyomo's expression."""
    return milp.weighted_sum((1.0, variable) for variable in variables)


def build(data: Data) -> Any:
    """The model of all tilings, and of all orders of their stages where the order counts."""
    places = data.places
    tiles, devices, kinds = range(len(data.tensor)), range(len(places.tiles_over)), places.of_kind
    model = pyo.ConcreteModel()
    model.taken = pyo.Var(tiles, domain=pyo.Binary, doc="taken[q]: there is a tile at place q")
    model.slowest = pyo.Var(domain=pyo.NonNegativeReals, doc="time of the slowest stage for a micro-batch")
    model.longest = pyo.Var(domain=pyo.NonNegativeReals, doc="time of the longest data-parallel all-reduce")

    def total(own: Iterable[int], factors: Sequence[float] | None = None) -> Any:
        return milp.weighted_sum((1.0 if factors is None else factors[q], model.taken[q]) for q in own)

    # fmt: off
    model.cover = pyo.Constraint(devices, rule=lambda _, device: total(places.tiles_over[device]) == 1,
        doc="every device is in exactly one tile [AMP, section 6.3]")
    model.slowest_tile = pyo.Constraint(devices,
        rule=lambda m, device: m.slowest >= total(places.tiles_over[device], data.tensor),
        doc="it is as long as that of every tile, device by device: of the tiles over one, one is taken")
    model.longest_tile = pyo.Constraint(devices,
        rule=lambda m, device: m.longest >= total(places.tiles_over[device], data.all_reduce),
        doc="it is as long as that of every tile, device by device: of the tiles over one, one is taken")
    # (gas - 1) max t + sum of t + the longest all-reduce + sum of e  (reconstructed)
    cost = data.waits * model.slowest + total(tiles, data.tensor) + model.longest
    if not data.sending:
        model.step = pyo.Objective(expr=cost)
        return model

    # A walk through kinds of tiles that visits each as often as it is taken, and reaches all that are.
    model.steps = pyo.Var(list(data.sending), domain=pyo.NonNegativeIntegers,
        bounds=(0, max(places.instance.num_stages - 1, 0)),
        doc="steps[a,b]: how often a stage of kind b follows one of kind a; a kind is a shape over some nodes")
    model.first = pyo.Var(list(kinds), domain=pyo.Binary, doc="first[a]: the walk begins at kind a")
    model.last = pyo.Var(list(kinds), domain=pyo.Binary, doc="last[a]: the walk ends at kind a")
    model.visited = pyo.Var(list(kinds), bounds=(0, 1), doc="visited[a]: the walk visits kind a")
    model.way = pyo.Var([(c, a, b) for c in kinds for a, b in data.sending if a not in (b, c)], bounds=(0, 1),
        doc="way[c,a,b]: the way from the first kind to kind c goes from kind a to kind b")
    onward = {kind: [b for a, b in data.sending if a == kind] for kind in kinds}
    back = {kind: [a for a, b in data.sending if b == kind] for kind in kinds}

    model.one_first = pyo.Constraint(expr=sum_of(model.first.values()) == 1,
        doc="one kind is the first: sum over a of first[a] = 1")
    model.one_last = pyo.Constraint(expr=sum_of(model.last.values()) == 1,
        doc="one kind is the last: sum over a of last[a] = 1")
    model.entered = pyo.Constraint(list(kinds),
        rule=lambda m, b: m.first[b] + sum_of(m.steps[a, b] for a in back[b]) == total(kinds[b]),
        doc="a kind is entered once for each visit: first[b] + sum over a of steps[a,b] = sum of its taken[q]")
    model.left = pyo.Constraint(list(kinds),
        rule=lambda m, a: m.last[a] + sum_of(m.steps[a, b] for b in onward[a]) == total(kinds[a]),
        doc="and left as often: last[a] + sum over b of steps[a,b] = sum of its taken[q]")
    model.visited_kind = pyo.Constraint(tiles, rule=lambda m, q: m.visited[places.kinds[q]] >= m.taken[q],
        doc="a kind of which a tile is taken is visited: visited[a] >= taken[q]")
    model.stepped = pyo.Constraint(list(model.way),
        rule=lambda m, c, a, b: sum_of([m.way[c, a, b]]) <= m.steps[a, b],  # a sum, as sums look at the watch
        doc="the way to a kind goes where the walk steps: way[c,a,b] <= steps[a,b]")
    model.reached = pyo.Constraint(list(kinds), list(kinds),
        rule=lambda m, c, a: (
            sum_of([m.visited[c]] if a == c else [m.way[c, a, b] for b in onward[a] if b != a])
            <= m.first[a] + sum_of(m.way[c, b, a] for b in back[a] if b not in (a, c))
        ),
        doc="and a way that goes on from a kind, or ends there, has come to it or begins there: sum over b of "
        "way[c,a,b] (visited[c] where a is c) <= first[a] + sum over b of way[c,b,a]; no circle stands apart")
    model.step = pyo.Objective(
        expr=cost + milp.weighted_sum((e, model.steps[step]) for step, e in data.sending.items()))
    # fmt: on
    return model


def add_stages(model: Any, data: Data) -> None:
    """Which stage is where, for requirements; the walk through kinds then is that of the stages, step by step."""
    tiles, stages, kinds = list(model.taken), range(data.places.instance.num_stages), data.places.of_kind

    # fmt: off
    model.at = pyo.Var(stages, tiles, domain=pyo.Binary,
        doc="at[j,q]: stage j has the tile at place q, for a requirement")
    model.one_tile = pyo.Constraint(stages, rule=lambda m, j: sum_of(m.at[j, q] for q in tiles) == 1,
        doc="a stage has one tile: sum over q of at[j,q] = 1")
    model.one_stage = pyo.Constraint(tiles, rule=lambda m, q: sum_of(m.at[j, q] for j in stages) == m.taken[q],
        doc="a tile that is taken has one stage: sum over j of at[j,q] = taken[q]")
    if not data.sending:
        return
    steps, before_last = list(data.sending), stages[:-1]
    model.moves = pyo.Var(before_last, steps, bounds=(0, 1),
        doc="moves[j,a,b]: stage j has kind a and the next one kind b, for a requirement")
    model.moves_from = pyo.Constraint(before_last, list(kinds),
        rule=lambda m, j, a: (
            sum_of(m.moves[j, *step] for step in steps if step[0] == a) == sum_of(m.at[j, q] for q in kinds[a])
        ),
        doc="it goes on from the kind that stage j has: sum over b of moves[j,a,b] = sum of at[j,q] of a")
    model.moves_to = pyo.Constraint(before_last, list(kinds),
        rule=lambda m, j, b: (
            sum_of(m.moves[j, *step] for step in steps if step[1] == b) == sum_of(m.at[j + 1, q] for q in kinds[b])
        ),
        doc="and to the kind of stage j + 1: sum over a of moves[j,a,b] = sum of at[j+1,q] of b")
    model.moves_step = pyo.Constraint(steps,
        rule=lambda m, a, b: sum_of(m.moves[j, a, b] for j in before_last) == m.steps[a, b],
        doc="all stages together walk the steps: sum over j of moves[j,a,b] = steps[a,b]")
    # fmt: on


@dataclass
class Model(Decisions, milp.ByName, milp.Runnable):
    """The model of ``data``."""

    model: Any
    data: Data

    def sum_of(self, factor: Callable[[int, Tile], int]) -> Any:
        """The sum of a factor of stage and tile over where each stage is."""
        if not self.var("at"):
            add_stages(self.model, self.data)
        tiles = self.places.tiles
        return milp.weighted_sum((factor(j, tiles[q]), variable) for (j, q), variable in self.var("at").items())

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.proved_bound(bound, to_scale=self.data.to_scale) * self.data.unit


def model_of(instance: MeshInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements; `Stopped` once the watch is."""
    watch = watch or Watch()
    with stops_with(watch):
        data = data_of(instance, watch, complete=complete)
        return add_requirements(Model(build(data), data), VOCABULARY, instance)


def solve(instance: MeshInstance, limits: Limits, watch: Watch) -> Answer[TilingPlan]:
    """The best tiling, with a bound less what HiGHS's tolerances may add to it (`milp.proved_bound`)."""
    places = Placements(instance)
    reason = NONE_MEETS if instance.requirements else NO_COVER
    return infeasible_answer(instance, places) or prove(
        instance, lambda: model_of(instance, watch), evaluate, violations, limits, watch,
        reason=reason, to_scale=True, first=first_plan(places, limits),
    )  # fmt: skip
