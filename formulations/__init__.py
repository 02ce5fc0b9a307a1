"""The mathematics: one room per problem family. `FAMILIES` is the one list of them; it imports no solver."""

from typing import Any

from formulations.amp_strategy import FAMILY as AMP_STRATEGY
from formulations.device_mapping import FAMILY as DEVICE_MAPPING
from formulations.family import Family
from formulations.flushed_partitioning import FAMILY as FLUSHED_PARTITIONING
from formulations.hierarchical_partitioning import FAMILY as HIERARCHICAL_PARTITIONING
from formulations.layer_assignment import FAMILY as LAYER_ASSIGNMENT
from formulations.mesh_tiling import FAMILY as MESH_TILING
from formulations.microbatch_schedule import FAMILY as MICROBATCH_SCHEDULE
from formulations.operator_partitioning import FAMILY as OPERATOR_PARTITIONING
from formulations.pipeline_placement import FAMILY as PIPELINE_PLACEMENT
from formulations.stage_graph import FAMILY as STAGE_GRAPH
from formulations.stage_partitioning import FAMILY as STAGE_PARTITIONING
from formulations.tmpc_knapsack import FAMILY as TMPC_KNAPSACK

FAMILIES: tuple[Family[Any, Any], ...] = (
    STAGE_PARTITIONING,
    TMPC_KNAPSACK,
    LAYER_ASSIGNMENT,
    MESH_TILING,
    AMP_STRATEGY,
    HIERARCHICAL_PARTITIONING,
    FLUSHED_PARTITIONING,
    MICROBATCH_SCHEDULE,
    OPERATOR_PARTITIONING,
    STAGE_GRAPH,
    DEVICE_MAPPING,
    PIPELINE_PLACEMENT,
)
