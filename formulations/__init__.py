"""The mathematics: a package for each problem, found by its folder, which has a ``definition``; it imports no solver.

The packages are imported when `FAMILIES` is read first: ``planner --help`` does not. Problems that were made in this
process (`formulations.contract.problem`) come after them.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module

from instances.renamed import keep_old_names

TYPE_CHECKING = False  # as in `planner`: this is imported before anything can be shown

if TYPE_CHECKING:
    from typing import Any

    from formulations.contract.family import Family

    FAMILIES: tuple[Family[Any, Any], ...]

keep_old_names()

#: Lists begin with these, in this order.
_FIRST = (
    "stage_partitioning",
    "tmpc_knapsack",
    "layer_assignment",
    "mesh_tiling",
    "amp_strategy",
    "hierarchical_partitioning",
    "flushed_partitioning",
    "training_strategy",
    "serving_strategy",
    "microbatch_schedule",
    "operator_partitioning",
    "stage_graph",
    "device_mapping",
    "pipeline_placement",
    "operator_strategies",
)

_packages: tuple[Family[Any, Any], ...] = ()


def __getattr__(name: str) -> object:
    if name != "FAMILIES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    global _packages
    from formulations.contract.problem import all_of

    if not _packages:
        _packages = tuple(_family_in(folder) for folder in _folders())
    return all_of(_packages)


def family_named(name: str) -> Family[Any, Any] | None:
    """The family of that name, or ``None``; no other is imported where a package has the name.

    Where ``FAMILIES`` was set, those count alone.
    """
    if "FAMILIES" not in globals() and name in _folders():
        return _family_in(name)
    known: Any = import_module(__name__).FAMILIES
    return next((family for family in known if family.name == name), None)


def _family_in(folder: str) -> Family[Any, Any]:
    found: Family[Any, Any] = import_module(f"{__name__}.{folder}").FAMILY
    return found


def _folders() -> tuple[str, ...]:
    """The names of the problem packages, new ones last."""
    return _folders_in(tuple(__path__))


@cache
def _folders_in(paths: tuple[str, ...]) -> tuple[str, ...]:
    there = (entry.path for path in paths for entry in os.scandir(path) if entry.is_dir())
    found = {os.path.basename(path) for path in there if {"definition", "definition.py"} & set(os.listdir(path))}
    return (*(name for name in _FIRST if name in found), *sorted(found.difference(_FIRST)))
