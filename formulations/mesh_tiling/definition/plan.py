"""What a plan decides."""

from dataclasses import dataclass

from formulations.contract.plan_exchange import exchange
from instances.rules import Whole


@dataclass(frozen=True)
class Tile:
    """The devices of a stage: ``rows`` x ``columns`` of them, the first at ``row`` of node ``column``."""

    stage: Whole
    row: Whole
    column: Whole
    rows: Whole
    columns: Whole


@dataclass(frozen=True)
class TilingPlan:
    """A tile for each stage, in any order."""

    tiles: tuple[Tile, ...]


plan_from_json, plan_to_json = exchange(
    '``{"tiles": [{"stage", "row", "column", "rows", "columns"}]}``, by stage.',
    TilingPlan,
    written=lambda _, plan: TilingPlan(tuple(sorted(plan.tiles, key=lambda tile: tile.stage))),
)
