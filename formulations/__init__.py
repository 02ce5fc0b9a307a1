"""The mathematics: one room per problem family. `FAMILIES` is made of the one list of them; it imports no solver.

The rooms are imported when `FAMILIES` is read first: ``planner --help`` does not.
"""

from importlib import import_module

from instances.renamed import keep_old_names

TYPE_CHECKING = False  # as in `planner`: this is imported before anything can be shown

if TYPE_CHECKING:
    from typing import Any

    from formulations.contract.family import Family

    FAMILIES: tuple[Family[Any, Any], ...]

keep_old_names()

#: Each is a package here whose ``FAMILY`` has the same name.
_ROOMS = (
    "stage_partitioning",
    "tmpc_knapsack",
    "layer_assignment",
    "mesh_tiling",
    "amp_strategy",
    "hierarchical_partitioning",
    "flushed_partitioning",
    "microbatch_schedule",
    "operator_partitioning",
    "stage_graph",
    "device_mapping",
    "pipeline_placement",
)


def __getattr__(name: str) -> object:
    if name != "FAMILIES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = tuple(import_module(f"{__name__}.{room}").FAMILY for room in _ROOMS)
    globals()[name] = found
    return found
