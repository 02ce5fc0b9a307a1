"""All places where a tile can lie, what each costs, and what the methods answer without a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from formulations.family import Answer, infeasible_by_counting
from formulations.mesh_tiling.problem import Tile, TilingPlan, data_s, sending_s, tensor_s
from instances.mesh_tiling import MeshInstance

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
    def covering(self) -> list[list[int]]:
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

    def sending(self) -> dict[tuple[int, int], float]:
        """Seconds from a tile of one kind to a tile of another, or of the same."""
        examples = dict(zip(self.kinds, self.tiles, strict=True))
        return {
            (here, there): sending_s(self.instance, tile, after)
            for here, tile in examples.items()
            for there, after in examples.items()
        }

    def numbers(self, plan: TilingPlan) -> list[int]:
        """The place of every stage of a plan, from the first stage on; the inverse of `plan`."""
        known = {replace(tile, stage=0): number for number, tile in enumerate(self.tiles)}
        return [known[replace(tile, stage=0)] for tile in sorted(plan.tiles, key=lambda tile: tile.stage)]

    def arcs(self) -> dict[tuple[int, int], float]:
        """Seconds from a tile to another that does not overlap it."""
        sending, kinds = self.sending(), self.kinds
        return {
            (first, second): sending[kinds[first], kinds[second]]
            for first, tile in enumerate(self.tiles)
            for second, after in enumerate(self.tiles)
            if not _overlap(tile, after)
        }

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


def _overlap(tile: Tile, other: Tile) -> bool:
    across = tile.column < other.column + other.columns and other.column < tile.column + tile.columns
    return across and tile.row < other.row + other.rows and other.row < tile.row + tile.rows


def infeasible_answer(instance: MeshInstance, places: Placements) -> Answer[TilingPlan] | None:
    """The proof that no cover exists where counting gives one, else ``None``."""
    area, devices = instance.tp_degree * instance.dp_degree, instance.rows * instance.columns
    if devices % area:
        help_ = f"expected degrees whose product divides {devices}"
        reason = f"tiles of {area} devices cannot cover {devices} exactly: {help_}"
    elif not all(places.covering):
        reason = NO_COVER
    else:
        return None
    return infeasible_by_counting(reason)
