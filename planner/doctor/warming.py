"""Compile the kernels of all families at once, each family in a process of its own."""

from __future__ import annotations

import contextlib
import os
import pkgutil
from importlib import import_module

import formulations
from planner.executors import completed, place


def compile_all() -> None:
    """Fill the cache of compiled kernels on all cores; what fails is left to whoever loads the kernels next.

    The first family shares kernels with others and takes as long as all of them: it goes first, and they follow
    from the other end of the list, so that two processes seldom compile the same kernel.
    """
    names = [family.name for family in formulations.FAMILIES]
    tasks = [(name,) for name in names[:1] + names[:0:-1]]
    for _ in completed(place(min(os.cpu_count() or 1, len(tasks))), prepare, tasks):
        pass


def prepare(name: str) -> None:
    """Load or compile every kernel of the family, and all else that its methods load."""
    # The examination that follows loads the same modules and tells what broke.
    for module in modules(name):
        with contextlib.suppress(Exception):
            import_module(module)
    family = next(family for family in formulations.FAMILIES if family.name == name)
    for method in family.methods:
        with contextlib.suppress(Exception):
            method.load()


def modules(name: str) -> list[str]:
    """The modules of a family's room."""
    folders = [os.path.join(folder, name) for folder in formulations.__path__]
    return [found.name for found in pkgutil.iter_modules(folders, f"formulations.{name}.")]
