"""Examine an installation: does it hold what it should, and do the solvers still find what is known?"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from numba.misc.appdirs import AppDirs

import formulations
from formulations.compilation import compiling
from planner.doctor.warming import compile_all, modules
from planner.show.terminal import console
from planner.versions import versions
from solvers import BACKENDS
from solvers.pinned import PINNED

PACKAGES = ("planner", "formulations", "solvers", "instances")
_ROOMS = Path(formulations.__file__).resolve().parent
_IMPORT_ORDERS = ("import ortools.sat.python.cp_model, highspy", "import highspy, ortools.sat.python.cp_model")


@dataclass(frozen=True)
class Finding:
    """One thing examined: its name, whether it is well, and what was seen (or what to do)."""

    name: str
    healthy: bool
    detail: str


def examine() -> list[Finding]:
    """Every examination, also after one has failed."""
    return [*_versions(), *_origins(), *_import_orders(), *_backends(), *_kernels()]


def show_findings(findings: list[Finding]) -> None:
    """Print a line for each."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for found in findings:
        health = Text("well", "green") if found.healthy else Text("ILL", "bold red")
        table.add_row(health, found.name, found.detail)
    out = console()
    out.print(table)
    ill = sum(not found.healthy for found in findings)
    out.print("all well" if not ill else f"{ill} of {len(findings)} are ill")


def _versions() -> Iterator[Finding]:
    """Versions, and combinations known to crash or to give wrong answers."""
    found = versions()
    yield Finding("versions", "absent" not in found.values(), ", ".join(f"{name} {is_}" for name, is_ in found.items()))
    clash = any(found[name] != version for name, version in PINNED.items())
    advice = f"ortools {found['ortools']} beside highspy {found['highspy']}"
    if clash:
        advice += f"; only {' beside '.join(PINNED.values())} is known to work: pip install -e . restores them"
    yield Finding("solver pair", not clash, advice)


def _origins() -> Iterator[Finding]:
    """The packages have common names: another distribution may have taken one of them."""
    folders = {name: Path(import_module(name).__file__ or "").resolve().parent.parent for name in PACKAGES}
    together = len(set(folders.values())) == 1
    detail = str(folders["planner"]) if together else ", ".join(f"{name} in {at}" for name, at in folders.items())
    yield Finding("origin", together, detail)
    claimed = {name: sorted(set(metadata.packages_distributions().get(name, []))) for name in PACKAGES}
    foreign = {name: owners for name, owners in claimed.items() if set(owners) - {"dnn-planner"}}
    yield Finding("owners", not foreign, str(foreign) if foreign else "dnn-planner alone")


def _import_orders() -> Iterator[Finding]:
    """The two solver libraries survive in one process, whichever comes first."""
    for order in _IMPORT_ORDERS:
        done = subprocess.run([sys.executable, "-c", order], capture_output=True, text=True, timeout=120, check=False)
        said = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        yield Finding(order, done.returncode == 0, "works" if done.returncode == 0 else said[0])


def _backends() -> Iterator[Finding]:
    """Every backend finds the known outcome of its canaries."""
    for name, backend in BACKENDS.items():
        try:
            wrong = [said for canary in backend.canaries() if (said := canary.check()) is not None]
            count, version = len(backend.canaries()), backend.version()
        except Exception as error:  # an examination reports what breaks; it does not break with it
            yield Finding(f"solver {name}", False, f"{type(error).__name__}: {error}")
            continue
        yield Finding(f"solver {name}", not wrong, "; ".join(wrong) or f"{version}, {count} canaries sing")


def _kernels() -> Iterator[Finding]:
    """Every method and every kernel loads, from a cache if there is one; what is missing is compiled now."""
    if not _cached():
        compile_all()
    for family in formulations.FAMILIES:
        began = time.perf_counter()
        loads: list[tuple[str, Callable[[], Any]]] = [(method.name, method.load) for method in family.methods]
        loads += [(name, partial(import_module, name)) for name in modules(family.name)]
        with compiling() as found:
            broken = [finding for name, load in loads if (finding := _broken(f"kernels {family.name}/{name}", load))]
        yield from broken
        state = f"{found.kernels} compiled now" if found.kernels else "warm"
        seconds = time.perf_counter() - began
        yield Finding(f"kernels {family.name}", not broken, f"{state}, {len(family.methods)} methods ({seconds:.2f} s)")
    yield _cache()


def _broken(name: str, load: Callable[[], Any]) -> Finding | None:
    try:
        load()
    except Exception as error:  # an examination reports what breaks; it does not break with it
        return Finding(name, False, f"{type(error).__name__}: {error}")
    return None


def _cache() -> Finding:
    """The cache lies beside the sources, or where the user may write; else every process compiles anew."""
    kept, folder = _cached(), os.environ.get("NUMBA_CACHE_DIR") or str(_ROOMS)
    if kept:
        return Finding("kernel cache", True, f"{len(kept)} kernels cached under {folder}")
    advice = "every process compiles anew; set NUMBA_CACHE_DIR to a folder that can be written"
    return Finding("kernel cache", False, f"no kernels cached under {folder}: {advice}")


def _cached() -> list[Path]:
    """The kernels that are kept: in NUMBA_CACHE_DIR if that is set, beside the sources, or in the user's cache."""
    own = os.environ.get("NUMBA_CACHE_DIR")
    if own:
        return list(Path(own).rglob("*.nbi"))
    beside = list(_ROOMS.rglob("__pycache__/*.nbi"))
    return beside or list(Path(AppDirs("numba", False).user_cache_dir).rglob("*.nbi"))
