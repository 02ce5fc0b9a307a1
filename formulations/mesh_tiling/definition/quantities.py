"""The quantities of a tiling that requirements may speak of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from formulations.contract.quantities import Domain, Quantity
from instances.problems.mesh_tiling import MeshInstance

if TYPE_CHECKING:
    from formulations.mesh_tiling.definition.plan import Tile, TilingPlan

_STAGE = Domain("stage", lambda instance: range(instance.num_stages))
_ROW = Domain("row", lambda instance: range(instance.rows))
_COLUMN = Domain("column", lambda instance: range(instance.columns))

#: What requirements may say of a stage's tile; 0 where a plan has no such stage.
OF_TILE: dict[str, Callable[[Tile], int]] = {
    "row": lambda tile: tile.row,
    "column": lambda tile: tile.column,
    "rows": lambda tile: tile.rows,
    "columns": lambda tile: tile.columns,
}


def _of_stage(quantity: Callable[[Tile], int]) -> Callable[[MeshInstance, TilingPlan, int], int]:
    return lambda _, plan, stage: sum(quantity(tile) for tile in plan.tiles if tile.stage == stage)


def covers(tile: Tile, row: int, column: int) -> bool:
    """Whether a device is in a tile."""
    return tile.row <= row < tile.row + tile.rows and tile.column <= column < tile.column + tile.columns


def stage_of(_: MeshInstance, plan: TilingPlan, row: int, column: int) -> int:
    """The stage that has a device."""
    return next(tile.stage for tile in plan.tiles if covers(tile, row, column))


def of_stages(sum_of: Callable[[Callable[[int, Tile], int]], Any]) -> dict[str, Callable[..., Any]]:
    """The quantities in a model, where ``sum_of`` sums a factor of stage and tile over where each stage is."""

    def of_stage(quantity: Callable[[Tile], int]) -> Callable[[int], Any]:
        return lambda stage: sum_of(lambda j, tile: quantity(tile) * (j == stage))

    found: dict[str, Callable[..., Any]] = {name: of_stage(quantity) for name, quantity in OF_TILE.items()}
    return {**found, "stage_of": lambda row, column: sum_of(lambda j, tile: j * covers(tile, row, column))}


VOCABULARY = (
    Quantity(
        "row",
        "first row of a stage's tile; rows, columns and stages count from 0",
        _of_stage(OF_TILE["row"]),
        (_STAGE,),
    ),
    Quantity("column", "first column (node) of a stage's tile", _of_stage(OF_TILE["column"]), (_STAGE,)),
    Quantity("rows", "rows of a stage's tile: tp if it stands upright", _of_stage(OF_TILE["rows"]), (_STAGE,)),
    Quantity("columns", "columns of a stage's tile: dp if it stands upright", _of_stage(OF_TILE["columns"]), (_STAGE,)),
    Quantity("stage_of", "number of the stage that has the device of a row and a column", stage_of, (_ROW, _COLUMN)),
)
