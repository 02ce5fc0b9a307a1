"""All places where a tile can lie, what each costs, and what the methods answer without a plan."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.mesh_tiling.definition.plan import Tile, TilingPlan
from formulations.mesh_tiling.definition.problem import data_s, sending_s, tensor_s
from instances.problems.mesh_tiling import MeshInstance

NO_COVER = "no exact cover exists, by a search of all: expected other degrees or another mesh"
NONE_MEETS = "no exact cover meets the requirements, by a search of all"


@dataclass(frozen=True)
class Placements:
    """Every place of a tile, row by row; a tile's number is its position here, and its stage means nothing."""

    instance: MeshInstance

    @cached_property
    def tiles(self) -> list[Tile]:
        """Upright and lying (once if they are the same)."""
        instance = self.instance
        shapes = dict.fromkeys([(instance.tp_degree, instance.dp_degree), (instance.dp_degree, instance.tp_degree)])
        return [
            Tile(0, row, column, rows, columns)
            for row in range(instance.rows)
            for column in range(instance.columns)
            for rows, columns in shapes
            if row + rows <= instance.rows and column + columns <= instance.columns
        ]

    @cached_property
    def tensor(self) -> list[float]:
        """Seconds of each tile for a micro-batch; tiles of one shape over the same nodes are equal."""
        known = {(tile.column, tile.rows): tensor_s(self.instance, tile) for tile in self.tiles if tile.row == 0}
        return [known[tile.column, tile.rows] for tile in self.tiles]

    @cached_property
    def data(self) -> list[float]:
        """Seconds of each tile's data-parallel all-reduce."""
        known = {(tile.column, tile.rows): data_s(self.instance, tile) for tile in self.tiles if tile.row == 0}
        return [known[tile.column, tile.rows] for tile in self.tiles]

    @cached_property
    def devices(self) -> list[list[int]]:
        """The devices under each tile; numbered row by row."""
        columns = self.instance.columns
        return [
            [
                row * columns + column
                for row in range(tile.row, tile.row + tile.rows)
                for column in range(tile.column, tile.column + tile.columns)
            ]
            for tile in self.tiles
        ]

    @cached_property
    def tiles_over(self) -> list[list[int]]:
        """For each device, row by row, the tiles over it."""
        found: list[list[int]] = [[] for _ in range(self.instance.rows * self.instance.columns)]
        for number, devices in enumerate(self.devices):
            for device in devices:
                found[device].append(number)
        return found

    @cached_property
    def kinds(self) -> list[int]:
        """The kind of each tile: tiles of one shape over the same nodes are identical in cost, whatever their rows."""
        numbers: dict[tuple[int, int], int] = {}
        return [numbers.setdefault((tile.column, tile.rows), len(numbers)) for tile in self.tiles]

    @cached_property
    def of_kind(self) -> dict[int, list[int]]:
        """The tiles of each kind."""
        found: dict[int, list[int]] = {}
        for number, kind in enumerate(self.kinds):
            found.setdefault(kind, []).append(number)
        return found

    def send_times(self) -> dict[tuple[int, int], float]:
        """Seconds from a tile of one kind to a tile of another, or of the same."""
        examples = dict(zip(self.kinds, self.tiles, strict=True))
        return {
            (here, there): sending_s(self.instance, tile, after)
            for here, tile in examples.items()
            for there, after in examples.items()
        }

    def steps(self) -> dict[tuple[int, int], float]:
        """Of `send_times` what a plan may have: two tiles of these kinds fit into the mesh side by side."""
        examples = dict(zip(self.kinds, self.tiles, strict=True))

        def fit(here: Tile, there: Tile) -> bool:
            left, right = sorted((here, there), key=lambda tile: tile.column)
            return left.column + left.columns <= right.column or here.rows + there.rows <= self.instance.rows

        return {pair: cost for pair, cost in self.send_times().items() if fit(*(examples[kind] for kind in pair))}

    def numbers(self, plan: TilingPlan) -> list[int]:
        """The place of every stage of a plan, from the first stage on; the inverse of `plan`."""
        known = {replace(tile, stage=0): number for number, tile in enumerate(self.tiles)}
        return [known[replace(tile, stage=0)] for tile in sorted(plan.tiles, key=lambda tile: tile.stage)]

    def in_order(self, found: Iterable[int], start: int, steps: Mapping[tuple[int, int], int]) -> list[int]:
        """Places that are taken, in the order of a walk through their kinds; tiles of one kind in any order."""
        of_kind: dict[int, list[int]] = {}
        for place in found:
            of_kind.setdefault(self.kinds[place], []).append(place)
        return [of_kind[kind].pop() for kind in euler_walk(start, steps)]

    def plan(self, numbers: Iterable[int]) -> TilingPlan:
        """The plan with these tiles as stages 0, 1, ..."""
        return TilingPlan(tuple(replace(self.tiles[number], stage=stage) for stage, number in enumerate(numbers)))


def regular_tiling(places: Placements) -> list[int] | None:
    """Tiles of one shape in rows and columns, upright if they fit so; ``None`` if neither shape does."""
    return next(regular_tilings(places), None)


def regular_tilings(places: Placements) -> Iterator[list[int]]:
    """Tiles of one shape in rows and columns: upright, and lying, where they fit."""
    instance = places.instance
    degrees = (instance.tp_degree, instance.dp_degree)
    for height, width in dict.fromkeys((degrees, degrees[::-1])):
        if instance.rows % height == 0 and instance.columns % width == 0:
            yield [
                number
                for number, tile in enumerate(places.tiles)
                if (tile.rows, tile.columns) == (height, width) and tile.row % height == tile.column % width == 0
            ]


def euler_walk(start: int, steps: Mapping[tuple[int, int], int]) -> list[int]:
    """The kinds of a walk that takes every step from a kind to a kind as often as it says (Hierholzer)."""
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


def infeasible_answer(instance: MeshInstance, places: Placements) -> Answer[TilingPlan] | None:
    """The proof that no cover exists where counting gives one, else ``None``."""
    area, devices = instance.tp_degree * instance.dp_degree, instance.rows * instance.columns
    if devices % area:
        help_ = f"expected degrees whose product divides {devices}"
        reason = f"tiles of {area} devices cannot cover {devices} exactly: {help_}"
    elif not all(places.tiles_over):
        reason = NO_COVER
    else:
        return None
    return infeasible_by_counting(reason)
