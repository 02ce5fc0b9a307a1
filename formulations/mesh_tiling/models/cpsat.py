"""Mesh tiling for CP-SAT: a Boolean for each place of a tile, and the stage order as a walk through kinds of tiles.

Tiles of one shape over the same nodes have the same costs. So the order is not a path through tiles but a walk
through their kinds that visits each as often as it is taken. Such a walk exists exactly if what enters a kind leaves it
and every kind is reached from the first: an Euler walk.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

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
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Prover, Watch
from solvers.scaling import Scale, cost_scale

Kinds = Mapping[int, list[int]]  #: for each kind those before it, or those behind it

#: Of so many kinds each has a way of its own from the first one; of more these take longer than they save.
_FEW_KINDS = 24


@dataclass(frozen=True)
class Data:
    """The places q in whole units of time, rounded down; ``waits`` is gas - 1.

    ``tensor[q]`` is T of a tile there, for a micro-batch, ``all_reduce[q]`` its A; ``sending[a, b]`` is e from a tile
    of kind a to one of kind b, empty where the order does not count.
    """

    places: Placements
    tensor: list[int]
    all_reduce: list[int]
    sending: Mapping[tuple[int, int], int]
    waits: int
    scale: Scale


def data_of(instance: MeshInstance, places: Placements) -> Data:
    """The instance in units that lose little of a lower bound."""
    stages, waits = instance.num_stages, instance.num_microbatches - 1
    sending = places.steps() if instance.ordered else {}
    most = max(places.tensor, default=0.0) * (waits + len(places.tiles)) + max(places.data, default=0.0)
    scale = cost_scale(
        _least_s(instance, places, sending), waits + 2 * stages + 1, most + math.fsum(sending.values()) * stages
    )
    tensor, all_reduce = (list(map(scale.floor, each)) for each in (places.tensor, places.data))
    sent = {step: scale.floor(cost) for step, cost in sending.items()}
    return Data(places, tensor, all_reduce, sent, waits, scale)


def _least_s(instance: MeshInstance, places: Placements, sending: Mapping[tuple[int, int], float]) -> float:
    """A lower bound in seconds: every stage as fast as the fastest tile, everything sent over the fastest step."""
    stages, waits = instance.num_stages, instance.num_microbatches - 1
    least = min(places.tensor, default=0.0) * (waits + stages) + min(places.data, default=0.0)
    return (least + (stages - 1) * min(sending.values(), default=0.0)) * (1 - 1e-12)


def build(data: Data) -> cpsat.SpokenModel:
    """The model of all tilings, and of all orders of their stages where the order counts."""
    places, tensor, all_reduce = data.places, data.tensor, data.all_reduce
    tiles, kinds = range(len(places.tiles)), places.of_kind if data.sending else {}

    # fmt: off
    model = cpsat.SpokenModel()
    taken = model.booleans("taken", tiles, "taken[q]: there is a tile at place q")
    slowest = model.integer("slowest", min(tensor, default=0), max(tensor, default=0),
        "time of the slowest stage for a micro-batch")
    longest = model.integer("longest", min(all_reduce, default=0), max(all_reduce, default=0),
        "time of the longest data-parallel all-reduce")
    model.rows("cover", range(len(places.tiles_over)),
        lambda device: model.add_exactly_one(taken[q] for q in places.tiles_over[device]),
        "every device is in exactly one tile [AMP, section 6.3]")
    model.rows("slowest_tile", range(len(places.tiles_over)),
        lambda device: slowest >= sum(tensor[q] * taken[q] for q in places.tiles_over[device]),
        "it is as long as that of every tile, device by device: of the tiles over one, one is taken")
    model.rows("longest_tile", range(len(places.tiles_over)),
        lambda device: longest >= sum(all_reduce[q] * taken[q] for q in places.tiles_over[device]),
        "it is as long as that of every tile, device by device: of the tiles over one, one is taken")

    # A walk through kinds of tiles that visits each as often as it is taken, and reaches all that are.
    steps = model.integers("steps", data.sending, 0, max(places.instance.num_stages - 1, 0),
        "steps[a,b]: how often a stage of kind b follows one of kind a")
    first = model.booleans("first", kinds, "first[a]: the walk begins at kind a, a shape over some nodes")
    last = model.booleans("last", kinds, "last[a]: the walk ends at kind a")
    onward, back = ({kind: [step[1 - end] for step in steps if step[end] == kind] for kind in kinds} for end in (0, 1))

    def visits(kind: int) -> Any:
        return sum(taken[q] for q in kinds[kind])

    model.rows("one_first", [()] if kinds else [], lambda: model.add_exactly_one(first.values()),
        "one kind is the first: sum over a of first[a] = 1")
    model.rows("one_last", [()] if kinds else [], lambda: model.add_exactly_one(last.values()),
        "one kind is the last: sum over a of last[a] = 1")
    model.rows("entered", kinds,
        lambda kind: first[kind] + sum(steps[other, kind] for other in back[kind]) == visits(kind),
        "a kind is entered once for each visit: first[a] + sum over b of steps[b,a] = sum of its taken[q]")
    model.rows("left", kinds,
        lambda kind: last[kind] + sum(steps[kind, other] for other in onward[kind]) == visits(kind),
        "and left as often: last[a] + sum over b of steps[a,b] = sum of its taken[q]")
    (_add_ways if len(kinds) <= _FEW_KINDS else _add_depths)(model, data, back, onward)

    # (gas - 1) max t + sum of t + the longest all-reduce + sum of e  (reconstructed)
    filling, sent = (cpsat.weighted_sum(zip(costs, each.values(), strict=True))
                     for costs, each in ((tensor, taken), (data.sending.values(), steps)))
    model.minimize(data.waits * slowest + filling + longest + sent)
    # fmt: on
    return model


def _add_ways(model: cpsat.SpokenModel, data: Data, back: Kinds, onward: Kinds) -> None:
    """Every kind that is visited is reached, as in the MILP: by a way from the first kind."""
    taken, first, steps = (model.variables[name] for name in ("taken", "first", "steps"))
    # fmt: off
    visited = model.booleans("visited", back, "visited[a]: the walk visits kind a")
    way = model.booleans("way", [(c, a, b) for c in back for a, b in steps if a not in (b, c)],
        "way[c,a,b]: the way from the first kind to kind c goes from kind a to kind b")
    model.rows("visited_kind", taken if back else [], lambda q: visited[data.places.kinds[q]] >= taken[q],
        "a kind of which a tile is taken is visited: visited[a] >= taken[q]")
    model.rows("stepped", way, lambda c, a, b: way[c, a, b] <= steps[a, b],
        "the way to a kind goes where the walk steps: way[c,a,b] <= steps[a,b]")
    model.rows("reached", [(c, a) for c in back for a in back],
        lambda c, a: sum([visited[c]] if a == c else [way[c, a, b] for b in onward[a] if b != a])
        <= first[a] + sum(way[c, b, a] for b in back[a] if b not in (a, c)),
        "and a way that goes on from a kind, or ends there, has come to it or begins there: sum over b of way[c,a,b] "
        "(visited[c] where a is c) <= first[a] + sum over b of way[c,b,a]; no circle stands apart")
    # fmt: on


def _add_depths(model: cpsat.SpokenModel, data: Data, back: Kinds, _onward: Kinds) -> None:
    """The same of many kinds, whose ways would be too many: a tree of kinds."""
    taken, first, steps = (model.variables[name] for name in ("taken", "first", "steps"))
    # fmt: off
    below = model.booleans("below", [step for step in steps if step[0] != step[1]],
        "below[b,a]: kind a hangs below kind b, which steps to it")
    depth = model.integers("depth", back, 0, max(len(back) - 1, 0),
        "depth[a]: steps from the first kind to kind a, or more")
    model.rows("hung", below, lambda *step: (steps[step] >= 1, below[step]),
        "what hangs below a kind is stepped to from there: steps[b,a] >= 1 if below[b,a]")
    model.rows("deeper", below, lambda above, kind: (depth[kind] >= depth[above] + 1, below[above, kind]),
        "and lies deeper, so no circle stands apart: depth[a] >= depth[b] + 1 if below[b,a]")
    model.rows("hangs", [(kind, q) for kind in back for q in data.places.of_kind[kind]],
        lambda kind, q: model.add_bool_or(
            [~taken[q], first[kind], *(below[other, kind] for other in back[kind] if other != kind)]),
        "a kind that is visited is the first, or hangs below one")
    # fmt: on


def add_stages(model: cpsat.SpokenModel, data: Data) -> None:
    """Which stage is where, for requirements; the walk through kinds then is that of the stages, step by step."""
    tiles, stages, kinds = range(len(data.tensor)), range(data.places.instance.num_stages), data.places.of_kind
    taken, steps = model.variables["taken"], model.variables["steps"]
    # fmt: off
    at = model.booleans("at", [(j, q) for j in stages for q in tiles],
        "at[j,q]: stage j has the tile at place q, for a requirement")
    model.rows("one_tile", stages, lambda j: model.add_exactly_one(at[j, q] for q in tiles),
        "a stage has one tile: sum over q of at[j,q] = 1")
    model.rows("one_stage", tiles, lambda q: sum(at[j, q] for j in stages) == taken[q],
        "a tile that is taken has one stage: sum over j of at[j,q] = taken[q]")
    moves = model.booleans("moves", [(j, *step) for j in stages[:-1] for step in steps],
        "moves[j,a,b]: stage j has kind a and the next one kind b, for a requirement")
    indices = [(j, kind) for j in stages[:-1] for kind in (kinds if steps else ())]
    model.rows("moves_from", indices,
        lambda j, a: sum(moves[j, *step] for step in steps if step[0] == a) == sum(at[j, q] for q in kinds[a]),
        "it goes on from the kind that stage j has: sum over b of moves[j,a,b] = sum of at[j,q] of a")
    model.rows("moves_to", indices,
        lambda j, b: sum(moves[j, *step] for step in steps if step[1] == b) == sum(at[j + 1, q] for q in kinds[b]),
        "and to the kind of stage j + 1: sum over a of moves[j,a,b] = sum of at[j+1,q] of b")
    model.rows("moves_step", steps, lambda *step: sum(moves[j, *step] for j in stages[:-1]) == steps[step],
        "all stages together walk the steps: sum over j of moves[j,a,b] = steps[a,b]")
    # fmt: on


@dataclass
class Model(Decisions, cpsat.ByName, cpsat.Runnable):
    """The model of ``data``."""

    parameters: ClassVar[Mapping[str, Any]] = {"linearization_level": 2}

    model: cpsat.SpokenModel
    data: Data

    def sum_of(self, factor: Callable[[int, Tile], int]) -> Any:
        """The sum of a factor of stage and tile over where each stage is."""
        if not self.var("at"):
            add_stages(self.model, self.data)
        at, tiles = self.var("at"), self.places.tiles
        return sum(number * variable for (j, q), variable in at.items() if (number := factor(j, tiles[q])))

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return self.data.scale.restore(cpsat.whole(bound)) * (1 - 1e-14)


def model_of(
    instance: MeshInstance,
    watch: Watch | None = None,
    *,
    complete: bool = False,  # noqa: ARG001 - it always is: no plan prunes it
) -> Model:
    """The model of an instance, with its requirements."""
    with stops_with(watch or Watch()):
        data = data_of(instance, Placements(instance))
        return add_requirements(Model(build(data), data), VOCABULARY, instance)


def solve(instance: MeshInstance, limits: Limits, watch: Watch) -> Answer[TilingPlan]:
    """The best tiling; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the costs."""
    places = Placements(instance)
    infeasible = infeasible_answer(instance, places)
    if infeasible is not None:
        return infeasible
    watch.bound(_least_s(instance, places, places.steps() if instance.ordered else {}), Prover.BOUNDS)
    first = first_plan(places, limits)
    reason = NONE_MEETS if instance.requirements else NO_COVER
    return prove(
        instance, lambda: model_of(instance, watch), evaluate, violations, limits, watch, reason=reason, first=first
    )
