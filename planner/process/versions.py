"""Versions of what a result depends on: this project and the solvers, read without importing them."""

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


def today() -> str:
    """The date, as in 2026-11-21: results of solvers are dated."""
    import datetime

    return datetime.date.today().isoformat()


def machine() -> str:
    """The hardware in words: processor, cores and memory."""
    import os
    import platform

    cores = f"{os.cpu_count() or 1} cores"
    return ", ".join(part for part in (_processor() or platform.machine(), cores, _memory()) if part)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:  # another system
        return ""


def _memory() -> str:
    import os

    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (ValueError, OSError, AttributeError):  # another system
        return ""
