"""The kernels of all families: compiled at once, or looked for in the cache, each family in a process of its own."""

import contextlib
import os
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import formulations
from formulations.compiled.compile_times import uncompiled
from planner.process.executors import place, run_each


@dataclass(frozen=True)
class Look:
    """What was found of a family: what failed (name and error), its kernels by name, and those that are not compiled.

    ``folders`` are those of the cache; ``None`` stands for a kernel that has none.
    """

    broken: tuple[tuple[str, str], ...] = ()
    kernels: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    folders: frozenset[str | None] = frozenset()


def compile_all() -> None:
    """Fill the cache of compiled kernels on all cores; what fails is left to whoever loads the kernels next.

    The first family shares kernels with others and takes as long as all of them: it goes first, and they follow
    from the other end of the list, so that two processes seldom compile the same kernel.
    """
    names = [family.name for family in formulations.FAMILIES]
    tasks = [(name,) for name in names[:1] + names[:0:-1]]
    for _ in run_each(place(min(os.cpu_count() or 1, len(tasks))), prepare, tasks):
        pass


def prepare(name: str) -> None:
    """Load or compile every kernel of the family, and all else that its methods load."""
    for _, load in _loads(name):
        with contextlib.suppress(Exception):  # whoever looks afterwards loads the same and reports what failed
            load()


def look_at_all() -> dict[str, Look]:
    """A `Look` at each family by name; nothing is compiled.

    Other processes look: a kernel that they find not compiled stays so, and could not be called there.
    """
    names = [family.name for family in formulations.FAMILIES]
    found = run_each(place(max(2, os.cpu_count() or 1)), look, [(name,) for name in names])
    looks = {names[position]: each for position, each in found}
    return {name: looks[name] for name in names if name in looks}


def look(name: str) -> Look:
    """Import all modules of a family and load its methods, and look for its kernels in the cache."""
    from formulations.compiled.machine_code import KERNELS, is_cached

    with uncompiled():
        broken = [(what, error) for what, load in _loads(name) if (error := _error(load)) is not None]
    shared = ("formulations.simulation.",) if name == "flushed_partitioning" else ()  # its search and clocks run these
    rooms = (f"formulations.{name}.", *shared)
    own = [each for each in KERNELS if f"{each[0].py_func.__module__}.".startswith(rooms)]
    kernels = {f"{made.py_func.__module__}.{made.py_func.__name__}": is_cached(made, types) for made, types in own}
    missing = tuple(kernel for kernel, is_kept in kernels.items() if not is_kept)
    return Look(tuple(broken), tuple(kernels), missing, frozenset(made._cache.cache_path for made, _ in own))


def modules(name: str) -> list[str]:
    """The modules of a family's package, in its folders too."""
    folders = [os.path.join(folder, name) for folder in formulations.__path__]
    return [found.name for found in pkgutil.walk_packages(folders, f"formulations.{name}.", onerror=lambda _: None)]


def _loads(name: str) -> list[tuple[str, Callable[[], Any]]]:
    family = next(family for family in formulations.FAMILIES if family.name == name)
    return [
        *((method.name, method.load) for method in family.methods),
        *((module, partial(import_module, module)) for module in modules(name)),
    ]


def _error(load: Callable[[], Any]) -> str | None:
    try:
        load()
    except Exception as error:  # an examination reports what fails and does not fail with it
        return f"{type(error).__name__}: {error}"
    return None
