"""Versions of what decides a result: this project and the solvers, read without importing them."""

from __future__ import annotations

#: Distributions whose version belongs to a result's provenance.
DISTRIBUTIONS = ("dnn-planner", "ortools", "highspy", "pyomo", "numba", "numpy")


def versions() -> dict[str, str]:
    """Name to version; "absent" for what is not installed."""
    import platform
    from importlib import metadata  # 20 ms that a command without versions saves

    found = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found
