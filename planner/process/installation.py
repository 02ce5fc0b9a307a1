"""Examine an installation: are the packages the right ones, and do the solvers find known results?"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

from planner.process.kernels import Look, compile_all, look_at_all
from planner.process.versions import versions
from solvers import BACKENDS, check_solver
from solvers.external.names import installed_solvers
from solvers.external.process import prepared_version
from solvers.outcome import DEFAULT_SOLVER, Limits
from solvers.trust.pins import PINNED, BackendError

PACKAGES = ("planner", "formulations", "solvers", "instances")
_IMPORT_ORDERS = ("import ortools.sat.python.cp_model, highspy", "import highspy, ortools.sat.python.cp_model")


@dataclass(frozen=True)
class Finding:
    """One check: its name, whether it passed, and what was found (or what to do)."""

    name: str
    healthy: bool
    detail: str


def examine(*, compiling: bool = False) -> list[Finding]:
    """Every examination, also after one has failed.

    ``compiling``: compile the kernels that are not compiled, on all cores. Otherwise nothing is compiled.
    """
    if compiling:
        compile_all()
    return [*_versions(), *_origins(), *_import_orders(), *_backends(), *_external(), *_kernels()]


def _versions() -> Iterator[Finding]:
    """Versions, and combinations known to crash or to give wrong answers."""
    found = versions()
    yield Finding("versions", "absent" not in found.values(), ", ".join(f"{name} {is_}" for name, is_ in found.items()))
    clash = any(found[name] != version for name, version in PINNED.items())
    advice = f"ortools {found['ortools']} with highspy {found['highspy']}"
    if clash:
        advice += f"; only {' with '.join(PINNED.values())} is known to work: pip install -e . restores them"
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
        except Exception as error:  # an examination reports what fails and does not fail with it
            yield Finding(f"solver {name}", False, f"{type(error).__name__}: {error}")
            continue
        yield Finding(f"solver {name}", not wrong, "; ".join(wrong) or f"{version}, {count} canary models solved")


def _external() -> Iterator[Finding]:
    """The other solvers that ``--solver`` takes here. Nothing needs them: one that fails its exam is not run."""
    for name in installed_solvers():
        if name == DEFAULT_SOLVER:
            continue
        try:
            check_solver.demand_passed("highs", Limits(solver=name))
            said = f"{prepared_version(name)}, passes its exam"
        except BackendError as refused:
            said = f"found, but not run: {refused}"
        yield Finding(f"--solver {name}", True, said)


def _kernels() -> Iterator[Finding]:
    """Every method and module loads; which kernels are compiled. Nothing is compiled here."""
    looks = look_at_all()
    for name, look in looks.items():
        yield from (Finding(f"kernels {name}/{what}", False, error) for what, error in look.broken)
        compiled = len(look.kernels) - len(look.missing)
        detail = f"{compiled} of {len(look.kernels)} compiled" if look.kernels else "none"
        if look.missing:
            detail += f"; not {', '.join(kernel.rpartition('.')[2] for kernel in look.missing)}"
        yield Finding(f"kernels {name}", not look.broken, detail)
    yield _cache(list(looks.values()))


def _cache(looks: list[Look]) -> Finding:
    """In NUMBA_CACHE_DIR, beside the sources or in the user's cache; else every process compiles again."""
    folders = [folder for look in looks for folder in look.folders if folder is not None]
    if not folders or any(None in look.folders for look in looks):
        advice = "every process compiles again; set NUMBA_CACHE_DIR to a folder that can be written"
        return Finding("kernel cache", False, f"no folder can be written: {advice}")
    kernels, missing = sum(len(look.kernels) for look in looks), sum(len(look.missing) for look in looks)
    detail = f"{kernels - missing} of {kernels} kernels are compiled, under {os.path.commonpath(folders)}"
    if missing:
        detail += "; the others are compiled when they are first used, or now by planner doctor --compile"
    return Finding("kernel cache", True, detail)
